"""What three readings of the paper cost: the score at inference, and two kinds of weights.

Small enough for the dense equations of `nextapp.model`, as printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, evaluate, exam, find_preset
from nextapp.evaluation.seqmf import SeqMF, build_learner
from nextapp.learners import run_rounds
from nextapp.model import confidence, gradient, short_term, transitions, user_vector
from nextapp.predictors import Predictor, Questions
from nextapp.predictors.rivals import SR
from nextapp.predictors.training import MF, SEQMF, Training
from nextapp.progress import Progress, silent
from nextapp.wire import Broadcast, Floats

Weights = Callable[[Floats, float, float], Floats]


def weights_of_shares(counts: Floats, alpha: float, gamma: float) -> Floats:
    """c of eq. (9) with d read as relative frequencies, as its label says (PAPER.md, R25)."""
    return confidence(counts / max(counts.sum(), 1.0), alpha, gamma)


def weights_of_hu(counts: Floats, alpha: float, gamma: float) -> Floats:
    """c = 1 + 40 d, as usual for implicit feedback (Hu, Koren and Volinsky 2008).

    Divided by the number of apps, so that λ keeps its meaning.
    """
    return (1.0 + 40.0 * counts) / len(counts)


class DenseSeqMF(SeqMF):
    """`SeqMF` by the dense equations, with other weights, or ranked by the full score, eq. (4)."""

    def __init__(
        self,
        training: Training,
        seed: int,
        name: str,
        weights: Weights = confidence,
        *,
        full_score: bool = False,
    ) -> None:
        super().__init__(training, seed, name)
        self.weights, self.full_score = weights, full_score

    def fit(self, history: LaunchLog) -> None:
        model, n_apps = self.training.model, history.n_apps
        phones = []
        for first, last in pairwise(history.starts):
            launches = history.app[first:last].astype(np.int64)
            counts = np.bincount(launches, minlength=n_apps).astype(np.float64)
            c = self.weights(counts, model.alpha, model.gamma)
            follows = transitions(launches, n_apps, model.reading)
            phones.append((c, (counts > 0).astype(np.float64), follows))

        def solve(app_vectors: Floats) -> list[Floats]:
            return [
                user_vector(app_vectors, c, a, short_term(follows, app_vectors), model.lam)
                for c, a, follows in phones
            ]

        solved: list[Floats] = []

        def report(broadcast: Broadcast) -> Floats:
            vectors = broadcast.app_vectors
            if broadcast.round % self.training.solve_every == 0:
                solved[:] = solve(vectors)
            slopes = [gradient(vectors, p, *phone) for p, phone in zip(solved, phones, strict=True)]
            return np.asarray(np.sum(slopes, axis=0))

        server = build_learner(self.training, n_apps, self.seed)
        run_rounds(server, report, self.training.rounds, silent)
        self.app_vectors = server.broadcast.app_vectors
        self.user_vectors = np.array(solve(self.app_vectors))
        self.short_term = np.array(
            [short_term(follows, self.app_vectors) for _, _, follows in phones]
        )

    def score(self, questions: Questions) -> Floats:
        if not self.full_score:
            return super().score(questions)
        relevance = self.user_vectors @ self.app_vectors.T + self.short_term
        starts, sizes = questions.candidate_starts, np.diff(questions.session_starts)
        own = [
            relevance[user, questions.candidates[starts[number] : starts[number + 1]]]
            for number, user in enumerate(questions.users)
        ]
        each = zip(questions.session_user, sizes, strict=True)
        return np.concatenate([np.tile(own[number], size) for number, size in each])


class HalfSR(SR):
    """SR that learns from the older or the newer half of each person's launches."""

    def __init__(self, name: str, *, newer: bool) -> None:
        super().__init__()
        self.name, self.newer = name, newer

    def fit(self, history: LaunchLog) -> None:
        n_each = np.diff(history.starts)
        place = np.arange(len(history)) - np.repeat(history.starts[:-1], n_each)
        super().fit(history.where((2 * place >= np.repeat(n_each, n_each)) == self.newer))


@dataclass(frozen=True)
class Readings:
    """The settings are our defaults, with ``dim`` columns; the counting is that of ``preset``."""

    split: str
    preset: str = "authors"
    dim: int = 64
    seed: int = 0


def run_readings(study: Readings, log: LaunchLog, report: Progress = silent) -> dict[str, Any]:
    """Every reading's metrics, the differences to SeqMF and to MF, and SeqMF less SR."""
    seqmf, mf = replace(SEQMF, dim=study.dim), replace(MF, dim=study.dim)
    models: list[Predictor] = [
        DenseSeqMF(seqmf, study.seed, "seqmf"),
        DenseSeqMF(seqmf, study.seed, "seqmf-relative", weights_of_shares),
        DenseSeqMF(seqmf, study.seed, "seqmf-full-score", full_score=True),
        DenseSeqMF(mf, study.seed, "mf"),
        DenseSeqMF(mf, study.seed, "mf-hu", weights_of_hu),
        SR(),
        HalfSR("sr-older", newer=False),
        HalfSR("sr-newer", newer=True),
    ]
    test = exam(log, Split.parse(study.split), find_preset(study.preset))
    found = evaluate(test, models, study.seed, progress=report)
    pairs = [("seqmf", name) for name in ("seqmf-relative", "seqmf-full-score", "mf", "sr")]
    pairs += [("mf", "mf-hu"), ("sr", "seqmf"), ("sr-newer", "sr-older")]
    differences: dict[str, dict[str, Any]] = {}
    for first, second in pairs:
        differences.setdefault(first, {})[second] = {
            metric: {"mean": gap["difference"], "low": gap["low"], "high": gap["high"]}
            for metric, gap in found.difference(first, second).items()
        }
    none_different = dict.fromkeys(("difference", "low", "high"))
    different = found.difference("seqmf", "sr", "different").get("HR@5", none_different)
    summary = found.summary()
    return {
        "models": {
            name: {metric: row[metric] for metric in (*METRICS, "ci95")}
            for name, row in summary["models"].items()
        },
        "differences": differences,
        "different": {"mean": different["difference"], **different},
        "n_users": summary["n_users"],
        "n_predictions": summary["n_predictions"],
        "intervals": summary["intervals"],
    }
