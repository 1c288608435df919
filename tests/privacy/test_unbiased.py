"""The mean of `decode` is the mean of the clipped gradients; and V is as the papers say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from catalogue import FINITE, UNBIASED, gradients, made
from scipy import stats

from nextapp.privacy import codewords, mechanism
from nextapp.privacy.codebook import order_statistics
from nextapp.randomness import KeyedBits

INPUTS = ["zero", "sparse", "dense", "boundary", "beyond"]


@pytest.mark.parametrize("name", ["duchi", "harmony", "qharmony", "kashin"])
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
    """D = 1392, against the formulas of privacy.md and its figures for privunit."""
    D, size = 1392, {"n_apps": 87, "d": 16, "clip": 1.0}
    for epsilon in (1.1, 4.5):
        e = math.exp(epsilon)
        c = (e + 1) / (e - 1)
        V = {name: mechanism(name, epsilon=epsilon, **size).variance for name in FINITE}
        assert V["duchi"] == pytest.approx(math.pi / 2 * D**2 * c**2, rel=1e-3)
        k = {1.1: 1, 4.5: 2}[epsilon]
        coth = 1 / math.tanh(epsilon / (2 * k))
        assert V["harmony"] == V["qharmony"] == pytest.approx(D**2 * coth**2 / k, rel=1e-12)
        b = {1.1: 1, 4.5: 4}[epsilon]
        response = ((e + 2**b - 1) / (e - 1)) ** 2 / b
        assert V["simhash"] == pytest.approx(D * math.pi / 2 * response, rel=1e-12)
        assert V["kashin"] == pytest.approx(D * 1.8**2 * response, rel=1e-12)
        half = math.exp(epsilon / 2)
        piecewise = mechanism("piecewise", epsilon=epsilon, **size).variance
        assert piecewise == pytest.approx(D**2 * (half + 3) / (3 * (half - 1) ** 2), rel=1e-12)
        laplace = [mechanism("laplace", epsilon=epsilon, ball=b, **size) for b in ("linf", "l1")]
        assert laplace[0].variance == pytest.approx(8 * D**3 / epsilon**2)
        assert laplace[1].variance == pytest.approx(8 * D / epsilon**2)
        privunit = mechanism("privunit", epsilon=epsilon, **size).variance
        assert privunit == pytest.approx({1.1: 5.24, 4.5: 0.352}[epsilon] * D, rel=2e-3)
        assert privunit < V["codebook"] < 1.03 * privunit
        assert V["walsh"] == V["codebook"]
        seed = mechanism("privunit", epsilon=epsilon, form="seed", **size).variance
        assert seed == pytest.approx(privunit, rel=1e-3)


def test_order_statistics_of_the_table_are_those_of_a_gaussian():
    """Exact for a gradient along one axis: the i-th best entry is in the slice of a Beta quantile.

    So μ has a relative bias below 1e-5, far below what a million reports can show.
    """
    m = 256
    table = codewords.table() / codewords.UNIT
    edges = np.arange(65537) / 65536
    gaussian = order_statistics(m)
    for i in (1, 2, 5, 12, 40, 128):
        share = np.diff(stats.beta.cdf(edges, m - i + 1, i))
        assert share @ table == pytest.approx(gaussian[i - 1], rel=1e-5)


def test_order_statistics_match_known_values():
    assert order_statistics(3)[0] == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-12)
    assert sum(order_statistics(64)) == pytest.approx(0.0, abs=1e-12)
    assert order_statistics(1000)[0] == pytest.approx(3.2414357696, rel=1e-8)  # Harter 1961


@pytest.mark.parametrize("angle", [0.0, 0.05, 0.3, math.pi / 4, 1.2])
def test_signs_of_table_vectors_point_as_gaussian_ones_do(angle):
    """E[sign(g·x) g] = √(2/π) x, summed over the table, for gradients in a plane of two axes.

    At 45° ties have a chance of 2^-16, which is the largest bias there is.
    """
    table = codewords.table() / codewords.UNIT
    x = np.array([math.cos(angle), math.sin(angle)])
    tail = np.concatenate([np.cumsum(table[::-1])[::-1], [0.0]]) / 65536  # Σ of the entries above
    above = 1 - np.arange(65537) / 65536
    if angle == 0.0:
        mean = np.array([np.abs(table).mean(), 0.0])
    else:
        where = np.searchsorted(table, -x[0] * table / x[1])  # g2 from which on g·x ≥ 0
        mean = np.array([table @ (2 * above[where] - 1) / 65536, 2 * tail[where].mean()])
    np.testing.assert_allclose(mean, math.sqrt(2 / math.pi) * x, atol=2e-5)


def test_every_cap_holds_its_share_of_the_seeds():
    """privunit as a seed: P[x·y ≥ γ] = q within 1e-5 of itself, exactly on the table."""
    table = codewords.table() / codewords.UNIT
    for epsilon in (1.1, 4.5):
        m = mechanism("privunit", epsilon=epsilon, n_apps=1, d=2, clip=1.0, form="seed")
        assert np.mean(table >= m.gamma) == m.q
        for angle in (1e-3, 0.02, 0.3, math.pi / 4):
            x = math.cos(angle), math.sin(angle)
            where = np.searchsorted(table, (m.gamma - x[0] * table) / x[1])
            assert 1 - where.mean() / 65536 == pytest.approx(m.q, rel=1e-5)
