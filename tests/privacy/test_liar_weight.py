"""How much one report can weigh: enumerated, and no more than is stated."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from nextapp.privacy import mechanism
from nextapp.privacy.walsh import MOST_VARIANCE, L, fewest_bits, order_statistics

N_APPS, N_SEEDS = 3, 300


def walsh(epsilon, b):
    return mechanism("walsh", n_apps=N_APPS, d=N_APPS + 1, epsilon=epsilon, clip=1.0, b=b)


def largest_of_sums(m: int) -> float:
    """E of the largest of m sums of 64 tossed signs, over √64: by the binomial law, exactly."""
    below, mean = Fraction(0), Fraction(0)
    for ups in range(L + 1):
        here = below + Fraction(comb(L, ups), 2**L)
        mean += (here**m - below**m) * (2 * ups - L)
        below = here
    return float(mean) / math.sqrt(L)


@pytest.mark.parametrize("b", [2, 4])
def test_the_influence_of_one_report_on_a_cell_is_that_of_the_best_codeword(b):
    """All m reports of a seed are enumerated; 5 σ over 300 seeds.

    A codeword's entry is a sum of 64 signs, so the best of m has a mean that is known exactly.
    """
    m, cell = walsh(1.0, b), (1, 2)
    best = [max(m.decode([one])[cell] for one in m.outputs(seed)) for seed in range(N_SEEDS)]
    error = np.std(best) / math.sqrt(len(best))
    assert np.mean(best) == pytest.approx(largest_of_sums(m.m) / m.mu, abs=5 * error)
    assert np.max(best) <= math.sqrt(L) / m.mu
    assert m.liar_weight == pytest.approx(largest_of_sums(m.m) / m.mu, rel=0.01)


@pytest.mark.parametrize("kind", ["column", "column and row"])
def test_no_direction_gives_a_liar_more_than_its_weight(kind, rng):
    """The best of all reports of a seed along a column, where a liar lifts an app; 5 σ and 1 %."""
    m = walsh(1.0, 4)
    wanted = np.zeros((N_APPS, N_APPS + 1))
    wanted[:, 1] = rng.random(N_APPS)
    if kind != "column":
        wanted[1, :-1] = rng.random(N_APPS)
    wanted /= np.linalg.norm(wanted)
    best = [
        max(float((m.decode([one]) * wanted).sum()) for one in m.outputs(seed))
        for seed in range(N_SEEDS)
    ]
    error = np.std(best) / math.sqrt(len(best))
    assert abs(np.mean(best) - m.liar_weight) < 5 * error + 0.01 * m.liar_weight


def test_one_report_moves_the_mean_of_n_by_its_own_size_and_no_more(rng):
    m = walsh(1.0, 4)
    reports = [next(m.outputs(seed)) for seed in range(40)]
    for liar in m.outputs(99):
        moved = m.decode([*reports, liar]) - 40 / 41 * m.decode(reports)
        np.testing.assert_allclose(moved, m.decode([liar]) / 41, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0, 2.0, 4.5, 8.0])
def test_the_fewest_codewords_cost_what_they_may_and_one_bit_less_costs_more(epsilon):
    b = fewest_bits(epsilon)
    full = walsh(epsilon, 8)
    assert walsh(epsilon, b).variance <= MOST_VARIANCE * full.variance
    assert walsh(epsilon, b - 1).variance > MOST_VARIANCE * full.variance
    assert 1 / math.tanh(epsilon / 2) <= walsh(epsilon, b).liar_weight <= full.liar_weight


def test_two_codewords_leave_a_liar_the_least_there_is():
    """By hand: E of the larger of two normal numbers is 1/√π, μ = tanh(ε/2)/√π."""
    for epsilon in (0.5, 1.0, 4.5):
        assert walsh(epsilon, 1).liar_weight == pytest.approx(1 / math.tanh(epsilon / 2), rel=1e-9)
    assert order_statistics(2)[0] == pytest.approx(1 / math.sqrt(math.pi))
