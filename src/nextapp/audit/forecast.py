"""Forecast before training: can a run of this size learn anything through this mechanism?

The mean of M reports is the mean gradient μ (clipped to radius C) plus independent noise of squared
length V C²/M. So its expected cosine to μ is

    1/√(1 + V C²/(M ‖μ‖²))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nextapp.privacy import Mechanism

WANTED = math.sqrt(0.5)
"""A cosine of .71: as much gradient as noise."""

HOPELESS = 0.25
"""Below this cosine less than 1/15 of the squared length of the mean report is gradient."""


@dataclass(frozen=True)
class Forecast:
    """The quality of the mean of all reports of a run, if μ stays constant (the best case).

    ``noise`` is the expected squared length of the noise divided by that of μ.
    """

    n_phones: int
    n_rounds: int
    noise: float
    cosine: float
    phones_needed: int

    @property
    def warning(self) -> str | None:
        """A text if the run can learn little or nothing, else None."""
        if self.cosine >= WANTED:
            return None
        rounds = "" if self.n_rounds == 1 else f" in {self.n_rounds:,} rounds"
        size = f"{self.n_phones:,} phone{'s'[: self.n_phones > 1]}{rounds}"
        share = 1 / (1 + self.noise)
        if self.cosine < HOPELESS:
            verdict = "such a run learns almost nothing"
        else:
            verdict = "such a run learns slowly, if at all"
        return (
            f"With {size} {_percent(share)} of the mean report is gradient and the rest is noise "
            f"(expected cosine {self.cosine:.3f}): {verdict}. About {self.phones_needed:,} phones "
            f"are needed for as much gradient as noise."
        )


def forecast(
    mechanism: Mechanism,
    mean_length: float,
    n_phones: int,
    n_rounds: int = 1,
    *,
    clip: float | None = None,
) -> Forecast:
    """The expected cosine between mean report and mean gradient, and the phones needed for .71.

    ``mean_length`` is ‖μ‖ of the clipped gradients, in the units of the gradients; it must come
    from public data or synthetic phones. In every round every phone sends one report and spends its
    ε. ``clip`` is for mechanisms that have no clip.
    """
    if not (math.isfinite(mean_length) and mean_length > 0):
        raise ValueError(f"the length of the mean gradient must be > 0, got {mean_length!r}.")
    for word, count in (("n_phones", n_phones), ("n_rounds", n_rounds)):
        if count < 1:
            raise ValueError(f"{word} must be 1 or more, got {count!r}.")
    radius = mechanism.clip if clip is None else clip
    one = mechanism.variance * (radius / mean_length) ** 2 if mechanism.variance else 0.0
    noise = one / (n_phones * n_rounds)
    needed = max(1, math.ceil(one / n_rounds))
    return Forecast(n_phones, n_rounds, noise, 1 / math.sqrt(1 + noise), needed)


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
