"""Where the shipped numbers of the predictor come from: the training parts of logs, nothing else.

    python benchmarks/fit_predictor.py weights reality-a.csv.gz android-a.csv.gz ubiqlog-a.csv.gz \\
        epm.csv.gz schonlau.csv.gz synthetic:lsapp,phones=80 synthetic:app-usage,phones=80
    python benchmarks/fit_predictor.py constants LOG ...

Only the launches before each log's test part are read (the first 80 % of each user's launches),
and of those the last quarter is predicted. `weights` finds the start of the weights in two steps.
First, what phones learn by themselves: every phone goes through its launches once; the next start
is the mean over logs of the mean over phones of the weights they end with; so three times. Then, by
coordinates: each weight a quarter up or down, kept where the goal rises,

    goal = Σ over logs of HR@1 + HR@5, with a crowd, and half of that without one,

means of all launches and of the next different app.

The shipped weights are rounded to twentieths, which costs nothing (decision 11, fifth round).

`constants` prints the goal with each round number of `nextapp.predictor` halved and doubled: how
little it matters. It compiles anew for each, so it takes 20 minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import numpy as np

from nextapp import predictor
from nextapp.data.cutting import Split, collapse_repeats
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import Exam, exam, find_preset, mark
from nextapp.predictor import DEFAULT, Habits, Weights

ROUNDS = 3
SETS = ("within", "opening")
SEED = 101  # of synthetic logs; figures are taken from other seeds
PRIORS = (
    "FREQUENCY_PRIOR", "AFTER_PRIOR", "LONGER_PRIOR", "HOUR_PRIOR", "SINCE_PRIOR", "AGAIN_PRIOR",
    "PLACE_PRIOR", "PLACE_AFTER_PRIOR", "NEW_PRIOR", "OWN_PRIOR", "OWN_PAIR_PRIOR", "LESSON_STEPS",
    "TRUST_START", "FIRST_TRUST_START", "MOST_GAIN",
)  # fmt: skip
FADES = (
    "FREQUENCY_FADE", "AFTER_FADE", "LONGER_FADE", "HOUR_FADE", "PLACE_FADE", "LESSON_FADE",
    "TRUST_FADE",
)  # fmt: skip
STEPS = ("rate", "added")  # of `Weights`


def training_part(source: str) -> LaunchLog:
    return (
        Split.parse("fraction:0.8,0,0.2").cut(collapse_repeats(read_log(source, seed=SEED))).history
    )


class Log:
    """The last quarter of a training part as an exam, ready to be taken many times."""

    def __init__(self, source: str) -> None:
        from nextapp.predictors.nextapp import NextApp
        from nextapp.predictors.pooled import Pooled

        split = Split.parse("fraction:0.75,0,0.25")
        self.test: Exam = exam(training_part(source), split, find_preset("paper"))
        model = NextApp(crowd=Pooled)
        model.fit(self.test.history)
        self.crowd = model.crowd

    def hit_rates(self, weights: Weights, *, alone: bool) -> tuple[float, float]:
        """HR@1 and HR@5: means of all launches and of the next different app."""
        from nextapp.predictors.nextapp import NextApp

        model = NextApp(weights, crowd=None if alone else self.crowd)
        model.fit(self.test.history)
        tables = mark(self.test, model)
        means = [np.nanmean(tables[name], axis=0) for name in ("all", "different")]
        first, fifth = np.mean(means, axis=0)[[0, 2]].tolist()
        return first, fifth

    def learnt(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        """The means over phones of the weights and gates that they end with."""
        log, ends = self.test.whole, []
        for user in self.test.users.tolist():
            phone = Habits(weights)
            phone.crowd = self.crowd.others(user)
            own = slice(*log.starts[user : user + 2])
            for app, when in zip(log.app[own].tolist(), log.time[own].tolist(), strict=True):
                phone.observe(app, when / 1000)
            mix = phone._state.mix[: predictor.ADDED].tolist()
            ends.append((mix, phone._state.gate[0]))
        return tuple(np.mean(each, axis=0) for each in zip(*ends, strict=True))


def goal(logs: list[Log], weights: Weights) -> float:
    return sum(
        part * sum(log.hit_rates(weights, alone=alone))
        for log in logs
        for alone, part in ((False, 1.0), (True, 0.5))
    )


def weights_of(mix: np.ndarray, gate: np.ndarray) -> Weights:
    """Two digits; never 0, which would switch a statistic off."""
    rounded = np.round(mix, 2)
    rounded[rounded == 0.0] = 0.01
    rows = {name: tuple(row) for name, row in zip(SETS, rounded.tolist(), strict=True)}
    return replace(DEFAULT, **rows, gate=tuple(np.round(gate, 2).tolist()))


def fit(logs: list[Log], seconds: float) -> Weights:
    weights = DEFAULT
    for _ in range(ROUNDS):
        found = zip(*(log.learnt(weights) for log in logs), strict=True)
        sets, gate = (np.mean(list(each), axis=0) for each in found)
        changed, opening, repeated = sets
        mix = np.array([(changed + repeated) / 2, opening])
        weights = weights_of(mix, gate)
    best = goal(logs, weights)
    print(f"what phones learn: {best:.4f}", weights, flush=True)
    end = time.monotonic() + seconds
    coordinates = [("mix", number) for number in range(predictor.N_STATISTICS)]
    coordinates += [("gate", number) for number in range(5)]
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for kind, number in coordinates:
            for sign in (1.0, -1.0):
                mix = np.array([getattr(weights, name) for name in SETS])
                gate = np.array(weights.gate)
                if kind == "mix":  # asked for are launches within a session
                    mix[0, number] += sign * max(0.25 * abs(mix[0, number]), 0.04)
                else:
                    gate[number] += sign * 0.12
                other = weights_of(mix, gate)
                found = goal(logs, other)
                if found > best + 2e-4:
                    best, weights, improved = found, other, True
                    print(f"{best:.4f} {kind} {number} {sign:+.0f}", flush=True)
                    break
            if time.monotonic() > end:
                break
    return weights


def with_constant(name: str, factor: float) -> None:
    """Change a constant before anything is compiled. The machine code on disk knows the old one, so
    this needs a cache of its own: `constants` gives each run one (NUMBA_CACHE_DIR)."""
    old = getattr(predictor, name)
    new = 1.0 - (1.0 - old) * factor if name in FADES else old * factor
    setattr(predictor, name, new)
    predictor.FADES[:, 0] = [
        predictor.FREQUENCY_FADE, predictor.AFTER_FADE, *[predictor.LONGER_FADE] * 2,
        predictor.HOUR_FADE,
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["weights", "constants", "one"])
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for the search, at most")
    parser.add_argument("--constant", default="")
    parser.add_argument("--factor", type=float, default=1.0)
    given = parser.parse_args()
    if given.what == "weights":
        print(fit([Log(source) for source in given.logs], given.seconds))
    elif given.what == "one":
        weights = DEFAULT
        if given.constant in STEPS:
            step = given.factor * getattr(DEFAULT, given.constant)
            weights = replace(DEFAULT, **{given.constant: step})
        elif given.constant:
            with_constant(given.constant, given.factor)
        for source in given.logs:
            log = Log(source)
            rates = [*log.hit_rates(weights, alone=False), *log.hit_rates(weights, alone=True)]
            print(source, " ".join(f"{rate:.4f}" for rate in rates), flush=True)
    else:
        for name in PRIORS + FADES + STEPS:
            for factor in (0.5, 2.0):
                print(name, factor, flush=True)
                command = [sys.executable, __file__, "one", *given.logs]
                command += ["--constant", name, "--factor", str(factor)]
                with tempfile.TemporaryDirectory() as cache:
                    apart = {**os.environ, "NUMBA_CACHE_DIR": cache, "NUMBA_OPT": "1"}
                    subprocess.run(command, check=True, env=apart)


if __name__ == "__main__":
    main()
