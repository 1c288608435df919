"""Laplace noise on every entry (Dwork, McSherry, Nissim, Smith 2006), after an ℓ∞ or an ℓ1 clip.

x (D,)  clipped gradient in the unit ball
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nextapp.privacy.mechanism import (
    REAL_NUMBERS,
    SECRET_BITS,
    Gradient,
    Guarantee,
    Mechanism,
    floats_of,
)
from nextapp.randomness import Bits, check_epsilon
from nextapp.wire import Floats, Report


class Laplace(Mechanism):
    """x plus independent Laplace noise of scale Δ/ε; Δ is the ℓ1 sensitivity.

        Δ = 2 D for ``ball="linf"``,   Δ = 2 for ``ball="l1"``
        V = 2 D (Δ/ε)² = 8 D³/ε² or 8 D/ε²

    The paper prints a variance of 4 D²/ε² per entry for the ℓ∞ case; it is 8 D²/ε². ε holds since
    the log-density changes by at most ‖x − x'‖₁ ε/Δ.

    Bits: D words. Payload: D floats of 4 bytes, in units of the clip.
    """

    name = "laplace"

    def __init__(
        self, *, n_apps: int, d: int, epsilon: float, clip: float, ball: str = "linf"
    ) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)
        if ball not in ("linf", "l1"):
            raise ValueError(f"ball must be linf or l1, got {ball!r}.")
        self.ball = ball
        self.scale = (2 * self.D if ball == "linf" else 2) / self.epsilon

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, covers=("the whole gradient",), assumptions=(SECRET_BITS, REAL_NUMBERS)
        )

    @property
    def variance(self) -> float:
        return 2 * self.D * self.scale**2

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        x = self._x(F)
        u = uniform(bits, self.D) - 0.5
        noise = -self.scale * np.sign(u) * np.log1p(-2 * np.abs(u))
        return Report(self.name, round, (x + noise).astype("<f4").tobytes())

    def decode(self, reports: Sequence[Report]) -> Floats:
        mean = floats_of(self._payloads(reports, 4 * self.D), "<f4").mean(axis=0)
        return self._reshape(self.clip * mean)

    def log_prob(self, report: Report, F: Gradient) -> float:
        y = floats_of(self._payloads([report], 4 * self.D), "<f4")[0]
        distance = float(np.abs(y - self._x(F)).sum())
        return -distance / self.scale - self.D * math.log(2 * self.scale)


def uniform(bits: Bits, n: int) -> Floats:
    """n uniform numbers strictly between 0 and 1, from 53 bits of one word each."""
    return ((bits.words(n) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
