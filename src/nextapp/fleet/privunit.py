"""A vector that leans to the gradient: the compiled form of `nextapp.privacy.privunit`.

Symbols as there; dense, or by its seed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import word
from nextapp.fleet.codewords import VectorEncoder, add_vectors, align, clear, fill, room
from nextapp.fleet.columns import Ints
from nextapp.fleet.dense_reports import DenseEncoder
from nextapp.fleet.draws import inside, normal_quantile
from nextapp.fleet.encoder import Arrays, ShardRound, State, Totals, report_bits
from nextapp.fleet.gradients import Gradients, spread_out, sweep
from nextapp.privacy.privunit import PrivUnit
from nextapp.randomness import Words
from nextapp.wire import Floats

_SCORE_UNIT = float(1 << 38)


class PrivUnitEncoder(DenseEncoder[PrivUnit]):
    """`PrivUnit` with ``form="dense"``."""

    def __init__(self, mechanism: PrivUnit) -> None:
        super().__init__(mechanism, mechanism.D + 1)

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        return [_leaning_vectors(x, r, self.mechanism.q, self.mechanism._Z)]

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        total = totals.state["sum"].reshape(m.n_apps, m.d)
        return m.clip / (m.mu * totals.n_reports) * total


class PrivUnitSeedEncoder(VectorEncoder[PrivUnit]):
    """`PrivUnit` with ``form="seed"``."""

    payload_bytes = 16

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        m = self.mechanism
        least = m.gamma * _SCORE_UNIT
        return _seeds(x, r, self._table, least, np.uint64(m._elsewhere))

    def add(self, state: State, reports: Arrays) -> None:
        low, high = reports
        add_vectors(low, high, np.zeros(len(low), np.int64), 1, self._table, state["sum"])

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [seed.tobytes() for seed in np.stack(reports, axis=1).astype("<u8")]


@compiled
def _leaning_vectors(x: Gradients, r: ShardRound, q: float, Z: float) -> Any:
    n, size = len(x.phones), r.Q.size + 1
    half = (size + 1) // 2
    leaning = np.empty((n, size), np.float32)
    dense, g, radius = np.zeros(size), np.empty(2 * half), np.empty(half)
    for i in range(n):
        bits = report_bits(x, i, r)
        for j in range(half):
            radius[j] = math.sqrt(-2.0 * math.log(inside(bits)))
        for j in range(half):
            angle = 2.0 * math.pi * inside(bits)
            g[j], g[half + j] = radius[j] * math.cos(angle), radius[j] * math.sin(angle)
        coin, u = inside(bits), inside(bits)
        s = -normal_quantile(u * q) if coin < q / Z else normal_quantile(u * (1.0 - q))
        spread_out(x, i, r.Q, dense)
        dense[size - 1] = math.sqrt(max(0.0, 1.0 - x.squares[i]))
        product = 0.0
        for j in range(size):
            product += dense[j] * g[j]
        for j in range(size):
            leaning[i, j] = g[j] + (s - product) * dense[j]
        sweep(x, i, r.Q.shape[1], dense)
    return leaning


@compiled
def _seeds(
    x: Gradients, r: ShardRound, entries: Ints, least: float, elsewhere: Any
) -> tuple[Words, Words]:
    n = len(x.phones)
    low, high = np.empty(n, np.uint64), np.empty(n, np.uint64)
    grid, groups, s = room(r.Q.size, 1)
    for i in range(n):
        bits = report_bits(x, i, r)
        n_groups_in = fill(x, i, r.Q, grid, groups)
        taken = False
        while not taken:
            low[i], high[i], coin = word(bits), word(bits), word(bits)
            taken = coin < elsewhere
            if not taken:
                align(grid, groups[:n_groups_in], low[i], high[i], entries, s)
                taken = s[0] >= least
        clear(grid, groups[:n_groups_in])
    return low, high
