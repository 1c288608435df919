"""The sum of all reports drawn from its law, not report by report; derived in docs/fleet.md.

laplace: M reports sum to Σ x plus, for every entry, the difference of two Gamma(M) draws.

walsh: a report is, up to a known factor, t x + g − (x·g) x with a lean t of known law and
g ~ N(0, I). Only a phone's own entries are drawn phone by phone; what is left of all phones' g is
one Gaussian draw for the whole fleet, made when the mean is taken.

x, p, c0, Q as in `gradients`; z, ζ, Z standard normal draws. All that is drawn for a phone depends
on (seed, phone, round), all that is drawn for the fleet on (seed, round).
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nextapp.compiled import compiled, fast
from nextapp.compiled_bits import below, exponential, normal, stream, word
from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.encoders import SAME, Encoder, State, exact_encoder
from nextapp.fleet.gradients import Gradients, ShardRound
from nextapp.privacy import Mechanism
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import KeyedBits, Words, purpose_word
from nextapp.wire import Floats

if TYPE_CHECKING:
    from nextapp.fleet.reporting import Sums

LAWS = ("laplace", "walsh")
CHEAP = ("identity", "harmony", "qharmony")

LAW = np.uint64(purpose_word("law"))
REST = "law-rest"
UNIT = 1 << 16  # an entry of `normal_table` that is 1.0
_MOST_APPS = 8192  # of a covariance matrix, n_apps x n_apps: 512 MiB
_RIDGE = 1e-10  # of the variance of one entry, where few phones leave the covariance singular
_SMALL = 1e-6  # singular values of Q below this share of the largest count as 0

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


def cheapest_mode(mechanism: str) -> str:
    """Of the modes of `reporting.sum_reports`: law where there is one."""
    return "law" if mechanism in LAWS else "exact"


def law_encoder(mechanism: Mechanism, background: bool) -> Encoder:
    """How to draw the sum of the reports of this mechanism.

    Where a report is a few entries (`CHEAP`) there is nothing to gain: every report is simulated.
    ``background`` as in `SumOfWalsh`.
    """
    if isinstance(mechanism, Laplace):
        return SumOfLaplace(mechanism)
    if isinstance(mechanism, Walsh):
        return SumOfWalsh(mechanism, background)
    if mechanism.name in CHEAP:
        return exact_encoder(mechanism)
    raise ValueError(
        f"the sum of {mechanism.name} reports has no law that is cheaper to draw than the reports: "
        f"say mode='exact'. {', '.join(LAWS)} have one; {', '.join(CHEAP)} need none."
    )


class SumOfLaplace(Encoder):
    """`Laplace`: the gradients are summed anyway, the noise is drawn with the mean."""

    def __init__(self, mechanism: Laplace) -> None:
        self.mechanism = mechanism
        self.payload_bytes = exact_encoder(mechanism).payload_bytes

    def empty(self) -> State:
        return {}

    def add(self, state: State, x: Gradients, r: ShardRound) -> None:
        pass

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


class Drawn(NamedTuple):
    """What has been drawn for phones one by one, and what that says of the rest."""

    sum: Floats  # (n_apps, d)   of the phones' own entries
    owners: Longs  # (n_apps,)   phones that have the app
    common: Floats  # (d, d)   Q times it is the sum at the others' entries, and to be added
    inverses: Floats  # (d, d)   Σ M, see `_tell`
    own_inverses: Floats  # (n_apps, d)   Σ q M at own apps
    pairs: Floats  # (n_apps (n_apps + 1) / 2,)   Σ q M q' at pairs of own apps, the lower triangle


class SumOfWalsh(Encoder):
    """`Walsh`.

    ``background`` says that gradients are dense, α > 0. Then what is left of all phones' g does not
    have independent rows, and its covariance (n_apps, n_apps) is part of the sum.
    """

    def __init__(self, mechanism: Walsh, background: bool) -> None:
        if background and mechanism.n_apps > _MOST_APPS:
            raise ValueError(
                f"with alpha > 0 the law of the sum needs a matrix of n_apps x n_apps, and n_apps "
                f"must be at most {_MOST_APPS:,}, got {mechanism.n_apps:,}: say mode='exact', or "
                f"alpha=0."
            )
        self.mechanism = mechanism
        self.payload_bytes = mechanism.payload_bytes
        self.size = 16_384 if background else 4096
        self.lean = Lean(np.uint64(mechanism.threshold), mechanism.k, mechanism.m)
        self._background = background
        self._table = normal_table()

    def empty(self) -> State:
        n_apps, d = self.mechanism.n_apps, self.mechanism.d
        n_seen = n_apps if self._background else 0
        return Drawn(
            np.zeros((n_apps, d)),
            np.zeros(n_apps, np.int64),
            np.zeros((d, d)),
            np.zeros((d, d)),
            np.zeros((n_seen, d)),
            np.zeros(n_seen * (n_seen + 1) // 2),
        )._asdict()

    def add(self, state: State, x: Gradients, r: ShardRound) -> None:
        _leaning(x, r, self.lean, self._table, self._background, Drawn(**state))

    def finish(self, state: State, r: ShardRound) -> State:
        return state | {SAME: r.Q}

    def mean(self, sums: Sums) -> Floats:
        Q = sums.state[SAME]
        drawn = Drawn(**{name: sums.state[name] for name in Drawn._fields})
        bits = KeyedBits(sums.seed, round=sums.round, purpose=REST)
        z = bits.generator().standard_normal(Q.shape)
        absent = sums.n_reports - drawn.owners
        rest = _rest(Q, drawn, absent, z) if len(drawn.pairs) else np.sqrt(absent)[:, None] * z
        total = drawn.sum + Q @ drawn.common + rest
        scale = self.mechanism.clip * (1 / self.mechanism.mu)
        return scale / sums.n_reports * total


def _rest(Q: Floats, drawn: Drawn, absent: Longs, z: Floats) -> Floats:
    """What is left of all phones' g, made of standard normal z (n_apps, d).

    It has no part along the columns of Q, nor at apps that everyone has. The covariance is made
    regular along those columns, and that part of the draw taken out again.
    """
    here = np.flatnonzero(absent)
    cross = drawn.own_inverses @ Q.T
    known = Q @ drawn.inverses @ Q.T - cross - cross.T + _symmetric(drawn.pairs, len(Q))
    span = _orthonormal_basis(Q[here])
    n = float(absent.max(initial=0))
    covariance = n * span @ span.T - known[np.ix_(here, here)]
    covariance[np.diag_indices(len(here))] += absent[here] + _RIDGE * n
    left = np.linalg.cholesky(covariance) @ z[here]
    rest = np.zeros_like(z)
    rest[here] = left - span @ (span.T @ left)
    return rest


def _symmetric(triangle: Floats, n: int) -> Floats:
    """The matrix (n, n) of a lower triangle, row by row."""
    matrix = np.zeros((n, n))
    start = 0
    for row in range(n):
        matrix[row, : row + 1] = matrix[: row + 1, row] = triangle[start : start + row + 1]
        start += row + 1
    return matrix


def _orthonormal_basis(vectors: Floats) -> Floats:
    """An orthonormal basis of what the columns span."""
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.ascontiguousarray(basis[:, sizes > _SMALL * sizes.max(initial=0.0)])


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
    x: Gradients, r: ShardRound, law_: Lean, entries: Ints, background: bool, drawn: Drawn
) -> None:
    """The part of Σ (t x + g − (x·g) x) that is drawn phone by phone."""
    d = r.Q.shape[1]
    most = np.diff(x.starts).max() if len(x.phones) else 0
    z, own = np.empty((most, d)), np.empty((most, d))
    L, T, Z = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    for i in range(len(x.phones)):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, LAW)
        apps, rows = x.apps[x.starts[i] : x.starts[i + 1]], x.rows[x.starts[i] : x.starts[i + 1]]
        t = _draw_lean(law_, bits)
        product = math.sqrt(max(0.0, 1.0 - x.squares[i])) * normal(bits)  # becomes x·g
        for row in range(len(apps)):
            _draw_normals(bits, entries, z[row])
            for y in range(d):
                own[row, y] = r.Q[apps[row], y]
                product += rows[row, y] * z[row, y]
        if background:
            _factor(r.gram, own[: len(apps)], L, T)
            for y in range(d):
                _draw_normals(bits, entries, Z[y])
            product += x.c0[i] * _through(L, Z, x.p[i])
        for row in range(len(apps)):
            drawn.owners[apps[row]] += 1
            for y in range(d):
                drawn.sum[apps[row], y] += (t - product) * rows[row, y] + z[row, y]
        if background:
            _add_others(apps, own, x.c0[i] * (t - product), x.p[i], T, Z, L, drawn)
            _tell(apps, own, z, T, drawn)


@fast
def _add_others(
    apps: Ints,
    own: Floats,
    lean: float,
    p: Floats,
    T: Floats,
    Z: Floats,
    room: Floats,
    drawn: Drawn,
) -> None:
    """The others' rows: Q (lean p pᵀ + Tᵀ Z) everywhere, less the same at own apps."""
    d = len(p)
    for y in range(d):
        for w in range(d):
            room[y, w] = lean * p[y] * p[w]
        for v in range(y, d):
            for w in range(d):
                room[y, w] += T[v, y] * Z[v, w]
        for w in range(d):
            drawn.common[y, w] += room[y, w]
    for row in range(len(apps)):
        for y in range(d):
            for w in range(d):
                drawn.sum[apps[row], w] -= own[row, y] * room[y, w]


@fast
def _factor(gram: Floats, own: Floats, L: Floats, T: Floats) -> None:
    """L Lᵀ = QᵀQ over the apps that are not the phone's own, and T = L⁻¹.

    A direction that those apps do not span has a column of zeros in L and a row of zeros in T.
    """
    d = len(gram)
    L[:], T[:] = gram, 0.0
    for row in range(len(own)):
        for y in range(d):
            for w in range(y + 1):
                L[y, w] -= own[row, y] * own[row, w]
    for y in range(d):
        for w in range(y + 1):
            left = L[y, w]
            for v in range(w):
                left -= L[y, v] * L[w, v]
            L[y, w] = left * T[w, w]
        if left > _SMALL * _SMALL * gram[y, y]:
            L[y, y] = math.sqrt(left)
            T[y, y] = 1.0 / L[y, y]
        for v in range(y):
            share = L[y, v] * T[y, y]
            for w in range(v + 1):
                T[y, w] -= share * T[v, w]


@fast
def _through(L: Floats, Z: Floats, p: Floats) -> float:
    """pᵀ L Z p."""
    d = len(p)
    value = 0.0
    for y in range(d):
        left, right = 0.0, 0.0
        for w in range(y, d):
            left += L[w, y] * p[w]
        for w in range(d):
            right += Z[y, w] * p[w]
        value += left * right
    return value


@fast
def _tell(apps: Ints, own: Floats, room: Floats, T: Floats, drawn: Drawn) -> None:
    """Which part of the others' rows was drawn: Q M Qᵀ without the own rows, M = TᵀT = (L Lᵀ)⁻¹."""
    d = len(T)
    for v in range(d):
        for y in range(v + 1):
            for w in range(v + 1):
                drawn.inverses[y, w] += T[v, y] * T[v, w]
    for row in range(len(apps)):
        for v in range(d):
            value = 0.0
            for y in range(v + 1):
                value += T[v, y] * own[row, y]
            room[row, v] = value  # T q
            for y in range(v + 1):
                drawn.own_inverses[apps[row], y] += value * T[v, y]
        line = np.int64(apps[row]) * (apps[row] + 1) // 2
        for other in range(row + 1):
            value = 0.0
            for v in range(d):
                value += room[row, v] * room[other, v]
            drawn.pairs[line + apps[other]] += value


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
