"""The bits of `nextapp.randomness.KeyedBits` inside compiled loops, word for word.

A stream is an array of 11 words that its functions move on::

    @compiled
    def tosses(seed: int, phone: int, n: int) -> int:
        bits = stream(seed, phone, 0, TOSSES)  # TOSSES = purpose_word("tosses"), made outside
        heads = 0
        for _ in range(n):
            heads += uniform(bits) < 0.5
        return heads
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled, high_word
from nextapp.randomness import Words

Key = int | np.integer[Any]

# Philox 4x64-10: multipliers and key increments (Salmon et al. 2011, table 2 and section 4.3).
_MULTIPLY_0 = np.uint64(0xD2E7470EE14C6C93)
_MULTIPLY_2 = np.uint64(0xCA5A826395121157)
_WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
_WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
_ONE = np.uint64(1)

# Where things stand in a stream: the key, the counter, the block, the next word of the block.
_KEY, _COUNTER, _BLOCK, _NEXT = 0, 2, 6, 10


@compiled
def stream(seed: Key, phone: Key, round: Key, purpose: Key) -> Words:
    """The stream of ``KeyedBits(seed, phone, round, purpose)``; `purpose` is a `purpose_word`.

    Numbers from 2^63 on are to be given as ``np.uint64``.
    """
    bits = np.zeros(11, np.uint64)
    bits[_KEY] = np.uint64(seed)
    bits[_KEY + 1] = np.uint64(purpose)
    bits[_COUNTER + 1] = np.uint64(phone)
    bits[_COUNTER + 2] = np.uint64(round)
    bits[_NEXT] = 4
    return bits


@compiled
def word(bits: Words) -> np.uint64:
    """The next word, uniform on 0 .. 2^64 - 1."""
    if bits[_NEXT] == 4:
        _turn(bits)
    here = bits[_NEXT]
    bits[_NEXT] = here + _ONE
    next_word: np.uint64 = bits[_BLOCK + np.int64(here)]
    return next_word


@compiled
def uniform(bits: Words) -> float:
    """A double uniform on the multiples of 2^-53 in [0, 1): NumPy's ``Generator.random``."""
    return float(word(bits) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def below(bits: Words, bound: Key) -> int:
    """A whole number uniform on 0 .. bound - 1, exactly: `nextapp.randomness.below`.

    `bound` is from 1 to 2^63 - 1.
    """
    size = np.uint64(bound)
    rest = (np.uint64(0) - size) % size  # 2^64 mod bound
    while True:
        drawn = word(bits)
        if rest == 0 or drawn < np.uint64(0) - rest:
            return np.int64(drawn % size)  # type: ignore[return-value]


@compiled
def exponential(bits: Words) -> float:
    """A waiting time with mean 1."""
    return -math.log1p(-uniform(bits))


@compiled
def normal(bits: Words) -> float:
    """A standard normal number, by Box and Muller; two words."""
    radius = math.sqrt(2.0 * exponential(bits))
    return radius * math.cos(2.0 * math.pi * uniform(bits))


@compiled
def _turn(bits: Words) -> None:
    """The next block: the counter goes up by one first, as in NumPy."""
    for place in range(_COUNTER, _COUNTER + 4):
        bits[place] += _ONE
        if bits[place] != 0:
            break
    x0, x1, x2, x3 = philox(bits[0], bits[1], bits[2], bits[3], bits[4], bits[5])
    bits[_BLOCK], bits[_BLOCK + 1], bits[_BLOCK + 2], bits[_BLOCK + 3] = x0, x1, x2, x3
    bits[_NEXT] = 0


@compiled
def philox(
    key_0: np.uint64, key_1: np.uint64, x0: np.uint64, x1: np.uint64, x2: np.uint64, x3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The block of 4 words at the counter (x0, x1, x2, x3): ten rounds."""
    for _ in range(10):
        high_0, high_2 = high_word(_MULTIPLY_0, x0), high_word(_MULTIPLY_2, x2)
        x0, x1, x2, x3 = (
            high_2 ^ x1 ^ key_0,
            _MULTIPLY_2 * x2,
            high_0 ^ x3 ^ key_1,
            _MULTIPLY_0 * x0,
        )
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return x0, x1, x2, x3
