"""Noise on every entry: the compiled form of `nextapp.privacy.laplace`; symbols as there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.fleet.draws import inside
from nextapp.fleet.encoder import Arrays, Encoder, ShardRound, State, Totals, report_bits
from nextapp.fleet.gradients import Gradients, spread_out, sweep
from nextapp.privacy.laplace import Laplace
from nextapp.wire import Floats

_NUMBERS_AT_ONCE = 1 << 19


class LaplaceEncoder(Encoder):
    """`Laplace`: reports of D floats of 4 bytes, which are summed."""

    size = 256

    def __init__(self, mechanism: Laplace) -> None:
        self.mechanism = mechanism
        self.payload_bytes = 4 * mechanism.D
        self.block = max(1, _NUMBERS_AT_ONCE // mechanism.D)

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        return [_noisy_entries(x, r, self.mechanism.scale)]

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [row.astype("<f4").tobytes() for row in reports[0]]

    def empty(self) -> State:
        return {"sum": np.zeros(self.mechanism.D)}

    def add(self, state: State, reports: Arrays) -> None:
        _add_rows(reports[0], state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        return m.clip / totals.n_reports * totals.state["sum"].reshape(m.n_apps, m.d)


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


@compiled
def _add_rows(rows: Any, total: Floats) -> None:
    for i in range(len(rows)):
        for j in range(len(total)):
            total[j] += rows[i, j]
