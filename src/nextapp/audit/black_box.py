"""Layer 3 of the audit: a lower bound on ε from reports only.

Many reports are drawn of two gradients as far apart as the clip allows. A fifth of them is used to
choose an event that distinguishes the two, the others to bound its two probabilities (Clopper and
Pearson 1934):

    ε_low = ln(p1_low / p0_high) ≤ ε     if the mechanism is ε-LDP, up to the false-alarm rate

After Ding et al. (2018) and Jagielski et al. (2020). A bound far below ε shows nothing: the test
then has no power.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from nextapp.privacy import Mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats, Report, WireError

CHOOSING = 0.2
"""Share of the reports used to choose the event."""

LEAST_SHARE = 0.005
"""An event must be at least this likely under one of the two gradients."""

POWER = 0.85
"""ε_low must reach this share of ε, else the test could not have detected a fault."""

_DIFFERENT = 0.05  # with a larger share of different reports, counting them is not informative
_MOST_THRESHOLDS = 400


@dataclass(frozen=True)
class Draws:
    """Reports of two gradients as bytes on the wire, with their privacy losses if needed.

    ``losses`` are log_prob given the first gradient minus log_prob given the second, as stated by
    the mechanism, for the reports of each; None if there are so few different reports that they can
    be counted. A report that the mechanism itself rejects has the loss NaN.
    """

    first: list[bytes]
    second: list[bytes]
    losses: tuple[Floats, Floats] | None


@dataclass(frozen=True)
class BlackBox:
    """A lower bound on ε from reports only, wrong (too high) with probability ``false_alarm``.

    ``n_hits`` and ``n_hits_other`` of ``n_held_out`` reports of the two gradients are in the event.
    """

    epsilon: float
    epsilon_low: float
    n_hits: int
    n_hits_other: int
    n_held_out: int
    event: str
    false_alarm: float

    @property
    def holds(self) -> bool:
        return self.epsilon_low <= self.epsilon

    @property
    def has_power(self) -> bool:
        return self.epsilon_low >= POWER * self.epsilon


def worst_pair(mechanism: Mechanism) -> tuple[Floats, Floats]:
    """Two gradients as far apart as the clip allows: opposite corners or ends of an axis."""
    radius = mechanism.clip if math.isfinite(mechanism.clip) else 1.0
    edge = np.zeros((mechanism.n_apps, mechanism.d))
    if mechanism.ball in ("l1", "l2"):
        edge[0, 0] = radius
    else:
        edge[:] = radius
    return edge, -edge


def draws(
    mechanism: Mechanism,
    pair: tuple[Floats, Floats],
    n_reports: int,
    seed: int,
    progress: Progress = silent,
) -> Draws:
    """`n_reports` reports of each of the pair."""
    sides = []
    for side, gradient in enumerate(pair):
        bits = KeyedBits(seed, phone=side, purpose="audit")
        reports = []
        for number in range(n_reports):
            reports.append(mechanism.encode(gradient, bits))
            if number % 1000 == 0:
                progress(mechanism.name, side * n_reports + number, 2 * n_reports)
        sides.append(reports)
    first, second = ([report.to_bytes() for report in reports] for reports in sides)
    n_different = len({*first[: _n_choosing(n_reports)], *second[: _n_choosing(n_reports)]})
    losses = None
    if n_different > _DIFFERENT * 2 * _n_choosing(n_reports):
        losses = (_losses(mechanism, sides[0], pair), _losses(mechanism, sides[1], pair))
    return Draws(first, second, losses)


def _losses(mechanism: Mechanism, reports: Sequence[Report], pair: tuple[Floats, Floats]) -> Floats:
    return np.array([_loss(mechanism, each, pair) for each in reports])


def _loss(mechanism: Mechanism, report: Report, pair: tuple[Floats, Floats]) -> float:
    try:
        return mechanism.log_prob(report, pair[0]) - mechanism.log_prob(report, pair[1])
    except WireError:
        return math.nan


def black_box(epsilon: float, drawn: Draws, false_alarm: float) -> BlackBox:
    """The best lower bound on ε that the held-out reports support, in either direction.

    Events are half-lines of a score: the privacy loss, or, if there are few different reports, the
    log-ratio of their counts among the choosing reports.
    """
    n = len(drawn.first)
    if n < 100 or len(drawn.second) != n:
        raise ValueError(f"this test needs at least 100 reports of each gradient, got {n}.")
    first, second = _scores(drawn)
    choosing, held_out = slice(0, _n_choosing(n)), slice(_n_choosing(n), n)
    level = false_alarm / 2  # two directions
    found = []
    for ours, theirs, where in ((first, second, "≥"), (-second, -first, "≤")):
        threshold = _best_threshold(ours[choosing], theirs[choosing], level)
        hits = int((ours[held_out] >= threshold).sum())
        others = int((theirs[held_out] >= threshold).sum())
        low = epsilon_low(hits, others, n - held_out.start, level)
        score = "log-ratio of counts" if drawn.losses is None else "privacy loss"
        sign = 1 if where == "≥" else -1
        found.append((low, hits, others, f"{score} {where} {sign * threshold:.4g}"))
    low, hits, others, event = max(found)
    return BlackBox(epsilon, low, hits, others, n - held_out.start, event, false_alarm)


def epsilon_low(hits: int, others: int, n: int, false_alarm: float) -> float:
    """ln(p1_low/p0_high) from counts among n reports each; too high with at most this probability.

    Each of the two bounds has half of the false-alarm rate.
    """
    low = clopper_pearson(hits, n, false_alarm / 2)[0]
    high = clopper_pearson(others, n, false_alarm / 2)[1]
    return math.log(low / high) if low > 0 else -math.inf


def clopper_pearson(hits: int, n: int, tail: float) -> tuple[float, float]:
    """Confidence bounds on a probability from `hits` of `n`; each is wrong with at most `tail`.

    >>> low, high = clopper_pearson(0, 100, 0.025)
    >>> low, round(high, 4)  # 1 − 0.025^(1/100)
    (0.0, 0.0362)
    """
    low = float(stats.beta.ppf(tail, hits, n - hits + 1)) if hits > 0 else 0.0
    high = float(stats.beta.isf(tail, hits + 1, n - hits)) if hits < n else 1.0
    return low, high


def _n_choosing(n_reports: int) -> int:
    return int(CHOOSING * n_reports)


def _scores(drawn: Draws) -> tuple[Floats, Floats]:
    if drawn.losses is not None:
        first, second = (
            np.nan_to_num(side, nan=0.0, posinf=np.inf, neginf=-np.inf) for side in drawn.losses
        )
        return first, second
    n = _n_choosing(len(drawn.first))
    ours, theirs = Counter(drawn.first[:n]), Counter(drawn.second[:n])
    ratio = {
        report: math.log((ours[report] + 0.5) / (theirs[report] + 0.5)) for report in ours | theirs
    }
    first, second = (
        np.array([ratio.get(report, 0.0) for report in side])
        for side in (drawn.first, drawn.second)
    )
    return first, second


def _best_threshold(ours: Floats, theirs: Floats, false_alarm: float) -> float:
    """The threshold whose half-line gives the highest bound on these reports."""
    found = np.unique(ours)
    if len(found) > _MOST_THRESHOLDS:
        found = np.unique(np.quantile(found, np.linspace(0, 1, _MOST_THRESHOLDS)))
    n = len(ours)
    best, chosen = -math.inf, float(found[0])
    for threshold in found.tolist():
        hits = int((ours >= threshold).sum())
        if hits < LEAST_SHARE * n:
            break
        low = epsilon_low(hits, int((theirs >= threshold).sum()), n, false_alarm)
        if low > best:
            best, chosen = low, threshold
    return chosen
