"""Reports are drawn as `log_prob` says. A test that needs luck states how seldom it fails."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest
from catalogue import FINITE, SEEDED, made
from scipy import integrate, stats

from nextapp.privacy import mechanism
from nextapp.privacy.piecewise import PiecewiseLaw
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
    options = {"b": 3} if name in ("codebook", "walsh") else {}
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


@pytest.mark.parametrize("epsilon", [0.3, 1.1, 4.5, 12.0])
@pytest.mark.parametrize("x", [-1.0, -0.2, 0.0, 0.9, 1.0])
def test_the_piecewise_law_is_what_wang_et_al_print(epsilon, x, seed):
    """Total 1, mean x, their variance; and the draws follow it."""
    law = PiecewiseLaw(epsilon)
    left, right = law._interval(x)
    pieces = [(-law.A, left), (left, right), (right, law.A)]

    def moment(power):
        total = 0.0
        for a, b in pieces:
            if b - a > 1e-12 * law.A:
                level = math.exp(law.log_density((a + b) / 2, x))
                total += level * integrate.quad(lambda y: y**power, a, b)[0]
        return total

    e = math.exp(epsilon / 2)
    assert moment(0) == pytest.approx(1.0, rel=1e-9)
    assert moment(1) == pytest.approx(x, abs=1e-9 * law.A)
    variance = x**2 / (e - 1) + (e + 3) / (3 * (e - 1) ** 2)
    assert moment(2) - x**2 == pytest.approx(variance, rel=1e-7)
    y = [law.draw(x, KeyedBits(seed, number, purpose="law")) for number in range(1500)]
    inside = sum(left <= v <= right for v in y)
    assert stats.binomtest(inside, len(y), e / (e + 1)).pvalue > FALSE_ALARM
    assert max(map(abs, y)) <= law.largest


@pytest.mark.parametrize("epsilon", [0.5, 1.1, 4.5])
def test_hybrid_mixes_its_parts_as_said(epsilon, seed):
    m = mechanism("hybrid", epsilon=epsilon, n_apps=1, d=1, clip=1.0)
    F = np.array([[0.4]])
    marks, plus = 0, 0
    for number in range(3000):
        report = m.encode(F, KeyedBits(seed, number))
        _, piecewise, values = m._parts([report])
        marks += int(piecewise[0])
        plus += int(not piecewise[0] and values[0] > 0)
    alpha = 1 - math.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    chance = 0.5 + 0.5 * 0.4 * math.tanh(epsilon / 2)
    assert stats.binomtest(marks, 3000, alpha).pvalue > FALSE_ALARM
    assert stats.binomtest(plus, 3000, (1 - alpha) * chance).pvalue > FALSE_ALARM


@pytest.mark.parametrize("form", ["dense", "seed"])
def test_privunit_leans_into_its_cap_as_often_as_said(form, rng, seed):
    m = made("privunit", {"form": form}, epsilon=3.0)
    F = rng.normal(size=(5, 4))
    F *= m.clip / np.linalg.norm(F)
    inside = 0
    for number in range(2000):
        report = m.encode(F, KeyedBits(seed, number))
        y = m.decode([report]) / m.clip * m.mu
        inside += bool(np.vdot(y, F) / m.clip >= m.gamma)
        gap = m.log_prob(report, F) - m.log_prob(report, -F)  # the opposite cap
        assert gap == pytest.approx(round(gap / 3) * 3, abs=1e-3)
    E, q = math.exp(3.0), m.q
    assert q == pytest.approx(stats.norm.sf(m.gamma), rel=1e-9)
    assert stats.binomtest(inside, 2000, q * E / (q * E + 1 - q)).pvalue > FALSE_ALARM


def test_the_density_of_privunit_sums_to_one():
    """On the line, D + 1 = 2: the density over the plane, in polar form around its cap."""
    m = mechanism("privunit", epsilon=1.1, n_apps=1, d=1, clip=1.0)
    inside, outside = 1 / m._Z, m._elsewhere / 2**64 / m._Z
    assert m.q * inside + (1 - m.q) * outside == pytest.approx(1.0, rel=1e-12)
    assert inside / outside == pytest.approx(math.exp(1.1), rel=1e-12)
    y = np.array([0.3, 2.1], np.float32)
    report = m.encode(np.zeros((1, 1)), KeyedBits(0))
    report = type(report)(m.name, 0, y.astype("<f4").tobytes())
    density = math.exp(m.log_prob(report, np.zeros((1, 1))))  # x = (0, 1)
    level = inside if y[1] >= m.gamma else outside
    assert density == pytest.approx(level * math.prod(stats.norm.pdf(y)), rel=1e-6)
