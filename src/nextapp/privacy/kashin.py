"""kashin, also SQKR: signs of a few Kashin coefficients (Chen, Kairouz and Özgür 2020).

x (D,)     gradient in the ℓ2 ball       a (N,)  coefficients, x = U a, |a_j| ≤ K/√N
U (D, N)   frame, U Uᵀ = I               b       coefficients sent      T, W  see `randomness`
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from nextapp.privacy.harmony import SignedPositions, SignsAtPositions
from nextapp.privacy.mechanism import (
    SECRET_BITS,
    Gradient,
    Guarantee,
    Tally,
    check_tally,
)
from nextapp.privacy.walsh import walsh_transform
from nextapp.randomness import Bits, KeyedBits, W, distinct, keep_threshold, sign_threshold
from nextapp.wire import Floats, Report

_ROUNDS = 60
_MARGIN = 0.95


class Kashin(SignsAtPositions):
    """b random coefficients, each randomly rounded to ±K/√N, then 2^b-ary randomised response.

        x = U a,   P[s_l = +1] = ½ + ½ a_{j_l} √N/K,   s kept with probability T/W, else any of 2^b
        x̂ = (N/b) (K/√N) (W/T) Σ_l s_l U e_{j_l},   W/T = (e^ε + 2^b − 1)/(e^ε − 1)

    U has D random rows of an N × N Hadamard matrix, N ≥ 2 D, with random signs; the choice is
    public and the same for all phones (``frame``). The last rows of the transform instead would
    only repeat coefficients. ε holds for any a, since the response is two-level.
    V = D K² (W/T)²/b at x = 0.

    ``K`` bounds the coefficients. The algorithm of Lyubarskii and Vershynin (2010) stays within 1.8
    unless a gradient was designed against the frame; then coefficients are clipped, which biases
    the estimate (see `coefficients`).

    Coins: `distinct(b, N)`. Bits: b words for the signs; 1 to decide between true and random value;
    1 for the random value in its b lowest bits.
    Payload: b positions, ascending, then b bits, 1 for +1.
    """

    name = "kashin"
    ball = "l2"

    def __init__(
        self,
        *,
        n_apps: int,
        d: int,
        epsilon: float,
        clip: float,
        b: int | None = None,
        K: float = 1.8,
        frame: int = 0,
    ) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        self.N = 2 << (self.D - 1).bit_length()
        self.b = min(best_b(epsilon), self.N) if b is None else b
        if not (isinstance(self.b, int) and 1 <= self.b <= min(16, self.N)):
            raise ValueError(
                f"b must be a number of coefficients from 1 to {min(16, self.N)}, got {b!r}."
            )
        if not (math.isfinite(K) and K >= 1):
            raise ValueError(f"K must be a finite number of 1 or more, got {K!r}.")
        self.K = float(K)
        self.threshold = keep_threshold(self.epsilon, 1, 1 << self.b)
        public = KeyedBits(seed=frame, purpose="kashin")
        self._rows = np.array(distinct(public, self.D, self.N), np.intp)
        self._signs = np.where(public.words(self.D) >> np.uint64(63), 1.0, -1.0)
        self._fields = SignedPositions(self.b, self.N)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, covers=("positions", "signs", "norm"), assumptions=(SECRET_BITS,)
        )

    @property
    def variance(self) -> float:
        return self.D * self.K**2 * (W / self.threshold) ** 2 / self.b

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        y = np.clip(self.coefficients(F), -1.0, 1.0)
        positions = distinct(bits if coins is None else coins, self.b, self.N)
        *words, coin, other = bits.words(self.b + 2).tolist()
        if coin < self.threshold:
            positive = [
                word < sign_threshold(z)
                for word, z in zip(words, y[positions].tolist(), strict=True)
            ]
        else:
            positive = [bool(other >> i & 1) for i in range(self.b)]
        return Report(self.name, round, self._fields.pack(positions, positive))

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        check_tally(tally, (self.N,), n_reports)
        scale = math.sqrt(self.N) / self.b * self.K * (W / self.threshold) / n_reports
        return self._reshape(self.clip * scale * self._synthesis(tally.astype(np.float64)))

    def probability(self, report: Report, F: Gradient) -> Fraction:
        positions, signs = self._parts([report])
        y = np.clip(self.coefficients(F), -1.0, 1.0)[positions[0]]
        true = Fraction(1)
        for sign, z in zip(signs[0].tolist(), y.tolist(), strict=True):
            T = sign_threshold(z)
            true *= Fraction(T if sign > 0 else W - T, W)
        response = true * Fraction(self.threshold, W) + Fraction(W - self.threshold, W << self.b)
        return response / math.comb(self.N, self.b)

    def coefficients(self, F: Gradient) -> Floats:
        """y = a √N/K (N,) with x = U a exactly, and |y| ≤ 1 if the search finds such an a.

        Repeat: clip a slightly below the bound, and distribute the residual of x over all
        coefficients, until no coefficient exceeds the bound.
        """
        bound = self.K / math.sqrt(self.N)
        x = self._x(F)
        a = self._analysis(x)
        for _ in range(_ROUNDS):
            if np.abs(a).max() <= bound:
                break
            a = np.clip(a, -_MARGIN * bound, _MARGIN * bound)
            a += self._analysis(x - self._synthesis(a))
        return np.asarray(a / bound)

    def _analysis(self, x: Floats) -> Floats:
        """Uᵀ x (N,)."""
        padded = np.zeros(self.N)
        padded[self._rows] = self._signs * x
        return walsh_transform(padded) / math.sqrt(self.N)

    def _synthesis(self, a: Floats) -> Floats:
        """U a (D,)."""
        return self._signs * walsh_transform(a)[self._rows] / math.sqrt(self.N)


def best_b(epsilon: float) -> int:
    """The number of coefficients that minimises ((e^ε + 2^b − 1)/(e^ε − 1))²/b.

    >>> best_b(4.5), best_b(1.1)
    (4, 1)
    """

    def spread(b: int) -> float:
        return (1.0 + 2.0**b / math.expm1(min(epsilon, 64.0))) ** 2 / b

    return min(range(1, 17), key=spread)
