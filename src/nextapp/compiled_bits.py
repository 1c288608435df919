"""`nextapp.randomness.KeyedBits` for compiled loops, with exactly the same words.

A stream is an array with the generator's state, which the functions advance::

    @compiled
    def tosses(seed: int, phone: int, n: int) -> int:
        bits = stream(seed, phone, 0, TOSSES)  # TOSSES = purpose_word("tosses"), outside the loop
        heads = 0
        for _ in range(n):
            heads += uniform(bits) < 0.5
        return heads
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import borrowing, compiled, inlined, loop, wide_product
from nextapp.randomness import Words

Key = int | np.integer[Any]

# Philox 4x64-10: multipliers and key increments (Salmon et al. 2011, table 2 and section 4.3).
_MULTIPLY_0 = np.uint64(0xD2E7470EE14C6C93)
_MULTIPLY_2 = np.uint64(0xCA5A826395121157)
_WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
_WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
_ONE = np.uint64(1)

# Layout of a stream: the key, the counter, the index of the next word, then a buffer of words, one
# block or many.
_KEY, _COUNTER, _NEXT, _FIRST = 0, 2, 6, 7
_LONG = 64


@compiled
def stream(seed: Key, phone: Key, round: Key, purpose: Key) -> Words:
    """The stream of ``KeyedBits(seed, phone, round, purpose)``; `purpose` is a `purpose_word`.

    Numbers >= 2^63 must be given as ``np.uint64``.
    """
    bits = np.zeros(_FIRST + 4, np.uint64)
    restart(bits, seed, phone, round, purpose)
    return bits


@compiled
def room_for_long_stream() -> Words:
    """Room for `restart`: blocks are made many at a time, which is faster for hundreds of words."""
    return np.zeros(_FIRST + _LONG, np.uint64)


@borrowing
def restart(bits: Words, seed: Key, phone: Key, round: Key, purpose: Key) -> None:
    """Begin another `stream` in the room of this one."""
    bits[:_NEXT] = 0
    bits[_KEY] = np.uint64(seed)
    bits[_KEY + 1] = np.uint64(purpose)
    bits[_COUNTER + 1] = np.uint64(phone)
    bits[_COUNTER + 2] = np.uint64(round)
    bits[_NEXT] = len(bits)


@inlined
def word(bits: Words) -> np.uint64:
    """The next word, uniform on 0 .. 2^64 - 1."""
    here = np.int64(bits[_NEXT])
    if here == len(bits):
        _turn(bits)
        here = np.int64(_FIRST)
    bits[_NEXT] = here + 1
    next_word: np.uint64 = bits[here]
    return next_word


@inlined
def uniform(bits: Words) -> float:
    """A double uniform on the multiples of 2^-53 in [0, 1): NumPy's ``Generator.random``."""
    return float(word(bits) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def cursor(bits: Words) -> int:
    """Where the next word stands, for `uniform_at`."""
    return np.int64(bits[_NEXT])  # type: ignore[return-value]


@inlined
def set_cursor(bits: Words, here: int) -> None:
    """Let `word` and its like go on where `uniform_at` has come to."""
    bits[_NEXT] = here


@inlined
def uniform_at(bits: Words, here: int) -> tuple[float, int]:
    """`uniform`, and where the word after it stands.

    A loop that keeps the cursor itself has it in a register, and waits for no memory.
    """
    if here == len(bits):
        _turn(bits)
        here = _FIRST
    return float(bits[here] >> np.uint64(11)) * (1.0 / 9007199254740992.0), here + 1


@borrowing
def below(bits: Words, bound: Key) -> int:
    """An integer exactly uniform on 0 .. bound - 1: `nextapp.randomness.below`.

    `bound` is from 1 to 2^63 - 1.
    """
    size = np.uint64(bound)
    rest = (np.uint64(0) - size) % size  # 2^64 mod bound
    while True:
        drawn = word(bits)
        if rest == 0 or drawn < np.uint64(0) - rest:
            return np.int64(drawn % size)  # type: ignore[return-value]


@borrowing
def exponential(bits: Words) -> float:
    """An exponential random number with mean 1."""
    return -math.log1p(-uniform(bits))


@borrowing
def normal(bits: Words) -> float:
    """A standard normal random number by the Box-Muller method, from two words."""
    radius = math.sqrt(2.0 * exponential(bits))
    return radius * math.cos(2.0 * math.pi * uniform(bits))


def _turn_by_numpy(bits: Words) -> None:
    generator = np.random.Philox(key=bits[_KEY:_COUNTER], counter=bits[_COUNTER:_NEXT])
    bits[_FIRST:] = generator.random_raw(len(bits) - _FIRST)
    bits[_COUNTER:_NEXT] = generator.state["state"]["counter"]


@loop(plain=_turn_by_numpy, _nrt=False)
def _turn(bits: Words) -> None:
    """Fill the buffer with the next blocks; the counter is incremented first, as in NumPy."""
    key_0, key_1 = bits[_KEY], bits[_KEY + 1]
    c0, c1, c2, c3 = bits[_COUNTER], bits[_COUNTER + 1], bits[_COUNTER + 2], bits[_COUNTER + 3]
    for at in range(_FIRST, len(bits), 4):
        c0 += _ONE
        if c0 == 0:
            c1 += _ONE
            if c1 == 0:
                c2 += _ONE
                if c2 == 0:
                    c3 += _ONE
        x0, x1, x2, x3 = philox(key_0, key_1, c0, c1, c2, c3)
        bits[at], bits[at + 1], bits[at + 2], bits[at + 3] = x0, x1, x2, x3
    bits[_COUNTER], bits[_COUNTER + 1], bits[_COUNTER + 2], bits[_COUNTER + 3] = c0, c1, c2, c3


@borrowing
def philox(
    key_0: np.uint64, key_1: np.uint64, x0: np.uint64, x1: np.uint64, x2: np.uint64, x3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The block of 4 words at the counter (x0, x1, x2, x3): ten rounds."""
    for _ in range(10):
        high_0, low_0 = wide_product(_MULTIPLY_0, x0)
        high_2, low_2 = wide_product(_MULTIPLY_2, x2)
        x0, x1, x2, x3 = high_2 ^ x1 ^ key_0, low_2, high_0 ^ x3 ^ key_1, low_0
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return x0, x1, x2, x3
