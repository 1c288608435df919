"""The sum of all reports drawn from its law, not report by report; derived in docs/fleet.md.

laplace: M reports sum to Σ x plus, for every entry, the difference of two Gamma(M) draws.

walsh, where gradients are zero at other apps (α = 0): a report is, up to a known factor,
t x + g − (x·g) x with a lean t of known law and g ~ N(0, I). Only a phone's own entries are drawn
phone by phone; what is left of all phones' g is one Gaussian draw for the whole fleet, made when
the mean is taken.

x as in `gradients`; z, ζ standard normal draws. All that is drawn for a phone depends on
(seed, phone, round), all that is drawn for the fleet on (seed, round).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nextapp.compiled import compiled, fast
from nextapp.compiled_bits import below, exponential, normal, stream, word
from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.encoders import Encoder, IdentityEncoder, PartialSum
from nextapp.fleet.gradients import Gradients, ShardRound
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import KeyedBits, Words, purpose_word
from nextapp.wire import Floats

if TYPE_CHECKING:
    from nextapp.fleet.rounds import Sums

LAW = np.uint64(purpose_word("law"))
REST = "law-rest"
UNIT = 1 << 16  # an entry of `normal_table` that is 1.0

# AS 241: numerator and denominator, highest power first, in the middle, the tails, far out.
MIDDLE = (
    (
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
        4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
        1.3314166789178437745e2, 3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
        2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
        4.2313330701600911252e1, 1.0,
    ),
)  # fmt: skip
TAIL = (
    (
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
        1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
        4.63033784615654529590e0, 1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
        1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
        2.05319162663775882187e0, 1.0,
    ),
)  # fmt: skip
FAR = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
        2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
        5.46378491116411436990e0, 6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
        7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
        5.99832206555887937690e-1, 1.0,
    ),
)  # fmt: skip


def has_law(mechanism: str, alpha: float) -> bool:
    """Whether the sum of reports on gradients with this α has a law that is cheap to draw."""
    return mechanism == "laplace" or (mechanism == "walsh" and alpha == 0)


class SumOfLaplace(IdentityEncoder):
    """`Laplace`: the noise is drawn with the mean."""

    def mean(self, sums: Sums) -> Floats:
        m = self.mechanism
        draws = KeyedBits(sums.seed, round=sums.round, purpose=REST).generator()
        plus, minus = draws.standard_gamma(sums.n_reports, (2, m.n_apps, m.d))
        mean: Floats = (sums.true_sum + m.clip * m.scale * (plus - minus)) / sums.n_reports
        return mean


class Lean(NamedTuple):
    """The law of t: one of the k best of m codewords, or any."""

    threshold: np.uint64
    k: int
    m: int


class SumOfWalsh(Encoder):
    """`Walsh`: ``sum`` (n_apps, d) of the phones' own entries, ``owners`` (n_apps,) of each app."""

    def __init__(self, mechanism: Walsh) -> None:
        super().__init__(mechanism)
        self.lean = Lean(np.uint64(mechanism.threshold), mechanism.k, mechanism.m)
        self._table = normal_table()

    def empty(self) -> PartialSum:
        n_apps, d = self.mechanism.n_apps, self.mechanism.d
        return {"sum": np.zeros((n_apps, d)), "owners": np.zeros(n_apps, np.int64)}

    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        _leaning(x, r, self.lean, self._table, state["sum"], state["owners"])

    def mean(self, sums: Sums) -> Floats:
        own = sums.state["sum"]
        absent = sums.n_reports - sums.state["owners"]
        bits = KeyedBits(sums.seed, round=sums.round, purpose=REST)
        z = bits.generator().standard_normal(own.shape)
        scale = self.mechanism.clip * (1 / self.mechanism.mu)
        mean: Floats = scale / sums.n_reports * (own + np.sqrt(absent)[:, None] * z)
        return mean


LAWS: Mapping[str, Callable[[Any], Encoder]] = {"laplace": SumOfLaplace, "walsh": SumOfWalsh}


@functools.cache
def normal_table() -> Ints:
    """(65536,): the mean of each of 2^16 equally likely slices of N(0, 1), in units of 2^-16.

    Nearly Gaussian: the mean absolute value is √(2/π) to 2e-8, the variance 1 − 1.5e-6.
    """
    half = UNIT // 2
    normal = statistics.NormalDist()
    edges = [normal.inv_cdf(0.5 + i / UNIT) for i in range(1, half)]
    density = np.array([normal.pdf(0.0), *map(normal.pdf, edges), 0.0])
    upper = np.rint((density[:-1] - density[1:]) * UNIT * UNIT)
    return np.concatenate([-upper[::-1], upper]).astype(np.int32)


@fast
def _draw_lean(law_: Lean, bits: Words) -> float:
    """t of one report."""
    if word(bits) >= law_.threshold:
        return normal(bits)
    spacings = 0.0  # Rényi: −log(1 − u) of the i-th smallest of m uniform numbers
    for i in range(below(bits, law_.k) + 1):
        spacings += exponential(bits) / (law_.m - i)
    return -normal_quantile(-math.expm1(-spacings))


@fast
def _draw_normals(bits: Words, entries: Ints, out: Floats) -> None:
    """Standard normal numbers from the `normal_table`, 16 bits each."""
    four = np.uint64(0)
    for j in range(len(out)):
        four = word(bits) if j % 4 == 0 else four >> np.uint64(16)
        out[j] = entries[four & np.uint64(0xFFFF)] * (1.0 / UNIT)


@fast
def _leaning(
    x: Gradients, r: ShardRound, law_: Lean, entries: Ints, total: Floats, owners: Longs
) -> None:
    """The part of Σ (t x + g − (x·g) x) that is drawn phone by phone."""
    d = r.Q.shape[1]
    most = np.diff(x.starts).max() if len(x.phones) else 0
    z = np.empty((most, d))
    for i in range(len(x.phones)):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, LAW)
        apps, rows = x.apps[x.starts[i] : x.starts[i + 1]], x.rows[x.starts[i] : x.starts[i + 1]]
        t = _draw_lean(law_, bits)
        product = math.sqrt(max(0.0, 1.0 - x.squares[i])) * normal(bits)  # becomes x·g
        for row in range(len(apps)):
            _draw_normals(bits, entries, z[row])
            for y in range(d):
                product += rows[row, y] * z[row, y]
        for row in range(len(apps)):
            owners[apps[row]] += 1
            for y in range(d):
                total[apps[row], y] += (t - product) * rows[row, y] + z[row, y]


@compiled
def normal_quantile(p: float) -> float:
    """Φ⁻¹(p): Wichura's AS 241 (1988), as in Python's ``statistics.NormalDist.inv_cdf``."""
    q = p - 0.5
    if abs(q) <= 0.425:
        return _ratio(0.180625 - q * q, MIDDLE) * q
    r = math.sqrt(-math.log(p if q <= 0.0 else 1.0 - p))
    size = _ratio(r - 1.6, TAIL) if r <= 5.0 else _ratio(r - 5.0, FAR)
    return -size if q < 0.0 else size


@compiled
def _ratio(r: float, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> float:
    above, below_ = coefficients
    top, bottom = 0.0, 0.0
    for a in above:
        top = top * r + a
    for b in below_:
        bottom = bottom * r + b
    return top / bottom
