"""`Ceiling`: what anyone could reach on synthetic phones, as it knows the odds they draw by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nextapp.data.cutting import REPEAT_MS
from nextapp.data.log import LaunchLog
from nextapp.data.synthetic import Chances, Parameters, chances
from nextapp.predictors import Questions
from nextapp.wire import Floats


class Ceiling:
    """The chance of each app given all that is hidden: a ceiling, not a rival.

    It knows what is on a phone, its habits, its taste as drifted, the session so far and the hour,
    but not whether the next row will be an echo. Where echoes after exactly 3 s are left in the
    log, the chance of one is mixed in.
    """

    name = "ceiling"
    in_expectation = False

    def __init__(self, parameters: Parameters, seed: int) -> None:
        self.parameters = parameters
        self.seed = seed

    def fit(self, history: LaunchLog) -> None:
        """Nothing to learn but which phones there are, and whether echoes are left."""
        self.users = history.users
        again = (history.user[1:] == history.user[:-1]) & (history.app[1:] == history.app[:-1])
        left = bool((again & (np.diff(history.time) == REPEAT_MS)).any())
        # A third of the echoes come after 3 s; given that none came sooner.
        self.echo = self.parameters.echo / (3 - 2 * self.parameters.echo) if left else 0.0

    def score(self, questions: Questions) -> Floats:
        user = np.arange(len(questions.users) + 1)
        session = np.searchsorted(questions.session_user, user)  # each user's first
        launch, cell = questions.session_starts[session], questions.cell_starts[session]
        scores = np.zeros(questions.cell_starts[-1])
        phones = [_phone(self.users[user]) for user in questions.users]
        for v, truth in enumerate(chances(self.parameters, self.seed, phones)):
            own = questions.candidates[slice(*questions.candidate_starts[v : v + 2])]
            launches = slice(*launch[v : v + 2])
            apps, times = own[questions.launches[launches]], questions.times[launches]
            odds = self._odds(truth, _rows(truth, apps, times))
            cells = scores[slice(*cell[v : v + 2])].reshape(-1, len(own))
            _, here, there = np.intersect1d(own, truth.apps, return_indices=True)
            cells[:, here] = odds[:, there]  # what is not on the phone has no chance
        return scores

    def _odds(self, truth: Chances, row: npt.NDArray[np.intp]) -> Floats:
        """What these rows will be: a launch, or an echo of the launch before."""
        odds = truth.odds[row]
        echo = np.where(
            truth.echo[row - 1] | (row == 0), 0.0, self.echo
        )  # a launch has one echo at most
        odds *= 1 - echo[:, None]
        odds[np.arange(len(row)), truth.launched[row - 1]] += echo
        return odds


def _rows(
    truth: Chances, apps: npt.NDArray[np.intp], times: npt.NDArray[np.int64]
) -> npt.NDArray[np.intp]:
    """Where the phone launched these apps at these times; an echo at once stands after its row."""
    row = np.minimum(np.searchsorted(truth.time, times), len(truth.time) - 1)
    if not np.array_equal(truth.time[row], times) or not np.array_equal(
        truth.apps[truth.launched[row]], apps
    ):
        raise ValueError(
            "the ceiling knows only synthetic phones made with its own parameters and seed; a "
            "phone of this log launched something else. Give it those the log was made with."
        )
    return row


def _phone(user: str) -> int:
    word, _, number = user.partition("-")
    if word != "phone" or not number.isdecimal():
        raise ValueError(
            f"the ceiling knows only synthetic phones, such as phone-0007; got {user!r}."
        )
    return int(number)
