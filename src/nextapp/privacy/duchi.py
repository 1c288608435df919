"""Duchi, Jordan and Wainwright's mechanism for the ℓ∞ ball (2018, section 4.2.3): one corner of
the cube.

x (D,)  clipped gradient in [−1, 1]      v, t in {−1, +1}^D      T, W  see `exact`
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from nextapp.privacy.exact import W, response_floor
from nextapp.privacy.guarantee import SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import FiniteMechanism, Gradient, Tally, check_tally
from nextapp.randomness import Bits, chance
from nextapp.wire import Floats, Report, WireError

_REPORTS_AT_ONCE = 4096


class Duchi(FiniteMechanism):
    """x is randomly rounded to a corner v; corners t with t·v > 0 are e^ε times as likely.

        P[v_j = +1] = ½ + ½ x_j
        P[t | v] ∝ e^ε if t·v > 0,   1 if t·v < 0,   (e^ε + 1)/2 if t·v = 0
        x̂ = B t,   B = 2^{D−1}/C(D−1, ⌊D/2⌋) · (e^ε + 1)/(e^ε − 1)

    t·v = 0 is possible for even D only. The usual definition puts such t in both halves, with
    weights e^ε + 1 against 1, and leaks ln(e^ε + 1); the mean of the two weights keeps e^ε, and the
    total weight is the same for every v. V = D B² − ‖x‖², about (π/2) D² c².

    Bits: D words for v; ⌈D/64⌉ words for a corner t, lowest bit first; 1 word that decides whether
    t must agree with v. If t does not match this decision, −t is sent.
    Payload: D bits, 1 for +1.
    """

    name = "duchi"
    ball = "linf"

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        self.floor = response_floor(self.epsilon)  # P[t disagrees with v] · W
        agreement = Fraction(W - 2 * self.floor, W)  # (e^ε − 1)/(e^ε + 1), as drawn
        share = Fraction(math.comb(self.D - 1, self.D // 2), 1 << (self.D - 1))
        self.B = float(1 / (share * agreement))

    @property
    def payload_bytes(self) -> int:
        return (self.D + 7) // 8

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, covers=("the whole gradient",), assumptions=(SECRET_BITS,))

    @property
    def variance(self) -> float:
        return self.D * self.B**2

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        up = self._thresholds(F)  # P[v_j = +1] · 2^53
        v = np.where(bits.words(self.D) >> np.uint64(11) < up, 1, -1)
        corner = bits.words((self.D + 63) // 64).astype("<u8").view(np.uint8)
        t = _signs(corner[None, :], self.D)[0]
        agree = chance(bits, W - self.floor)
        product = int(t @ v)
        if product != 0 and (product > 0) != agree:
            t = -t
        return Report(self.name, round, np.packbits(t > 0, bitorder="little").tobytes())

    def tally(self, reports: Sequence[Report]) -> Tally:
        """(D,): the sum of the corners t."""
        rows = self._rows(reports)
        total = np.zeros(self.D, np.int64)
        for start in range(0, len(rows), _REPORTS_AT_ONCE):
            total += _signs(rows[start : start + _REPORTS_AT_ONCE], self.D).sum(axis=0)
        return total

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        check_tally(tally, (self.D,), n_reports)
        return self._reshape(self.clip * self.B / n_reports * tally)

    def check(self, report: Report) -> None:
        self._rows([report])

    def probability(self, report: Report, F: Gradient) -> Fraction:
        t = _signs(self._rows([report]), self.D)[0]
        ups = self._thresholds(F).tolist()
        law = [Fraction(1)]  # distribution of the number of entries where v and t agree
        for up, sign in zip(ups, t.tolist(), strict=True):
            p = Fraction(up if sign > 0 else (1 << 53) - up, 1 << 53)
            law = [
                p * less + (1 - p) * same
                for less, same in zip([Fraction(0), *law], [*law, Fraction(0)], strict=True)
            ]
        halves = {1: Fraction(W - self.floor, W), -1: Fraction(self.floor, W), 0: Fraction(1, 2)}
        products = range(-self.D, self.D + 1, 2)  # t·v
        total = sum(
            (
                p * halves[(product > 0) - (product < 0)]
                for p, product in zip(law, products, strict=True)
            ),
            Fraction(0),
        )
        return total / (1 << (self.D - 1))

    def log_prob(self, report: Report, F: Gradient) -> float:
        """As `FiniteMechanism.log_prob`, but with floats, which is faster for long gradients."""
        t = _signs(self._rows([report]), self.D)[0]
        p = 0.5 + t * (self._thresholds(F) * 2.0**-53 - 0.5)
        law = np.ones(1)
        for q in p.tolist():
            law = q * np.append(0.0, law) + (1 - q) * np.append(law, 0.0)
        places = 2 * np.arange(self.D + 1) - self.D  # t·v
        floor = self.floor / W
        weight = np.where(places > 0, 1 - floor, np.where(places < 0, floor, 0.5))
        return math.log(float(law @ weight)) - (self.D - 1) * math.log(2)

    def outputs(self) -> Iterator[Report]:
        self._check_countable(2**self.D)
        for t in itertools.product((0, 1), repeat=self.D):
            yield Report(self.name, 0, np.packbits(t, bitorder="little").tobytes())

    def _thresholds(self, F: Gradient) -> npt.NDArray[np.uint64]:
        return np.asarray((1.0 + self._x(F)) * 2.0**52, np.uint64)

    def _rows(self, reports: Sequence[Report]) -> npt.NDArray[np.uint8]:
        rows = self._payloads(reports, self.payload_bytes)
        if self.D % 8 and (rows[:, -1] >> (self.D % 8)).any():
            raise WireError("the bits after the last sign of a payload must be 0.")
        return rows


def _signs(rows: npt.NDArray[np.uint8], D: int) -> npt.NDArray[np.int64]:
    """(n_rows, D) of ±1."""
    return 2 * np.unpackbits(rows, axis=1, count=D, bitorder="little").astype(np.int64) - 1
