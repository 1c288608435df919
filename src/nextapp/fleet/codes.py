"""Mechanisms whose report names Gaussian vectors of a seed: codebook, simhash, privunit by seed.

The compiled form of `nextapp.privacy.codewords` and of the mechanisms on it; symbols as there.
Alignments are whole numbers, so they are the phone's whatever the order of summation. A phone makes
its alignments also where its coin does not need them, so that the time taken tells nothing; here
they are left out.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import below, philox, stream, word
from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.encoder import REPORT, Arrays, Encoder, Round, State, Totals
from nextapp.fleet.gradients import Gradients, taste
from nextapp.privacy.codebook import Codebook
from nextapp.privacy.codewords import GROUP, UNIT, n_groups, table
from nextapp.privacy.exact import W
from nextapp.privacy.packing import packed
from nextapp.privacy.privunit import PrivUnit
from nextapp.privacy.simhash import SimHash
from nextapp.randomness import Words, purpose_word
from nextapp.wire import Floats

_CODEBOOK = np.uint64(purpose_word("codebook"))
_SIMHASH = np.uint64(purpose_word("simhash"))
_VECTOR_UNIT = float(1 << 22)
_SCORE_UNIT = float(1 << 38)
_ZERO, _ONE, _PIECE = np.uint64(0), np.uint64(1), np.uint64(0xFFFF)


class Codewords(Encoder):
    """`Codebook`."""

    block = 256

    def __init__(self, mechanism: Codebook) -> None:
        self.mechanism = mechanism
        self.payload_bytes = 8 + (mechanism.b + 7) // 8
        self._table = whole_table()

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        m = self.mechanism
        return _indices(x, r, self._table, m.m, m.k, np.uint64(m.threshold))

    def nothing(self) -> State:
        return no_vectors(self.mechanism.D)

    def add(self, state: State, reports: Arrays) -> None:
        seeds, chosen = reports
        others = np.full_like(seeds, _CODEBOOK)
        _add_vectors(seeds, others, chosen, self.mechanism.m, self._table, state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        total = totals.state["sum"][: m.D].reshape(m.n_apps, m.d)
        return m.clip / (m.mu * UNIT * totals.n_reports) * total

    def payloads(self, reports: Arrays) -> list[bytes]:
        return _seeded(reports, self.mechanism.b)


class SignsOfProjections(Encoder):
    """`SimHash`."""

    block = 256

    def __init__(self, mechanism: SimHash) -> None:
        self.mechanism = mechanism
        self.payload_bytes = 8 + (mechanism.b + 7) // 8
        self._table = whole_table()

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        m = self.mechanism
        return _hashes(x, r, self._table, m.b, np.uint64(m.threshold))

    def nothing(self) -> State:
        return no_vectors(self.mechanism.D)

    def add(self, state: State, reports: Arrays) -> None:
        seeds, values = reports
        _add_signed_vectors(seeds, values, self.mechanism.b, self._table, state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        scale = math.sqrt(math.pi / 2) * (W / m.threshold) / m.b / totals.n_reports
        return scale * m.clip / UNIT * totals.state["sum"][: m.D].reshape(m.n_apps, m.d)

    def payloads(self, reports: Arrays) -> list[bytes]:
        return _seeded(reports, self.mechanism.b)


class SeedsInCaps(Encoder):
    """`PrivUnit` with ``form="seed"``."""

    block = 256
    payload_bytes = 16

    def __init__(self, mechanism: PrivUnit) -> None:
        self.mechanism = mechanism
        self._table = whole_table()

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        m = self.mechanism
        least = m.gamma * _SCORE_UNIT
        return _seeds(x, r, self._table, least, np.uint64(m._elsewhere))

    def nothing(self) -> State:
        return no_vectors(self.mechanism.D)

    def add(self, state: State, reports: Arrays) -> None:
        low, high = reports
        _add_vectors(low, high, np.zeros(len(low), np.int64), 1, self._table, state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        total = totals.state["sum"][: m.D].reshape(m.n_apps, m.d) / UNIT
        return m.clip / (m.mu * totals.n_reports) * total

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [seed.tobytes() for seed in np.stack(reports, axis=1).astype("<u8")]


@functools.cache
def whole_table() -> Ints:
    """`table` in whole numbers of 4 bytes, which a cache holds better."""
    return table().astype(np.int32)


def no_vectors(D: int) -> State:
    return {"sum": np.zeros(n_groups(D) * GROUP, np.int64)}


def _seeded(reports: Arrays, b: int) -> list[bytes]:
    """A seed of 8 bytes and a value of b bits each."""
    seeds, values = (column.tolist() for column in reports)
    return [
        packed([seed & 0xFFFFFFFF, seed >> 32, value], [32, 32, b])
        for seed, value in zip(seeds, values, strict=True)
    ]


@compiled
def _indices(
    x: Gradients, r: Round, entries: Ints, m: int, k: int, threshold: Any
) -> tuple[Words, Longs]:
    n = len(x.phones)
    seeds, chosen = np.empty(n, np.uint64), np.empty(n, np.int64)
    grid, groups, s = _room(r.Q.size, m)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        seeds[i], coin = word(bits), word(bits)
        if coin < threshold:
            n_groups_in = _fill(x, i, r.Q, grid, groups)
            _align(grid, groups[:n_groups_in], seeds[i], _CODEBOOK, entries, s)
            _clear(grid, groups[:n_groups_in])
            chosen[i] = _among_best(s, k, below(bits, k))
        else:
            chosen[i] = below(bits, m)
    return seeds, chosen


@compiled
def _among_best(s: Longs, k: int, place: int) -> int:
    """Which of the k largest of s stands at `place` in ascending order; of equals the earlier."""
    last = _ordered(s.copy(), len(s) - k)  # the k-th largest
    equals = k
    for value in s:
        equals -= value > last
    for j in range(len(s)):
        if s[j] > last or (s[j] == last and equals > 0):
            equals -= s[j] == last
            if place == 0:
                return j
            place -= 1
    return -1


@compiled
def _ordered(values: Longs, place: int) -> int:
    """The value at `place` in ascending order, by Hoare's selection; values are moved about."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]  # type: ignore[no-any-return]


@compiled
def _hashes(x: Gradients, r: Round, entries: Ints, b: int, threshold: Any) -> tuple[Words, Longs]:
    n = len(x.phones)
    seeds, values = np.empty(n, np.uint64), np.zeros(n, np.int64)
    grid, groups, s = _room(r.Q.size, b)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        seeds[i], coin, other = word(bits), word(bits), word(bits)
        if coin < threshold:
            n_groups_in = _fill(x, i, r.Q, grid, groups)
            _align(grid, groups[:n_groups_in], seeds[i], _SIMHASH, entries, s)
            _clear(grid, groups[:n_groups_in])
            for bit in range(b):
                values[i] |= np.int64(s[bit] >= 0) << bit
        else:
            values[i] = np.int64(other & ((_ONE << np.uint64(b)) - _ONE))
    return seeds, values


@compiled
def _seeds(
    x: Gradients, r: Round, entries: Ints, least: float, elsewhere: Any
) -> tuple[Words, Words]:
    n = len(x.phones)
    low, high = np.empty(n, np.uint64), np.empty(n, np.uint64)
    grid, groups, s = _room(r.Q.size, 1)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        n_groups_in = _fill(x, i, r.Q, grid, groups)
        taken = False
        while not taken:
            low[i], high[i], coin = word(bits), word(bits), word(bits)
            taken = coin < elsewhere
            if not taken:
                _align(grid, groups[:n_groups_in], low[i], high[i], entries, s)
                taken = s[0] >= least
        _clear(grid, groups[:n_groups_in])
    return low, high


@compiled
def _room(size: int, n: int) -> tuple[Ints, Longs, Longs]:
    """An empty grid for gradients of this size, its groups in use, n alignments."""
    n_groups_ = size // GROUP + 1
    return (
        np.zeros(n_groups_ * GROUP, np.int32),
        np.empty(n_groups_, np.int64),
        np.empty(n, np.int64),
    )


@compiled
def _fill(x: Gradients, i: int, Q: Floats, grid: Ints, groups: Longs) -> int:
    """`nextapp.privacy.codewords.unit_vector` of one phone; returns how many groups are in use."""
    n_apps, d = Q.shape
    n = 0
    if x.c0[i] > 0:
        for app in range(n_apps):
            product = taste(Q, app, x.p[i])
            for y in range(d):
                grid[app * d + y] = np.rint(x.c0[i] * product * x.p[i, y] * _VECTOR_UNIT)
        n = len(groups)
        for group in range(n):
            groups[group] = group
    for row in range(x.starts[i], x.starts[i + 1]):
        start = np.int64(x.apps[row]) * d
        for y in range(d):
            grid[start + y] = np.rint(x.rows[row, y] * _VECTOR_UNIT)
        n = _listed(groups, n, start // GROUP, (start + d - 1) // GROUP)
    completing = math.sqrt(max(0.0, 1.0 - x.squares[i]))
    grid[Q.size] = np.rint(completing * _VECTOR_UNIT)
    return _listed(groups, n, Q.size // GROUP, Q.size // GROUP)


@compiled
def _listed(groups: Longs, n: int, first: int, last: int) -> int:
    """Groups first to last added to the list of n, where they are not on it; they ascend."""
    for group in range(first, last + 1):
        if n == 0 or groups[n - 1] < group:
            groups[n] = group
            n += 1
    return n


@compiled
def _clear(grid: Ints, groups: Longs) -> None:
    for group in groups:
        grid[group * GROUP : (group + 1) * GROUP] = 0


@compiled
def _align(grid: Ints, groups: Longs, seed: Any, other: Any, entries: Ints, s: Longs) -> None:
    """`nextapp.privacy.codewords.alignments` of as many vectors as s holds."""
    n = len(s)
    s[:] = 0
    for group in groups:
        place = group * GROUP
        for j in range(n):
            total = np.int64(0)
            at = 0
            for piece in philox(seed, other, np.uint64(group * n + j + 1), _ZERO, _ZERO, _ZERO):
                for shift in range(0, 64, 16):
                    entry = entries[piece >> np.uint64(shift) & _PIECE]
                    total += np.int64(entry) * np.int64(grid[place + at])
                    at += 1
            s[j] += total


@compiled
def _add_vectors(
    seeds: Words, others: Words, chosen: Longs, n: int, entries: Ints, total: Longs
) -> None:
    """Vector number `chosen` of n of every seed."""
    for i in range(len(seeds)):
        for group in range(len(total) // GROUP):
            at = group * GROUP
            block = np.uint64(group * n + chosen[i] + 1)
            for piece in philox(seeds[i], others[i], block, _ZERO, _ZERO, _ZERO):
                for shift in range(0, 64, 16):
                    total[at] += entries[piece >> np.uint64(shift) & _PIECE]
                    at += 1


@compiled
def _add_signed_vectors(seeds: Words, values: Longs, b: int, entries: Ints, total: Longs) -> None:
    """All b vectors of every seed, each with the sign of its bit."""
    for i in range(len(seeds)):
        for group in range(len(total) // GROUP):
            for bit in range(b):
                sign = 1 if values[i] >> bit & 1 else -1
                at = group * GROUP
                block = np.uint64(group * b + bit + 1)
                for piece in philox(seeds[i], _SIMHASH, block, _ZERO, _ZERO, _ZERO):
                    for shift in range(0, 64, 16):
                        total[at] += sign * entries[piece >> np.uint64(shift) & _PIECE]
                        at += 1
