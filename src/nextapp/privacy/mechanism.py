"""The two sides every mechanism has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nextapp.model import PhoneGradient
from nextapp.privacy.guarantee import Guarantee
from nextapp.randomness import Bits
from nextapp.wire import Floats, Report


class Mechanism(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def guarantee(self) -> Guarantee: ...

    def encode(self, F: Floats | PhoneGradient, bits: Bits, round: int = 0) -> Report:  # noqa: A002
        """Phone: the report of the gradient F, drawn with `bits`."""
        ...

    def decode(self, reports: Sequence[Report]) -> Floats:
        """Server: (n_apps, d), the estimate of the mean gradient."""
        ...
