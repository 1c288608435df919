"""Where bits come from. Nothing else in the package draws a number.

A phone takes its bits from the operating system: `SystemBits`. A simulation derives them from
(seed, phone, round, purpose): `KeyedBits`, so that a phone gets the same bits alone, in a
fleet, in a shard, in any order. Both are a stream of 64-bit words; everything else is exact integer
arithmetic on it.

A privacy mechanism compares a word with an integer threshold T, so that a probability is exactly
T/W with W = 2^64. The thresholds are computed from a rational lower bound of e^ε and rounded
towards more privacy. A server uses these probabilities, not the formula with e^ε, so the rounding
causes no bias.
"""

from __future__ import annotations

import decimal
import hashlib
import hmac
import math
import secrets
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

W = 1 << 64
"""Number of values of a word."""

SMALLEST_EPSILON = 2.0**-32
_LARGEST_RATIO = 64  # in nats; 64-bit words can represent ratios up to 44.4 only
_GRID = 1 << 52


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
            if not 0 <= value < W:
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
    if not 1 <= bound <= W:
        raise ValueError(f"bound must be from 1 to 2^64, got {bound!r}.")
    limit = W - W % bound
    while True:
        word = int(bits.words(1)[0])
        if word < limit:
            return word % bound


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


# --- probabilities in whole numbers, never beyond e^ε --------------------------------------------


def check_epsilon(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon >= SMALLEST_EPSILON):
        raise ValueError(
            f"epsilon must be a finite number of 2^-32 or more, got {epsilon!r}. It is the budget "
            f"of one whole report; for no privacy at all use the mechanism 'identity'."
        )
    return float(epsilon)


def exp_from_below(epsilon: float, k: int = 1) -> Fraction:
    """A rational lower bound of e^(ε/k), with a relative error of at most 10^-40.

    ε is exactly the given float, and ε/k is not rounded, so k draws with this ratio compose to at
    most e^ε exactly. For ε/k above 64 the result is e^64, which is more private.
    """
    share = min(Fraction(epsilon) / k, Fraction(_LARGEST_RATIO))
    context = decimal.Context(prec=60, rounding=decimal.ROUND_FLOOR)
    exponent = context.divide(decimal.Decimal(share.numerator), decimal.Decimal(share.denominator))
    return Fraction(context.exp(exponent)) * (1 - Fraction(1, 10**50))


def response_floor(epsilon: float, k: int = 1) -> int:
    """Smallest T ≥ 1 with ((W − T)/T)^k ≤ e^ε: T/W is the smallest probability of either answer.

    It is W/(1 + e^(ε/k)) of randomised response, rounded up.
    """
    return math.ceil(W / (1 + exp_from_below(epsilon, k)))


def keep_threshold(epsilon: float, chosen: int, among: int) -> int:
    """Largest T < W for which this two-level draw satisfies e^ε.

    With probability T/W the output is uniform on ``chosen`` values that depend on the data, else
    uniform on all ``among`` values. A chosen value has probability T/(W·chosen) +
    (W − T)/(W·among), any other only the second term; the ratio is
    1 + T·among/((W − T)·chosen) ≤ e^ε.
    """
    gain = (exp_from_below(epsilon) - 1) * chosen
    return min(math.floor(W * gain / (gain + among)), W - 1)


def keep_probability(threshold: int, chosen: int, among: int, is_chosen: bool) -> Fraction:
    """The probability of one value in the draw of `keep_threshold`."""
    chance = Fraction(W - threshold, W * among)
    return chance + Fraction(threshold, W * chosen) if is_chosen else chance


def sign_threshold(x: float, floor: int = 0) -> int:
    """T with P[+1] = T/W for an entry x in [−1, 1], linear from ``floor`` at −1 to W − floor at +1.

        T = floor + ⌊(W − 2 floor) · ⌊(1 + x) 2^52⌋ / 2^53⌋

    For every float x, T stays within these bounds, which is all that ε needs. With floor = 0 this
    is random rounding of x to ±1, P[+1] = ½ + ½ x.
    """
    steps = min(max(int((1.0 + x) * _GRID), 0), 2 * _GRID)
    return floor + ((W - 2 * floor) * steps >> 53)
