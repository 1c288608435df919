"""The piecewise mechanism on one entry at random (Wang et al. 2019, Algorithms 2 and 4 with k = 1).

x (D,)  clipped gradient in [−1, 1]      A  bound of the noisy value, their C
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nextapp.privacy.exact import check_epsilon
from nextapp.privacy.guarantee import REAL_NUMBERS, SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import Gradient, Mechanism
from nextapp.privacy.packing import n_bytes, pack_fields, unpack_fields, width
from nextapp.privacy.reals import as_floats, uniform
from nextapp.randomness import Bits, below
from nextapp.wire import Floats, Report, WireError

_VALUE = struct.Struct("<f")


class PiecewiseLaw:
    """The noisy value y of one entry x: two levels of density on [−A, A], the higher one around x.

        A = (e^{ε/2} + 1)/(e^{ε/2} − 1)
        l(x) = (A + 1)/2 · x − (A − 1)/2,   r(x) = l(x) + A − 1
        density p = (e^ε − e^{ε/2})/(2 e^{ε/2} + 2) on [l, r], p e^{−ε} elsewhere in [−A, A]

    E[y] = x and Var[y] = x²/(e^{ε/2} − 1) + (e^{ε/2} + 3)/(3 (e^{ε/2} − 1)²).
    """

    def __init__(self, epsilon: float) -> None:
        half = math.exp(-epsilon / 2)
        self.epsilon = epsilon
        self.A = (1 + half) / -math.expm1(-epsilon / 2)
        self.inside = 1 / (1 + half)  # P[l ≤ y ≤ r]
        self.variance_at_0 = half * (1 + 3 * half) / (3 * math.expm1(-epsilon / 2) ** 2)
        self.largest = float(np.float32(self.A))

    def draw(self, x: float, bits: Bits) -> float:
        """Draw y, with two words of bits."""
        left, right = self._interval(x)
        coin, u = uniform(bits, 2).tolist()
        if coin < self.inside:
            y = left + u * (right - left)
        else:
            y = u * (self.A + 1) - self.A  # [−A, l) and (r, A] joined
            y += right - left if y >= left else 0.0
        return min(max(float(np.float32(y)), -self.largest), self.largest)

    def log_density(self, y: float, x: float) -> float:
        left, right = self._interval(x)
        level = math.log(self.inside / (right - left))
        return level if left <= y <= right else level - self.epsilon

    def _interval(self, x: float) -> tuple[float, float]:
        left = (self.A + 1) / 2 * x - (self.A - 1) / 2
        return left, left + self.A - 1


class Piecewise(Mechanism):
    """One uniformly random entry j, sent as a noisy value y with the whole ε: x̂ = D y e_j.

    V = D² Var[y] at x = 0. Bits: `below(D)`, 1 word for the level, 1 for the position within it.
    Payload: the position, then y as a float of 4 bytes.
    """

    name = "piecewise"
    ball = "linf"

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)
        self.law = PiecewiseLaw(self.epsilon)
        self._widths = [width(self.D)]

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, covers=("position", "value"), assumptions=(SECRET_BITS, REAL_NUMBERS)
        )

    @property
    def variance(self) -> float:
        return self.D**2 * self.law.variance_at_0

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        x = self._x(F)
        j = below(bits, self.D)
        y = self.law.draw(float(x[j]), bits)
        return Report(self.name, round, pack_fields([j], self._widths) + _VALUE.pack(y))

    def decode(self, reports: Sequence[Report]) -> Floats:
        positions, values = self._parts(reports)
        total = np.bincount(positions, values, minlength=self.D)
        return self._reshape(self.clip * self.D / len(reports) * total)

    def log_prob(self, report: Report, F: Gradient) -> float:
        positions, values = self._parts([report])
        x = float(self._x(F)[positions[0]])
        return self.law.log_density(float(values[0]), x) - math.log(self.D)

    def _parts(self, reports: Sequence[Report]) -> tuple[npt.NDArray[np.int64], Floats]:
        n = n_bytes(self._widths)
        rows = self._payloads(reports, n + _VALUE.size)
        positions = unpack_fields(rows[:, :n], self._widths)[:, 0]
        values = as_floats(rows[:, n:])[:, 0]
        if positions.max() >= self.D or np.abs(values).max() > self.law.largest:
            raise WireError(
                f"a position must be from 0 to {self.D - 1} and a value within "
                f"±{self.law.largest:.4g}."
            )
        return positions, values
