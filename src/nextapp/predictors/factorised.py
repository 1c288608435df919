"""MF and SeqMF: the server of their rounds, and how a phone predicts with their vectors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nextapp.data.log import LaunchLog
from nextapp.learners import OPTIMISERS, SeqMFLearner, starting_vectors
from nextapp.predictors import Questions
from nextapp.predictors.rivals import WHOLE_SESSION, session_scores
from nextapp.predictors.training import Training
from nextapp.privacy import mechanism
from nextapp.wire import Floats, inference_window


def build_learner(training: Training, n_apps: int, seed: int) -> SeqMFLearner:
    """The server before the first round; phones report their gradients without privacy."""
    start = starting_vectors(n_apps, training.dim, training.scale, seed)
    plain = mechanism("identity", n_apps=n_apps, d=training.dim)
    optimiser = OPTIMISERS[training.optimiser](training.rate)
    return SeqMFLearner(start, training.model, optimiser, plain)


class SeqMF:
    """Sequence-aware matrix factorisation: taste Q p plus the session's similarity, eq. (8).

    Its vectors are given, or trained by `nextapp.evaluation.lab_seqmf`.
    """

    in_expectation = False
    app_vectors: Floats
    user_vectors: Floats

    def __init__(self, training: Training, seed: int, name: str = "seqmf") -> None:
        self.training = training
        self.seed = seed
        self.name = name

    def fit(self, history: LaunchLog) -> None:
        """Nothing: the vectors are there."""

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
