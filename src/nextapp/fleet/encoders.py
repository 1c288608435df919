"""The mechanisms for many phones at once: their reports as columns, the sum, the mean of it.

The compiled forms of `nextapp.privacy`, which read the same words of the phones' bits; symbols as
there. The loops of `walsh` are in `nextapp.fleet.walsh`. At the end: sums that are drawn from their
law.
"""

from __future__ import annotations

import functools
import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled, fast, wide_product
from nextapp.compiled_bits import below, exponential, normal, stream, word
from nextapp.fleet.columns import Ints, Longs, Mask
from nextapp.fleet.gradients import (
    Gradients,
    ShardRound,
    background,
    entry,
    report_bits,
    spread_out,
    sweep,
    taste,
)
from nextapp.fleet.walsh import code_of, count_rows, gradient_reports, transform
from nextapp.privacy.kashin import _MARGIN, _ROUNDS
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.qharmony import most_positive
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import KeyedBits, Words, purpose_word
from nextapp.wire import Floats

if TYPE_CHECKING:
    from nextapp.fleet.rounds import Sums

PartialSum = dict[str, npt.NDArray[Any]]
"""The sum of reports, in arrays that are added; `LARGEST` is joined by its maximum."""
LARGEST = "largest"

_GRID = float(1 << 52)
_FULL = np.uint64(1 << 53)
_NUMBERS_AT_ONCE = 1 << 19  # of dense reports, so that a block fits the cache


class Encoder(ABC):
    """A mechanism over blocks of phones: the sum of their reports, and the mean of a sum."""

    block = 1024  # phones at a time, so that the work on them fits the cache
    size = 4096  # phones in a range, which one thread sums

    def __init__(self, mechanism: Any) -> None:
        self.mechanism = mechanism

    @abstractmethod
    def empty(self) -> PartialSum:
        """The sum of no reports."""

    @abstractmethod
    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        """Add the reports of a block to a sum."""

    @abstractmethod
    def mean(self, sums: Sums) -> Floats:
        """(n_apps, d): what the mechanism's ``decode`` makes of the reports summed."""


class IdentityEncoder(Encoder):
    """`Identity`: its reports sum to the sum of the clipped gradients, which `Sums` has anyway."""

    def empty(self) -> PartialSum:
        return {}

    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        pass

    def mean(self, sums: Sums) -> Floats:
        return sums.true_sum / sums.n_reports


class LaplaceEncoder(Encoder):
    """`Laplace`: reports of D floats of 4 bytes, which are summed."""

    size = 256

    def __init__(self, mechanism: Laplace) -> None:
        super().__init__(mechanism)
        self.block = max(1, _NUMBERS_AT_ONCE // mechanism.D)

    def empty(self) -> PartialSum:
        return {"sum": np.zeros(self.mechanism.D)}

    def encode(self, x: Gradients, r: ShardRound) -> Any:
        """(n, D) float32: the noisy entries of every phone."""
        return _noisy_entries(x, r, self.mechanism.scale)

    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        for report in self.encode(x, r):
            state["sum"] += report

    def mean(self, sums: Sums) -> Floats:
        m = self.mechanism
        mean: Floats = m.clip / sums.n_reports * sums.state["sum"].reshape(m.n_apps, m.d)
        return mean


class TallyEncoder(Encoder):
    """A mechanism whose reports add up to a tally of whole numbers."""

    def empty(self) -> PartialSum:
        return {"tally": self.mechanism.tally([])}

    def mean(self, sums: Sums) -> Floats:
        mean: Floats = self.mechanism.estimate(sums.state["tally"], sums.n_reports)
        return mean


class WalshEncoder(TallyEncoder):
    block = 256

    def __init__(self, mechanism: Walsh) -> None:
        super().__init__(mechanism)
        self._code = code_of(mechanism)

    def encode(self, x: Gradients, r: ShardRound) -> tuple[Words, Longs]:
        """(n,) each: seed and index of every report."""
        return gradient_reports(x, r, self._code)

    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        count_rows(*self.encode(x, r), self.mechanism.n, state["tally"])


class SignsEncoder(TallyEncoder):
    """Signs at few positions."""

    @abstractmethod
    def encode(self, x: Gradients, r: ShardRound) -> tuple[Longs, Mask]:
        """(n, k) each: positions, and which signs are positive."""

    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        positions, positive = self.encode(x, r)
        np.add.at(state["tally"], positions.ravel(), np.where(positive, 1, -1).ravel())


class HarmonyEncoder(SignsEncoder):
    def encode(self, x: Gradients, r: ShardRound) -> tuple[Longs, Mask]:
        return _signs_of_entries(x, r, self.mechanism.k, np.uint64(self.mechanism.floor))


class KashinEncoder(SignsEncoder):
    """`Kashin`: its positions are coefficients.

    A phone computes its coefficients even where its coin does not need them; a fleet does not.
    """

    block = size = 64

    def encode(self, x: Gradients, r: ShardRound) -> tuple[Longs, Mask]:
        m = self.mechanism
        rows, signs = m._rows.astype(np.int64), m._signs
        return _signs_of_coefficients(x, r, rows, signs, m.N, m.b, m.K, np.uint64(m.threshold))


class QHarmonyEncoder(Encoder):
    """`QHarmony`: the phones' f_max travels along, and the largest scales the mean."""

    def empty(self) -> PartialSum:
        D = self.mechanism.D
        counts = {"tally": np.zeros(D, np.int64), "positive": np.zeros(D, np.int64)}
        return {**counts, LARGEST: np.array([-math.inf])}

    def encode(self, x: Gradients, r: ShardRound) -> tuple[Longs, Mask, Floats]:
        """As `SignsEncoder`; and (n,): f_max."""
        m = self.mechanism
        unit = m.clip if math.isfinite(m.clip) else 1.0
        lean = math.tanh(m.epsilon / (2 * m.k))
        return _signs_as_printed(x, r, m.k, unit, lean)

    def add(self, state: PartialSum, x: Gradients, r: ShardRound) -> None:
        positions, positive, largest = self.encode(x, r)
        np.add.at(state["tally"], positions.ravel(), np.where(positive, 1, -1).ravel())
        np.add.at(state["positive"], positions[positive], 1)
        state[LARGEST][0] = max(state[LARGEST][0], largest.max(initial=-math.inf))

    def mean(self, sums: Sums) -> Floats:
        """f_max S / z_max, as `QHarmony.decode`."""
        m, signs = self.mechanism, sums.state["tally"]
        z_max = most_positive(sums.state["positive"])
        mean = float(sums.state[LARGEST][0]) * (signs / z_max) if z_max else np.zeros(m.D)
        return np.asarray(mean).reshape(m.n_apps, m.d)


ENCODERS: Mapping[str, Callable[[Any], Encoder]] = {
    "identity": IdentityEncoder,
    "harmony": HarmonyEncoder,
    "qharmony": QHarmonyEncoder,
    "laplace": LaplaceEncoder,
    "kashin": KashinEncoder,
    "walsh": WalshEncoder,
}
"""They simulate every phone's report, bit by bit."""
FLEET_MECHANISMS = tuple(ENCODERS)
"""Mechanisms that a fleet can report its gradients through."""


# --- laplace -------------------------------------------------------------------------------------


@compiled
def _noisy_entries(x: Gradients, r: ShardRound, scale: float) -> Any:
    n, size = len(x.phones), r.Q.size
    noisy = np.empty((n, size), np.float32)
    dense = np.zeros(size)
    for i in range(n):
        bits = report_bits(x, i, r)
        spread_out(x, i, r.Q, dense)
        for j in range(size):
            u = inside(bits) - 0.5
            noisy[i, j] = dense[j] - scale * np.sign(u) * math.log1p(-2.0 * abs(u))
        sweep(x, i, r.Q.shape[1], dense)
    return noisy


# --- harmony -------------------------------------------------------------------------------------


@compiled
def _signs_of_entries(x: Gradients, r: ShardRound, k: int, floor: Any) -> tuple[Longs, Mask]:
    n = len(x.phones)
    positions, positive = np.empty((n, k), np.int64), np.empty((n, k), np.bool_)
    for i in range(n):
        bits = report_bits(x, i, r)
        distinct(bits, r.Q.size, positions[i])
        for place in range(k):
            f = entry(x, i, r.Q, positions[i, place])
            positive[i, place] = is_positive(word(bits), f, floor)
    return positions, positive


# --- qharmony ------------------------------------------------------------------------------------


@compiled
def _signs_as_printed(
    x: Gradients, r: ShardRound, k: int, unit: float, lean: float
) -> tuple[Longs, Mask, Floats]:
    """The entries are x in units of `unit`; `lean` is tanh(ε/2k)."""
    n = len(x.phones)
    positions, positive = np.empty((n, k), np.int64), np.empty((n, k), np.bool_)
    largest = np.empty(n)
    for i in range(n):
        bits = report_bits(x, i, r)
        f_max = unit * _largest_entry(x, i, r.Q)
        largest[i] = f_max
        distinct(bits, r.Q.size, positions[i])
        for place in range(k):
            f = unit * entry(x, i, r.Q, positions[i, place])
            f = f / f_max if f_max > 0 else float(np.sign(f))
            p = 0.5 + 0.5 * f * lean
            drawn = word(bits)
            positive[i, place] = p >= 1.0 or (p > 0.0 and drawn < np.uint64(p * 2.0**64))
    return positions, positive, largest


@compiled
def _largest_entry(x: Gradients, i: int, Q: Floats) -> float:
    """max x: of a background row it is (q·p) times the largest or the smallest entry of p."""
    start, stop = x.starts[i], x.starts[i + 1]
    largest = 0.0 if stop - start < len(Q) and x.c0[i] == 0 else -math.inf
    for row in range(start, stop):
        largest = max(largest, x.rows[row].max())
    if x.c0[i] > 0:
        high, low = x.p[i].argmax(), x.p[i].argmin()
        own = start
        for app in range(len(Q)):
            if own < stop and x.apps[own] == app:
                own += 1
                continue
            product = taste(Q, app, x.p[i])
            largest = max(largest, background(x, i, product, high if product > 0 else low))
    return largest


# --- kashin --------------------------------------------------------------------------------------


@compiled
def _signs_of_coefficients(
    x: Gradients,
    r: ShardRound,
    rows: Longs,
    signs: Floats,
    N: int,
    b: int,
    K: float,
    threshold: Any,
) -> tuple[Longs, Mask]:
    n = len(x.phones)
    positions, positive = np.empty((n, b), np.int64), np.empty((n, b), np.bool_)
    words = np.empty(b, np.uint64)
    dense, a, room = np.zeros(r.Q.size), np.empty(N), np.empty(N)
    bound = K / math.sqrt(N)
    for i in range(n):
        bits = report_bits(x, i, r)
        distinct(bits, N, positions[i])
        for place in range(b):
            words[place] = word(bits)
        coin, other = word(bits), word(bits)
        if coin < threshold:
            spread_out(x, i, r.Q, dense)
            _search(dense, rows, signs, bound, a, room)
            sweep(x, i, r.Q.shape[1], dense)
            for place in range(b):
                y = min(max(a[positions[i, place]] / bound, -1.0), 1.0)
                positive[i, place] = is_positive(words[place], y, np.uint64(0))
        else:
            for place in range(b):
                positive[i, place] = other >> np.uint64(place) & np.uint64(1)
    return positions, positive


@compiled
def _search(x: Floats, rows: Longs, signs: Floats, bound: float, a: Floats, room: Floats) -> None:
    """`Kashin.coefficients` times the bound, into a."""
    scale = 1.0 / math.sqrt(len(a))
    a[:] = 0.0
    for j in range(len(x)):
        a[rows[j]] = signs[j] * x[j]
    transform(a)
    a *= scale
    for _ in range(_ROUNDS):
        if np.abs(a).max() <= bound:
            return
        for j in range(len(a)):
            a[j] = min(max(a[j], -_MARGIN * bound), _MARGIN * bound)
            room[j] = a[j]
        transform(room)  # its rows, with their signs and scale, are U a
        at = 0
        for j in range(len(a)):
            if at < len(rows) and rows[at] == j:
                room[j] = signs[at] * x[at] - scale * room[j]  # signs² = 1
                at += 1
            else:
                room[j] = 0.0
        transform(room)
        for j in range(len(a)):
            a[j] += scale * room[j]


# --- draws of the phones, word for word -----------------------------------------------------------


@compiled
def distinct(bits: Words, bound: int, out: Longs) -> None:
    """`nextapp.randomness.distinct`: as many different numbers below `bound` as `out` holds."""
    n = len(out)
    for taken in range(n):
        top = bound - n + taken
        number = below(bits, top + 1)
        place = int(np.searchsorted(out[:taken], number))
        if place < taken and out[place] == number:
            number, place = top, taken  # top is larger than all before it
        for later in range(taken, place, -1):
            out[later] = out[later - 1]
        out[place] = number


@compiled
def is_positive(drawn: Any, x: float, floor: Any) -> bool:
    """Whether a word lies below `nextapp.randomness.sign_threshold`, without 65-bit numbers."""
    steps = np.uint64(min(max((1.0 + x) * _GRID, 0.0), 2.0 * _GRID))
    if floor == 0:  # the threshold is 2^11 steps, 2^64 at the most
        return bool(steps == _FULL or drawn < steps << np.uint64(11))
    span = np.uint64(0) - np.uint64(2) * floor  # 2^64 − 2 floor
    high, low = wide_product(span, steps)
    return bool(drawn < floor + (high << np.uint64(11) | low >> np.uint64(53)))


@compiled
def inside(bits: Words) -> float:
    """`nextapp.privacy.laplace.uniform`: strictly between 0 and 1; one word."""
    return (float(word(bits) >> np.uint64(11)) + 0.5) * 2.0**-53


# --- sums drawn from their law, not report by report; derived in docs/fleet.md --------------------

# laplace: M reports sum to Σ x plus, for every entry, the difference of two Gamma(M) draws.
#
# walsh, where gradients are zero at other apps (α = 0): a report is, up to a known factor,
# t x + g − (x·g) x with a lean t of known law and g ~ N(0, I). Only a phone's own entries are drawn
# phone by phone; what is left of all phones' g is one Gaussian draw for the whole fleet, made when
# the mean is taken.
#
# x as in `gradients`; z, ζ standard normal draws. All that is drawn for a phone depends on
# (seed, phone, round), all that is drawn for the fleet on (seed, round).

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
