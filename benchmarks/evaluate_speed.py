"""Predictions a second of the evaluation, beside plain Python in the same run.

The claim: on a log of a million launches and two cores, MRU, MFU and SR make at least 500,000
predictions a second and SeqMF (d = 32) at least 200,000; a prediction is scored, ranked and turned
into nine metrics. The peers do the same session by session in Python: lists and dictionaries for
MRU, MFU and SR, one NumPy product a prediction for SeqMF. Best of several runs of each.

    python benchmarks/evaluate_speed.py [--launches 1000000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.evaluation import Exam, exam, find_preset, mark
from nextapp.evaluation.seqmf import SeqMF
from nextapp.predictors import Predictor, Question
from nextapp.predictors.rivals import MFU, MRU, SR
from nextapp.predictors.training import Training, frozen

RUNS = 5
PEER_PREDICTIONS = 20_000
WANTED = {"mru": 500_000, "mfu": 500_000, "sr": 500_000, "seqmf": 200_000}


def questions(test: Exam) -> Iterator[tuple[Question, int]]:
    """Predictions with their targets, one by one."""
    for chunk in test.chunks:
        asked = chunk.questions
        yield from zip(asked, targets(asked), strict=True)


def targets(asked) -> Iterator[int]:
    for s, v in enumerate(asked.session_user):
        own = asked.candidates[asked.candidate_starts[v] : asked.candidate_starts[v + 1]]
        yield from own[asked.launches[asked.session_starts[s] + 1 : asked.session_starts[s + 1]]]


def metrics(scores: dict[int, float], target: int) -> list[float]:
    """HR, MRR and NDCG @1, 3, 5 of one prediction, ties at their expected value."""
    score = scores[target]
    better = sum(other > score for other in scores.values())
    level = sum(other == score for other in scores.values())
    ranks = range(better + 1, better + level + 1)
    row = []
    for weight in (lambda r: 1.0, lambda r: 1 / r, lambda r: 1 / math.log2(r + 1)):
        row += [sum(weight(r) for r in ranks if r <= n) / level for n in (1, 3, 5)]
    return row


def plain_scores(test: Exam, model: SeqMF) -> dict[str, Callable[[Question], dict[int, float]]]:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    rules: dict[int, Counter[int]] = defaultdict(Counter)
    history = list(zip(test.history.user.tolist(), test.history.app.tolist(), strict=True))
    for user, app in history:
        counts[user][app] += 1
    for (user, app), (other, following) in pairwise(history):
        if user == other:
            rules[app][following] += 1

    def mru(question: Question) -> dict[int, float]:
        last = {app: place for place, app in enumerate(question.session.tolist(), 1)}
        return {app: last.get(app, 0) for app in question.candidates.tolist()}

    def mfu(question: Question) -> dict[int, float]:
        own = counts[question.user]
        return {app: own[app] for app in question.candidates.tolist()}

    def sr(question: Question) -> dict[int, float]:
        follow = rules[int(question.session[-1])]
        return {app: follow[app] for app in question.candidates.tolist()}

    def seqmf(question: Question) -> dict[int, float]:
        session = model.app_vectors[question.session].sum(axis=0)
        own = model.app_vectors[question.candidates]
        scores = own @ (model.user_vectors[question.user] + session)
        return dict(zip(question.candidates.tolist(), scores.tolist(), strict=True))

    return {"mru": mru, "mfu": mfu, "sr": sr, "seqmf": seqmf}


def check_alike(
    test: Exam,
    predictors: list[Predictor],
    plain: dict[str, Callable[[Question], dict[int, float]]],
) -> None:
    """Both sides must score the same, or their speeds do not compare."""
    asked = test.chunks[0].questions
    for predictor in predictors:
        scores = predictor.score(asked)
        cell = 0
        for question in islice(asked, 200):
            theirs = list(plain[predictor.name](question).values())
            np.testing.assert_allclose(scores[cell : cell + len(theirs)], theirs, atol=1e-9)
            cell += len(theirs)


def best_seconds(work: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    phones = math.ceil(options.launches / 1_350)
    log = read_log(f"synthetic:lsapp,phones={phones}", seed=0)
    test = exam(log, Split.parse("fraction:0.2,0,0.8"), find_preset("paper"))
    seqmf = SeqMF(frozen(Training(dim=32)), seed=0)
    predictors: list[Predictor] = [MRU(), MFU(), SR(), seqmf]
    for predictor in predictors:
        predictor.fit(test.history)
    plain = plain_scores(test, seqmf)
    check_alike(test, predictors, plain)
    sample = list(islice(questions(test), PEER_PREDICTIONS))

    console = Console()
    console.print(
        f"{len(log):,} launches of {phones:,} synthetic phones, {test.n_predictions:,} "
        f"predictions, {len(test.candidates) / len(test.users):.0f} candidates a user; "
        f"best of {RUNS} runs"
    )
    table = Table("model", "predictions a second", "plain Python", "ratio", "wanted", box=None)
    result = []
    for predictor in predictors:
        mark(test, predictor)  # compile
        ours = len(test.rows) / best_seconds(lambda p=predictor: mark(test, p), RUNS)
        answer = plain[predictor.name]
        theirs = len(sample) / best_seconds(
            lambda answer=answer: [metrics(answer(q), t) for q, t in sample], 2
        )
        wanted = WANTED[predictor.name]
        table.add_row(
            predictor.name,
            f"{ours:,.0f}",
            f"{theirs:,.0f}",
            f"{ours / theirs:.0f}",
            f"{wanted:,} {'reached' if ours >= wanted else 'MISSED'}",
        )
        result.append({"model": predictor.name, "per_second": ours, "plain_per_second": theirs})
    console.print(table)
    start = time.perf_counter()
    SR().fit(test.history)
    console.print(
        f"SR learns {len(test.history) / (time.perf_counter() - start):,.0f} launches a second"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
