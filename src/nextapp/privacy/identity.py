"""The gradient as it is: no privacy at all, and it says so. For simulations and as a control.

The payload is exact and small: F = u vᵀ + own rows (`PhoneGradient`), so it holds u (n_apps)
and v (d) where α > 0, and the phone's own rows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from nextapp.model import PhoneGradient
from nextapp.privacy.guarantee import Guarantee
from nextapp.randomness import Bits
from nextapp.wire import Floats, Report, WireError

_HEAD = struct.Struct("<IIQ")  # own rows, d, 1 if a background follows (0 if not)


class Identity:
    name = "identity"
    guarantee = Guarantee(epsilon=math.inf, sent_in_clear=("the whole gradient",))

    def __init__(self, n_apps: int, d: int) -> None:
        self.n_apps = n_apps
        self.d = d

    def encode(self, F: Floats | PhoneGradient, bits: Bits, round: int = 0) -> Report:  # noqa: A002
        """The report of F; it draws no bits."""
        del bits
        if isinstance(F, PhoneGradient):
            apps, rows, left, right = F.apps, F.rows, F.background() if F.c0 else None, F.p
        else:
            apps = np.flatnonzero(F.any(axis=1))
            rows, left, right = F[apps], None, np.zeros(self.d)
        parts = [_HEAD.pack(len(apps), self.d, left is not None)]
        parts += [np.asarray(apps, np.int64).tobytes(), rows.tobytes()]
        if left is not None:
            parts += [left.tobytes(), right.tobytes()]
        return Report(self.name, round, b"".join(parts))

    def decode(self, reports: Sequence[Report]) -> Floats:
        """The mean of the gradients."""
        total = np.zeros((self.n_apps, self.d))
        lefts, rights = [], []
        for report in reports:
            apps, rows, left, right = self._parts(report)
            total[apps] += rows
            if left is not None:
                lefts.append(left)
                rights.append(right)
        if lefts:
            total += np.array(lefts).T @ np.array(rights)
        return total / len(reports)

    def _parts(
        self, report: Report
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats, Floats | None, Floats]:
        if report.mechanism != self.name:
            raise WireError(f"expected a report of {self.name!r}, got one of {report.mechanism!r}.")
        data = report.payload
        if len(data) < _HEAD.size:
            raise WireError(f"the payload has {len(data)} bytes, at least {_HEAD.size} are needed.")
        k, d, background = _HEAD.unpack_from(data)
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
            raise WireError("the report holds numbers that are not finite.")
        rows = words[k : k + k * d].reshape(k, d)
        if not background:
            return apps, rows, None, words[:0]
        return apps, rows, words[k + k * d : -d], words[-d:]
