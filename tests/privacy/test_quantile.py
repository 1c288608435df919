"""A clip that was paid for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.privacy import ShorterThan, private_quantile
from nextapp.privacy.exact import W
from nextapp.randomness import KeyedBits
from nextapp.wire import Report, WireError


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_an_answer_holds_and_uses_its_epsilon(epsilon):
    answer = ShorterThan(epsilon)
    yes = math.log((W - answer.floor) / answer.floor)
    assert yes == pytest.approx(epsilon, rel=1e-9)
    assert yes <= epsilon * (1 + 1e-15)
    assert answer.guarantee.epsilon == epsilon
    assert answer.guarantee.per == "answer"


def test_the_share_is_unbiased(seed):
    """5 standard errors: a correct answer fails once in 1.7 million seeds."""
    answer = ShorterThan(1.0)
    reports = [answer.encode(1.0 if n % 4 else 3.0, 2.0, KeyedBits(seed, n)) for n in range(8000)]
    error = 0.5 / math.tanh(0.5) / math.sqrt(8000)
    assert abs(answer.decode(reports) - 0.75) < 5 * error


def test_the_quantile_is_found(rng, seed):
    """Lengths over four decades, 12 steps, 1,500 phones each. Loose: within 20 % in rank."""
    lengths = np.exp(rng.normal(0, 1.5, (12, 1500)))
    asked = []

    def ask(step, threshold):
        asked.append(step)
        return [
            ShorterThan(2.0).encode(length, threshold, KeyedBits(seed, n, step), step)
            for n, length in enumerate(lengths[step])
        ]

    found = private_quantile(ask, epsilon=2.0, quantile=0.7, low=1e-3, high=1e3)
    assert asked == list(range(12))  # nobody twice
    assert found.n_answers == 12 * 1500
    assert found.guarantee.epsilon == 2.0
    assert np.mean(lengths < found.value) == pytest.approx(0.7, abs=0.2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quantile": 1.0}, "quantile must"),
        ({"low": 0.0}, "bounds must"),
        ({"high": math.inf}, "bounds must"),
        ({"steps": 0}, "steps must"),
        ({"epsilon": 0.0}, "epsilon must"),
    ],
)
def test_mistakes_are_named(change, says):
    arguments = {"epsilon": 1.0, "low": 0.1, "high": 10.0, **change}
    with pytest.raises(ValueError, match=says):
        private_quantile(lambda step, threshold: [], **arguments)


@pytest.mark.parametrize(
    "report",
    [
        Report("shorter-than", 0, b"\2"),
        Report("shorter-than", 0, b""),
        Report("harmony", 0, b"\1"),
    ],
)
def test_an_answer_that_is_none_is_refused(report):
    with pytest.raises(WireError):
        ShorterThan(1.0).decode([report])


def test_no_answers_have_no_share():
    with pytest.raises(ValueError, match="at least one"):
        ShorterThan(1.0).decode([])


def test_a_length_must_be_a_number():
    with pytest.raises(ValueError, match="must be a number"):
        ShorterThan(1.0).encode(math.nan, 1.0, KeyedBits(0))
