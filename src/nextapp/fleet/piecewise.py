"""One entry, noisy: the compiled form of `nextapp.privacy.piecewise`; symbols as there."""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import below, word
from nextapp.fleet.columns import Longs, Mask
from nextapp.fleet.draws import inside, is_positive
from nextapp.fleet.encoder import Arrays, Encoder, ShardRound, State, Totals, report_bits
from nextapp.fleet.gradients import Gradients, entry
from nextapp.privacy.hybrid import Hybrid
from nextapp.privacy.packing import n_bytes, pack_fields, width
from nextapp.privacy.piecewise import Piecewise
from nextapp.wire import Floats


class PiecewiseEncoder(Encoder):
    """`Piecewise`: a position, whether the value is piecewise (not sent, as all are), the value."""

    marks = 0  # bits sent beside the position

    def __init__(self, mechanism: Piecewise | Hybrid) -> None:
        self.mechanism = mechanism
        self._widths = [width(mechanism.D)] + [1] * self.marks
        self.payload_bytes = n_bytes(self._widths) + 4

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        law = self.mechanism.law
        return one_value(x, r, law.A, law.inside, law.largest, False, np.uint64(0), np.uint64(0))

    def payloads(self, reports: Arrays) -> list[bytes]:
        fields = reports[: len(self._widths)]
        return [
            pack_fields(values, self._widths) + y.astype("<f4").tobytes()
            for *values, y in zip(*fields, reports[2], strict=True)
        ]

    def empty(self) -> State:
        return {"sum": np.zeros(self.mechanism.D)}

    def add(self, state: State, reports: Arrays) -> None:
        positions, piecewise, values = reports
        add_values(positions, piecewise, values, 1.0, state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        total = totals.state["sum"].reshape(m.n_apps, m.d)
        return m.clip * m.D / totals.n_reports * total


@compiled
def one_value(
    x: Gradients,
    r: ShardRound,
    A: float,
    share: float,
    largest: float,
    hybrid: bool,
    threshold: Any,
    floor: Any,
) -> tuple[Longs, Mask, Any]:
    """`PiecewiseLaw.draw`, or a sign where `hybrid` and the coin say so."""
    n = len(x.phones)
    positions, piecewise = np.empty(n, np.int64), np.ones(n, np.bool_)
    values = np.empty(n, np.float32)
    for i in range(n):
        bits = report_bits(x, i, r)
        positions[i] = below(bits, r.Q.size)
        f = entry(x, i, r.Q, positions[i])
        if hybrid:
            piecewise[i] = word(bits) < threshold
        if piecewise[i]:
            left = (A + 1.0) / 2.0 * f - (A - 1.0) / 2.0
            right = left + A - 1.0
            coin, u = inside(bits), inside(bits)
            if coin < share:
                y = left + u * (right - left)
            else:
                y = u * (A + 1.0) - A
                y += right - left if y >= left else 0.0
            values[i] = min(max(float(np.float32(y)), -largest), largest)
        else:
            values[i] = 1.0 if is_positive(word(bits), f, floor) else -1.0
    return positions, piecewise, values


@compiled
def add_values(positions: Longs, piecewise: Mask, values: Any, c: float, total: Floats) -> None:
    for i in range(len(positions)):
        value = float(values[i])
        total[positions[i]] += value if piecewise[i] else c * value
