"""A second implementation of every mechanism's ``encode``: from random words to the payload.

`Chooser` generates the words. A protocol passes it the thresholds of each word, and the chooser
prefers words next to a threshold. The replay (`replay`) then gives the same words to
``encode``, which must produce the same report.

Only things that do not depend on a phone's data are shared with `nextapp.privacy`: the sizes and
options of the mechanism. kashin's coefficients come from the
mechanism too: its ε holds for any coefficients.
"""

from __future__ import annotations

import copy
import decimal
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.crowd import Shares
from nextapp.model import PhoneGradient
from nextapp.privacy.mechanism import Gradient, Mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

WORD = 1 << 64
_ROUNDING = 2.0**-44  # relative rounding error of a background entry summed in another order

Cut = tuple[int, int]
"""A threshold T as (T, T), or (low, high) if it is only known to lie between the two."""


class Chooser:
    """Words for one report: next to thresholds, at the ends of the range, and in between.

    ``preset`` words come first, regardless of thresholds.
    """

    def __init__(self, bits: KeyedBits, preset: Sequence[int] = ()) -> None:
        self.words: list[int] = []
        self._bits = bits
        self._preset = list(reversed(preset))
        self._raw: list[int] = []

    def word(self, *cuts: Cut) -> int:
        """The next word; it lies within no cut."""
        word = self._preset.pop() if self._preset else self._choose(cuts)
        self.words.append(word)
        return word

    def below(self, bound: int) -> int:
        """A number from 0 to bound − 1; words from the last multiple of `bound` on are rejected."""
        limit = WORD - WORD % bound
        while (word := self.word((limit, limit))) >= limit:
            pass
        return word % bound

    def distinct(self, n: int, bound: int) -> list[int]:
        """Floyd's sampling of n numbers below `bound`, ascending."""
        taken: set[int] = set()
        for top in range(bound - n, bound):
            number = self.below(top + 1)
            taken.add(number if number not in taken else top)
        return sorted(taken)

    def uniforms(self, n: int) -> Floats:
        """n numbers between 0 and 1, from the upper 53 bits of a word each.

        The largest word, which would round to 1, is not used.
        """
        words = np.minimum(self._bits.words(n), np.uint64(WORD - 4096))
        words[self._bits.words(n) % np.uint64(64) == 0] = 0
        self.words += words.tolist()
        return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def _choose(self, cuts: Sequence[Cut]) -> int:
        kind, spot = self._next(), self._next()
        if not cuts:
            return (0, WORD - 1)[kind >> 1 & 1] if kind % 8 == 0 else spot
        low, high = cuts[(kind >> 8) % len(cuts)]
        word = (
            low - 1,
            high,
            low - 1,
            high,
            0 if kind >> 7 & 1 else WORD - 1,
            spot * low // WORD,
            high + spot * (WORD - high) // WORD,
            spot,
        )[kind % 8]
        for low, high in cuts:
            if low <= word < high or not 0 <= word < WORD:
                word = high if high < WORD else low - 1
        return word

    def _next(self) -> int:
        if not self._raw:
            self._raw = self._bits.words(256).tolist()
        return self._raw.pop()


@dataclass(frozen=True, eq=False)
class Content:
    """The content of a gradient or of shares, independent of its type.

    ``flat`` are the entries (D,); an entry is known within ±``slack``.
    """

    given: Gradient
    flat: Floats
    slack: Floats | float = 0.0


def content(given: Gradient) -> Content:
    """The content of a gradient or of shares."""
    flat: Floats
    if isinstance(given, Shares):
        flat = np.zeros(given.shape[0] * given.shape[1])
        flat[given.cells] = given.share
        return Content(given, flat)
    slack: Floats | float = 0.0
    if isinstance(given, PhoneGradient):
        left, right = given.c0 * (given.app_vectors @ given.p), given.p
        entries = np.outer(left, right) if given.c0 else np.zeros_like(given.app_vectors)
        entries[given.apps] += given.rows
        if given.c0:
            most = abs(given.c0) * (np.abs(given.app_vectors) @ np.abs(given.p))
            slack = np.outer(most, np.abs(right))
            slack[given.apps] += np.abs(given.rows)
            slack = _ROUNDING * slack.ravel()
        flat = entries.ravel()
    else:
        flat = np.array(given, np.float64).ravel()
    return Content(given, flat, slack)


class Protocol(ABC):
    """The encoding of one mechanism. The public part comes first, from the public words."""

    def __init__(self, mechanism: Any) -> None:
        self.mechanism = mechanism
        self.size: int = mechanism.n_apps * mechanism.d
        self.epsilon: float = mechanism.epsilon
        self.clip: float = mechanism.clip

    @abstractmethod
    def payload(self, data: Content, public: Chooser, private: Chooser) -> bytes:
        """The payload of this content with the words of the choosers."""

    def _in_ball(self, data: Content, ball: str) -> Floats:
        """The clipped entries, divided by the clip."""
        flat, clip = data.flat, self.clip
        if ball == "linf":
            return np.minimum(np.maximum(flat, -clip), clip) / clip
        largest = float(np.max(np.abs(flat), initial=0.0))
        if largest == 0.0:
            return np.zeros(len(flat))
        unit = flat / largest
        norm = float(np.abs(unit).sum()) if ball == "l1" else math.sqrt(float(unit @ unit))
        return unit / norm if largest > clip / norm else unit * (largest / clip)


class HarmonyProtocol(Protocol):
    def __init__(self, mechanism: Any) -> None:
        super().__init__(mechanism)
        self.k = mechanism.k
        self.least = least_response(self.epsilon, self.k)

    def payload(self, data: Content, public: Chooser, private: Chooser) -> bytes:
        positions = public.distinct(self.k, self.size)
        signs = []
        for position in positions:
            value = float(data.flat[position])
            slack = float(data.slack[position]) if isinstance(data.slack, np.ndarray) else 0.0
            low, high = (
                positive_below(self._clip(each), self.least)
                for each in (value - slack, value + slack)
            )
            signs.append(int(private.word((low, high)) < low))
        width = (self.size - 1).bit_length()
        return fields([*positions, *signs], [width] * self.k + [1] * self.k)

    def _clip(self, value: float) -> float:
        return min(max(value, -self.clip), self.clip) / self.clip


class KashinProtocol(Protocol):
    def __init__(self, mechanism: Any) -> None:
        super().__init__(mechanism)
        self.b = mechanism.b
        self.n = 2
        while self.n < 2 * self.size:
            self.n *= 2
        self.threshold = keep_below(self.epsilon, 1, 1 << self.b)
        self._untouched = copy.deepcopy(mechanism)
        self._known: dict[int, tuple[Content, Floats]] = {}

    def payload(self, data: Content, public: Chooser, private: Chooser) -> bytes:
        if id(data) not in self._known:
            entries = data.flat.reshape(self.mechanism.n_apps, self.mechanism.d)
            found = copy.deepcopy(self._untouched).coefficients(entries)
            self._known[id(data)] = data, np.minimum(np.maximum(found, -1.0), 1.0)
        coefficients = self._known[id(data)][1]
        positions = public.distinct(self.b, self.n)
        signs = []
        for position in positions:
            up = positive_below(float(coefficients[position]), 0)
            signs.append(int(private.word((up, up)) < up))
        coin, other = private.word((self.threshold,) * 2), private.word()
        if coin >= self.threshold:
            signs = [other >> place & 1 for place in range(self.b)]
        width = (self.n - 1).bit_length()
        return fields([*positions, *signs], [width] * self.b + [1] * self.b)


class WalshProtocol(Protocol):
    """By one plain transform of all 2^n places, in integers, for any number of entries."""

    def __init__(self, mechanism: Any) -> None:
        super().__init__(mechanism)
        self.b, self.k = mechanism.b, mechanism.k
        self.threshold = keep_below(self.epsilon, self.k, 1 << self.b)
        self._known: dict[tuple[int, int], tuple[Content, list[int]]] = {}

    def payload(self, data: Content, public: Chooser, private: Chooser) -> bytes:
        seed = public.word()
        coin = private.word((self.threshold,) * 2)
        if coin < self.threshold:
            index = self._best(data, seed)[private.below(self.k)]
        else:
            index = private.below(1 << self.b)
        return fields([seed, index], [64, self.b])

    def _best(self, data: Content, seed: int) -> list[int]:
        if (id(data), seed) not in self._known:
            scores = self._scores(data, seed).tolist()
            order = sorted(range(len(scores)), key=lambda j: (-scores[j], j))
            self._known[id(data), seed] = data, sorted(order[: self.k])
        return self._known[id(data), seed][1]

    def _scores(self, data: Content, seed: int) -> npt.NDArray[np.number]:
        """The alignment of every codeword."""
        n = self.size.bit_length()
        here = np.flatnonzero(data.flat)
        entries = self._in_ball(replace(data, flat=data.flat[here]), "l2")
        completing = math.sqrt(max(0.0, 1.0 - float(entries @ entries)))
        values = np.append(np.rint(entries * 2.0**22), round(completing * 2.0**22))
        place = np.append(here, self.size)
        for factor in (2654435761, 2246822519):
            place = place * factor % 2**n
            place ^= place >> (n + 1) // 2
        spread = np.zeros(2**n, np.int64)
        spread[place] = values.astype(np.int64) * (1 - 2 * odd_ones(place & place >> 1))
        waves = butterflies(spread)
        words = np.random.Philox(key=np.array([seed, text_word(b"walsh")], np.uint64))
        halves = words.random_raw(32).astype("<u8").view("<u4").astype(np.int64) % 2**n
        signs = words.random_raw(1 << self.b)
        index = np.arange(1 << self.b) % 2**n
        total = np.zeros(1 << self.b, np.int64)
        for number, half in enumerate(halves.tolist()):
            turn = number % n
            rows = half ^ (index << turn) % 2**n ^ index >> (n - turn)
            positive = (signs >> np.uint64(number)) % np.uint64(2) == 1
            total += np.where(positive, waves[rows], -waves[rows])
        return total


class LaplaceProtocol(Protocol):
    def payload(self, data: Content, public: Chooser, private: Chooser) -> bytes:
        ball = self.mechanism.ball
        scale = (2 * self.size if ball == "linf" else 2) / self.epsilon
        entries = self._in_ball(data, ball)
        u = private.uniforms(self.size) - 0.5
        noise = -scale * np.sign(u) * np.log1p(-2 * np.abs(u))
        return bytes((entries + noise).astype("<f4").tobytes())


PROTOCOLS: Mapping[str, type[Protocol]] = {
    "laplace": LaplaceProtocol,
    "harmony": HarmonyProtocol,
    "kashin": KashinProtocol,
    "walsh": WalshProtocol,
}


def protocol(name: str, mechanism: Mechanism) -> Protocol:
    return PROTOCOLS[name](mechanism)


def exponential(epsilon: float, k: int = 1) -> Fraction:
    """A lower bound of e^(ε/k) to 60 digits; at most e^64."""
    share = min(Fraction(epsilon) / k, Fraction(64))
    down = decimal.Context(prec=90, rounding=decimal.ROUND_FLOOR)
    exponent = down.divide(decimal.Decimal(share.numerator), decimal.Decimal(share.denominator))
    return Fraction(down.exp(exponent)) * (1 - Fraction(1, 10**60))


def least_response(epsilon: float, k: int) -> int:
    """The smallest T with (W − T)/T ≤ e^(ε/k)."""
    return math.ceil(WORD / (1 + exponential(epsilon, k)))


def keep_below(epsilon: float, chosen: int, among: int) -> int:
    """The largest T < W with 1 + T·among/((W − T)·chosen) ≤ e^ε."""
    gain = (exponential(epsilon) - 1) * chosen
    return min(math.floor(WORD * gain / (gain + among)), WORD - 1)


def positive_below(entry: float, least: int) -> int:
    """T of P[+1] = T/W: linear from `least` at −1 to W − `least` at +1, in steps of 2^-52."""
    steps = min(max(math.floor((1.0 + entry) * 2.0**52), 0), 1 << 53)
    return least + (WORD - 2 * least) * steps // (1 << 53)


def butterflies(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The Walsh-Hadamard transform of 2^n integers, bit by bit."""
    half = 1
    while half < len(values):
        pairs = values.reshape(-1, 2, half)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).ravel()
        half *= 2
    return values


def odd_ones(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """1 if a number below 2^32 has an odd number of ones in binary, else 0."""
    for shift in (16, 8, 4, 2, 1):
        numbers = numbers ^ numbers >> shift
    return numbers & 1


def text_word(text: bytes) -> int:
    return int.from_bytes(text.ljust(8, b"\0"), "little")


def fields(values: Sequence[int], widths: Sequence[int]) -> bytes:
    """Numbers packed as bits, the first in the lowest bits, in as few bytes as possible."""
    total, shift = 0, 0
    for value, width in zip(values, widths, strict=True):
        total += value << shift
        shift += width
    return total.to_bytes(-(-shift // 8), "little")
