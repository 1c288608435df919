"""privunit: a Gaussian vector biased towards the gradient (PrivUnitG; Asi, Feldman, Talwar 2022).

x (D + 1,)  gradient in the ℓ2 ball, completed to length 1      φ, Φ  density and cdf of N(0, 1)
γ           threshold of the cap, q = 1 − Φ(γ)                  E = e^ε, Z = q E + 1 − q
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nextapp.privacy.codewords import (
    UNIT,
    VectorStream,
    alignments,
    check_size,
    sum_of_vectors,
    unit_vector,
)
from nextapp.privacy.exact import W, check_epsilon, exp_from_below
from nextapp.privacy.guarantee import REAL_NUMBERS, SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import Gradient, Mechanism, Tally, check_tally
from nextapp.privacy.reals import as_floats, uniform
from nextapp.randomness import Bits
from nextapp.wire import Floats, Report

FORMS = ("dense", "seed")

_NORMAL = statistics.NormalDist()
_SLICES = 1 << 16
_SCORE_UNIT = 1 << 38  # of `alignments`
_SLACK = 1e-4  # part of ε reserved, since the probability of a cap is q only to within 1e-5
_MOST_TRIES = 2000


class PrivUnit(Mechanism):
    """y Gaussian with density E/Z times φ where x·y ≥ γ and 1/Z times φ elsewhere; x̂ = y/μ.

        y = g + (s − x·g) x,  g ~ N(0, I),  s ≥ γ with probability p = q E/Z, else s < γ
        μ = E[x·y] = φ(γ) (E − 1)/Z

    ε holds since the density has two levels with ratio E. V = D/μ² at x = 0; γ maximises μ.

    ``form="dense"`` sends y as D + 1 floats. ``form="seed"`` sends a seed of 16 bytes from which y
    is generated (Feldman and Talwar 2021), by rejection sampling: a seed is accepted always if
    x·y ≥ γ, else with probability 1/E. The number of tries does not depend on x. Its ε assumes that
    every cap contains a share q of the seeds, so phones do not use it by default; `codebook` needs
    no such assumption.

    Bits: dense, 2 ⌈(D+1)/2⌉ words for g, then 2 for s; seed, 3 words per try, 2 of seed and 1 for
    acceptance. Payload: D + 1 floats of 4 bytes, or the seed.
    """

    name = "privunit"
    ball = "l2"

    def __init__(
        self, *, n_apps: int, d: int, epsilon: float, clip: float, form: str = "dense"
    ) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)
        check_size(self.D)
        if form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
        self.form = form
        held = self.epsilon - min(_SLACK, self.epsilon / 2) if form == "seed" else self.epsilon
        self.q = best_cap(held)
        if form == "seed":  # a multiple of the table's slices, so that q is exact along an axis
            self.q = max(1, round(self.q * _SLICES)) / _SLICES
        self.gamma = -_NORMAL.inv_cdf(self.q)
        self._elsewhere = math.ceil(W / exp_from_below(held))  # W/E
        rest = self._elsewhere / W
        self._Z = self.q + (1 - self.q) * rest  # Z/E
        self.mu = _NORMAL.pdf(self.gamma) * (1 - rest) / self._Z
        if form == "seed" and self._Z * _MOST_TRIES < 1:
            raise ValueError(
                f"a seed would take {1 / self._Z:.0f} tries at epsilon {epsilon!r}: choose "
                f"form='dense', or 'codebook'."
            )

    @property
    def guarantee(self) -> Guarantee:
        resting = (
            REAL_NUMBERS
            if self.form == "dense"
            else "every cap has the same share of the 2^128 seeds, to a relative error of 1e-5"
        )
        return Guarantee(
            self.epsilon, covers=("the whole gradient", "norm"), assumptions=(SECRET_BITS, resting)
        )

    @property
    def variance(self) -> float:
        return self.D / self.mu**2

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        if self.form == "seed":
            payload = self._seed(F, bits)
        else:
            x = self._complete(F)
            g = _normals(bits, self.D + 1)
            y = g + (self._lean(bits) - float(x @ g)) * x
            payload = y.astype("<f4").tobytes()
        return Report(self.name, round, payload)

    def decode(self, reports: Sequence[Report]) -> Floats:
        if self.form == "seed":
            return self.estimate(self.tally(reports), len(reports))
        total = self._vectors(reports)[:, : self.D].sum(axis=0)
        return self._reshape(self.clip / (self.mu * len(reports)) * total)

    def tally(self, reports: Sequence[Report]) -> Tally:
        """(D,): the sum of the vectors in units of the table; only for form="seed"."""
        if self.form != "seed":
            return super().tally(reports)
        if not reports:
            return np.zeros(self.D, np.int64)
        low, high = self._seeds(reports)
        first = np.zeros(len(reports), np.int64)
        return sum_of_vectors(low, high, first, 1, self.D).astype(np.int64)

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        if self.form != "seed":
            return super().estimate(tally, n_reports)
        check_tally(tally, (self.D,), n_reports)
        return self._reshape(self.clip / (self.mu * n_reports) * (tally / UNIT))

    def check(self, report: Report) -> None:
        if self.form == "seed":
            self._seeds([report])
        else:
            self._vectors([report])

    def log_prob(self, report: Report, F: Gradient) -> float:
        """Dense: the density of y. Seed: the probability among all 2^128 seeds."""
        if self.form == "seed":
            low, high = self._seeds([report])
            grid = unit_vector(self._flat(F), self.clip)
            inside = self._in_cap(int(low[0]), int(high[0]), grid)
            base = -128 * math.log(2)
        else:
            y = self._vectors([report])[0]
            inside = float(self._complete(F) @ y) >= self.gamma
            base = -0.5 * float(y @ y) - 0.5 * (self.D + 1) * math.log(2 * math.pi)
        return base - math.log(self._Z) + (0.0 if inside else math.log(self._elsewhere / W))

    def _seed(self, F: Gradient, bits: Bits) -> bytes:
        grid = unit_vector(self._flat(F), self.clip)
        while True:
            words = bits.words(3)
            low, high, coin = words.tolist()
            if self._in_cap(low, high, grid) or coin < self._elsewhere:
                return words[:2].astype("<u8").tobytes()

    def _in_cap(self, low: int, high: int, grid: Floats) -> bool:
        s = alignments(VectorStream(low, high), grid, 1)[0]
        return bool(s >= self.gamma * _SCORE_UNIT)

    def _lean(self, bits: Bits) -> float:
        """s: N(0, 1) truncated to above γ with probability p, else to below γ."""
        coin, u = uniform(bits, 2).tolist()
        if coin < self.q / self._Z:
            return -_NORMAL.inv_cdf(u * self.q)
        return _NORMAL.inv_cdf(u * (1 - self.q))

    def _complete(self, F: Gradient) -> Floats:
        """x (D + 1,), of length 1."""
        x = self._x(F)
        return np.append(x, math.sqrt(max(0.0, 1.0 - float(x @ x))))

    def _vectors(self, reports: Sequence[Report]) -> Floats:
        return as_floats(self._payloads(reports, 4 * (self.D + 1)))

    def _seeds(
        self, reports: Sequence[Report]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        rows = self._payloads(reports, 16)
        words = np.frombuffer(rows.tobytes(), "<u8").astype(np.uint64).reshape(-1, 2)
        return words[:, 0], words[:, 1]


def _normals(bits: Bits, n: int) -> Floats:
    """n numbers from N(0, 1) by the Box-Muller method."""
    half = (n + 1) // 2
    u = uniform(bits, 2 * half)
    radius, angle = np.sqrt(-2 * np.log(u[:half])), 2 * math.pi * u[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


def best_cap(epsilon: float) -> float:
    """The q that maximises μ = φ(γ) (E − 1)/Z, by golden-section search on γ.

    >>> round(best_cap(4.5), 3)
    0.046
    """

    def mu(gamma: float) -> float:
        q = 0.5 * math.erfc(gamma / math.sqrt(2))
        rest = math.exp(-epsilon)
        return math.exp(-(gamma**2) / 2) / (q + (1 - q) * rest)

    golden = (math.sqrt(5) - 1) / 2
    low, high = 0.0, math.sqrt(2 * epsilon) + 1.0
    for _ in range(80):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (a, high) if mu(a) < mu(b) else (low, b)
    return 0.5 * math.erfc((low + high) / 2 / math.sqrt(2))
