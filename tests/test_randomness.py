from __future__ import annotations

import numpy as np
import pytest

from nextapp.randomness import KeyedBits, SystemBits, below, purpose_word


class Given:
    """Words given one by one."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        return np.array(taken, np.uint64)


def test_keyed_bits_are_the_same_whenever_and_wherever_they_are_drawn(seed):
    whole = KeyedBits(seed, phone=5, round=2, purpose="report").words(10)
    again = KeyedBits(seed, phone=5, round=2, purpose="report")
    assert np.array_equal(whole, np.concatenate([again.words(3), again.words(7)]))


def test_keyed_bits_are_the_published_philox():
    """Random123's known answer for philox4x64-10 with key and counter all ones in every bit.

    NumPy counts up before it draws, so the block that is drawn first has the counter + 1.
    """
    ones = 2**64 - 1
    generator = np.random.Philox(
        key=np.array([ones, ones], np.uint64),
        counter=np.array([ones - 1, ones, ones, ones], np.uint64),
    )
    assert [hex(word) for word in generator.random_raw(4)] == [
        "0x87b092c3013fe90b",
        "0x438c3c67be8d0224",
        "0x9cc7d7c69cd777b6",
        "0xa09caebf594f0ba0",
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2, "phone": 5, "round": 2, "purpose": "a"},
        {"seed": 1, "phone": 6, "round": 2, "purpose": "a"},
        {"seed": 1, "phone": 5, "round": 3, "purpose": "a"},
        {"seed": 1, "phone": 5, "round": 2, "purpose": "b"},
    ],
)
def test_every_part_of_the_key_matters(other):
    mine = KeyedBits(seed=1, phone=5, round=2, purpose="a").words(4)
    assert not (mine == KeyedBits(**other).words(4)).any()


def test_keys_out_of_range_are_errors():
    with pytest.raises(ValueError, match="seed must be"):
        KeyedBits(seed=-1)
    with pytest.raises(ValueError, match="phone must be"):
        KeyedBits(seed=0, phone=2**64)
    with pytest.raises(ValueError, match="at most 8 bytes"):
        purpose_word("far too long")


def test_system_bits_differ_every_time():
    """Two draws of 256 bits agree once in 2^256."""
    assert not np.array_equal(SystemBits().words(4), SystemBits().words(4))


def test_below_draws_again_above_the_last_multiple():
    assert below(Given(2**64 - 1, 5), 3) == 2  # 2^64 - 1 is a multiple of 3: one word too many
    assert below(Given(2**64 - 1, 7), 10) == 7  # 2^64 - 1 lies past the last multiple of 10
    assert below(Given(2**64 - 7, 7), 10) == 9  # 2^64 - 7 = ...609, still inside


def test_below_is_uniform(seed):
    """Chi-squared with 6 degrees of freedom stays under 35 but for 4 seeds in a million."""
    bits = KeyedBits(seed, purpose="chi")
    counts = np.bincount([below(bits, 7) for _ in range(7000)], minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 35


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1])
def test_below_needs_a_bound_in_range(bound):
    with pytest.raises(ValueError, match="bound must be"):
        below(KeyedBits(seed=0), bound)
