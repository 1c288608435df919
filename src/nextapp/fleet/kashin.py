"""Signs of Kashin coefficients: the compiled form of `nextapp.privacy.kashin`; symbols as there.

A phone finds its coefficients also where its coin does not need them; here they are left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled, fast
from nextapp.compiled_bits import word
from nextapp.fleet.columns import Longs, Mask
from nextapp.fleet.draws import distinct, is_positive
from nextapp.fleet.encoder import Arrays, ShardRound, State, TallyEncoder, report_bits
from nextapp.fleet.gradients import Gradients, spread_out, sweep
from nextapp.fleet.harmony import count_signs, no_signs, signed_positions, sum_of_signs
from nextapp.privacy.harmony import SignedPositions
from nextapp.privacy.kashin import _MARGIN, _ROUNDS, Kashin
from nextapp.privacy.mechanism import Tally
from nextapp.wire import Floats


class KashinEncoder(TallyEncoder[Kashin]):
    """`Kashin`."""

    block = size = 64

    def __init__(self, mechanism: Kashin) -> None:
        self.mechanism = mechanism
        self._fields = SignedPositions(mechanism.b, mechanism.N)
        self.payload_bytes = mechanism.payload_bytes

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        m = self.mechanism
        rows, signs = m._rows.astype(np.int64), m._signs
        return _signs_of_coefficients(x, r, rows, signs, m.N, m.b, m.K, np.uint64(m.threshold))

    def payloads(self, reports: Arrays) -> list[bytes]:
        return signed_positions(self._fields, reports)

    def empty(self) -> State:
        return no_signs(self.mechanism.N)

    def add(self, state: State, reports: Arrays) -> None:
        count_signs(reports[0], reports[1], state["positive"], state["negative"])

    def tally(self, state: State) -> Tally:
        return sum_of_signs(state)


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
    a[:] = 0.0
    for j in range(len(x)):
        a[rows[j]] = signs[j] * x[j]
    _transform(a)
    for _ in range(_ROUNDS):
        if np.abs(a).max() <= bound:
            return
        for j in range(len(a)):
            a[j] = min(max(a[j], -_MARGIN * bound), _MARGIN * bound)
            room[j] = a[j]
        _transform(room)  # its rows, with their signs, are U a
        at = 0
        for j in range(len(a)):
            if at < len(rows) and rows[at] == j:
                room[j] = signs[at] * x[at] - room[j]  # signs² = 1
                at += 1
            else:
                room[j] = 0.0
        _transform(room)
        for j in range(len(a)):
            a[j] += room[j]


@fast
def _transform(x: Floats) -> None:
    """`nextapp.privacy.kashin.hadamard` in place, two bits of the index at a time."""
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
    scale = 1.0 / math.sqrt(n)
    for j in range(n):
        x[j] *= scale
