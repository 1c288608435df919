"""The three layers of an audit: a mechanism's stated output distribution, its reports, and its ε as
seen from outside.

Layer 1, `exact`, takes no samples. For ε-LDP, eq. (14), no report may be more than e^ε times as
likely given one gradient as given another. For every possible report the largest and the smallest
probability over the extreme gradients are compared, which covers all pairs. Mechanisms that list
their reports are checked in exact arithmetic, so a ratio above e^ε by one part in 10^18 is
detected. Those with real-valued reports are checked at reports that they draw, which can show a
fault but not exclude one.

Layer 2 is the goodness of fit of reports to the stated probabilities, by one of two chi-squared
tests:

    frequencies   if reports can be listed: counts of the reports against exp(log_prob)
    calibration   otherwise: a report with privacy loss l (log_prob given one gradient minus that
                  given the other) must be e^l times as frequent for the one as for the other

Layer 3, `black_box`, is a lower bound on ε from reports only. Many reports are drawn of two
gradients as far apart as the clip allows. A fifth of them is used to choose an event that
distinguishes the two, the others to bound its two probabilities (Clopper and Pearson 1934):

    ε_low = ln(p1_low / p0_high) ≤ ε     if the mechanism is ε-LDP, up to the false-alarm rate

After Ding et al. (2018) and Jagielski et al. (2020). A bound far below ε shows nothing: the test
then has no power.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import stats

from nextapp.privacy import FiniteMechanism, Mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits, Words, exp_from_below
from nextapp.wire import Floats, Report, WireError

SEEDS = 2
"""Number of seeds that are checked if reports contain one; probabilities are conditional on it."""

DRAWN = 50
"""Number of reports drawn from every extreme gradient if reports cannot be listed."""

LEAST_EXPECTED = 20.0
"""Smallest expected count of a cell; rarer reports are merged, for chi-squared to be accurate."""

_MOST_CELLS = 20
_ROUNDING = 1e-9  # relative rounding error of densities computed in floats
_MOST_CORNERS = 6  # 2^6 corners of the cube


@dataclass(frozen=True)
class ExactLaw:
    """The largest log-ratio found, and whether ε holds.

    ``complete``: every report was listed and each gradient's probabilities sum to exactly 1.
    ``tight``: the largest ratio is e^ε to 9 digits, so all of ε is used.
    """

    epsilon: float
    worst: float
    n_gradients: int
    n_reports: int
    complete: bool
    holds: bool

    @property
    def tight(self) -> bool:
        return self.holds and self.worst >= self.epsilon * (1 - _ROUNDING)


def exact(mechanism: Mechanism, seed: int) -> ExactLaw:
    """The largest log-ratio of report probabilities; `seed` determines what is drawn.

    All reports are listed, so `mechanism` must be small, with a few entries.
    """
    gradients = extreme_gradients(mechanism, seed)
    if isinstance(mechanism, FiniteMechanism):
        return _law_by_listing(mechanism, gradients, seed)
    return _law_by_drawing(mechanism, gradients, seed)


def extreme_gradients(mechanism: Mechanism, seed: int) -> list[Floats]:
    """Gradients on the boundary of the clip, the zero gradient, and one far outside.

    Probabilities that are affine in each entry (ℓ∞ mechanisms) are extreme at corners of the cube.
    If only the direction matters (ℓ2), the axes, the diagonals and six random directions are used,
    half of these shorter than the clip.
    """
    size = mechanism.n_apps * mechanism.d
    radius = mechanism.clip if math.isfinite(mechanism.clip) else 1.0
    axes = [sign * row for row in np.eye(size) for sign in (1.0, -1.0)]
    corners: list[Floats] = []
    if size <= _MOST_CORNERS:
        corners = [np.array(signs) for signs in itertools.product((1.0, -1.0), repeat=size)]
    if mechanism.ball == "l1":
        points = axes
    elif mechanism.ball == "l2":
        random = KeyedBits(seed, purpose="extreme").generator().normal(size=(6, size))
        random /= np.linalg.norm(random, axis=1, keepdims=True)
        random[::2] /= 2
        diagonals = [np.asarray(corner / math.sqrt(size)) for corner in corners]
        points = [*axes, *diagonals, *random]
    else:
        points = [*(corners or axes), axes[0]]
    points = [*points, np.zeros(size), 100 * points[0]]
    return [radius * point.reshape(mechanism.n_apps, mechanism.d) for point in points]


def list_reports(mechanism: FiniteMechanism, seed: int) -> list[tuple[int | None, list[Report]]]:
    """All reports of `mechanism`; if they contain a seed, which is then the first word that the
    phone draws, all reports of each of a few seeds."""
    if "seed" not in inspect.signature(mechanism.outputs).parameters:
        return [(None, list(mechanism.outputs()))]
    words = KeyedBits(seed, purpose="seeds").words(SEEDS).tolist()
    return [(word, list(mechanism.outputs(seed=word))) for word in words]  # type: ignore[call-arg]


def _law_by_listing(mechanism: FiniteMechanism, gradients: Sequence[Floats], seed: int) -> ExactLaw:
    worst = Fraction(1)
    possible = complete = True
    n_reports = 0
    for _, reports in list_reports(mechanism, seed):
        n_reports += len(reports)
        law = [[mechanism.probability(report, each) for report in reports] for each in gradients]
        complete &= all(sum(row, Fraction(0)) == 1 for row in law)
        for chances in zip(*law, strict=True):
            if min(chances) > 0:
                worst = max(worst, max(chances) / min(chances))
            elif max(chances) > 0:
                possible = False
    return ExactLaw(
        mechanism.epsilon,
        math.log(worst.numerator) - math.log(worst.denominator) if possible else math.inf,
        len(gradients),
        n_reports,
        complete,
        complete and possible and worst <= exp_from_below(mechanism.epsilon),
    )


def _law_by_drawing(mechanism: Mechanism, gradients: Sequence[Floats], seed: int) -> ExactLaw:
    bits = KeyedBits(seed, purpose="exact")
    reports = [mechanism.encode(each, bits) for each in gradients for _ in range(DRAWN)]
    law = np.array([[mechanism.log_prob(report, each) for report in reports] for each in gradients])
    worst = float((law.max(axis=0) - law.min(axis=0)).max())
    return ExactLaw(
        mechanism.epsilon,
        worst,
        len(gradients),
        len(reports),
        complete=False,
        holds=worst <= mechanism.epsilon * (1 + _ROUNDING),
    )


# --- layer 2 -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """The p-value of a test of the null hypothesis that the sampler is correct.

    It fails if ``p_value`` is below ``false_alarm``, which is the false-alarm rate.
    """

    test: str
    p_value: float
    n_reports: int
    n_cells: int
    false_alarm: float

    @property
    def holds(self) -> bool:
        return self.p_value >= self.false_alarm


def frequencies(mechanism: FiniteMechanism, n_reports: int, seed: int, false_alarm: float) -> Fit:
    """Test the reports of three gradients, two of them the worst pair, against the stated
    probabilities.

    If reports contain a seed, all reports of a gradient use the same seed.
    """
    first, second = worst_pair(mechanism)
    slope = np.linspace(-0.9, 0.4, first.size).reshape(first.shape)
    gradients = [first, second, slope * np.abs(first).max()]
    reports_of = list_reports(mechanism, seed)
    statistic, n_cells, freedom = 0.0, 0, 0
    for number, gradient in enumerate(gradients):
        word, reports = reports_of[number % len(reports_of)]
        bits = KeyedBits(seed, phone=number, purpose="fit")
        coins = None if word is None else _OneWord(word)
        counts = Counter(
            mechanism.encode(gradient, bits, coins=coins).to_bytes() for _ in range(n_reports)
        )
        expected = np.array(
            [n_reports * float(mechanism.probability(r, gradient)) for r in reports]
        )
        observed = np.array([counts.pop(report.to_bytes(), 0) for report in reports])
        if counts:  # reports that the mechanism does not list
            return Fit("frequencies", 0.0, 3 * n_reports, len(reports), false_alarm)
        cells = _cells(expected)
        seen = np.bincount(cells, observed)
        due = np.bincount(cells, expected)
        statistic += float(((seen - due) ** 2 / due).sum())
        n_cells += len(due)
        freedom += len(due) - 1
    p_value = float(stats.chi2.sf(statistic, freedom)) if freedom else 1.0
    return Fit("frequencies", p_value, 3 * n_reports, n_cells, false_alarm)


def calibration(losses: tuple[Floats, Floats], false_alarm: float) -> Fit:
    """Test whether the stated privacy losses agree with the reports of the two gradients.

    In each cell of losses the count on the rarer side is predicted from the other side: the
    expected number of the second's reports is the sum of e^{−l} over the first's where l > 0, and
    vice versa. As the number of reports is fixed, the statistic is slightly smaller than
    chi-squared, so the false-alarm rate is at most the stated one.
    """
    first, second = (np.round(side, 9) for side in losses)  # ignore rounding errors
    n_reports = len(first) + len(second)
    refused = np.isnan(first).any() or np.isnan(second).any()
    if refused or (first == -np.inf).any() or (second == np.inf).any():  # impossible reports
        return Fit("calibration", 0.0, n_reports, 1, false_alarm)
    statistic, n_cells = 0.0, 0
    for ours, theirs in ((first, second), (-second, -first)):
        common, rare = ours[(ours > 0) & (ours < np.inf)], theirs[theirs > 0]
        edges = _edges(common)
        cells = np.searchsorted(edges, common, side="right")
        n = len(edges) + 1
        expected = np.asarray(np.bincount(cells, np.exp(-common), n), np.float64)
        spread = expected + np.bincount(cells, np.exp(-2 * common), n)
        seen = np.bincount(np.searchsorted(edges, rare, side="right"), minlength=n)
        groups = _cells(expected)
        due, allowed, came = (np.bincount(groups, x) for x in (expected, spread, seen))
        enough = due >= LEAST_EXPECTED
        statistic += float(((came - due)[enough] ** 2 / allowed[enough]).sum())
        n_cells += int(enough.sum())
    p_value = float(stats.chi2.sf(statistic, n_cells)) if n_cells else 1.0
    return Fit("calibration", p_value, n_reports, n_cells, false_alarm)


def _edges(values: Floats) -> Floats:
    """Edges between the distinct values if they are few, else between quantiles."""
    distinct = np.unique(values)
    if len(distinct) <= _MOST_CELLS:
        return (distinct[1:] + distinct[:-1]) / 2
    return np.unique(np.quantile(values, np.linspace(0, 1, _MOST_CELLS + 1)[1:-1]))


def _cells(expected: Floats) -> npt.NDArray[np.intp]:
    """A cell number for each entry; in descending order, entries are merged until a cell is large
    enough."""
    cells = np.zeros(len(expected), np.intp)
    n_cells, filled = 0, 0.0
    for entry in np.argsort(-expected, kind="stable").tolist():
        cells[entry] = n_cells
        filled += float(expected[entry])
        if filled >= LEAST_EXPECTED:
            n_cells, filled = n_cells + 1, 0.0
    return np.minimum(cells, max(0, n_cells - 1))  # remaining entries join the last cell


class _OneWord:
    """Coins that are always this word, the seed of a report."""

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, n: int) -> Words:
        return np.full(n, self._word, np.uint64)


# --- layer 3 -------------------------------------------------------------------------------------


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
        of_first, of_second = (
            np.array([_loss(mechanism, each, pair) for each in reports]) for reports in sides
        )
        losses = of_first, of_second
    return Draws(first, second, losses)


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
