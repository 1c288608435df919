"""QHarmony as printed: eqs. (16), (17), Algorithms 1 and 2. It is not ε-LDP. For simulations only.

f = F / f_max(u), since the paper wants entries in [−1, 1] and also sends f_max(u) (PAPER.md, R2).
The printed f_max is max f, not max |f|, so f can be below −1; if the printed probability is then
outside [0, 1], it is clipped. If f_max ≤ 0, the limit is used:
f = −1 for negative entries, 0 for zeros.

Repaired (PAPER.md, R2 to R6), it is `Harmony` to the bit: the direction of F̄ is that of the sum of
signs S, only the scale differs.

    printed                                   `Harmony`
    f_max(u) sent in the clear                only positions and signs are sent
    entries divided by f_max(u)               divided by a public clip C, clipped to [−1, 1]
    scale max_u f_max(u) / z_max              C · D c / (k M), which makes the mean unbiased
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from nextapp.privacy.harmony import SignedPositions, best_k
from nextapp.privacy.mechanism import Gradient, Guarantee, Mechanism, floats_of
from nextapp.randomness import Bits, W, check_epsilon, distinct
from nextapp.wire import Floats, Report

_F_MAX = struct.Struct("<d")


class QHarmony(Mechanism):
    """Algorithms 1 and 2 exactly as printed, with f_max(u) in the clear.

    ``clip``, if given, first clips the entries of F; the paper has no clip. The default ``k`` is
    that of `Harmony`; the paper says "small, e.g. k < 10". With ``decodes`` "sum", F̄ is used as
    the sum of gradients, which is the literal eq. (17); with "mean" it is first multiplied by the
    number of reports, as for other mechanisms (PAPER.md, R6).
    Bits as in `Harmony`. Payload: that of `Harmony`, then f_max as a float of 8 bytes.
    """

    name = "qharmony"
    unsafe = True

    def __init__(
        self,
        *,
        n_apps: int,
        d: int,
        epsilon: float,
        clip: float | None = None,
        k: int | None = None,
        decodes: Literal["mean", "sum"] = "mean",
        allow_unsafe: bool = False,
    ) -> None:
        if not allow_unsafe:
            raise ValueError(
                "qharmony is not ε-LDP: f_max(u) leaves the phone unprotected. In a simulation "
                "pass allow_unsafe=True; on phones use 'harmony', which is QHarmony repaired: a "
                "public clip, nothing in the clear, the mean unbiased."
            )
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)
        self.ball = "none" if clip is None else "linf"
        self.k = best_k(epsilon, self.D) if k is None else k
        if not (isinstance(self.k, int) and 1 <= self.k <= self.D):
            raise ValueError(f"k must be a whole number from 1 to {self.D}, got {k!r}.")
        if decodes not in ("mean", "sum"):
            raise ValueError(f"decodes must be 'mean' or 'sum', got {decodes!r}.")
        self.decodes = decodes
        self._fields = SignedPositions(self.k, self.D)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            math.inf,
            covers=(),
            sent_in_clear=("f_max",),
            assumptions=(
                f"not ε-LDP: the claimed {self.epsilon!r} ignores f_max, and a probability clipped "
                f"to 0 or 1 reveals signs",
            ),
        )

    @property
    def variance(self) -> float:
        """The variance of `Harmony` with the same k; the printed scale depends on all phones."""
        return self.D**2 / (self.k * math.tanh(self.epsilon / (2 * self.k)) ** 2)

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        f_max, f = self._normalise(F)
        positions = distinct(bits, self.k, self.D)
        p = self._positive(f[positions])
        thresholds = [int(min(max(q, 0.0), 1.0) * W) for q in p.tolist()]
        signs = [int(word) < T for word, T in zip(bits.words(self.k), thresholds, strict=True)]
        payload = self._fields.pack(positions, signs) + _F_MAX.pack(f_max)
        return Report(self.name, round, payload)

    def decode(self, reports: Sequence[Report]) -> Floats:
        positions, signs, f_max = self._parts(reports)
        S = np.bincount(positions.ravel(), signs.ravel(), minlength=self.D)
        z_max = most_positive(np.bincount(positions[signs > 0], minlength=self.D))
        with np.errstate(over="ignore"):  # one hostile f_max can make the whole update infinite
            return self._reshape(f_max.max() / z_max * S if z_max else np.zeros(self.D))

    def check(self, report: Report) -> None:
        self._parts([report])

    def log_prob(self, report: Report, F: Gradient) -> float:
        positions, signs, sent = self._parts([report])
        f_max, f = self._normalise(F)
        if sent[0] != f_max:
            return -math.inf
        p = np.clip(self._positive(f[positions[0]]), 0.0, 1.0)
        chances = np.where(signs[0] > 0, p, 1.0 - p)
        if not chances.all():
            return -math.inf
        return float(np.log(chances).sum()) - math.log(math.comb(self.D, self.k))

    def _normalise(self, F: Gradient) -> tuple[float, Floats]:
        x = self.apply_clip(F).ravel()
        f_max = float(x.max())
        with np.errstate(over="ignore"):
            return f_max, x / f_max if f_max > 0 else np.sign(x)

    def _positive(self, f: Floats) -> Floats:
        """P[f̂ = +1], eq. (16), as ½ + ½ f tanh(ε/2k); else −1 (PAPER.md, R3)."""
        return 0.5 + 0.5 * f * math.tanh(self.epsilon / (2 * self.k))

    def _parts(
        self, reports: Sequence[Report]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
        n = self._fields.n_bytes
        rows = self._payloads(reports, n + _F_MAX.size)
        return *self._fields.unpack(rows[:, :n]), floats_of(rows[:, n:], "<f8")[:, 0]


def most_positive(n_positive: npt.NDArray[np.int64]) -> int:
    """z_max of Algorithm 2. Warns if it is 0, so that the update is zero (PAPER.md, R5)."""
    z_max = int(n_positive.max())
    if z_max == 0:
        warnings.warn(
            "no report has a positive sign, so z_max = 0 and the update is zero (PAPER.md, R5).",
            RuntimeWarning,
            stacklevel=3,
        )
    return z_max
