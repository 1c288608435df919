"""codebook: one of m Gaussian codewords of a seed, the well-aligned ones e^ε times as likely.

PrivUnit (Bhowmick et al. 2018; Asi, Feldman, Talwar 2022) with a finite output, as subset
selection (Ye and Barg 2018) on a random codebook.

x (D + 1,)      gradient in the ℓ2 ball, completed to length 1
g_0 … g_{m−1}   codewords, Gaussian vectors generated from a seed
k               codewords in the favoured set                    T, W  see `exact`
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from nextapp.privacy.codewords import UNIT, VectorStream, alignments, sum_of_vectors, unit_vector
from nextapp.privacy.exact import W, keep_probability, keep_threshold
from nextapp.privacy.guarantee import SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import Gradient, Tally, check_tally
from nextapp.privacy.seeded import SeededMechanism
from nextapp.randomness import Bits, below, purpose_word
from nextapp.wire import Floats, Report

MOST_VARIANCE = 1.15
"""What fewer codewords may cost: so many times the variance of 256 (`fewest_bits`).

A round number: as if an eighth of the phones stayed away. What it takes from liars is in
docs/deployment.md."""

_PURPOSE = purpose_word("codebook")


class Codebook(SeededMechanism):
    """An index j into m = 2^b codewords; the k best aligned with x have weight e^ε, the others 1.

        P[j] = e^ε/(k e^ε + m − k)  or  1/(k e^ε + m − k)
        x̂ = g_j / μ,   μ = E[x·g_j] = (e^ε − 1)/(k e^ε + m − k) · Σ_{i ≤ k} E[s_(i)]

    s_(1) ≥ s_(2) ≥ … are the order statistics of m independent N(0, 1), as x·g_j are for a unit
    vector x. ε holds for every codebook, since the distribution of j has only two levels. V = D/μ²
    at x = 0. ``b`` is the number of bits of the index; k maximises μ.

    Coins: the seed. Bits: one word decides between the k best and all; then `below(k)` or
    `below(m)`, the position among the k best (in ascending order of j) or j itself.
    Payload: the seed, 8 bytes, then j.
    """

    name = "codebook"

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float, b: int = 8) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        if not (isinstance(b, int) and 1 <= b <= 12):
            raise ValueError(f"b must be a whole number of bits from 1 to 12, got {b!r}.")
        self.b = b
        self.m = 1 << b
        tops = np.cumsum(order_statistics(self.m))  # E of the sum of the k best, k = 1 … m
        excess = math.expm1(min(self.epsilon, 64.0))
        self.k = 1 + int(np.argmax(tops / (excess * np.arange(1, self.m + 1) + self.m)))
        self.threshold = keep_threshold(self.epsilon, self.k, self.m)
        self.mu = self.threshold / W * float(tops[self.k - 1]) / self.k

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, covers=("index", "norm"), assumptions=(SECRET_BITS,))

    @property
    def variance(self) -> float:
        return self.D / self.mu**2

    @property
    def liar_weight(self) -> float:
        """What a phone that lies adds to the sum along a direction of its choice, by the clip.

            E[max_j g_j·u] / μ,   ‖u‖ = 1

        in the mean over its coins: whatever it sends is one of the m codewords they give it. An
        honest phone adds 1 at most. No mechanism with ε has less than 1/tanh(ε/2).
        """
        return order_statistics(self.m)[0] / self.mu

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        seed = int((bits if coins is None else coins).words(1)[0])
        coin = int(bits.words(1)[0])
        best = self._best(F, seed)  # always computed, so that the time does not reveal the coin
        j = int(best[below(bits, self.k)]) if coin < self.threshold else below(bits, self.m)
        return self._report(seed, j, round)

    def tally(self, reports: Sequence[Report]) -> Tally:
        """(D,): the sum of the codewords in units of the table."""
        seeds, j = self._parts(reports)
        purpose = np.full_like(seeds, _PURPOSE)
        return sum_of_vectors(seeds, purpose, j, self.m, self.D).astype(np.int64)

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        check_tally(tally, (self.D,), n_reports)
        return self._reshape(self.clip / (self.mu * UNIT * n_reports) * tally)

    def probability(self, report: Report, F: Gradient) -> Fraction:
        """Conditional on the seed."""
        seeds, j = self._parts([report])
        best = self._best(F, int(seeds[0]))
        return keep_probability(self.threshold, self.k, self.m, bool((best == j[0]).any()))

    def _best(self, F: Gradient, seed: int) -> npt.NDArray[np.intp]:
        """The k codewords best aligned with x, in ascending order; ties go to the smaller j."""
        s = self._alignments(F, seed)
        return np.sort(np.argsort(-s, kind="stable")[: self.k])

    def _alignments(self, F: Gradient, seed: int) -> Floats:
        """(m,): x·g_j, exact, up to a constant factor."""
        grid = unit_vector(self._flat(F), self.clip)
        return alignments(VectorStream(seed, _PURPOSE), grid, self.m)


def fewest_bits(epsilon: float) -> int:
    """b of the fewest codewords, up to 256, with at most `MOST_VARIANCE` of the variance of 256.

    The fewer codewords there are, the less a liar has to choose from (`Codebook.liar_weight`).

    >>> [fewest_bits(epsilon) for epsilon in (0.5, 1.0, 2.0, 4.5, 8.0)]
    [4, 4, 4, 5, 7]
    """
    most = Codebook(n_apps=1, d=1, epsilon=epsilon, clip=1.0, b=8).variance * MOST_VARIANCE
    return next(
        b
        for b in range(1, 9)
        if Codebook(n_apps=1, d=1, epsilon=epsilon, clip=1.0, b=b).variance <= most
    )


@functools.cache
def order_statistics(m: int) -> tuple[float, ...]:
    """E[s_(i)] of m independent N(0, 1), the largest first.

        E[s_(i)] = m C(m−1, i−1) ∫ z φ(z) Φ(z)^{m−i} (1 − Φ(z))^{i−1} dz

    by the trapezoidal rule, which is exact up to rounding for such an integrand.

    >>> [round(s, 6) for s in order_statistics(2)]  # ± 1/√π
    [0.56419, -0.56419]
    """
    z = np.linspace(-12.0, 12.0, 4801)
    upper = np.array([0.5 * math.erfc(v / math.sqrt(2)) for v in z])
    log_upper = np.log(upper)
    log_lower = log_upper[::-1]
    weight = z * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    means = []
    for i in range(1, m // 2 + 1):
        log_comb = math.lgamma(m + 1) - math.lgamma(i) - math.lgamma(m - i + 1)
        log_law = log_comb - z**2 / 2 + (m - i) * log_lower + (i - 1) * log_upper
        means.append(float(weight @ np.exp(log_law)))
    middle = [0.0] if m % 2 else []
    return (*means, *middle, *(-mean for mean in reversed(means)))
