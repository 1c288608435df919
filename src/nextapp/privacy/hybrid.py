"""The hybrid mechanism on one random entry (Wang et al. 2019, section III-C).

x (D,)  clipped gradient in [−1, 1]      α  share of the piecewise part      c = (e^ε + 1)/(e^ε − 1)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nextapp.privacy.exact import W, check_epsilon, response_floor, sign_threshold
from nextapp.privacy.guarantee import REAL_NUMBERS, SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import Gradient, Mechanism
from nextapp.privacy.packing import n_bytes, pack_fields, unpack_fields, width
from nextapp.privacy.piecewise import PiecewiseLaw
from nextapp.privacy.reals import as_floats
from nextapp.randomness import Bits, below, chance
from nextapp.wire import Floats, Report, WireError

_VALUE = struct.Struct("<f")
_TURN = 0.61  # their ε*; below it the piecewise part does not reduce the variance


class Hybrid(Mechanism):
    """One uniformly random entry j; with probability α piecewise, else as a sign by randomised
    response.

        α = 1 − e^{−ε/2} for ε > 0.61, else 0
        x̂ = D y e_j, y piecewise or ± c with P[+c] = ½ + ½ x_j/c

    Each part is ε-LDP and α does not depend on x. V = D² (α Var[piecewise] + (1 − α) c²) at x = 0.

    Bits: `below(D)`; 1 word for the part; 2 words (piecewise) or 1 word (sign).
    Payload: the position and 1 bit, 1 for piecewise; then y as a float of 4 bytes, or ±1.
    """

    name = "hybrid"
    ball = "linf"

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)
        self.law = PiecewiseLaw(self.epsilon)
        alpha = -math.expm1(-self.epsilon / 2) if self.epsilon > _TURN else 0.0
        self._threshold = math.floor(alpha * W)
        self.alpha = self._threshold / W
        self.floor = response_floor(self.epsilon)
        self.c = W / (W - 2 * self.floor)
        self._widths = [width(self.D), 1]

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, covers=("position", "value"), assumptions=(SECRET_BITS, REAL_NUMBERS)
        )

    @property
    def variance(self) -> float:
        piecewise = self.law.variance_at_0
        return self.D**2 * (self.alpha * piecewise + (1 - self.alpha) * self.c**2)

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        x = self._x(F)
        j = below(bits, self.D)
        if piecewise := chance(bits, self._threshold):
            y = self.law.draw(float(x[j]), bits)
        else:
            y = 1.0 if chance(bits, sign_threshold(float(x[j]), self.floor)) else -1.0
        return Report(self.name, round, pack_fields([j, piecewise], self._widths) + _VALUE.pack(y))

    def decode(self, reports: Sequence[Report]) -> Floats:
        positions, piecewise, values = self._parts(reports)
        y = np.where(piecewise, values, self.c * values)
        total = np.bincount(positions, y, minlength=self.D)
        return self._reshape(self.clip * self.D / len(reports) * total)

    def log_prob(self, report: Report, F: Gradient) -> float:
        """A density for the piecewise part, a probability for the signs."""
        positions, piecewise, values = self._parts([report])
        x, y = float(self._x(F)[positions[0]]), float(values[0])
        if piecewise[0]:
            part = math.log(self.alpha) + self.law.log_density(y, x)
        else:
            T = sign_threshold(x, self.floor)
            part = math.log1p(-self.alpha) + math.log((T if y > 0 else W - T) / W)
        return part - math.log(self.D)

    def _parts(
        self, reports: Sequence[Report]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], Floats]:
        n = n_bytes(self._widths)
        rows = self._payloads(reports, n + _VALUE.size)
        positions, marks = unpack_fields(rows[:, :n], self._widths).T
        piecewise = marks == 1
        values = as_floats(rows[:, n:])[:, 0]
        bounded = np.where(piecewise, np.abs(values) <= self.law.largest, np.abs(values) == 1.0)
        if positions.max() >= self.D or not bounded.all() or (self.alpha == 0 and piecewise.any()):
            raise WireError(
                f"a position must be from 0 to {self.D - 1} and a value within "
                f"±{self.law.largest:.4g}, or ±1 if its mark is 0."
            )
        return positions, piecewise, values
