"""Calibration of predicted probabilities.

A predictor whose scores are log P (`scores_are_log_chances`) gives every candidate app a
probability p at every launch; y is 1 for the app that was launched and 0 for all others.

    reliability   apps with p in a bin: mean p, and the share that was launched, Σy / n
    ECE           expected calibration error, Σ over bins |Σ (p − y)| / launches
    ECE of the first   the same for the most likely app of each launch only

Intervals are 95 %, over `Exam.units`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.data.log import Indices
from nextapp.evaluation.revealing import Chunk, Predictions
from nextapp.intervals import interval, resample
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

EDGES = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
"""Lower edges of the bins; most apps are unlikely, so the first bins are narrow."""

_P, _CAME, _N = range(3)


def count_predictions(
    chunk: Chunk,
    unit: Indices,
    scores: Floats,
    target_competes: bool,
    bins: Floats,
    launches: Floats,
) -> None:
    """Count the predictions of one chunk that lie within sessions; scores are log P.

    By ``unit`` of each prediction: ``bins`` (n_units, 2, len(EDGES), 3) are sums of p, of y and of
    apps, for all apps and for the most likely one, and ``launches`` (n_units,). Only candidates
    that compete.
    """
    asked = chunk.predictions._replace(user=unit)
    within = Predictions(*(column[asked.last >= 0] for column in asked))
    _count(within, chunk.seen_from, np.exp(scores), target_competes, bins, EDGES)
    np.add.at(launches, within.user, 1.0)


def _seconds_to_count(predictions: Predictions, *_: object) -> float:
    return 3e-5 * len(predictions.user)


@compiled(seconds=_seconds_to_count)
def _count(
    predictions: Predictions,
    seen_from: Indices,
    chances: Floats,
    target_competes: bool,
    bins: Floats,
    edges: Floats,
) -> None:
    n_bins = len(edges)
    for n in range(len(predictions.user)):
        seen = seen_from[predictions.first_candidate[n] : predictions.last_candidate[n]]
        user, target = predictions.user[n], predictions.target[n]
        competes = seen < predictions.row[n]
        competes[target] |= target_competes
        candidates = np.flatnonzero(competes)
        if len(candidates) == 0:
            continue
        p = chances[predictions.cell[n] + candidates]
        place = np.searchsorted(edges, p, side="right") - 1
        of_all, of_best = bins[user, 0], bins[user, 1]
        of_all[:, _P] += np.bincount(place, p, n_bins)
        of_all[:, _N] += np.bincount(place, minlength=n_bins)
        best = p.argmax()
        of_best[place[best], _P] += p[best]
        of_best[place[best], _CAME] += candidates[best] == target
        of_best[place[best], _N] += 1.0
        if competes[target]:
            mine = chances[predictions.cell[n] + target]
            of_all[np.searchsorted(edges, mine, side="right") - 1, _CAME] += 1.0


def summary(found: Floats, launches: Floats, seed: int) -> dict[str, Any]:
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
        low, high = interval(rates[:, None])
        mean = float(_wrong(by_user.sum(axis=0)) / total)
        calibrated[name] = {"mean": mean, "low": float(low[0]), "high": float(high[0])}
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
