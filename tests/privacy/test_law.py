"""Reports are drawn as `log_prob` says. A test that needs luck states how seldom it fails."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest
from catalogue import FINITE, SEEDED, made
from scipy import stats

from nextapp.randomness import KeyedBits

FALSE_ALARM = 1e-6  # of each statistical test below, for a correct mechanism and a random seed


class FromSeed:
    """Keyed bits, except that the first word, a report's seed, is given."""

    def __init__(self, first: int, bits: KeyedBits) -> None:
        self._first = [first]
        self._bits = bits

    def words(self, n):
        given = [self._first.pop()] if self._first and n else []
        return np.array([*given, *self._bits.words(n - len(given)).tolist()], np.uint64)


@pytest.mark.parametrize("name", FINITE)
@pytest.mark.parametrize("epsilon", [0.7, 3.0])
def test_frequencies_fit_the_probabilities(name, epsilon, rng, seed):
    """Chi-squared on all reports there are."""
    options = {"b": 3} if name == "walsh" else {}
    m = made(name, options, epsilon=epsilon, n_apps=2, d=2)
    F = rng.normal(0, 0.8, (2, 2))
    seeded = name in SEEDED
    reports = list(m.outputs(seed=77) if seeded else m.outputs())
    drawn = collections.Counter()
    for number in range(6000):
        bits = KeyedBits(seed, number, purpose=name)
        drawn[m.encode(F, FromSeed(77, bits) if seeded else bits).payload] += 1
    assert set(drawn) <= {report.payload for report in reports}
    expected = [6000 * math.exp(m.log_prob(report, F)) for report in reports]
    found = [drawn[report.payload] for report in reports]
    assert stats.chisquare(found, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("ball", ["linf", "l1"])
def test_laplace_noise_has_its_law(ball, seed):
    m = made("laplace", {"ball": ball}, n_apps=100, d=20)
    F = np.zeros((100, 20))
    y = m.decode([m.encode(F, KeyedBits(seed))]).ravel() / m.clip
    assert stats.kstest(y, stats.laplace(scale=m.scale).cdf).pvalue > FALSE_ALARM
