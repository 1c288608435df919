"""How steady suggestions are: how many of five change at a launch, and what keeping them costs.

Before every launch five apps are on the screen, chosen by `nextapp.suggestions.steady_row`: within
a session the app that is open is not among them. An app on the screen gives way only to one that is
`factor` times as likely; with factor 1 the five most likely are shown. Factors need probabilities.

    new      of the five suggestions, how many were not there before the last launch
    HR@5     launches of another app than the open one that were suggested

Means over users, with 95 % intervals over `Exam.units`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled, usable_in_loops
from nextapp.data.log import Indices
from nextapp.evaluation.revealing import Chunk, Exam, Predictions, Units
from nextapp.intervals import interval
from nextapp.suggestions import STEADY, steady_row
from nextapp.wire import Floats

usable_in_loops(steady_row)

N_SHOWN = 5
FACTORS = np.array([1.0, 1.25, STEADY, 2.0, 3.0])
_NEW, _HITS = range(2)  # columns of sums
_DAY_MS = 86_400_000


def count_suggestions(
    chunk: Chunk,
    unit: Indices,
    scores: Floats,
    sums: Floats,
    launches: Floats,
    *,
    chances: bool,
    at_random: bool,
    target_competes: bool,
) -> None:
    """Follow the suggestions through one chunk; scores are log P (`chances`) or only an order.

    By ``unit`` of each prediction: ``sums`` (n_units, len(FACTORS), 2) of new suggestions and of
    hits, ``launches`` (n_units, 2) after another, and of another app than the open one.
    ``at_random``: all orders are equally likely, and the expected values are counted.
    """
    factors = FACTORS if chances else FACTORS[:1]
    ordered = np.exp(scores) if chances else scores - scores.min(initial=0.0) + 1.0
    _follow(
        chunk.predictions, unit, chunk.seen_from, ordered, factors, at_random,
        target_competes, sums, launches, N_SHOWN,
    )  # fmt: skip


def _seconds_to_follow(predictions: Predictions, *_: object) -> float:
    return 1e-4 * len(predictions.user)


@compiled(seconds=_seconds_to_follow)
def _follow(
    predictions: Predictions,
    unit: Indices,
    seen_from: Indices,
    chances: Floats,
    factors: Floats,
    at_random: bool,
    target_competes: bool,
    sums: Floats,
    launches: Floats,
    n_shown: int,
) -> None:
    shown = np.full((len(factors), n_shown), -1)
    before = -1
    for n in range(len(predictions.user)):
        user, target, last = predictions.user[n], predictions.target[n], predictions.last[n]
        seen = seen_from[predictions.first_candidate[n] : predictions.last_candidate[n]]
        cell = predictions.cell[n]
        there = chances[cell : cell + len(seen)].copy()
        for i in range(len(seen)):
            if seen[i] >= predictions.row[n] and not (target_competes and i == target):
                there[i] = 0.0
        if last >= 0:
            there[last] = 0.0
        if user != before:
            shown[:] = -1
        else:
            launches[unit[n], 0] += 1.0
        counts = target != last
        launches[unit[n], 1] += counts
        for number in range(len(factors)):
            row = steady_row(shown[number], there, n_shown, factors[number])
            n_new, hit = 0.0, 0.0
            for place in range(len(row)):
                n_new += not (shown[number] == row[place]).any()
                hit += row[place] == target
            if at_random:
                share = len(row) / max((there > 0.0).sum(), 1)
                n_new, hit = len(row) * (1.0 - share), share * (there[target] > 0.0)
            sums[unit[n], number, _NEW] += n_new * (user == before)
            sums[unit[n], number, _HITS] += hit * counts
            shown[number] = -1
            shown[number, : len(row)] = row
        before = user


def summary(
    exam: Exam, sums: Floats, launches: Floats, seed: int, *, chances: bool
) -> dict[str, Any]:
    """The figures as plain values, by factor; factors above 1 only for probabilities."""
    n_factors = len(FACTORS) if chances else 1
    starts = np.flatnonzero(np.diff(exam.session_user, prepend=-1))
    first, last = exam.sessions[starts], np.append(exam.sessions[starts[1:]], len(exam.rows)) - 1
    time = exam.whole.time[exam.rows]
    days = np.maximum((time[last] - time[first]) / _DAY_MS, 1.0)
    new, hits = sums[:, :n_factors, _NEW], sums[:, :n_factors, _HITS]
    after_another, counted = launches.T
    owner = exam.units.owner
    figures = {
        "new_per_launch": (new, after_another),
        "new_per_day": (new, (days / np.bincount(owner))[owner]),
        "HR@5": (hits, counted),
    }
    return {"factor": FACTORS[:n_factors].tolist()} | {
        name: _measured(exam.units, *of_units, seed) for name, of_units in figures.items()
    }


def _measured(units: Units, sums: Floats, sizes: Floats, seed: int) -> list[dict[str, float]]:
    """One {mean, low, high} for each factor."""
    size = np.bincount(units.owner, sizes)
    there = size > 0
    of_users = np.stack([np.bincount(units.owner, column) for column in sums.T], axis=1)
    means = (of_users[there] / size[there, None]).mean(axis=0)
    ends = interval(units.drawn(sums, sizes, seed))
    return [
        {"mean": float(mean), "low": float(low), "high": float(high)}
        for mean, low, high in zip(means, *ends, strict=True)
    ]
