"""The rivals that count: Random, MRU, MFU, SR, SR-od (PAPER.md, R18, R22)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nextapp.data.log import LaunchLog
from nextapp.predictors.questions import Questions
from nextapp.predictors.scoring import (
    Counts,
    recency_scores,
    session_scores,
    table_pairs,
    taste_scores,
)
from nextapp.wire import Floats


class Random:
    """Candidates in a random order; the evaluation takes the exact expectation over all orders."""

    name = "random"
    in_expectation = True

    def fit(self, history: LaunchLog) -> None:
        """Nothing to learn."""

    def score(self, questions: Questions) -> Floats:
        return np.zeros(questions.cell_starts[-1])


class MRU:
    """Most recently used: the later in the session so far, the better; apps not in it score 0."""

    name = "mru"
    in_expectation = False

    def fit(self, history: LaunchLog) -> None:
        """Nothing to learn: only the session counts."""

    def score(self, questions: Questions) -> Floats:
        return recency_scores(questions)


class MFU:
    """Most frequently used: how often the user launched the app."""

    name = "mfu"
    in_expectation = False

    def fit(self, history: LaunchLog) -> None:
        self.n_apps = history.n_apps
        self.launches = Counts.of(history.user.astype(np.int64) * history.n_apps + history.app)

    def score(self, questions: Questions) -> Floats:
        owner = np.repeat(questions.users, np.diff(questions.candidate_starts))
        return taste_scores(questions, self.launches.at(owner * self.n_apps + questions.candidates))


class SR:
    """Sequential rules: how often the app came right after the last one, over all users.

    Raw counts; a user's whole history is one sequence.
    """

    name = "sr"
    in_expectation = False
    on_device = False

    def fit(self, history: LaunchLog) -> None:
        self.n_apps = history.n_apps
        same_user = history.user[1:] == history.user[:-1]
        previous, following = history.app[:-1][same_user], history.app[1:][same_user]
        self.rules = Counts.of(self._keys(history.user[1:][same_user], previous, following))

    def score(self, questions: Questions) -> Floats:
        tables = self.rules.at(self._keys(*table_pairs(questions)))
        return session_scores(questions, np.zeros(len(questions.candidates)), tables, "last")

    def _keys(
        self,
        user: npt.NDArray[np.integer],
        previous: npt.NDArray[np.integer],
        following: npt.NDArray[np.integer],
    ) -> npt.NDArray[np.int64]:
        owner = user.astype(np.int64) if self.on_device else 0
        return (owner * self.n_apps + previous.astype(np.int64)) * self.n_apps + following


class SROnDevice(SR):
    """SR-od: sequential rules from the user's own history alone."""

    name = "sr-od"
    on_device = True


class SROnDeviceByS(SROnDevice):
    """SR-od scored with S_u, as the paper's authors ran it in their dynamic runs (PAPER.md, R22).

    In their reading of S_u a rule is worth its share of all transitions *into* the app (R1): how
    often i came after j, divided by how often i came after anything.
    """

    name = "sr-od-su"

    def fit(self, history: LaunchLog) -> None:
        super().fit(history)
        same_user = history.user[1:] == history.user[:-1]
        owner = history.user[1:][same_user].astype(np.int64)
        self.into = Counts.of(owner * history.n_apps + history.app[1:][same_user])

    def score(self, questions: Questions) -> Floats:
        user, previous, following = table_pairs(questions)
        into = self.into.at(user.astype(np.int64) * self.n_apps + following)
        shares = self.rules.at(self._keys(user, previous, following)) / np.maximum(into, 1)
        return session_scores(questions, np.zeros(len(questions.candidates)), shares, "last")
