"""The gradient without any privacy. For simulations and as a control.

The payload is exact and small: F = u vᵀ + own rows (`PhoneGradient`), so it has u (n_apps) and v
(d) if α > 0, and the phone's own rows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from nextapp.model import PhoneGradient
from nextapp.privacy.mechanism import Gradient, Guarantee, Mechanism
from nextapp.randomness import Bits
from nextapp.wire import Floats, Report, WireError

_HEAD = struct.Struct("<IIQ")  # own rows, d, 1 if a background follows (0 if not)


class Identity(Mechanism):
    """No noise. With a ``clip`` F is still clipped (``ball``), to measure clipping alone."""

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
        del bits
        if self.ball != "none":
            F = self.apply_clip(F)
        if isinstance(F, PhoneGradient):
            apps, rows, left, right = F.apps, F.rows, F.background() if F.c0 else None, F.p
        else:
            F = self._flat(F).reshape(self.n_apps, self.d)
            apps = np.flatnonzero(F.any(axis=1))
            rows, left, right = F[apps], None, np.zeros(self.d)
        parts = [_HEAD.pack(len(apps), self.d, left is not None)]
        parts += [np.asarray(apps, np.int64).tobytes(), rows.tobytes()]
        if left is not None:
            parts += [left.tobytes(), right.tobytes()]
        return Report(self.name, round, b"".join(parts))

    def decode(self, reports: Sequence[Report]) -> Floats:
        """The mean of the gradients."""
        if not reports:
            raise ValueError("a mean needs at least one report.")
        total = np.zeros((self.n_apps, self.d))
        lefts, rights = [], []
        with np.errstate(over="ignore"):  # one hostile gradient can make the whole mean infinite
            for report in reports:
                apps, rows, left, right = self._parts(report)
                total[apps] += rows
                if left is not None:
                    lefts.append(left)
                    rights.append(right)
            if lefts:
                total += np.array(lefts).T @ np.array(rights)
        return total / len(reports)

    def check(self, report: Report) -> None:
        self._parts(report)

    def log_prob(self, report: Report, F: Gradient) -> float:
        """0 for the report of F itself, −∞ for any other."""
        return 0.0 if np.array_equal(self.decode([report]), self.apply_clip(F)) else -math.inf

    def _parts(
        self, report: Report
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats, Floats | None, Floats]:
        if report.mechanism != self.name:
            raise WireError(f"expected a report of {self.name!r}, got one of {report.mechanism!r}.")
        data = report.payload
        if len(data) < _HEAD.size:
            raise WireError(f"the payload must have at least {_HEAD.size} bytes, got {len(data)}.")
        k, d, background = _HEAD.unpack_from(data)
        if background > 1:
            raise WireError(f"the mark of a background must be 0 or 1, got {background}.")
        sizes = [k, k * d] + ([self.n_apps, d] if background else [])
        if d != self.d or k > self.n_apps or len(data) != _HEAD.size + 8 * sum(sizes):
            raise WireError(
                f"the payload ({len(data)} bytes, {k} rows of {d}) does not fit a gradient of "
                f"{self.n_apps} x {self.d}."
            )
        words = np.frombuffer(data, np.float64, offset=_HEAD.size)
        apps = words[:k].view(np.int64)
        if k and (apps[0] < 0 or apps[-1] >= self.n_apps or (np.diff(apps) <= 0).any()):
            raise WireError(f"the report names apps outside 0 to {self.n_apps - 1}, or one twice.")
        if not np.isfinite(words[k:]).all():
            raise WireError("the report has numbers that are not finite.")
        rows = words[k : k + k * d].reshape(k, d)
        if not background:
            return apps, rows, None, words[:0]
        return apps, rows, words[k + k * d : -d], words[-d:]
