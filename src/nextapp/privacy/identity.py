"""The gradient without any privacy. For simulations and as a control."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nextapp.privacy.mechanism import Gradient, Guarantee, Mechanism, floats_of
from nextapp.randomness import Bits
from nextapp.wire import Floats, Report


class Identity(Mechanism):
    """No noise. With a ``clip`` F is still clipped (``ball``), to measure clipping alone.

    Payload: D floats of 8 bytes.
    """

    name = "identity"
    unsafe = True

    def __init__(self, *, n_apps: int, d: int, clip: float | None = None, ball: str = "l2") -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=math.inf, clip=clip)
        if ball not in ("linf", "l1", "l2"):
            raise ValueError(f"ball must be one of linf, l1, l2, got {ball!r}.")
        self.ball = "none" if clip is None else ball

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(math.inf, sent_in_clear=("the whole gradient",))

    @property
    def variance(self) -> float:
        return 0.0

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        """The report of F; it uses no bits."""
        return Report(self.name, round, self.apply_clip(F).astype("<f8").tobytes())

    def decode(self, reports: Sequence[Report]) -> Floats:
        with np.errstate(over="ignore"):  # one hostile gradient can make the whole mean infinite
            mean = floats_of(self._payloads(reports, 8 * self.D), "<f8").mean(axis=0)
        return self._reshape(mean)

    def log_prob(self, report: Report, F: Gradient) -> float:
        """0 for the report of F itself, −∞ for any other."""
        return 0.0 if np.array_equal(self.decode([report]), self.apply_clip(F)) else -math.inf
