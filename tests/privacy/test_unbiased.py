"""The mean of `decode` is the mean of the clipped gradients; and V is as the papers say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from catalogue import FINITE, UNBIASED, gradients, made

from nextapp.privacy import mechanism
from nextapp.privacy.walsh import order_statistics
from nextapp.randomness import KeyedBits

INPUTS = ["zero", "sparse", "dense", "boundary", "beyond"]


@pytest.mark.parametrize("name", ["harmony", "kashin"])
@pytest.mark.parametrize("kind", INPUTS)
def test_the_expected_estimate_is_the_clipped_gradient(name, kind, rng):
    """Exact: the sum over every report of its probability times its estimate."""
    m = made(name, {"b": 1} if name == "kashin" else {}, n_apps=3, d=2)
    F = gradients(rng, 3, 2)[kind]
    expected = sum(math.exp(m.log_prob(r, F)) * m.decode([r]) for r in m.outputs())
    np.testing.assert_allclose(expected, m.apply_clip(F), atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_harmony_is_unbiased_for_every_k(k, rng):
    m = made("harmony", {"k": k}, n_apps=3, d=2)
    F = rng.uniform(-3, 3, (3, 2))
    expected = sum(math.exp(m.log_prob(r, F)) * m.decode([r]) for r in m.outputs())
    np.testing.assert_allclose(expected, m.apply_clip(F), atol=1e-12)


@pytest.mark.parametrize(("name", "options"), UNBIASED)
@pytest.mark.parametrize("kind", INPUTS)
def test_many_reports_average_to_the_clipped_gradient(name, options, kind, rng, seed):
    """5 standard errors for each of 20 entries: a correct mechanism fails once in 80,000 seeds.

    The same reports give V at x = 0, within 5 standard errors as well.
    """
    n = 1500
    m = made(name, options)
    F = gradients(rng)[kind]
    reports = [m.encode(F, KeyedBits(seed, number, purpose=kind)) for number in range(n)]
    each = np.array([m.decode([report]) for report in reports])
    error = np.abs(each.mean(axis=0) - m.apply_clip(F))
    assert (error <= 5 * each.std(axis=0) / math.sqrt(n) + 1e-12).all()
    np.testing.assert_allclose(m.decode(reports), each.mean(axis=0), rtol=1e-9, atol=1e-6)
    if kind == "zero":
        squares = (each**2).sum(axis=(1, 2)) / m.clip**2
        assert abs(squares.mean() - m.variance) <= 5 * squares.std() / math.sqrt(n) + 1e-9


def test_variances_are_those_of_the_papers():
    """D = 1392, against the formulas of privacy.md and its figures for PrivUnit."""
    D, size = 1392, {"n_apps": 87, "d": 16, "clip": 1.0}
    for epsilon in (1.1, 4.5):
        e = math.exp(epsilon)
        V = {name: mechanism(name, epsilon=epsilon, **size).variance for name in FINITE}
        k = {1.1: 1, 4.5: 2}[epsilon]
        coth = 1 / math.tanh(epsilon / (2 * k))
        assert V["harmony"] == pytest.approx(D**2 * coth**2 / k, rel=1e-12)
        b = {1.1: 1, 4.5: 4}[epsilon]
        response = ((e + 2**b - 1) / (e - 1)) ** 2 / b
        assert V["kashin"] == pytest.approx(D * 1.8**2 * response, rel=1e-12)
        laplace = [mechanism("laplace", epsilon=epsilon, ball=b, **size) for b in ("linf", "l1")]
        assert laplace[0].variance == pytest.approx(8 * D**3 / epsilon**2)
        assert laplace[1].variance == pytest.approx(8 * D / epsilon**2)
        best = {1.1: 5.24, 4.5: 0.352}[epsilon] * D  # PrivUnit, the best of its kind
        assert best < V["walsh"] < 1.03 * best


def test_order_statistics_match_known_values():
    assert order_statistics(3)[0] == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-12)
    assert sum(order_statistics(64)) == pytest.approx(0.0, abs=1e-12)
    assert order_statistics(1000)[0] == pytest.approx(3.2414357696, rel=1e-8)  # Harter 1961
