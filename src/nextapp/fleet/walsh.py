"""Codewords of Walsh functions: the compiled form of `nextapp.privacy.walsh`; symbols as there.

Gradients are reported as every mechanism's (`nextapp.fleet.reporting`), what phones answer to the
crowd's two questions by `draw_answers`, of which `tally_answers` makes the tally. Alignments are
whole numbers, so they do not depend on the order of summation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled, fast
from nextapp.compiled_bits import Key, below, philox, stream, word
from nextapp.fleet.columns import Columns, Fleet, Longs, each_range
from nextapp.fleet.gradients import REPORT, Gradients, ShardRound, report_bits, spread_out
from nextapp.fleet.vectors import check_question, launch_vector, transition_vector
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.walsh import L, Walsh, places, sign_bits
from nextapp.randomness import Words, purpose_word

WALSH = np.uint64(purpose_word("walsh"))
_ROW_BLOCKS = L // 8
_ROW_WORDS = L // 2
_HALF = np.uint64(32)
_ZERO = np.uint64(0)
_UNIT = float(1 << 22)
_PHONES_AT_ONCE = 512  # for one thread: a tenth of a second


def gradient_reports(
    x: Gradients, r: ShardRound, at: Longs, mechanism: Walsh
) -> tuple[Words, Longs]:
    """Seed and index of the report of every gradient of a block; `at` is its `scatter_table`."""
    m = mechanism
    return _of_gradients(x, r, at, m.n, m.m, m.k, np.uint64(m.threshold))


def tally_answers(fleet: Fleet, mechanism: Walsh, question: str, seed: int) -> Tally:
    """(N,): ``mechanism.tally`` of the answers of all phones."""
    counts = np.zeros(mechanism.N, np.int64)
    count_rows(*draw_answers(fleet, mechanism, question, seed), mechanism.n, counts)
    return counts


def draw_answers(fleet: Fleet, mechanism: Walsh, question: str, seed: int) -> tuple[Words, Longs]:
    """Seed and index of every report on a question, ``transitions`` or ``launches``.

    They are those that a phone draws with ``KeyedBits(seed, phone, 0, "report")``.
    """
    m = mechanism
    check_question(fleet.n_apps, m, question)
    seeds, chosen = np.empty(len(fleet), np.uint64), np.empty(len(fleet), np.int64)
    columns, at, launches = fleet.columns, scatter_table(m), question == "launches"

    def work(first: int, last: int) -> None:
        _of_vectors(
            first, last, np.uint64(fleet.first_phone), np.uint64(seed), launches, columns, m.clip,
            m.d, at, m.n, m.m, m.k, np.uint64(m.threshold), seeds, chosen,
        )  # fmt: skip

    list(each_range(len(fleet), work, _PHONES_AT_ONCE))
    return seeds, chosen


def scatter_table(mechanism: Walsh) -> Longs:
    """(D + 1,): v(i) where δ is +1, −1 − v(i) where it is −1."""
    v = places(np.arange(mechanism.D + 1), mechanism.n)
    return np.where(sign_bits(v), -1 - v.astype(np.int64), v.astype(np.int64))


@compiled
def _of_gradients(
    x: Gradients, r: ShardRound, at: Longs, n: int, m: int, k: int, threshold: Any
) -> tuple[Words, Longs]:
    n_reports, d = len(x.phones), r.Q.shape[1]
    seeds, chosen = np.empty(n_reports, np.uint64), np.empty(n_reports, np.int64)
    v, values = np.empty(r.Q.size + 1, np.int64), np.empty(r.Q.size + 1, np.int64)
    entries = np.zeros(r.Q.size)
    for i in range(n_reports):
        bits = report_bits(x, i, r)
        seeds[i], coin = word(bits), word(bits)
        if coin >= threshold:
            chosen[i] = below(bits, m)
            continue
        used = 0
        if x.c0[i] > 0:
            spread_out(x, i, r.Q, entries)
            for entry in range(r.Q.size):
                used = _put(entries[entry], at[entry], v, values, used)
        else:
            for row in range(x.starts[i], x.starts[i + 1]):
                for y in range(d):
                    used = _put(x.rows[row, y], at[x.apps[row] * d + y], v, values, used)
        chosen[i] = _choose(bits, seeds[i], x.squares[i], v, values, used, at[-1], n, m, k)
    return seeds, chosen


@compiled
def _of_vectors(
    first: int,
    last: int,
    first_phone: Key,
    seed: Key,
    launches: bool,
    columns: Columns,
    clip: float,
    width: int,
    at: Longs,
    n: int,
    m: int,
    k: int,
    threshold: Key,
    seeds: Words,
    chosen: Longs,
) -> None:
    for phone in range(first, last):
        bits = stream(seed, first_phone + np.uint64(phone), np.uint64(0), REPORT)
        seeds[phone], coin = word(bits), word(bits)
        if coin >= threshold:
            chosen[phone] = below(bits, m)
            continue
        if launches:
            cells, x = launch_vector(phone, columns, clip)
        else:
            cells, x = transition_vector(phone, columns, clip, width)
        v, values = np.empty(len(x) + 1, np.int64), np.empty(len(x) + 1, np.int64)
        used = 0
        for i in range(len(x)):
            used = _put(x[i], at[cells[i]], v, values, used)
        chosen[phone] = _choose(bits, seeds[phone], (x * x).sum(), v, values, used, at[-1], n, m, k)


@compiled
def _choose(
    bits: Words,
    seed: Any,
    square: float,
    v: Longs,
    values: Longs,
    used: int,
    at_last: int,
    n: int,
    m: int,
    k: int,
) -> int:
    """One of the k best codewords for a vector of this squared length, completed to length 1."""
    used = _put(math.sqrt(max(0.0, 1.0 - square)), at_last, v, values, used)
    s = _alignments(v[:used], values[:used], seed, n, m)
    return among_best(s, k, below(bits, k))


@compiled
def _put(value: float, at: int, v: Longs, values: Longs, n: int) -> int:
    """A value in whole units and with its sign added to a list of n, unless it is 0."""
    whole = np.int64(np.rint(value * _UNIT))
    if whole == 0:
        return n
    v[n], values[n] = (at, whole) if at >= 0 else (-1 - at, -whole)
    return n + 1


@compiled
def _alignments(v: Longs, x: Longs, seed: Any, n: int, m: int) -> Longs:
    """(m,): `Walsh._alignments` of places and what stands there."""
    size = min(m, 1 << n)
    s, sums, signs = np.zeros(m, np.int64), np.empty(size, np.int64), np.empty(m, np.uint64)
    for block in range((m + 3) // 4):
        four = philox(seed, WALSH, np.uint64(_ROW_BLOCKS + 1 + block), _ZERO, _ZERO, _ZERO)
        for place in range(min(4, m - 4 * block)):
            signs[4 * block + place] = four[place]
    for part in range(L):
        row, turn = _row(seed, part, n), part % n
        sums[:] = 0
        for place in range(len(v)):
            turned = v[place] >> turn | v[place] << (n - turn)
            value = -x[place] if odd(row & v[place]) else x[place]
            sums[turned & (size - 1)] += value
        transform(sums)
        for j in range(m):
            value = sums[j & (size - 1)]
            s[j] += value if signs[j] >> np.uint64(part) & np.uint64(1) else -value
    return s


@compiled
def _row(seed: Any, part: int, n: int) -> int:
    """ρ_l."""
    four = philox(seed, WALSH, np.uint64(part // 8 + 1), _ZERO, _ZERO, _ZERO)
    half = four[part % 8 // 2] >> (_HALF if part % 2 else _ZERO)
    return np.int64(half) & ((1 << n) - 1)  # type: ignore[return-value]


@compiled
def odd(number: int) -> bool:
    """Whether a number below 2^32 has an odd number of ones."""
    number ^= number >> 16
    number ^= number >> 8
    number ^= number >> 4
    number ^= number >> 2
    number ^= number >> 1
    return number & 1 == 1


@fast
def transform(x: Any) -> None:
    """The Walsh and Hadamard transform, in place, two bits of the index at a time."""
    n = len(x)
    step = 1
    while 4 * step <= n:
        for start in range(0, n, 4 * step):
            for j in range(start, start + step):
                a, b, c, d = x[j], x[j + step], x[j + 2 * step], x[j + 3 * step]
                x[j], x[j + step] = (a + b) + (c + d), (a - b) + (c - d)
                x[j + 2 * step], x[j + 3 * step] = (a + b) - (c + d), (a - b) - (c - d)
        step *= 4
    if step < n:
        for j in range(step):
            x[j], x[j + step] = x[j] + x[j + step], x[j] - x[j + step]


@compiled
def count_rows(seeds: Words, chosen: Longs, n: int, counts: Longs) -> None:
    """`Walsh.tally` of reports added to counts."""
    for i in range(len(seeds)):
        at = _ROW_WORDS + chosen[i]
        four = philox(seeds[i], WALSH, np.uint64(at // 4 + 1), _ZERO, _ZERO, _ZERO)
        signs = four[at % 4]
        low = chosen[i] & ((1 << n) - 1)
        for block in range(_ROW_BLOCKS):
            words = philox(seeds[i], WALSH, np.uint64(block + 1), _ZERO, _ZERO, _ZERO)
            for place in range(8):
                part = 8 * block + place
                half = words[place // 2] >> (_HALF if place % 2 else _ZERO)
                turn = part % n
                row = (np.int64(half) ^ (low << turn | low >> (n - turn))) & ((1 << n) - 1)
                counts[row] += 1 if signs >> np.uint64(part) & np.uint64(1) else -1


@compiled
def among_best(s: Longs, k: int, place: int) -> int:
    """Which of the k largest of s stands at `place` in ascending order; of equals the earlier."""
    last = _order_statistic(s.copy(), len(s) - k)  # the k-th largest
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
def _order_statistic(values: Longs, place: int) -> int:
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
