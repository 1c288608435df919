"""Federated rounds over the phones of a log, compiled: used for training in all studies.

The same rounds as `nextapp.predictors.factorised.train`, which runs them with `PhoneCore` and
`SeqMFLearner` as on phones; a test checks that both agree (float64, 1e-9).
"""

from __future__ import annotations

import numpy as np

from nextapp.data import LaunchLog
from nextapp.data.cutting import launches_in_window
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import play_round, training_phones
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.predictors.factorised import ROUND, SeqMF, build_learner
from nextapp.predictors.training import Training
from nextapp.progress import Progress, silent
from nextapp.wire import Broadcast, Floats


class Rounds:
    """The phones of a log and a server, round after round."""

    def __init__(
        self, history: LaunchLog, training: Training, seed: int, apps: tuple[str, ...] = ()
    ) -> None:
        self.training = training
        self.fleet = Fleet.of_log(history)
        self._phones = training_phones(self.fleet, training.dim, training.solve_every)
        self._server = build_learner(training, history.n_apps, seed, apps)

    @property
    def broadcast(self) -> Broadcast:
        return self._server.broadcast

    def play(self) -> None:
        """One round: every ``solve_every``-th the phones solve, then the server takes a step."""
        play_round(self._server, self._phones)

    def user_vectors(self) -> Floats:
        """The user vectors of all phones, solved with the current app vectors."""
        found = solve_user_vectors(self.fleet, self.broadcast)
        if not np.isfinite(found).all():
            raise FloatingPointError(
                f"user vectors are not finite after round {self.broadcast.round}: lower the "
                f"learning rate."
            )
        return found


class LabSeqMF(SeqMF):
    """`SeqMF`, trained by compiled rounds.

    With a ``window``, each phone learns only from this many days before its last launch, the t of
    the paper's H_u^(t).
    """

    def __init__(
        self,
        training: Training,
        seed: int,
        name: str = "seqmf",
        progress: Progress = silent,
        *,
        window: float = 0.0,
    ) -> None:
        super().__init__(training, seed, name, progress)
        self.window = window

    def fit(self, history: LaunchLog) -> None:
        rounds = Rounds(launches_in_window(history, self.window), self.training, self.seed)
        for done in range(self.training.rounds):
            rounds.play()
            self.progress(ROUND, done + 1, self.training.rounds)
        self.take(rounds)

    def take(self, rounds: Rounds) -> None:
        """Predict with the vectors that these rounds have trained."""
        self.app_vectors = rounds.broadcast.app_vectors
        self.user_vectors = rounds.user_vectors()
