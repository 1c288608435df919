"""SeqMF as phones train it, one by one; `nextapp.evaluation.seqmf` has compiled loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nextapp import model
from nextapp.data.log import LaunchLog
from nextapp.evaluation import seqmf
from nextapp.evaluation.seqmf import build_learner
from nextapp.learners import run_rounds
from nextapp.phone.core import PhoneCore
from nextapp.predictors.training import Training
from nextapp.progress import silent
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats


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


def gradient_with(
    history: npt.NDArray[np.int64], broadcast: Broadcast, vector: Floats
) -> model.PhoneGradient:
    """F(u), eq. (12), of a phone that solved its user vector in an earlier round."""
    stats = model.phone_statistics(history, broadcast.settings.reading)
    _, c, c0, h = model.phone_terms(stats, broadcast)
    return model.phone_gradient(stats, broadcast.app_vectors, vector, c, c0, h)


def train(
    phones: list[PhoneCore],
    n_apps: int,
    training: Training,
    seed: int,
) -> Broadcast:
    """Federated rounds over these phones; the last broadcast, which every phone then has."""
    server = build_learner(training, n_apps, seed)
    plain, vectors = server.mechanism, [np.zeros(0)] * len(phones)

    def report(broadcast: Broadcast) -> np.ndarray:
        reports = []
        for number, phone in enumerate(phones):
            phone.take(broadcast)
            if broadcast.round % training.solve_every == 0:
                vectors[number] = phone.user_vector
            bits = KeyedBits(seed, number, broadcast.round, "report")
            gradient = gradient_with(phone.history, broadcast, vectors[number])
            reports.append(plain.encode(gradient, bits, broadcast.round))
        return plain.total(plain.decode(reports), len(reports))

    run_rounds(server, report, training.rounds, silent)
    for phone in phones:
        phone.take(server.broadcast)
    return server.broadcast


class SlowSeqMF(seqmf.SeqMF):
    """`nextapp.evaluation.seqmf.SeqMF`, trained by `train`."""

    def fit(self, history: LaunchLog) -> None:
        phones = phones_of_log(history)
        broadcast = train(phones, history.n_apps, self.training, self.seed)
        self.app_vectors = broadcast.app_vectors
        self.user_vectors = np.array([phone.user_vector for phone in phones])
