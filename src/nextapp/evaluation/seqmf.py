"""MF and SeqMF as they are measured: trained by compiled rounds over the phones of a log.

A test compares them with rounds of `PhoneCore`, as phones run them (float64, 1e-9).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import training_phones
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.learners import OPTIMISERS, SeqMFLearner, run_rounds, starting_vectors
from nextapp.predictors import Questions
from nextapp.predictors.rivals import WHOLE_SESSION, session_scores
from nextapp.predictors.training import Training
from nextapp.privacy import mechanism
from nextapp.progress import Progress, silent
from nextapp.wire import Floats, inference_window


def build_learner(training: Training, n_apps: int, seed: int) -> SeqMFLearner:
    """The server before the first round; phones report their gradients without privacy."""
    start = starting_vectors(n_apps, training.dim, training.scale, seed)
    plain = mechanism("identity", n_apps=n_apps, d=training.dim)
    optimiser = OPTIMISERS[training.optimiser](training.rate)
    return SeqMFLearner(start, training.model, optimiser, plain)


class SeqMF:
    """Sequence-aware matrix factorisation: taste Q p plus the session's similarity, eq. (8).

    Its vectors come from `fit`, or are set.
    """

    in_expectation = False
    app_vectors: Floats
    user_vectors: Floats

    def __init__(
        self,
        training: Training,
        seed: int,
        name: str = "seqmf",
        progress: Progress = silent,
    ) -> None:
        self.training = training
        self.seed = seed
        self.name = name
        self.progress = progress

    def fit(self, history: LaunchLog) -> None:
        self.start(history)
        self.train(self.training.rounds)

    def start(self, history: LaunchLog) -> None:
        """Begin with Q at its random start; `train` continues."""
        self._fleet = Fleet.of_log(history)
        self._phones = training_phones(self._fleet, self.training.dim, self.training.solve_every)
        self._server = build_learner(self.training, history.n_apps, self.seed)

    def train(self, n_rounds: int) -> None:
        """Run further rounds; then all phones solve their user vectors against the new Q."""
        run_rounds(self._server, self._phones, n_rounds, self.progress)
        broadcast = self._server.broadcast
        self.app_vectors = broadcast.app_vectors
        self.user_vectors = solve_user_vectors(self._fleet, broadcast)
        if not np.isfinite(self.user_vectors).all():
            raise FloatingPointError(
                f"user vectors are not finite after round {broadcast.round}: lower the learning "
                f"rate."
            )

    def score(self, questions: Questions) -> Floats:
        owner = np.repeat(questions.users, np.diff(questions.candidate_starts))
        taste = np.einsum(
            "cd,cd->c", self.app_vectors[questions.candidates], self.user_vectors[owner]
        )
        inference = self.training.model.inference
        tables = (
            np.zeros(0) if inference == "none" else similarity_tables(questions, self.app_vectors)
        )
        window = {"none": 0, "last": 1}.get(inference, inference_window(inference) or WHOLE_SESSION)
        return session_scores(questions, taste, tables, window, mean=inference == "mean")


def similarity_tables(questions: Questions, app_vectors: Floats) -> Floats:
    """Tables of q_jᵀ q_i."""
    starts = questions.candidate_starts
    tables = [np.zeros(0)]
    for first, end in pairwise(starts.tolist()):
        own = app_vectors[questions.candidates[first:end]]
        tables.append((own @ own.T).ravel())
    return np.concatenate(tables)
