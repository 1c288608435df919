"""walsh: one of m codewords of a seed, of which the well-aligned ones are e^ε times as likely.

Subset selection (Ye and Barg 2018) among random directions, as PrivUnit (Bhowmick et al. 2018; Asi,
Feldman, Talwar 2022) with a finite output. A codeword is a sum of L Walsh functions: a server
counts L rows per report and computes all D entries by one fast transform at the end.

x (D + 1,)        gradient in the ℓ2 ball, completed to length 1
g_0 … g_{m−1}     codewords of a seed                           m = 2^b
k, μ              codewords in the favoured set, E[x·g_j]       T, W  see `randomness`
n, N = 2^n        the smallest power of 2 above D; D entries and the completing one have N places
v(i)              the place of entry i, scattered               `places`
δ(v)              ±1, the Rudin-Shapiro sign of a place         `sign_bits`
w_r(v)            Walsh function r: (−1)^(number of common ones of r and v)
ρ_l, σ_jl         rows and signs of a seed                      `rows_and_signs`
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from nextapp.privacy.mechanism import (
    SECRET_BITS,
    FiniteMechanism,
    Gradient,
    Guarantee,
    Tally,
    check_form,
    check_tally,
    into_ball,
)
from nextapp.randomness import Bits, W, Words, below, keep_probability, keep_threshold, purpose_word
from nextapp.wire import Floats, Report, WireError

Places = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

L = 64
"""Number of Walsh functions in a codeword, equal to the number of bits in a word of signs.

μ is that of Gaussian codewords, but a sum of L signs is only approximately Gaussian. The resulting
bias is of order 1/L and largest for a phone with a single entry: −.1 % of the entry at ε 1, −.5 %
at 4.5, −1 % at 8 (benchmarks/walsh_bias.py, docs/decisions/0012).
"""

LARGEST_D = (1 << 23) - 1
"""Of any report of a phone, so that its cells are numbers of 23 bits."""

MOST_VARIANCE = 1.15
"""Variance that fewer codewords may have, as a multiple of that of 256 (`fewest_bits`).

A round number. It costs as much as losing an eighth of the phones; how much weaker liars get
stands in docs/deploy.md."""

_PURPOSE = purpose_word("walsh")
_MULTIPLIERS = (0x9E3779B1, 0x85EBCA77)  # odd; two primes of xxHash
_SEED_BYTES = 8
_UNIT = 1 << 22  # of a phone's vector, so that inner products are exact
_ROW_WORDS = L // 2  # a row takes 32 bits
_ROW_BLOCKS = _ROW_WORDS // 4
_REPORTS_AT_ONCE = 512
_PLACES_AT_ONCE = 1 << 10
_SMALL = 1 << 15  # N up to which all places are transformed at once
_STEP = 4  # bits of a transform done by one matrix product


class Walsh(FiniteMechanism):
    """An index j into m codewords; the k best aligned with x have weight e^ε, the others 1.

        P[j] = e^ε/(k e^ε + m − k)  or  1/(k e^ε + m − k)
        x̂ = g_j / μ,   μ = E[x·g_j] = (e^ε − 1)/(k e^ε + m − k) · Σ_{i ≤ k} E[s_(i)]
        g_j[i] = L^-½ Σ_l σ_jl δ(v) w_r(v),   v = v(i),  r = ρ_l XOR (j rotated left by l of n bits)

    s_(1) ≥ s_(2) ≥ … are the order statistics of m independent N(0, 1). The entries of codewords
    have mean 0 and variance 1 and are uncorrelated, over the seeds; x·g_j is a sum of L independent
    numbers of variance 1/L each, close to N(0, 1) for any x (see `L`). ε holds for every seed,
    since the distribution of j has only two levels. V = D/μ² at x = 0. ``b`` is the number of bits
    of the index; k maximises μ.

    Coins: the seed. Bits: one word decides between the k best and all; then `below(k)` or
    `below(m)`, the position among the k best (in ascending order of j) or j itself.
    Payload: the seed, 8 bytes, then j; lowest byte first.
    """

    name = "walsh"
    ball = "l2"

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float, b: int = 8) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        if not (isinstance(b, int) and 1 <= b <= 12):
            raise ValueError(f"b must be a whole number of bits from 1 to 12, got {b!r}.")
        if self.D > LARGEST_D:
            raise ValueError(
                f"n_apps·d must be below 2^23 for walsh, got {self.D}: use a smaller catalogue, "
                f"with the apps that most phones have."
            )
        self.b = b
        self.m = 1 << b
        self.n = self.D.bit_length()
        self.N = 1 << self.n
        tops = np.cumsum(order_statistics(self.m))  # E of the sum of the k best, k = 1 … m
        excess = math.expm1(min(self.epsilon, 64.0))
        self.k = 1 + int(np.argmax(tops / (excess * np.arange(1, self.m + 1) + self.m)))
        self.threshold = keep_threshold(self.epsilon, self.k, self.m)
        self.mu = self.threshold / W * float(tops[self.k - 1]) / self.k

    @property
    def payload_bytes(self) -> int:
        return _SEED_BYTES + (self.b + 7) // 8

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

        in the mean over its coins: all that it can send is one of the m codewords they give it. An
        honest phone adds 1 at most. No mechanism with ε has less than 1/tanh(ε/2).
        """
        return order_statistics(self.m)[0] / self.mu

    # --- phone -----------------------------------------------------------------------------------

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        seed = int((bits if coins is None else coins).words(1)[0])
        coin = int(bits.words(1)[0])
        best = self._best(F, seed)  # always computed, so that the time does not reveal the coin
        j = int(best[below(bits, self.k)]) if coin < self.threshold else below(bits, self.m)
        return Report(self.name, round, self.payload(seed, j))

    def payload(self, seed: int, j: int) -> bytes:
        n_bytes = self.payload_bytes - _SEED_BYTES
        return seed.to_bytes(_SEED_BYTES, "little") + j.to_bytes(n_bytes, "little")

    def _best(self, F: Gradient, seed: int) -> npt.NDArray[np.intp]:
        """The k codewords best aligned with x, in ascending order; ties go to the smaller j."""
        s = self._alignments(F, seed)
        return np.sort(np.argsort(-s, kind="stable")[: self.k])

    def _alignments(self, F: Gradient, seed: int) -> Floats:
        """(m,): √L x·g_j in units of 2^-22, exact."""
        entries, values = self._nonzero(F)
        x = into_ball(values, "l2", self.clip)
        completing = math.sqrt(max(0.0, 1.0 - float(x @ x)))
        whole = np.rint(np.append(x, completing) * _UNIT)
        v = places(np.append(entries, self.D), self.n)
        np.negative(whole, out=whole, where=sign_bits(v))
        words = np.random.Philox(key=np.array([seed, _PURPOSE], np.uint64)).random_raw(
            _ROW_WORDS + self.m
        )
        rows = _rows(words[None, :_ROW_WORDS], self.n)[0]
        # which way is taken shows in time and memory, so it depends on public sizes only
        found = self._all(v, whole, rows) if self.N <= _SMALL else self._few(v, whole, rows)
        return np.asarray((found * _signs(words[_ROW_WORDS:])).sum(axis=1))

    def _few(self, v: Places, x: Floats, rows: Places) -> Floats:
        """(m, L): Σ_v x(v) w_r(v) for all rows r of a seed, from the places that are not 0.

        With r = ρ_l XOR (j rotated left) it is Σ_v ± x(v) w_j(u), where u is the place rotated
        right. Places with the same last b bits can then be added up, a block at a time, and one
        transform of m numbers gives all j.
        """
        size = min(self.m, self.N)
        turns = (np.arange(L, dtype=np.uint32) % np.uint32(self.n))[:, None]
        own_sums = np.arange(L, dtype=np.uint32)[:, None] * size
        sums = np.zeros(L * size)
        for start in range(0, len(v), _PLACES_AT_ONCE):
            part = v[start : start + _PLACES_AT_ONCE]
            odd = np.bitwise_count(rows[:, None] & part) & np.uint8(1)  # (L, n_places)
            turned = part >> turns | part << (np.uint32(self.n) - turns)
            cells = (turned & np.uint32(size - 1)) + own_sums
            signed = np.where(odd, -x[start : start + len(part)], x[start : start + len(part)])
            sums += np.bincount(cells.ravel(), signed.ravel(), L * size)
        found = walsh_transform(sums.reshape(L, size)).T
        return np.tile(found, (self.m // size, 1))

    def _all(self, v: Places, x: Floats, rows: Places) -> Floats:
        """The same as `_few`, by one transform of all N places."""
        spread = np.zeros(self.N)
        spread[v] = x
        j = np.arange(self.m)
        return np.asarray(walsh_transform(spread)[rows ^ _rotate_left(j, self.n)])

    # --- server ----------------------------------------------------------------------------------

    def tally(self, reports: Sequence[Report]) -> Tally:
        """(N,): for each Walsh function the number of plus signs minus that of minus signs."""
        seeds, j = self._parts(reports)
        counts = np.zeros(self.N, np.int64)
        for start in range(0, len(seeds), _REPORTS_AT_ONCE):
            part = slice(start, start + _REPORTS_AT_ONCE)
            rows, signs = rows_and_signs(seeds[part], j[part], self.n)
            np.add.at(counts, rows.ravel(), signs.ravel())
        return counts

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        check_tally(tally, (self.N,), n_reports)
        sums = walsh_transform(tally.astype(np.float64))  # √L δ(v) Σ g(v), over places v
        v = places(np.arange(self.D, dtype=np.uint32), self.n)
        x = sums.take(v, mode="clip")  # the fast mode; no place is out of range
        np.negative(x, out=x, where=sign_bits(v))
        x *= self.clip / (self.mu * math.sqrt(L) * n_reports)
        return self._reshape(x)

    def check(self, report: Report) -> None:
        check_form(self, report, self.payload_bytes)
        self._check_index(int.from_bytes(report.payload[_SEED_BYTES:], "little"))

    def _check_index(self, j: int) -> None:
        if j >= self.m:
            raise WireError(f"the index of a codeword must be below {self.m}, got {j}.")

    def _parts(self, reports: Sequence[Report]) -> tuple[Words, Longs]:
        rows = self._payloads(reports, self.payload_bytes)
        seeds = np.ascontiguousarray(rows[:, :_SEED_BYTES]).view("<u8")[:, 0].astype(np.uint64)
        index = rows[:, _SEED_BYTES:].astype(np.int64)
        j = index[:, 0] if self.b <= 8 else index[:, 0] | index[:, 1] << 8
        self._check_index(int(j.max(initial=0)))
        return seeds, j

    def matches_coins(self, report: Report, coins: Bits) -> bool:
        return report.payload[:_SEED_BYTES] == coins.words(1).astype("<u8").tobytes()

    # --- law -------------------------------------------------------------------------------------

    def probability(self, report: Report, F: Gradient) -> Fraction:
        """Conditional on the seed."""
        seeds, j = self._parts([report])
        best = self._best(F, int(seeds[0]))
        return keep_probability(self.threshold, self.k, self.m, bool((best == j[0]).any()))

    def outputs(self, seed: int = 0) -> Iterator[Report]:
        for j in range(self.m):
            yield Report(self.name, 0, self.payload(seed, j))


# --- codewords -----------------------------------------------------------------------------------


def places(entries: npt.NDArray[np.integer], n: int) -> Places:
    """v(i): a bijection that scatters the numbers below 2^n.

    Twice: multiply by an odd number modulo 2^n, then XOR with the upper half of the bits. The
    product of a Walsh function's signs at v, v' and v'' is its sign at v XOR v' XOR v'', so the
    non-Gaussian error of three entries of a phone adds to that place. After scattering, these
    places rarely belong to the same apps, and rarely coincide for two phones.

    >>> sorted(places(np.arange(8), 3).tolist()) == list(range(8))
    True
    """
    v = entries.astype(np.uint32)
    for multiplier in _MULTIPLIERS:
        v = v * np.uint32(multiplier) & np.uint32((1 << n) - 1)
        v ^= v >> np.uint32((n + 1) // 2)
    return v


def sign_bits(v: Places) -> npt.NDArray[np.bool_]:
    """Whether δ(v) is −1: an odd number of pairs of neighbouring ones (Rudin-Shapiro sequence).

    Without it Walsh function 0, which is +1 everywhere, would be special for entries of one sign.
    """
    return np.asarray(np.bitwise_count(v & v >> np.uint32(1)) & np.uint8(1), np.bool_)


def rows_and_signs(seeds: Words, j: Longs, n: int) -> tuple[Longs, Longs]:
    """The Walsh functions of codeword j of every seed and their signs ±1, (n_seeds, L) each.

    The words of a seed are the Philox stream with the key (seed, "walsh"): 32 words with the rows
    ρ_l, 32 bits each, the lower half first, of which the lowest n bits are used; then one word per
    codeword, whose bit l is 1 if σ_jl = +1.
    """
    blocks = np.arange(1, _ROW_BLOCKS + 1, dtype=np.uint64)
    purpose = np.full((1, 1), _PURPOSE, np.uint64)
    words = philox(np.broadcast_to(blocks, (len(seeds), _ROW_BLOCKS)), seeds[:, None], purpose)
    rows = _rows(words.reshape(len(seeds), -1), n) ^ _rotate_left(j, n)
    at = _ROW_WORDS + j
    signs = philox((at // 4 + 1).astype(np.uint64), seeds, purpose[0])[np.arange(len(j)), at % 4]
    return rows.astype(np.int64), _signs(signs).astype(np.int64)


def _rows(words: Words, n: int) -> Places:
    """(n_seeds, L): ρ_l."""
    return words.astype("<u8", copy=False).view("<u4") & np.uint32((1 << n) - 1)


def _rotate_left(j: Longs, n: int) -> Places:
    """(len(j), L): the lowest n bits of j rotated left by l."""
    low = (j.astype(np.uint32) & np.uint32((1 << n) - 1))[:, None]
    turns = np.arange(L, dtype=np.uint32) % np.uint32(n)
    return (low << turns | low >> (np.uint32(n) - turns)) & np.uint32((1 << n) - 1)


def _signs(words: Words) -> npt.NDArray[np.int8]:
    """(n_words, 64): ±1, bit 0 first."""
    octets = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    return 2 * np.unpackbits(octets, axis=1, bitorder="little").view(np.int8) - np.int8(1)


def walsh_transform(values: Floats) -> Floats:
    """Σ_v values[…, v] w_r(v) for all r: the fast Walsh-Hadamard transform of the last axis.

    A few bits at a time, as a product with a small Hadamard matrix, which is cache-friendly.
    Integers stay exact below 2^53.

    >>> walsh_transform(np.array([1.0, 2.0, 3.0, 4.0]))
    array([10., -2., -4.,  0.])
    """
    n = values.shape[-1].bit_length() - 1
    found = values.reshape(-1, 1)
    for done in range(0, n, _STEP):
        H = hadamard_matrix(min(_STEP, n - done))
        if done == 0:
            found = found.reshape(-1, len(H)) @ H
        else:
            found = np.matmul(H, found.reshape(-1, len(H), 1 << done))
    return found.reshape(values.shape)


@functools.cache
def hadamard_matrix(bits: int) -> Floats:
    """Sylvester's matrix (2^bits, 2^bits), whose row r is w_r."""
    H = np.ones((1, 1))
    for _ in range(bits):
        H = np.block([[H, H], [H, -H]])
    H.flags.writeable = False
    return H


_M0, _M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_STEP0, _STEP1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(counter: Words, key0: Words, key1: Words) -> Words:
    """(…, 4): Philox 4x64-10 (Salmon et al. 2011) at the counters (counter, 0, 0, 0), vectorised.

    The same as NumPy's stream, which can only be read in order; a test compares them.
    """
    a, b, c, d = counter, np.zeros_like(counter), np.zeros_like(counter), np.zeros_like(counter)
    k0, k1 = key0, key1
    with np.errstate(over="ignore"):
        for _ in range(10):
            high0, low0 = _product(_M0, a)
            high1, low1 = _product(_M1, c)
            a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
            k0, k1 = k0 + _STEP0, k1 + _STEP1
    return np.stack([a, b, c, d], axis=-1)


def _product(m: int, x: Words) -> tuple[Words, Words]:
    """The high and low words of m·x, from halves of 32 bits."""
    m0, m1 = np.uint64(m & 0xFFFFFFFF), np.uint64(m >> 32)
    x0, x1 = x & _LOW, x >> _32
    middle = m1 * x0 + (m0 * x0 >> _32)
    cross = m0 * x1 + (middle & _LOW)
    return m1 * x1 + (middle >> _32) + (cross >> _32), np.uint64(m) * x


# --- number of codewords -------------------------------------------------------------------------


def fewest_bits(epsilon: float) -> int:
    """b of the fewest codewords, up to 256, with at most `MOST_VARIANCE` of the variance of 256.

    The fewer codewords there are, the less a liar has to choose from (`Walsh.liar_weight`).

    >>> [fewest_bits(epsilon) for epsilon in (0.5, 1.0, 2.0, 4.5, 8.0)]
    [4, 4, 4, 5, 7]
    """

    def variance(b: int) -> float:
        return Walsh(n_apps=1, d=1, epsilon=epsilon, clip=1.0, b=b).variance

    return next(b for b in range(1, 9) if variance(b) <= variance(8) * MOST_VARIANCE)


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
        with np.errstate(under="ignore"):
            means.append(float(weight @ np.exp(log_law)))
    middle = [0.0] if m % 2 else []
    return (*means, *middle, *(-mean for mean in reversed(means)))
