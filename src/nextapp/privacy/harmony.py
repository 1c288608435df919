"""k-Harmony: k entries at random positions, each sent as a random sign (Nguyên et al. 2016).

x (D,)  clipped gradient in [−1, 1]      k  entries sent        T, W  see `randomness`
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from nextapp.crowd import Shares
from nextapp.privacy.mechanism import (
    SECRET_BITS,
    FiniteMechanism,
    Gradient,
    Guarantee,
    Tally,
    check_form,
    check_tally,
)
from nextapp.randomness import Bits, W, distinct, response_floor, sign_threshold
from nextapp.wire import Floats, Report, WireError


class SignsAtPositions(FiniteMechanism):
    """A mechanism whose report is a sign at each of k distinct positions, `SignedPositions`."""

    _fields: SignedPositions

    @property
    def payload_bytes(self) -> int:
        return self._fields.n_bytes

    def tally(self, reports: Sequence[Report]) -> Tally:
        """S, the sum of signs at each position, line 5 of Algorithm 2."""
        positions, signs = self._parts(reports)
        S = np.bincount(positions.ravel(), signs.ravel(), minlength=self._fields.D)
        return S.astype(np.int64)

    def check(self, report: Report) -> None:
        check_form(self, report, self._fields.n_bytes)
        self._fields.check(report.payload)

    def matches_coins(self, report: Report, coins: Bits) -> bool:
        drawn = distinct(coins, self._fields.k, self._fields.D)
        return self._fields.positions(report.payload) == drawn

    def outputs(self) -> Iterator[Report]:
        self._check_countable(math.comb(self._fields.D, self._fields.k) << self._fields.k)
        for payload in self._fields.all():
            yield Report(self.name, 0, payload)

    def _parts(
        self, reports: Sequence[Report]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions (n_reports, k), ascending, and signs ±1 (n_reports, k)."""
        return self._fields.unpack(self._payloads(reports, self._fields.n_bytes))


class Harmony(SignsAtPositions):
    """k distinct uniformly random entries, each sent as a sign by randomised response with ε/k.

        P[+1] = ½ + ½ x_j tanh(ε/2k),   x̂ = (D/k) c Σ_l s_l e_{j_l},   c = coth(ε/2k)

    The tanh form is eq. (16) simplified. ε holds because positions do not depend on x and the
    likelihood ratio of each sign is at most e^{ε/k}. V = D² c²/k − ‖x‖². By default ``k`` minimises
    c²/k.

    Coins: `distinct(k, D)`. Bits: k words, one for each sign, in the order of the positions.
    Payload: k positions, ascending, then k bits, 1 for +1.
    """

    name = "harmony"
    ball = "linf"

    def __init__(
        self, *, n_apps: int, d: int, epsilon: float, clip: float, k: int | None = None
    ) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        self.k = best_k(epsilon, self.D) if k is None else k
        if not (isinstance(self.k, int) and 1 <= self.k <= self.D):
            raise ValueError(
                f"k must be a whole number from 1 to n_apps·d = {self.D}, got {k!r}: leave it out "
                f"for the best k, {best_k(epsilon, self.D)}."
            )
        self.floor = response_floor(self.epsilon, self.k)
        self.c = W / (W - 2 * self.floor)  # coth(ε/2k), as drawn
        self._fields = SignedPositions(self.k, self.D)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, covers=("positions", "signs"), assumptions=(SECRET_BITS,))

    @property
    def variance(self) -> float:
        return self.D**2 * self.c**2 / self.k

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        positions = distinct(bits if coins is None else coins, self.k, self.D)
        words = bits.words(self.k)
        signs = [
            int(word) < sign_threshold(x, self.floor)
            for word, x in zip(words, self._entries(F, positions), strict=True)
        ]
        return Report(self.name, round, self._fields.pack(positions, signs))

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        check_tally(tally, (self.D,), n_reports)
        scale = self.D / (self.k * n_reports) * self.c * self.clip
        return self._reshape(scale * tally)

    def probability(self, report: Report, F: Gradient) -> Fraction:
        positions, signs = self._parts([report])
        chance = Fraction(1, math.comb(self.D, self.k))
        for sign, x in zip(signs[0], self._entries(F, positions[0].tolist()), strict=True):
            T = sign_threshold(x, self.floor)
            chance *= Fraction(T if sign > 0 else W - T, W)
        return chance

    def _entries(self, F: Gradient, positions: Sequence[int]) -> list[float]:
        """x at these positions; shares stay sparse."""
        if isinstance(F, Shares):
            own = Shares(F.shape, *self._nonzero(F))  # checked
            values = own.at(np.asarray(positions, np.int64)).tolist()
        else:
            values = self._flat(F)[positions].tolist()
        return [min(max(value, -self.clip), self.clip) / self.clip for value in values]


def best_k(epsilon: float, D: int) -> int:
    """The k that minimises c(ε/k)²/k and so the variance.

    >>> best_k(4.5, 1392), best_k(1.1, 1392)
    (2, 1)
    """

    def spread(k: int) -> float:
        return 1.0 / (k * math.tanh(epsilon / (2 * k)) ** 2)

    return min(range(1, min(D, math.ceil(epsilon) + 1) + 1), key=spread)


# --- payload -------------------------------------------------------------------------------------


class SignedPositions:
    """The payload of mechanisms that send k distinct positions below D and a sign for each.

    k positions, ascending, then k bits, 1 for +1: the first in the lowest bits; unused bits are 0.
    """

    def __init__(self, k: int, D: int) -> None:
        self.k = k
        self.D = D
        self._width = (D - 1).bit_length()  # of a position
        self._n_bits = k * (self._width + 1)
        self.n_bytes = (self._n_bits + 7) // 8

    def pack(self, positions: Sequence[int], positive: Sequence[bool | int]) -> bytes:
        word = 0
        for sign in reversed(positive):
            word = word << 1 | int(sign)
        for position in reversed(positions):
            word = word << self._width | int(position)
        return word.to_bytes(self.n_bytes, "little")

    def unpack(
        self, rows: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions and signs ±1, (n_rows, k) each; a `WireError` if they are not valid."""
        bits = np.unpackbits(rows, axis=1, bitorder="little")
        if bits[:, self._n_bits :].any():
            raise WireError(_LEFT_OVER)
        signs_at = self.k * self._width
        each = bits[:, :signs_at].reshape(len(rows), self.k, self._width)
        positions = each @ (1 << np.arange(self._width, dtype=np.int64))
        signs = 2 * bits[:, signs_at : self._n_bits].astype(np.int64) - 1
        if (positions[:, -1] >= self.D).any() or (np.diff(positions, axis=1) <= 0).any():
            raise WireError(f"positions must be ascending and from 0 to {self.D - 1}.")
        return positions, signs

    def check(self, payload: bytes) -> None:
        """The checks of `unpack` for one payload of this length; it runs for every report."""
        if int.from_bytes(payload, "little") >> self._n_bits:
            raise WireError(_LEFT_OVER)
        before = -1
        for position in self.positions(payload):
            if not before < position < self.D:
                raise WireError(f"positions must be ascending and from 0 to {self.D - 1}.")
            before = position

    def positions(self, payload: bytes) -> list[int]:
        """The positions of a payload that has passed `check`."""
        bits, word = self._width, int.from_bytes(payload, "little")
        return [word >> bits * place & ((1 << bits) - 1) for place in range(self.k)]

    def all(self) -> Iterator[bytes]:
        for positions in itertools.combinations(range(self.D), self.k):
            for positive in itertools.product((0, 1), repeat=self.k):
                yield self.pack(positions, positive)


_LEFT_OVER = "the bits after the last field of a payload must be 0."
