"""What is measured of predictions: hit rates, calibration, and how steady suggestions are.

HR, MRR and NDCG @1, 3, 5 of one relevant app are, with the target at rank r (1 is best), a weight
w(r) up to rank n and 0 beyond:

    HR@n    w = 1
    MRR@n   w = 1/r
    NDCG@n  w = 1/log2(r+1)   the ideal list has w(1) = 1

Calibration. A predictor whose scores are log P (`scores_are_log_chances`) gives every candidate app
a probability p at every launch; y is 1 for the app that was launched and 0 for all others.

    reliability   apps with p in a bin: mean p, and the share that was launched, Σy / n
    ECE           expected calibration error, Σ over bins |Σ (p − y)| / launches
    ECE of the first   the same for the most likely app of each launch only

Steadiness. Before every launch five apps are on the screen, chosen by `steady_row`: within a
session the app that is open is not among them. An app on the screen gives way only to one that is
`factor` times as likely; with factor 1 the five most likely are shown. Factors need probabilities.

    new      of the five suggestions, how many were not there before the last launch
    HR@5     launches of another app than the open one that were suggested

Intervals are 95 %, over `Exam.units`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.compiled import loop, usable_in_loops
from nextapp.data.log import Indices
from nextapp.evaluation.revealing import Exam, Mask, Predictions, Units
from nextapp.predictor import STEADY, steady_row
from nextapp.randomness import KeyedBits
from nextapp.table import interval, measured, resample
from nextapp.wire import Floats

CUTOFFS = (1, 3, 5)
WEIGHTS: dict[str, Callable[[Floats], Floats]] = {
    "HR": np.ones_like,
    "MRR": lambda rank: 1.0 / rank,
    "NDCG": lambda rank: 1.0 / np.log2(rank + 1.0),
}
METRICS = tuple(f"{name}@{n}" for name in WEIGHTS for n in CUTOFFS)

TABLES = {
    "all": "all launches within a session",
    "different": "the next different app (the last app is left out)",
    "openings": "the first launch of a session",
}


def values(
    better: npt.NDArray[np.integer],
    equal: npt.NDArray[np.integer],
    ties: str,
    wanted: Sequence[str] = METRICS,
) -> Floats:
    """(n_predictions, len(wanted)): the wanted metrics of every prediction; by default all nine.

    ``better`` is the number of candidates with a higher score than the target; ``equal`` that of
    candidates with the same score, including the target, or 0 if the target was no candidate (a
    miss). With pessimistic ties the target has rank better + equal. With expected ties each rank
    from better + 1 to better + equal is equally likely.
    """
    last = better + equal
    first = np.where(ties == "pessimistic", last, better + 1)
    hit = equal > 0
    columns = []
    longest = max(CUTOFFS)
    for metric in wanted:
        name, _, n = metric.partition("@")
        rank = np.arange(1.0, longest + 1)
        gained = np.concatenate([[0.0], np.cumsum(WEIGHTS[name](rank) * (rank <= int(n)))])
        upto = gained[np.minimum(last, longest)]
        before = gained[np.minimum(np.maximum(first - 1, 0), longest)]
        columns.append(hit * (upto - before) / np.maximum(last - first + 1, 1))
    return np.stack(columns, axis=1)


# --- calibration ---

EDGES = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
"""Lower edges of the bins; most apps are unlikely, so the first bins are narrow."""

_P, _CAME, _N = range(3)


@loop(seconds=lambda predictions, *_: 3e-5 * len(predictions.user))
def count_predictions(
    predictions: Predictions,
    unit: Indices,
    competes: Mask,
    chances: Floats,
    bins: Floats,
    launches: Floats,
) -> None:
    """Count the predictions of one chunk that lie within sessions.

    By ``unit`` of each prediction: ``bins`` (n_units, 2, len(EDGES), 3) are sums of p, of y and of
    apps, for all apps and for the most likely one, and ``launches`` (n_units,). Only candidates
    that compete.
    """
    n_bins = len(EDGES)
    for n in range(len(predictions.user)):
        if predictions.last[n] < 0:
            continue
        launches[unit[n]] += 1.0
        cell, target = predictions.cell[n], predictions.target[n]
        candidates = np.flatnonzero(competes[cell : cell + predictions.width[n]])
        if len(candidates) == 0:
            continue
        p = chances[cell + candidates]
        place = np.searchsorted(EDGES, p, side="right") - 1
        of_all, of_best = bins[unit[n], 0], bins[unit[n], 1]
        of_all[:, _P] += np.bincount(place, p, n_bins)
        of_all[:, _N] += np.bincount(place, minlength=n_bins)
        best = p.argmax()
        of_best[place[best], _P] += p[best]
        of_best[place[best], _CAME] += candidates[best] == target
        of_best[place[best], _N] += 1.0
        if competes[cell + target]:
            mine = chances[cell + target]
            of_all[np.searchsorted(EDGES, mine, side="right") - 1, _CAME] += 1.0


def calibration(found: Floats, launches: Floats, seed: int) -> dict[str, Any]:
    """The figures as plain values, from the bins and launches of `count_predictions`.

    Figures are sums over all launches, not means over users, since a bin has few apps of one user.
    Intervals are a bootstrap over users, or the days of fewer than ten.
    """
    drawn = resample(KeyedBits(seed, purpose="boot").generator(), len(launches))
    total = launches.sum()
    totals = drawn @ launches
    calibrated: dict[str, Any] = {}
    for number, name in enumerate(("ece", "ece_first")):
        by_user = found[:, number]
        with np.errstate(invalid="ignore"):  # days without a launch alone count for nothing
            rates = _wrong(np.tensordot(drawn, by_user, axes=1)) / totals
        calibrated[name] = measured(_wrong(by_user.sum(axis=0)) / total, rates)
    there = found[:, 0].sum(axis=0)[:, _N] > 0
    bins = found[:, 0, there]
    sums, drawn_sums = bins.sum(axis=0), np.tensordot(drawn, bins, axes=1)
    low, high = interval(drawn_sums[:, :, _CAME] / np.maximum(drawn_sums[:, :, _N], 1.0))
    calibrated["reliability"] = {
        "from": EDGES[there].tolist(),
        "apps": sums[:, _N].tolist(),
        "said": (sums[:, _P] / sums[:, _N]).tolist(),
        "came": (sums[:, _CAME] / sums[:, _N]).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
    }
    return calibrated


def _wrong(bins: Floats) -> Floats:
    """Σ over bins |Σ (p − y)|."""
    wrong: Floats = np.abs(bins[..., _P] - bins[..., _CAME]).sum(axis=-1)
    return wrong


# --- steadiness ---

usable_in_loops(steady_row)

N_SHOWN = 5
FACTORS = np.array([1.0, 1.25, STEADY, 2.0, 3.0])
_NEW, _HITS = range(2)  # columns of sums
_DAY_MS = 86_400_000


@loop(seconds=lambda predictions, *_: 1e-4 * len(predictions.user))
def count_suggestions(
    predictions: Predictions,
    unit: Indices,
    competes: Mask,
    scores: Floats,
    factors: Floats,
    at_random: bool,
    sums: Floats,
    launches: Floats,
) -> None:
    """Follow the suggestions through one chunk; scores are P, or > 0 and only an order.

    By ``unit`` of each prediction: ``sums`` (n_units, len(FACTORS), 2) of new suggestions and of
    hits, ``launches`` (n_units, 2) after another, and of another app than the open one.
    ``at_random``: all orders are equally likely, and the expected values are counted.
    """
    shown = np.full((len(factors), N_SHOWN), -1)
    before = -1
    for n in range(len(predictions.user)):
        user, target, last = predictions.user[n], predictions.target[n], predictions.last[n]
        cells = slice(predictions.cell[n], predictions.cell[n] + predictions.width[n])
        there = np.where(competes[cells], scores[cells], 0.0)
        if last >= 0:
            there[last] = 0.0
        if user != before:
            shown[:] = -1
        else:
            launches[unit[n], 0] += 1.0
        counts = target != last
        launches[unit[n], 1] += counts
        for number in range(len(factors)):
            row = steady_row(shown[number], there, N_SHOWN, factors[number])
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


def steadiness(
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
    drawn = units.drawn(sums, sizes, seed)
    return [measured(mean, each) for mean, each in zip(means, drawn.T, strict=True)]
