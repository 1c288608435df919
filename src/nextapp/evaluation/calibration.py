"""Calibration of predicted probabilities, and what prewarming apps by them gains.

A predictor whose scores are log P (`scores_are_log_chances`) gives every candidate app a
probability p at every launch; y is 1 for the app that was launched and 0 for all others.

    reliability   apps with p in a bin: mean p, and the share that was launched, Σy / n
    ECE           expected calibration error, Σ over bins |Σ (p − y)| / launches
    ECE of the first   the same for the most likely app of each launch only
    prewarms      apps with p ≥ a threshold, per launch; hits: launches whose app was among them

A rival without probabilities prewarms its top n apps: n prewarms per launch, HR@n hits.
Intervals are 95 %, over users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.evaluation.revealing import Chunk, Predictions
from nextapp.intervals import interval, resample
from nextapp.predictors.questions import Indices
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

EDGES = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
"""Lower edges of the bins; most apps are unlikely, so the first bins are narrow."""

THRESHOLDS = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9])
N_FIRST = 10  # apps that a rival without probabilities prewarms, at most
_P, _CAME, _N = range(3)


@dataclass(frozen=True, eq=False)
class CalibrationCounts:
    """Counts by user: sums of p, of y and of apps by bin, for all apps and for the most likely one;
    prewarms and hits by threshold; launches whose app is in the top n; launches."""

    bins: Floats  # (n_users, 2, len(EDGES), 3)
    above: Floats  # (n_users, len(THRESHOLDS), 2): prewarms, hits
    first: Floats  # (n_users, N_FIRST): hits
    launches: Floats  # (n_users,)

    @classmethod
    def empty(cls, n_users: int) -> CalibrationCounts:
        return cls(
            np.zeros((n_users, 2, len(EDGES), 3)),
            np.zeros((n_users, len(THRESHOLDS), 2)),
            np.zeros((n_users, N_FIRST)),
            np.zeros(n_users),
        )

    def set_users(self, users: Indices, other: CalibrationCounts) -> None:
        """Set the rows of these users to the rows of `other`."""
        for own, part in zip(
            (self.bins, self.above, self.first, self.launches),
            (other.bins, other.above, other.first, other.launches),
            strict=True,
        ):
            own[users] = part


def count_predictions(
    chunk: Chunk, scores: Floats | None, better: Indices, equal: Indices, target_competes: bool
) -> CalibrationCounts:
    """Count the predictions of one chunk, by user of its questions; only candidates that compete.

    ``scores`` are log P; None where a predictor gives no probabilities.
    ``better`` and ``equal`` are the results of `nextapp.evaluation.revealing.ranks`.
    """
    found = CalibrationCounts.empty(len(chunk.questions.users))
    predictions = chunk.predictions
    if scores is not None:
        _count(
            predictions, chunk.seen_from, np.exp(scores), target_competes, found.bins, found.above,
            EDGES, THRESHOLDS,
        )  # fmt: skip
    hits = np.clip(np.arange(1, N_FIRST + 1) - better[:, None], 0, equal[:, None])
    np.add.at(found.first, predictions.user, hits / np.maximum(equal, 1)[:, None])
    np.add.at(found.launches, predictions.user, 1.0)
    return found


def _seconds_to_count(predictions: Predictions, *_: object) -> float:
    return 3e-5 * len(predictions.user)


@compiled(seconds=_seconds_to_count)
def _count(
    predictions: Predictions,
    seen_from: Indices,
    chances: Floats,
    target_competes: bool,
    bins: Floats,
    above: Floats,
    edges: Floats,
    thresholds: Floats,
) -> None:
    n_bins, n_thresholds = len(edges), len(thresholds)
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
        of_all, of_best, over = bins[user, 0], bins[user, 1], above[user]
        of_all[:, _P] += np.bincount(place, p, n_bins)
        of_all[:, _N] += np.bincount(place, minlength=n_bins)
        best = p.argmax()
        of_best[place[best], _P] += p[best]
        of_best[place[best], _CAME] += candidates[best] == target
        of_best[place[best], _N] += 1.0
        n_below = np.bincount(np.searchsorted(thresholds, p, side="right"), minlength=n_thresholds)
        over[:, 0] += len(p) - np.cumsum(n_below)[:n_thresholds]
        if competes[target]:
            mine = chances[predictions.cell[n] + target]
            of_all[np.searchsorted(edges, mine, side="right") - 1, _CAME] += 1.0
            over[:, 1] += mine >= thresholds


def summary(found: CalibrationCounts, seed: int, *, chances: bool) -> dict[str, Any]:
    """The figures as plain values; calibration only if scores are probabilities (`chances`).

    Figures are sums over all launches, not means over users, since a bin has few apps of one user.
    Intervals are a bootstrap over users.
    """
    n_users = len(found.launches)
    drawn = resample(KeyedBits(seed, purpose="boot").generator(), n_users)
    total = found.launches.sum()
    totals = drawn @ found.launches
    first = found.first.sum(axis=0) / total
    low, high = interval((drawn @ found.first) / totals[:, None])
    prewarm: dict[str, Any] = {
        "first": {
            "prewarms": list(range(1, N_FIRST + 1)),
            "hits": first.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        },
        "above": None,
    }
    if not chances:
        return {"prewarm": prewarm, "calibration": None}
    above = found.above.sum(axis=0) / total
    low, high = interval((drawn @ found.above[:, :, 1]) / totals[:, None])
    prewarm["above"] = {
        "threshold": THRESHOLDS.tolist(),
        "prewarms": above[:, 0].tolist(),
        "hits": above[:, 1].tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
    }
    calibrated: dict[str, Any] = {}
    for number, name in enumerate(("ece", "ece_first")):
        by_user = found.bins[:, number]
        low, high = interval((_wrong(np.tensordot(drawn, by_user, axes=1)) / totals)[:, None])
        mean = float(_wrong(by_user.sum(axis=0)) / total)
        calibrated[name] = {"mean": mean, "low": float(low[0]), "high": float(high[0])}
    there = found.bins[:, 0].sum(axis=0)[:, _N] > 0
    bins = found.bins[:, 0, there]
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
    return {"prewarm": prewarm, "calibration": calibrated}


def _wrong(bins: Floats) -> Floats:
    """Σ over bins |Σ (p − y)|."""
    wrong: Floats = np.abs(bins[..., _P] - bins[..., _CAME]).sum(axis=-1)
    return wrong
