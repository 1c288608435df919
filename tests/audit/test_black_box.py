"""Layers 2 and 3 against SciPy, hand computations and randomised response of known ε."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from nextapp.audit.layers import (
    Draws,
    black_box,
    calibration,
    clopper_pearson,
    draws,
    epsilon_low,
    frequencies,
    worst_pair,
)
from nextapp.audit.verdict import CASES
from nextapp.privacy import mechanism


@pytest.mark.parametrize(("hits", "n"), [(0, 50), (1, 50), (17, 50), (49, 50), (50, 50)])
def test_clopper_pearson_is_scipys(hits, n):
    theirs = stats.binomtest(hits, n).proportion_ci(0.99, method="exact")
    assert clopper_pearson(hits, n, 0.005) == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_epsilon_low_by_hand():
    low, high = 0.02 ** (1 / 100), 1 - 0.02 ** (1 / 100)  # all of 100, none of 100
    assert epsilon_low(100, 0, 100, 0.04) == pytest.approx(math.log(low / high))
    assert epsilon_low(0, 5, 100, 0.04) == -math.inf


def randomised_response(rng, epsilon, n):
    """n answers of each of two phones that tell the truth with probability e^ε/(1 + e^ε)."""
    truth = 1 / (1 + math.exp(-epsilon))
    yes, no = b"y", b"n"
    first = [yes if told else no for told in rng.random(n) < truth]
    second = [no if told else yes for told in rng.random(n) < truth]
    return Draws(first, second, None)


def test_false_alarms_are_as_rare_as_stated(rng):
    """At 1 in 10 asked for, 200 right mechanisms: more than 40 alarms once in a billion seeds."""
    alarms = sum(
        not black_box(1.0, randomised_response(rng, 1.0, 500), 0.1).holds for _ in range(200)
    )
    assert alarms <= 40


def test_a_mechanism_with_half_an_epsilon_too_much_is_caught(rng):
    found = black_box(2.0, randomised_response(rng, 2.5, 20_000), 1e-4)
    assert not found.holds
    assert found.epsilon_low <= 2.5


def test_the_bound_comes_close_and_stays_below(rng):
    found = black_box(2.0, randomised_response(rng, 2.0, 20_000), 1e-4)
    assert found.holds
    assert found.has_power
    assert found.n_held_out == 16_000


def test_the_event_is_chosen_before_the_held_out_reports_are_seen(rng):
    """Pure noise: with 500 payloads some look telling, but not on other reports."""
    noise = [rng.integers(500, size=20_000).astype(np.uint16) for _ in range(2)]
    first, second = ([each.tobytes() for each in side] for side in noise)
    assert black_box(0.0, Draws(first, second, None), 1e-4).epsilon_low <= 0


def test_losses_are_used_where_reports_never_repeat(seed):
    laplace = mechanism("laplace", epsilon=2.0, clip=1.0, n_apps=1, d=1)
    drawn = draws(laplace, worst_pair(laplace), 500, seed)
    assert drawn.losses is not None
    assert max(np.abs(side).max() for side in drawn.losses) == pytest.approx(2.0)
    harmony = CASES["harmony"].mechanism(2.0)
    assert draws(harmony, worst_pair(harmony), 1000, seed).losses is None


def test_worst_pairs_lie_on_the_clip():
    for name, case in CASES.items():
        if name == "qharmony":
            continue
        made = case.mechanism(1.0)
        for edge in worst_pair(made):
            np.testing.assert_allclose(made.apply_clip(edge), edge, rtol=1e-12)


def test_true_losses_are_calibrated_and_others_are_not(rng):
    """Randomised response at ε = 2, its losses stated right, and as if ε were 1.5."""
    drawn = randomised_response(rng, 2.0, 20_000)
    said = [np.where(np.array(side) == b"y", 2.0, -2.0) for side in (drawn.first, drawn.second)]
    assert calibration((said[0], said[1]), 1e-6).holds
    assert not calibration((0.75 * said[0], 0.75 * said[1]), 1e-6).holds


def test_p_values_of_right_samplers_are_uniform(seed):
    """Kolmogorov and Smirnov at 1e-6: once in a million seeds."""
    harmony = CASES["harmony"].mechanism(4.5)
    values = [frequencies(harmony, 500, 100 * seed + k, 0.01).p_value for k in range(30)]
    assert stats.kstest(values, "uniform").pvalue > 1e-6
    laplace = CASES["laplace"].mechanism(4.5)
    values = []
    for k in range(20):
        losses = draws(laplace, worst_pair(laplace), 1000, 100 * seed + k).losses
        values.append(calibration(losses, 0.01).p_value)
    assert stats.kstest(values, "uniform").pvalue > 1e-6


def test_the_law_of_walsh_is_tested_index_by_index(seed):
    walsh = CASES["walsh"].mechanism(4.5)
    fit = frequencies(walsh, 5000, seed, 1e-6)
    assert fit.n_cells > 3 * walsh.k
    assert fit.holds
