"""QHarmony, eqs. (16) and (17), repaired: a public clip, nothing sent in the clear, no bias.

The printed mechanism is in `qharmony_paper`. The differences (PAPER.md, R2 to R6):

    printed                                   here
    f_max(u) sent in the clear                only positions and signs are sent
    entries divided by f_max(u)               divided by a public clip C, clipped to [−1, 1]
    scale max_u f_max(u) / z_max              C · D c / (k M), which makes the mean unbiased

With the same k and clip this is exactly k-Harmony: the direction of QHarmony's F̄ is that of the sum
of signs S, and only the scale differs. ``scale="paper"`` keeps the printed 1/z_max, with C for
f_max; the direction is the same, but the length is not that of the mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nextapp.privacy.harmony import Harmony
from nextapp.privacy.mechanism import Tally, check_tally
from nextapp.wire import Floats, Report

SCALES = ("unbiased", "paper")


class QHarmony(Harmony):
    """Algorithms 1 and 2 with the scale C · D c/(k M). Everything else is as in `Harmony`."""

    name = "qharmony"

    def __init__(
        self,
        *,
        n_apps: int,
        d: int,
        epsilon: float,
        clip: float,
        k: int | None = None,
        scale: str = "unbiased",
    ) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip, k=k)
        if scale not in SCALES:
            raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}.")
        self.scale = scale

    def tally(self, reports: Sequence[Report]) -> Tally:
        """As in `Harmony`; for the printed scale (2, D): counts of positive and negative signs."""
        if self.scale == "unbiased":
            return super().tally(reports)
        positions, signs = self._parts(reports)
        return np.stack(
            [np.bincount(positions[signs == sign], minlength=self.D) for sign in (1, -1)]
        ).astype(np.int64)

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        if self.scale == "unbiased":
            return super().estimate(tally, n_reports)
        check_tally(tally, (2, self.D), n_reports)
        z_max = _check_z_max(int(tally[0].max()))
        S = tally[0] - tally[1]
        return self._reshape(self.clip / z_max * S if z_max else np.zeros(self.D))


def most_positive_signs(
    positions: npt.NDArray[np.int64], signs: npt.NDArray[np.int64], D: int
) -> int:
    """z_max of Algorithm 2. Warns if it is 0, so that the update is zero (PAPER.md, R5)."""
    return _check_z_max(int(np.bincount(positions[signs > 0], minlength=D).max()))


def _check_z_max(z_max: int) -> int:
    if z_max == 0:
        warnings.warn(
            "no report has a positive sign, so z_max = 0 and the update is zero (PAPER.md, R5).",
            RuntimeWarning,
            stacklevel=3,
        )
    return z_max
