"""simhash: the signs of b random projections, sent by randomised response on 2^b values.

x (D + 1,)  gradient in the ℓ2 ball, completed to length 1     g_1 … g_b  Gaussian vectors of a seed
T, W  see `exact`                                               m = 2^b
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from nextapp.privacy.codewords import GROUP, UNIT, VectorStream, alignments, n_groups, unit_vector
from nextapp.privacy.exact import W, keep_probability, keep_threshold
from nextapp.privacy.guarantee import SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import Gradient, Tally, check_tally
from nextapp.privacy.seeded import SeededMechanism
from nextapp.randomness import Bits, purpose_word
from nextapp.wire import Floats, Report

_PURPOSE = purpose_word("simhash")


class SimHash(SeededMechanism):
    """The b signs of g_i·x (Charikar 2002) as one of m = 2^b values, through m-ary randomised
    response.

        true value with probability e^ε/(e^ε + m − 1), any other with 1/(e^ε + m − 1)
        x̂ = √(π/2) · (e^ε + m − 1)/(e^ε − 1) · (1/b) Σ_i s_i g_i

    since E[sign(g·x) g] = √(2/π) x for ‖x‖ = 1. ε holds for any seed: the response is two-level.
    V = D (π/2) ((e^ε + m − 1)/(e^ε − 1))²/b at x = 0. By default ``b`` minimises V.

    Coins: the seed. Bits: 2 words, one decides whether the true value is kept, the other has a
    random value in its b lowest bits.
    Payload: the seed, 8 bytes, then the b signs, 1 for +1; a projection of 0 counts as +1.
    """

    name = "simhash"

    def __init__(
        self, *, n_apps: int, d: int, epsilon: float, clip: float, b: int | None = None
    ) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        self.b = best_b(epsilon) if b is None else b
        if not (isinstance(self.b, int) and 1 <= self.b <= 16):
            raise ValueError(f"b must be a whole number of sign bits from 1 to 16, got {b!r}.")
        self.threshold = keep_threshold(self.epsilon, 1, 1 << self.b)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, covers=("signs", "norm"), assumptions=(SECRET_BITS,))

    @property
    def variance(self) -> float:
        return self.D * math.pi / 2 * (W / self.threshold) ** 2 / self.b

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        seed = int((bits if coins is None else coins).words(1)[0])
        coin, other = bits.words(2).tolist()
        value = self._signs(F, seed)  # always computed, so that the time does not reveal the coin
        if coin >= self.threshold:
            value = other & ((1 << self.b) - 1)
        return self._report(seed, value, round)

    def tally(self, reports: Sequence[Report]) -> Tally:
        """(D,): Σ_i s_i g_i over all reports in units of the table."""
        seeds, values = self._parts(reports)
        total = np.zeros((n_groups(self.D), GROUP))
        for seed, value in zip(seeds.tolist(), values.tolist(), strict=True):
            signs = np.array([1.0 if value >> i & 1 else -1.0 for i in range(self.b)])
            vectors = VectorStream(seed, _PURPOSE).entries(0, len(total) * self.b)
            total += signs @ vectors.reshape(-1, self.b, GROUP)
        return total.ravel()[: self.D].astype(np.int64)

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        check_tally(tally, (self.D,), n_reports)
        scale = math.sqrt(math.pi / 2) * (W / self.threshold) / self.b / n_reports
        return self._reshape(scale * self.clip / UNIT * tally)

    def probability(self, report: Report, F: Gradient) -> Fraction:
        """Conditional on the seed."""
        seeds, values = self._parts([report])
        is_true = int(values[0]) == self._signs(F, int(seeds[0]))
        return keep_probability(self.threshold, 1, 1 << self.b, is_true)

    def _signs(self, F: Gradient, seed: int) -> int:
        grid = unit_vector(self._flat(F), self.clip)
        signs = alignments(VectorStream(seed, _PURPOSE), grid, self.b) >= 0
        return sum(1 << i for i, positive in enumerate(signs.tolist()) if positive)


def best_b(epsilon: float) -> int:
    """The number of sign bits that minimises ((e^ε + 2^b − 1)/(e^ε − 1))²/b.

    >>> best_b(4.5), best_b(1.1)
    (4, 1)
    """

    def spread(b: int) -> float:
        return (1.0 + 2.0**b / math.expm1(min(epsilon, 64.0))) ** 2 / b

    return min(range(1, 17), key=spread)
