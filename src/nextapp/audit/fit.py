"""Layer 2 of the audit: does the sampler draw what the mechanism says it draws?

Two tests, both chi-squared:

    frequencies   where reports can be listed: how often each came, against exp(log_prob)
    calibration   elsewhere: a report with privacy loss l (log_prob under one gradient less that
                  under the other) must come e^l times as often under the one as under the other
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from nextapp.audit.black_box import worst_pair
from nextapp.audit.exact import listed_reports
from nextapp.privacy import FiniteMechanism
from nextapp.randomness import Bits, KeyedBits, Words
from nextapp.wire import Floats

LEAST_EXPECTED = 20.0
"""Of a cell; rarer reports share one, so that chi-squared holds far out in its tail."""

_MOST_CELLS = 20


@dataclass(frozen=True)
class Fit:
    """The chance of a deviation as large as the one seen, if the sampler is right.

    It fails where ``p_value`` is below ``false_alarm``, which is thus how often a right one fails.
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
    """Reports of three gradients, two of them the worst pair, against the stated law.

    Where reports carry a seed, all of a gradient's reports are drawn with the same seed.
    """
    first, second = worst_pair(mechanism)
    slope = np.linspace(-0.9, 0.4, first.size).reshape(first.shape)
    gradients = [first, second, slope * np.abs(first).max()]
    reports_of = listed_reports(mechanism, seed)
    statistic, n_cells, freedom = 0.0, 0, 0
    for number, gradient in enumerate(gradients):
        word, reports = reports_of[number % len(reports_of)]
        bits = KeyedBits(seed, phone=number, purpose="fit")
        source = bits if word is None else _SameFirstWord(word, bits)
        counts: Counter[bytes] = Counter()
        for _ in range(n_reports):
            counts[mechanism.encode(gradient, source).to_bytes()] += 1
            if isinstance(source, _SameFirstWord):
                source.begin()
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
    """Whether losses are what they say: those of reports of the first gradient, and of the second.

    In each cell of losses the side on which they are rare is predicted from the other: the expected
    number of the second's reports is the sum of e^{−l} over the first's where l > 0, and the other
    way round. As the number of reports is fixed, the statistic is a little smaller than
    chi-squared, so the false-alarm rate is at most the one stated.
    """
    first, second = (np.round(side, 9) for side in losses)  # equal but for rounding is equal
    n_reports = len(first) + len(second)
    refused = np.isnan(first).any() or np.isnan(second).any()
    if refused or (first == -np.inf).any() or (second == np.inf).any():  # came, though excluded
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
    """Edges between the distinct values where they are few, else between equal shares of them."""
    distinct = np.unique(values)
    if len(distinct) <= _MOST_CELLS:
        return (distinct[1:] + distinct[:-1]) / 2
    return np.unique(np.quantile(values, np.linspace(0, 1, _MOST_CELLS + 1)[1:-1]))


def _cells(expected: Floats) -> npt.NDArray[np.intp]:
    """A cell number for each entry: in descending order, as many a cell as make it large enough."""
    cells = np.zeros(len(expected), np.intp)
    n_cells, filled = 0, 0.0
    for entry in np.argsort(-expected, kind="stable").tolist():
        cells[entry] = n_cells
        filled += float(expected[entry])
        if filled >= LEAST_EXPECTED:
            n_cells, filled = n_cells + 1, 0.0
    return np.minimum(cells, max(0, n_cells - 1))  # what is left over joins the last cell


class _SameFirstWord:
    """Bits whose first word, the seed of a report, is always the same."""

    def __init__(self, word: int, bits: Bits) -> None:
        self._word = word
        self._bits = bits
        self._at_start = True

    def begin(self) -> None:
        """The next report begins."""
        self._at_start = True

    def words(self, n: int) -> Words:
        words = self._bits.words(n)
        if self._at_start and n:
            words[0] = self._word
            self._at_start = False
        return words
