"""walsh: codebook with codewords made of Walsh functions, which a server sums in O(1) per report.

The output distribution is that of `codebook`. A codeword of `codebook` has D independent entries,
so a server needs D operations per report; here a codeword is a sum of L Walsh functions, so a
server counts L rows per report and computes all D entries by one fast transform at the end.

D, x, k, μ, T, W  see `codebook`
n, N = 2^n        the smallest power of 2 above D; D entries and the completing one have N places
v(i)              the place of entry i, scattered                     `places`
δ(v)              ±1, the Rudin-Shapiro sign of a place                `sign_bits`
w_r(v)            Walsh function r: (−1)^(number of common ones of r and v)
ρ_l, σ_jl         rows and signs of a report's seed                    `rows_and_signs`
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nextapp.privacy.codebook import Codebook
from nextapp.privacy.codewords import philox, whole_units
from nextapp.privacy.mechanism import Gradient, Tally, check_tally
from nextapp.randomness import Words, purpose_word
from nextapp.wire import Floats, Report

Places = npt.NDArray[np.uint32]

L = 64
"""Number of Walsh functions in a codeword, equal to the number of bits in a word of signs.

μ is that of Gaussian codewords, but a sum of L signs is only approximately Gaussian. The resulting
bias is of order 1/L and largest for a phone with a single entry: −.1 % of the entry at ε 1, −.5 %
at 4.5, −1 % at 8 (benchmarks/walsh_bias.py, docs/decisions/0012).
"""

LARGEST_D = (1 << 23) - 1
"""Limits a phone's transform to 2^23 numbers, whatever a server asks for."""

_PURPOSE = purpose_word("walsh")
_MULTIPLIERS = (0x9E3779B1, 0x85EBCA77)  # odd; two primes of xxHash
_ROW_WORDS = L // 2  # a row takes 32 bits
_ROW_BLOCKS = _ROW_WORDS // 4
_REPORTS_AT_ONCE = 512
_STEP = 4  # bits of a transform done by one matrix product


class Walsh(Codebook):
    """`Codebook` with the codewords

        g_j[i] = L^-½ Σ_l σ_jl δ(v) w_r(v),   v = v(i),  r = ρ_l XOR (j rotated left by l of n bits)

    whose entries have mean 0 and variance 1 and are uncorrelated, over the seeds. x·g_j is a sum of
    L independent numbers of variance 1/L each, close to N(0, 1) for any x (see `L`). The privacy
    guarantee is the same as that of `Codebook`.

    Coins, Bits, Payload: as in `Codebook`.
    """

    name = "walsh"

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float, b: int = 8) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip, b=b)
        if self.D > LARGEST_D:
            raise ValueError(
                f"n_apps·d must be below 2^23 for walsh, got {self.D}: use a smaller catalogue, "
                f"with the apps that most phones have."
            )
        self.n = self.D.bit_length()
        self.N = 1 << self.n

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

    def _alignments(self, F: Gradient, seed: int) -> Floats:
        """(m,): √L x·g_j in units of 2^-22, exact."""
        entries, values = self._nonzero(F)
        whole, completing = whole_units(values, self.clip)
        v = places(np.append(entries, self.D), self.n)
        signed = np.append(whole, completing)
        np.negative(signed, out=signed, where=sign_bits(v))
        words = np.random.Philox(key=np.array([seed, _PURPOSE], np.uint64)).random_raw(
            _ROW_WORDS + self.m
        )
        rows = _rows(words[None, :_ROW_WORDS], self.n)[0]
        found = self._few(v, signed, rows) if len(v) * L <= self.N else self._all(v, signed, rows)
        return np.asarray((found * _signs(words[_ROW_WORDS:])).sum(axis=1))

    def _few(self, v: Places, x: Floats, rows: Places) -> Floats:
        """(m, L): Σ_v x(v) w_r(v) for all rows r of a seed, from a few places.

        With r = ρ_l XOR (j rotated left) it is Σ_v ± x(v) w_j(u), where u is the place rotated
        right. Places with the same last b bits can then be added up, and one transform of m numbers
        gives all j.
        """
        size = min(self.m, self.N)
        odd = np.bitwise_count(rows[:, None] & v) & np.uint8(1)  # (L, n_places)
        turns = (np.arange(L, dtype=np.uint32) % np.uint32(self.n))[:, None]
        turned = v >> turns | v << (np.uint32(self.n) - turns)
        cells = (turned & np.uint32(size - 1)) + np.arange(L, dtype=np.uint32)[:, None] * size
        sums = np.bincount(cells.ravel(), np.where(odd, -x, x).ravel(), L * size)
        found = walsh_transform(sums.astype(np.float64).reshape(L, size)).T
        return np.tile(found, (self.m // size, 1))

    def _all(self, v: Places, x: Floats, rows: Places) -> Floats:
        """The same as `_few` for many places, by one transform of all N."""
        spread = np.zeros(self.N)
        spread[v] = x
        j = np.arange(self.m)
        return np.asarray(walsh_transform(spread)[rows ^ _rotate_left(j, self.n)])


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


def rows_and_signs(
    seeds: Words, j: npt.NDArray[np.int64], n: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
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


def _rotate_left(j: npt.NDArray[np.int64], n: int) -> Places:
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
