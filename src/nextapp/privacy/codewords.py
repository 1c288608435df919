"""Gaussian vectors generated from a seed of 8 bytes, identical on every machine.

An entry is 16 bits of a Philox 4x64-10 stream (Salmon et al. 2011) looked up in a table of Gaussian
quantiles, so it does not depend on libm or on rejection sampling. The stream is read in blocks of 4
words; block g·n + j has entries 16 g .. 16 g + 15 of vector j of n. A phone therefore generates
only the groups of 16 where its gradient is not zero, and a server only the vector of a report.

Table entries are integers in units of 2^-16; the phone's vector is rounded to integers in units of
2^-22. Their products and sums are below 2^53 for D up to 2^24, so they are exact in float64 in any
order of summation: the best aligned vectors are determined exactly.

The table is nearly Gaussian: its entries are the means of 2^16 equally likely slices, rounded.
Their mean absolute value is √(2/π) to 2e-8 and their variance 1 − 1.5e-6; equal entries of a
gradient can tie. Results for Gaussian vectors therefore hold with a relative bias below 3e-5, which
would be visible (4 standard errors) after some 10^10 reports.
"""

from __future__ import annotations

import functools
import math
import statistics

import numpy as np
import numpy.typing as npt

from nextapp.privacy.mechanism import into_ball
from nextapp.randomness import Words
from nextapp.wire import Floats

UNIT = 1 << 16  # a table entry of UNIT is 1.0
GROUP = 16  # entries in one block: 4 words of 4 pieces
LARGEST_D = 1 << 24
_VECTOR_UNIT = 1 << 22
_PIECES_AT_ONCE = 1 << 15  # 256 kB of entries: stays in a phone's cache
_ENTRIES_AT_ONCE = 1 << 17
_GAP = 256  # generating fewer blocks than this is faster than skipping them


@functools.cache
def table() -> Floats:
    """(65536,): the mean of each of 2^16 equally likely slices of N(0, 1), as integers."""
    half = UNIT // 2
    normal = statistics.NormalDist()
    edges = [normal.inv_cdf(0.5 + i / UNIT) for i in range(1, half)]
    density = np.array([normal.pdf(0.0), *map(normal.pdf, edges), 0.0])
    upper = np.rint((density[:-1] - density[1:]) * UNIT * UNIT)
    entries = np.concatenate([-upper[::-1], upper])
    entries.flags.writeable = False
    return entries


def check_size(D: int) -> None:
    if D > LARGEST_D:
        raise ValueError(f"n_apps·d must be at most 2^24 for exact inner products, got {D}.")


def n_groups(D: int) -> int:
    """Number of groups of 16 for D entries and the one that completes the norm."""
    return D // GROUP + 1


def unit_vector(F: Floats, clip: float) -> Floats:
    """F (D,) clipped to the ℓ2 ball and completed to length 1, as integers, (n_groups, 16).

    Entry D is √(1 − ‖x‖²). So all gradients have the same length, and the true length is protected.
    """
    D = len(F)
    grid = np.zeros(n_groups(D) * GROUP)
    grid[:D], grid[D] = whole_units(F, clip)
    return grid.reshape(-1, GROUP)


def whole_units(F: Floats, clip: float) -> tuple[Floats, float]:
    """F clipped to the ℓ2 ball and the entry that completes its length to 1, in units of 2^-22."""
    x = into_ball(F, "l2", clip)
    completing = round(math.sqrt(max(0.0, 1.0 - float(x @ x))) * _VECTOR_UNIT)
    return np.rint(x * _VECTOR_UNIT), float(completing)


class VectorStream:
    """The blocks of one seed. The key has 16 bytes: the seed and another word."""

    def __init__(self, seed: int, other_half: int) -> None:
        self._philox = np.random.Philox(key=np.array([seed, other_half], np.uint64))
        self._state = self._philox.state

    def entries(self, block: int, n_blocks: int, out: Floats | None = None) -> Floats:
        """(n_blocks, 16) table entries, written to `out` if it is given."""
        self._state["state"]["counter"][0] = block  # NumPy steps the counter before it draws
        self._philox.state = self._state
        words = self._philox.random_raw(GROUP // 4 * n_blocks)
        return look_up(words, None if out is None else out[: 4 * len(words)]).reshape(-1, GROUP)


def look_up(words: Words, out: Floats | None = None) -> Floats:
    """Table entries of words: 4 pieces of 16 bits each, lowest first."""
    pieces = words.astype("<u8", copy=False).view("<u2")
    return table().take(pieces, out=out, mode="clip")  # the fast mode; no piece is out of range


def alignments(stream: VectorStream, grid: Floats, n: int) -> Floats:
    """(n,): the exact inner products of n vectors with a `unit_vector`, in units of 2^-38."""
    total = np.zeros(n)
    at_once = max(1, _PIECES_AT_ONCE // (n * GROUP))
    buffer = np.empty(at_once * n * GROUP)
    if len(grid) <= at_once:  # too short to search for gaps
        runs = [(0, len(grid) - 1)]
    else:
        runs = _runs(np.flatnonzero(grid.any(axis=1)), max(1, _GAP // n))
    for first, last in runs:
        for start in range(first, last + 1, at_once):
            stop = min(start + at_once, last + 1)
            vectors = stream.entries(start * n, (stop - start) * n, buffer).reshape(-1, n, GROUP)
            total += np.matmul(vectors, grid[start:stop, :, None])[:, :, 0].sum(axis=0)
    return total


def _runs(groups: npt.NDArray[np.intp], gap: int) -> list[tuple[int, int]]:
    """First and last of each run of `groups` without a step larger than `gap`."""
    breaks = np.flatnonzero(np.diff(groups) > gap)
    firsts = [groups[0], *groups[breaks + 1].tolist()]
    lasts = [*groups[breaks].tolist(), groups[-1]]
    return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


def vectors(
    seeds: Words, other_half: Words | np.uint64, chosen: npt.NDArray[np.int64], n: int, D: int
) -> Floats:
    """(n_seeds, D): for each seed the table entries of vector number `chosen` of n."""
    groups = np.arange(n_groups(D), dtype=np.uint64)
    blocks = groups * np.uint64(n) + chosen.astype(np.uint64)[:, None]  # (n_seeds, n_groups)
    words = philox(blocks + np.uint64(1), seeds[:, None], np.reshape(other_half, (-1, 1)))
    return look_up(words.reshape(len(seeds), -1)).reshape(len(seeds), -1)[:, :D]


def sum_of_vectors(
    seeds: Words, other_half: Words, chosen: npt.NDArray[np.int64], n: int, D: int
) -> Floats:
    """(D,): the sum of `vectors` over the seeds, computed in batches."""
    total = np.zeros(D)
    at_once = max(1, _ENTRIES_AT_ONCE // D)
    for start in range(0, len(seeds), at_once):
        part = slice(start, start + at_once)
        total += vectors(seeds[part], other_half[part], chosen[part], n, D).sum(axis=0)
    return total


_M0, _M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_STEP0, _STEP1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(counter: Words, key0: Words, key1: Words) -> Words:
    """(…, 4): Philox 4x64-10 at the counters (counter, 0, 0, 0), vectorised.

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
