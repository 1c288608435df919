"""Where the shipped start of the habits' weights comes from: what phones learn by themselves.

    python benchmarks/fit_habits.py epm.csv.gz schonlau.csv.gz synthetic:lsapp synthetic:app-usage

Only the launches before each log's test part are read (split fraction:0.8,0,0.2, or the twins'
own). Every phone goes through its launches once, from the start at hand; the next start is the
mean over logs of the mean over phones of the weights they end with; so four times. With more than
one log it also leaves each out in turn and prints what that start scores on that log, on the
last fifth of its training part, beside the start from all logs.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from nextapp import habits
from nextapp.data import LaunchLog, Split, collapsed, read
from nextapp.evaluation import Exam, exam, mark, preset_named
from nextapp.predictors import NextApp, pooled
from nextapp.studies.settings import Experiment

ROUNDS = 4
FITTED = ("within", "opening", "again", "gate")
SEED = 101  # of synthetic logs; figures are taken from other seeds


def training_part(source: str) -> LaunchLog:
    split = Split.parse(Experiment(source).split)
    return split.cut(collapsed(read(source, seed=SEED))).history


def learnt(test: Exam, weights: habits.Weights) -> list[np.ndarray]:
    """The means over phones of the weights they end with: within, opening, again, gate."""
    predictor = NextApp(weights, crowd=pooled)
    predictor.fit(test.history)
    ends = [predictor.answers(chunk.questions)[1] for chunk in test.chunks]
    mix, again, gate = (np.concatenate(each).mean(axis=0) for each in zip(*ends, strict=True))
    return [*mix, again, gate]


def fitted(tests: list[Exam]) -> habits.Weights:
    weights = habits.DEFAULT
    for _ in range(ROUNDS):
        found = zip(*(learnt(test, weights) for test in tests), strict=True)
        means = (tuple(np.mean(each, axis=0).tolist()) for each in found)
        weights = replace(weights, **dict(zip(FITTED, means, strict=True)))
    return weights


def hit_rates(test: Exam, weights: habits.Weights) -> str:
    predictor = NextApp(weights, crowd=pooled)
    predictor.fit(test.history)
    return " / ".join(f"{value:.3f}" for value in mark(test, predictor)[0].mean(axis=0)[:3])


def _written(weight: float) -> float:
    """Two digits; never 0, which would switch a statistic off."""
    return round(weight, 2) or float(np.copysign(0.01, weight))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+")
    sources = parser.parse_args().logs
    last_fifth = Split.parse("fraction:0.8,0,0.2")
    tests = [exam(training_part(source), last_fifth, preset_named("paper")) for source in sources]
    start = fitted(tests)
    for name in FITTED:
        print(name, "=", tuple(_written(weight) for weight in getattr(start, name)))
    if len(tests) > 1:
        for number, (source, test) in enumerate(zip(sources, tests, strict=True)):
            others = fitted(tests[:number] + tests[number + 1 :])
            print(
                f"{source}: HR@1 / 3 / 5 {hit_rates(test, start)} from all, "
                f"{hit_rates(test, others)} from the others"
            )


if __name__ == "__main__":
    main()
