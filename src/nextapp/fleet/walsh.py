"""Codewords of Walsh functions: the compiled form of `nextapp.privacy.walsh`; symbols as there.

Gradients are reported as every mechanism's (`nextapp.fleet.rounds`), what phones answer to the
crowd's two questions by `draw_answers`, of which `tally_answers` makes the tally. Alignments are
whole numbers, so they do not depend on the order of summation. `draw_copies` and `draw_launches`
draw in one step what a fleet of copies of the phones would teach.

x of the two questions: a phone's transition vector (`nextapp.crowd`) in the ℓ2 ball of the clip, by
the clip, or its answer about launches (`PhoneCore.launches`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from nextapp.compiled import compiled, fast
from nextapp.compiled_bits import Key, below, philox, stream, word
from nextapp.crowd import REPEATS
from nextapp.fleet.columns import Columns, Fleet, Longs, each_range
from nextapp.fleet.gradients import REPORT, Gradients, ShardRound, report_bits, spread_out
from nextapp.privacy.mechanism import Tally, check_clip
from nextapp.privacy.walsh import L, Walsh, places, sign_bits
from nextapp.randomness import KeyedBits, Words, purpose_word
from nextapp.wire import Floats

_REST, _LAUNCHES = "law-rest", "law-top"  # purposes of randomness
_REPEATS = REPEATS  # a constant of the loops
WALSH = np.uint64(purpose_word("walsh"))
_ROW_BLOCKS = L // 8
_ROW_WORDS = L // 2
_HALF = np.uint64(32)
_ZERO = np.uint64(0)
_UNIT = float(1 << 22)
_PHONES_AT_ONCE = 512  # for one thread: a tenth of a second


class Code(NamedTuple):
    """What a report depends on besides the vector, as `Walsh` has it."""

    at: Longs  # (D + 1,): v(i) where δ is +1, −1 − v(i) where it is −1
    n: int
    m: int
    k: int
    threshold: np.uint64


def code_of(mechanism: Walsh) -> Code:
    m = mechanism
    v = places(np.arange(m.D + 1), m.n)
    at = np.where(sign_bits(v), -1 - v.astype(np.int64), v.astype(np.int64))
    return Code(at, m.n, m.m, m.k, np.uint64(m.threshold))


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
    columns, code, launches = fleet.columns, code_of(m), question == "launches"
    key = np.uint64(seed), np.uint64(fleet.first_phone)

    def work(first: int, last: int) -> None:
        _of_vectors(first, last, *key, launches, columns, m.clip, m.d, code, seeds, chosen)

    list(each_range(len(fleet), work, _PHONES_AT_ONCE))
    return seeds, chosen


@compiled
def gradient_reports(x: Gradients, r: ShardRound, code: Code) -> tuple[Words, Longs]:
    """Seed and index of the report of every gradient of a block."""
    n_reports, d = len(x.phones), r.Q.shape[1]
    seeds, chosen = np.empty(n_reports, np.uint64), np.empty(n_reports, np.int64)
    v, values = np.empty(r.Q.size + 1, np.int64), np.empty(r.Q.size + 1, np.int64)
    entries = np.zeros(r.Q.size)
    for i in range(n_reports):
        bits = report_bits(x, i, r)
        seeds[i], coin = word(bits), word(bits)
        if coin >= code.threshold:
            chosen[i] = below(bits, code.m)
            continue
        used = 0
        if x.c0[i] > 0:
            spread_out(x, i, r.Q, entries)
            for entry in range(r.Q.size):
                used = _put(entries[entry], code.at[entry], v, values, used)
        else:
            for row in range(x.starts[i], x.starts[i + 1]):
                for y in range(d):
                    used = _put(x.rows[row, y], code.at[x.apps[row] * d + y], v, values, used)
        chosen[i] = _choose(bits, seeds[i], x.squares[i], v, values, used, code)
    return seeds, chosen


@compiled
def _of_vectors(
    first: int,
    last: int,
    seed: Key,
    first_phone: Key,
    launches: bool,
    columns: Columns,
    clip: float,
    width: int,
    code: Code,
    seeds: Words,
    chosen: Longs,
) -> None:
    for phone in range(first, last):
        bits = stream(seed, first_phone + np.uint64(phone), np.uint64(0), REPORT)
        seeds[phone], coin = word(bits), word(bits)
        if coin >= code.threshold:
            chosen[phone] = below(bits, code.m)
            continue
        if launches:
            cells, x = launch_vector(phone, columns, clip)
        else:
            cells, x = transition_vector(phone, columns, clip, width)
        v, values = np.empty(len(x) + 1, np.int64), np.empty(len(x) + 1, np.int64)
        used = 0
        for i in range(len(x)):
            used = _put(x[i], code.at[cells[i]], v, values, used)
        chosen[phone] = _choose(bits, seeds[phone], (x * x).sum(), v, values, used, code)


@compiled
def _choose(
    bits: Words, seed: Any, square: float, v: Longs, values: Longs, used: int, code: Code
) -> int:
    """One of the k best codewords for a vector of this squared length, completed to length 1."""
    used = _put(math.sqrt(max(0.0, 1.0 - square)), code.at[-1], v, values, used)
    s = _alignments(v[:used], values[:used], seed, code.n, code.m)
    return among_best(s, code.k, below(bits, code.k))


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


# --- transitions and launches of phones: their vectors, means, and what copies of them teach ------


def mean_vector(fleet: Fleet, clip: float = 1.0) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' clipped vectors, with no privacy at all."""
    _check_some(fleet)
    total = np.zeros(fleet.n_apps * (fleet.n_apps + 1))
    _add_vectors(fleet.columns, check_clip(clip), fleet.n_apps + 1, total)
    return clip / len(fleet) * total.reshape(fleet.n_apps, -1)


def mean_shares(fleet: Fleet) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' shares, with no privacy at all.

    share(j, i) = n(j→i)/n(·→·),   share(j, n_apps) = n(j)/n(·)
    """
    _check_some(fleet)
    c, n_apps = fleet.columns, fleet.n_apps
    n_launches = np.add.reduceat(np.append(c.counts, 0), c.app_starts[:-1])
    n_launches[np.diff(c.app_starts) == 0] = 0
    total = np.zeros((n_apps, n_apps + 1))
    of_app = np.repeat(n_launches, np.diff(c.app_starts))
    total[:, n_apps] = np.bincount(c.apps, c.counts / of_app, minlength=n_apps)
    phone = np.repeat(np.arange(len(fleet)), np.diff(c.transition_starts))
    last, after = (c.apps[c.app_starts[phone] + each] for each in (c.previous, c.following))
    np.add.at(total, (last, after), c.times / np.maximum(n_launches - 1, 1)[phone])
    return total / len(fleet)


def _check_some(fleet: Fleet) -> None:
    if len(fleet) == 0:
        raise ValueError("a mean needs at least one phone.")


def draw_copies(fleet: Fleet, mechanism: Walsh, n_phones: int, seed: int) -> Floats:
    """(n_apps, n_apps + 1): the estimate from `n_phones` copies of the fleet's phones.

    All phones have equally many copies. Reports are independent given the launches, so this is the
    mean of the vectors and noise. The noise of every cell has the variance (clip/μ)²/n_phones,
    which is exact for a cell that few phones have. It costs the same for any number of phones.
    """
    check_question(fleet.n_apps, mechanism, "transitions")
    if n_phones < 1:
        raise ValueError(f"a fleet of copies has 1 phone or more, got {n_phones}.")
    bits = KeyedBits(seed, purpose=_REST).generator()
    error = mechanism.clip / (mechanism.mu * math.sqrt(n_phones))
    noise = bits.standard_normal((mechanism.n_apps, mechanism.d))
    return mean_vector(fleet, mechanism.clip) + error * noise


def draw_launches(fleet: Fleet, mechanism: Walsh, n_phones: int, seed: int) -> Floats:
    """(n_apps,): the same of launches: the mean of √(share of a phone's launches), and noise."""
    app_starts, apps, counts = fleet.columns[:3]
    n_each = np.diff(app_starts)
    phone = np.repeat(np.arange(len(fleet)), n_each)
    launches = np.bincount(phone, counts, minlength=len(fleet))
    root = np.sqrt(counts / launches[phone])
    mean = np.bincount(apps, root, minlength=fleet.n_apps) / max(1, len(fleet))
    bits = KeyedBits(seed, purpose=_LAUNCHES).generator()
    error = mechanism.clip / (mechanism.mu * math.sqrt(n_phones))
    found: Floats = mean + error * bits.standard_normal(fleet.n_apps)
    return found


def check_question(n_apps: int, mechanism: Walsh, question: str) -> None:
    """Raises where a mechanism is not for the answers to this question."""
    shape = (n_apps, 1) if question == "launches" else (n_apps, n_apps + 1)
    if (mechanism.n_apps, mechanism.d) != shape:
        raise ValueError(
            f"{mechanism.name} was made for answers of {(mechanism.n_apps, mechanism.d)}, "
            f"{question} of the fleet are {shape}: make one for the catalogue of the fleet."
        )


@compiled
def transition_vector(
    phone: int, columns: Columns, clip: float, width: int
) -> tuple[Longs, Floats]:
    """The cells of one phone, ascending, and x; `width` is n_apps + 1."""
    app_starts, apps, _, transition_starts, previous, following, times = columns
    begin, move = app_starts[phone], transition_starts[phone]
    size = transition_starts[phone + 1] - move
    cells, x = np.empty(size, np.int64), np.empty(size)
    n_after = np.zeros(app_starts[phone + 1] - begin, np.int64)
    for i in range(size):
        n_after[previous[move + i]] += times[move + i]
    for i in range(size):
        last, after = previous[move + i], following[move + i]
        cells[i] = np.int64(apps[begin + last]) * width + apps[begin + after]
        x[i] = times[move + i] / math.sqrt(n_after[last])
        if last == after:
            x[i] *= _REPEATS
    _into_ball(x, 0.0)  # length 1
    _into_ball(x, clip)
    return cells, x


@compiled
def launch_vector(phone: int, columns: Columns, clip: float) -> tuple[Longs, Floats]:
    """The own apps of one phone, ascending, and x: √(share of the launches)."""
    app_starts, apps, counts = columns[:3]
    own = slice(app_starts[phone], app_starts[phone + 1])
    cells = apps[own].astype(np.int64)
    x = np.sqrt(counts[own] / counts[own].sum())
    _into_ball(x, clip)
    return cells, x


@compiled
def _into_ball(x: Floats, clip: float) -> None:
    """`nextapp.privacy.mechanism.into_ball` in ℓ2, in place; a clip of 0: to length 1."""
    largest = 0.0
    for value in x:
        largest = max(largest, abs(value))
    if largest == 0.0:
        return
    square = 0.0
    for i in range(len(x)):
        x[i] /= largest
        square += x[i] * x[i]
    norm = math.sqrt(square)
    for i in range(len(x)):
        x[i] = x[i] / norm if largest > clip / norm else x[i] * (largest / clip)


@compiled
def _add_vectors(columns: Columns, clip: float, width: int, total: Floats) -> None:
    for phone in range(len(columns.app_starts) - 1):
        cells, x = transition_vector(phone, columns, clip, width)
        for i in range(len(cells)):
            total[cells[i]] += x[i]
