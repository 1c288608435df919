"""Where bits come from. Nothing else in the package draws a number.

A phone takes its bits from the operating system: `SystemBits`. A simulation derives them from
(seed, phone, round, purpose): `KeyedBits`, so that a phone gets the same bits alone, in a
fleet, in a shard, in any order. Both are a stream of 64-bit words; everything else is exact integer
arithmetic on it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

_WORD = 1 << 64


class Bits(Protocol):
    """A stream of uniform bits."""

    def words(self, n: int) -> Words:
        """The next n words, uniform on 0 .. 2^64 - 1."""
        ...


class SystemBits:
    """Bits from the operating system: what a phone uses unless another source is named."""

    def words(self, n: int) -> Words:
        return np.frombuffer(secrets.token_bytes(8 * n), np.uint64).copy()


class TokenCoins:
    """Public bits of the token that goes with a report: its phone and its gateway know them.

    Word i is the first 8 bytes of HMAC-SHA256(signature, "nextapp coins" ‖ i), i as 8 bytes, lowest
    first. They protect nothing and need not: they decide only the part of a report that does not
    depend on the phone's data, and keep a hostile phone from choosing it, as nobody knows a
    signature before it is signed. No round is in them, or a phone could wait for one that it likes.

    >>> TokenCoins(bytes(256)).words(1) == TokenCoins(bytes(256)).words(1)
    array([ True])
    """

    def __init__(self, signature: bytes) -> None:
        self._key = hmac.new(signature, b"nextapp coins", hashlib.sha256)
        self._n_drawn = 0

    def words(self, n: int) -> Words:
        data = bytearray()
        for number in range(self._n_drawn, self._n_drawn + n):
            block = self._key.copy()
            block.update(number.to_bytes(8, "little"))
            data += block.digest()[:8]
        self._n_drawn += n
        return np.frombuffer(bytes(data), "<u8").astype(np.uint64)


class KeyedBits:
    """Bits that depend on (seed, phone, round, purpose) and on nothing else. For simulations only.

    Philox 4x64-10 (Salmon et al. 2011) with the key (seed, purpose) and the counter
    (block, phone, round, 0): no state to share, no hashing, the same in NumPy and in compiled
    loops.

    >>> KeyedBits(seed=7, phone=3, round=0).words(2) == KeyedBits(seed=7, phone=3, round=0).words(2)
    array([ True,  True])
    """

    def __init__(self, seed: int, phone: int = 0, round: int = 0, purpose: str = "") -> None:
        for name, value in (("seed", seed), ("phone", phone), ("round", round)):
            if not 0 <= value < _WORD:
                raise ValueError(
                    f"{name} must be a whole number from 0 to 2^64 - 1, got {value!r}."
                )
        self._philox = np.random.Philox(
            key=np.array([seed, purpose_word(purpose)], np.uint64),
            counter=np.array([0, phone, round, 0], np.uint64),
        )

    def words(self, n: int) -> Words:
        return self._philox.random_raw(n)

    def generator(self) -> np.random.Generator:
        """NumPy's distributions over the same stream: initial values, bootstrap draws."""
        return np.random.Generator(self._philox)


def purpose_word(purpose: str) -> int:
    """A purpose as a 64-bit word: its first 8 bytes, so that it can be read in a debugger."""
    data = purpose.encode()
    if len(data) > 8:
        raise ValueError(f"a purpose has at most 8 bytes, got {purpose!r}.")
    return int.from_bytes(data.ljust(8, b"\0"), "little")


def below(bits: Bits, bound: int) -> int:
    """A whole number uniform on 0 .. bound - 1, exactly: words above the last multiple are
    drawn again.

    >>> below(KeyedBits(seed=1), 1)
    0
    """
    if not 1 <= bound <= _WORD:
        raise ValueError(f"bound must be from 1 to 2^64, got {bound!r}.")
    limit = _WORD - _WORD % bound
    while True:
        word = int(bits.words(1)[0])
        if word < limit:
            return word % bound


def chance(bits: Bits, threshold: int) -> bool:
    """True with probability threshold / 2^64, exactly; one word."""
    return int(bits.words(1)[0]) < threshold


def distinct(bits: Bits, n: int, bound: int) -> list[int]:
    """n different whole numbers from 0 .. bound − 1, ascending; every set is equally likely.

    Floyd's way: for top = bound − n .. bound − 1 draw one of 0 .. top by `below`, and take top
    itself where that one is there already.

    >>> distinct(KeyedBits(seed=1), 3, 3)
    [0, 1, 2]
    """
    if not 0 <= n <= bound:
        raise ValueError(f"there are not {n!r} different numbers below {bound!r}.")
    taken: set[int] = set()
    for top in range(bound - n, bound):
        number = below(bits, top + 1)
        taken.add(top if number in taken else number)
    return sorted(taken)
