"""MF and SeqMF: phones and a server train in federated rounds, then each phone predicts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nextapp.data.log import LaunchLog
from nextapp.learners import OPTIMISERS, RoundSum, SeqMFLearner, run_rounds, starting_vectors
from nextapp.phone.core import PhoneCore
from nextapp.predictors import Questions
from nextapp.predictors.rivals import WHOLE_SESSION, session_scores
from nextapp.predictors.training import Training
from nextapp.privacy import mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats, inference_window


def build_learner(
    training: Training, n_apps: int, seed: int, apps: tuple[str, ...] = ()
) -> SeqMFLearner:
    """The server before the first round; phones report their gradients without privacy."""
    start = starting_vectors(n_apps, training.dim, training.scale, seed)
    plain = mechanism("identity", n_apps=n_apps, d=training.dim)
    optimiser = OPTIMISERS[training.optimiser](training.rate)
    return SeqMFLearner(start, training.model, optimiser, plain, apps)


def phones_of_log(history: LaunchLog) -> list[PhoneCore]:
    """One phone for each user of the log, with its own launches."""
    starts = history.starts
    phones = []
    for user in range(history.n_users):
        phone = PhoneCore()
        rows = slice(starts[user], starts[user + 1])
        for app, time in zip(
            history.app[rows].tolist(), (history.time[rows] / 1000).tolist(), strict=True
        ):
            phone.observe(app, time)
        phones.append(phone)
    return phones


def train(
    phones: list[PhoneCore],
    n_apps: int,
    training: Training,
    seed: int,
    apps: tuple[str, ...] = (),
    progress: Progress = silent,
) -> Broadcast:
    """Federated rounds over these phones; the last broadcast, which every phone then has."""
    server = build_learner(training, n_apps, seed, apps)
    plain = server.mechanism

    def report(broadcast: Broadcast) -> RoundSum:
        reports = []
        for number, phone in enumerate(phones):
            phone.take(broadcast, keep_vector=True)
            if broadcast.round % training.solve_every == 0:
                phone.solve()
            bits = KeyedBits(seed, number, broadcast.round, "report")
            reports.append(plain.encode(phone.gradient(), bits, broadcast.round))
        return RoundSum(plain.total(plain.decode(reports), len(reports)))

    run_rounds(server, report, training.rounds, progress)
    for phone in phones:
        phone.update(server.broadcast)
    return server.broadcast


class SeqMF:
    """Sequence-aware matrix factorisation: taste Q p plus the session's similarity, eq. (8)."""

    in_expectation = False

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
        phones = phones_of_log(history)
        broadcast = train(phones, history.n_apps, self.training, self.seed, progress=self.progress)
        self.app_vectors = broadcast.app_vectors
        self.user_vectors: Floats = np.array([phone.user_vector for phone in phones])

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
