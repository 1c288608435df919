"""The integers that stand for probabilities, held to e^ε in rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from catalogue import exp_bounds
from hypothesis import given
from hypothesis import strategies as st

from nextapp.randomness import (
    SMALLEST_EPSILON,
    W,
    check_epsilon,
    exp_from_below,
    keep_probability,
    keep_threshold,
    response_floor,
    sign_threshold,
)

EXTREMES = [SMALLEST_EPSILON, 1e-6, 0.1, 1.1, 4.5, 20.0, 40.0, 44.4, 63.9, 64.0, 700.0, 1e300]


epsilons = st.one_of(
    st.sampled_from(EXTREMES[:-2]),
    st.floats(SMALLEST_EPSILON, 60.0),
    st.floats(-30.0, 4.0).map(math.exp).filter(lambda e: e >= SMALLEST_EPSILON),
)


@given(epsilons, st.integers(1, 9))
def test_the_bound_of_e_to_the_epsilon_is_below_and_close(epsilon, k):
    _, above = exp_bounds(Fraction(epsilon) / k)
    bound = exp_from_below(epsilon, k)
    assert bound < above
    assert bound > above * (1 - Fraction(1, 10**38))


@given(epsilons, st.integers(1, 9))
def test_randomised_response_never_exceeds_its_ratio(epsilon, k):
    """Exact, k answers together, and one step less would exceed it."""
    T = response_floor(epsilon, k)
    lower, upper = exp_bounds(Fraction(epsilon))
    assert 1 <= T < W / 2
    assert Fraction(W - T, T) ** k <= lower
    if T > 1:
        assert Fraction(W - T + 1, T - 1) ** k > lower
    assert lower <= upper


@given(epsilons, st.integers(0, 12), st.data())
def test_keeping_never_exceeds_its_ratio(epsilon, b, data):
    among = 2**b
    chosen = data.draw(st.integers(1, among))
    T = keep_threshold(epsilon, chosen, among)
    ratio = keep_probability(T, chosen, among, True) / keep_probability(T, chosen, among, False)
    lower, _ = exp_bounds(Fraction(epsilon))
    assert 0 < T < W
    assert ratio <= lower
    total = chosen * keep_probability(T, chosen, among, True) + (among - chosen) * keep_probability(
        T, chosen, among, False
    )
    assert total == 1


@pytest.mark.parametrize("epsilon", EXTREMES)
def test_extreme_epsilons_give_usable_thresholds(epsilon):
    assert 1 <= response_floor(epsilon) < W // 2
    assert 0 < keep_threshold(epsilon, 1, 4096) < W


@given(st.floats(-1.0, 1.0), epsilons)
def test_the_probability_of_plus_stays_between_its_ends(x, epsilon):
    floor = response_floor(epsilon)
    T = sign_threshold(x, floor)
    assert floor <= T <= W - floor
    exact = floor + (1 + Fraction(x)) / 2 * (W - 2 * floor)
    assert abs(T - exact) <= 2 + Fraction(W, 2**52)


def test_the_ends_and_the_middle_are_exact():
    floor = response_floor(4.5)
    assert sign_threshold(-1.0, floor) == floor
    assert sign_threshold(1.0, floor) == W - floor
    assert sign_threshold(0.0, floor) == W // 2
    assert (sign_threshold(-1.0), sign_threshold(1.0)) == (0, W)


@pytest.mark.parametrize("x", [-1e9, 1e9, math.nextafter(1, 2)])
def test_an_entry_out_of_range_cannot_leave_the_ends(x):
    floor = response_floor(1.0)
    assert floor <= sign_threshold(x, floor) <= W - floor


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 1e-12])
def test_a_budget_that_is_none_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be"):
        check_epsilon(epsilon)
