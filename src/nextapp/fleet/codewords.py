"""Gaussian vectors of seeds: the compiled form of `nextapp.privacy.codewords`; symbols as there.

Alignments are whole numbers, so they are the phone's whatever the order of summation. A phone makes
its alignments also where its coin does not need them, so that the time taken tells nothing; here
they are left out.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeVar

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import philox
from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.encoder import Arrays, Kind, State, TallyEncoder
from nextapp.fleet.gradients import Gradients, taste
from nextapp.privacy.codewords import GROUP, n_groups, table
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.seeded import SeededMechanism
from nextapp.randomness import Words
from nextapp.wire import Floats

Seeded = TypeVar("Seeded", bound=SeededMechanism)

VECTOR_UNIT = float(1 << 22)
ZERO, PIECE = np.uint64(0), np.uint64(0xFFFF)


@functools.cache
def whole_table() -> Ints:
    """`table` in whole numbers of 4 bytes, which a cache holds better."""
    return table().astype(np.int32)


class VectorEncoder(TallyEncoder[Kind]):
    """A report names vectors of a seed, which are summed."""

    block = 256

    def __init__(self, mechanism: Kind) -> None:
        self.mechanism = mechanism
        self._table = whole_table()

    def empty(self) -> State:
        return {"sum": np.zeros(n_groups(self.mechanism.D) * GROUP, np.int64)}

    def tally(self, state: State) -> Tally:
        return state["sum"][: self.mechanism.D]


class SeededEncoder(VectorEncoder[Seeded]):
    """Reports of a seed and b bits that say which of its vectors, or their signs."""

    def __init__(self, mechanism: Seeded) -> None:
        super().__init__(mechanism)
        self.payload_bytes = mechanism.payload_bytes

    def payloads(self, reports: Arrays) -> list[bytes]:
        return seeded_payloads(reports, self.mechanism)


def seeded_payloads(reports: Arrays, mechanism: SeededMechanism) -> list[bytes]:
    """The payloads of a column of seeds and one of values."""
    seeds, values = (column.tolist() for column in reports)
    return [mechanism.payload(seed, value) for seed, value in zip(seeds, values, strict=True)]


@compiled
def room(size: int, n: int) -> tuple[Ints, Longs, Longs]:
    """An empty grid for gradients of this size, its groups in use, n alignments."""
    n_groups_ = size // GROUP + 1
    return (
        np.zeros(n_groups_ * GROUP, np.int32),
        np.empty(n_groups_, np.int64),
        np.empty(n, np.int64),
    )


@compiled
def fill(x: Gradients, i: int, Q: Floats, grid: Ints, groups: Longs) -> int:
    """`nextapp.privacy.codewords.unit_vector` of one phone; returns how many groups are in use."""
    n_apps, d = Q.shape
    n = 0
    if x.c0[i] > 0:
        for app in range(n_apps):
            product = taste(Q, app, x.p[i])
            for y in range(d):
                grid[app * d + y] = np.rint(x.c0[i] * product * x.p[i, y] * VECTOR_UNIT)
        n = len(groups)
        for group in range(n):
            groups[group] = group
    for row in range(x.starts[i], x.starts[i + 1]):
        start = np.int64(x.apps[row]) * d
        for y in range(d):
            grid[start + y] = np.rint(x.rows[row, y] * VECTOR_UNIT)
        n = _add_groups(groups, n, start // GROUP, (start + d - 1) // GROUP)
    completing = math.sqrt(max(0.0, 1.0 - x.squares[i]))
    grid[Q.size] = np.rint(completing * VECTOR_UNIT)
    return _add_groups(groups, n, Q.size // GROUP, Q.size // GROUP)


@compiled
def _add_groups(groups: Longs, n: int, first: int, last: int) -> int:
    """Groups first to last added to the list of n, where they are not on it; they ascend."""
    for group in range(first, last + 1):
        if n == 0 or groups[n - 1] < group:
            groups[n] = group
            n += 1
    return n


@compiled
def clear(grid: Ints, groups: Longs) -> None:
    for group in groups:
        grid[group * GROUP : (group + 1) * GROUP] = 0


@compiled
def align(grid: Ints, groups: Longs, seed: Any, other: Any, entries: Ints, s: Longs) -> None:
    """`nextapp.privacy.codewords.alignments` of as many vectors as s holds."""
    n = len(s)
    s[:] = 0
    for group in groups:
        place = group * GROUP
        for j in range(n):
            total = np.int64(0)
            at = 0
            for piece in philox(seed, other, np.uint64(group * n + j + 1), ZERO, ZERO, ZERO):
                for shift in range(0, 64, 16):
                    entry = entries[piece >> np.uint64(shift) & PIECE]
                    total += np.int64(entry) * np.int64(grid[place + at])
                    at += 1
            s[j] += total


@compiled
def add_vectors(
    seeds: Words, others: Words, chosen: Longs, n: int, entries: Ints, total: Longs
) -> None:
    """Vector number `chosen` of n of every seed."""
    for i in range(len(seeds)):
        for group in range(len(total) // GROUP):
            at = group * GROUP
            block = np.uint64(group * n + chosen[i] + 1)
            for piece in philox(seeds[i], others[i], block, ZERO, ZERO, ZERO):
                for shift in range(0, 64, 16):
                    total[at] += entries[piece >> np.uint64(shift) & PIECE]
                    at += 1
