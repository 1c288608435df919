"""Signs with f_max in the clear: the compiled form of `nextapp.privacy.qharmony`.

Symbols as there.
"""

from __future__ import annotations

import math

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import word
from nextapp.fleet.columns import Longs, Mask
from nextapp.fleet.draws import distinct
from nextapp.fleet.encoder import LARGEST, Arrays, Encoder, ShardRound, State, Totals, report_bits
from nextapp.fleet.gradients import Gradients, background, entry, taste
from nextapp.fleet.harmony import count_signs, no_signs, signed_positions, sum_of_signs
from nextapp.privacy.harmony import SignedPositions
from nextapp.privacy.qharmony import QHarmony, most_positive
from nextapp.wire import Floats


class QHarmonyEncoder(Encoder):
    """`QHarmony`: the phones' f_max travels along, and the largest scales the mean."""

    def __init__(self, mechanism: QHarmony) -> None:
        self.mechanism = mechanism
        self._fields = SignedPositions(mechanism.k, mechanism.D)
        self.payload_bytes = self._fields.n_bytes + 8

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        m = self.mechanism
        unit = m.clip if math.isfinite(m.clip) else 1.0
        lean = math.tanh(m.epsilon / (2 * m.k))
        return _signs_as_printed(x, r, m.k, unit, lean)

    def empty(self) -> State:
        return no_signs(self.mechanism.D) | {LARGEST: np.array([-math.inf])}

    def add(self, state: State, reports: Arrays) -> None:
        count_signs(reports[0], reports[1], state["positive"], state["negative"])
        state[LARGEST][0] = max(state[LARGEST][0], reports[2].max(initial=-math.inf))

    def mean(self, totals: Totals) -> Floats:
        """f_max S / z_max, as `QHarmony.decode`."""
        m, signs = self.mechanism, sum_of_signs(totals.state)
        z_max = most_positive(totals.state["positive"])
        mean = float(totals.state[LARGEST][0]) * (signs / z_max) if z_max else np.zeros(m.D)
        return mean.reshape(m.n_apps, m.d)

    def payloads(self, reports: Arrays) -> list[bytes]:
        signs = signed_positions(self._fields, reports)
        return [
            payload + f_max.astype("<f8").tobytes()
            for payload, f_max in zip(signs, reports[2], strict=True)
        ]


@compiled
def _signs_as_printed(
    x: Gradients, r: ShardRound, k: int, unit: float, lean: float
) -> tuple[Longs, Mask, Floats]:
    """The entries are x in units of `unit`; `lean` is tanh(ε/2k)."""
    n = len(x.phones)
    positions, positive = np.empty((n, k), np.int64), np.empty((n, k), np.bool_)
    largest = np.empty(n)
    for i in range(n):
        bits = report_bits(x, i, r)
        f_max = unit * _largest_entry(x, i, r.Q)
        largest[i] = f_max
        distinct(bits, r.Q.size, positions[i])
        for place in range(k):
            f = unit * entry(x, i, r.Q, positions[i, place])
            f = f / f_max if f_max > 0 else float(np.sign(f))
            p = 0.5 + 0.5 * f * lean
            drawn = word(bits)
            positive[i, place] = p >= 1.0 or (p > 0.0 and drawn < np.uint64(p * 2.0**64))
    return positions, positive, largest


@compiled
def _largest_entry(x: Gradients, i: int, Q: Floats) -> float:
    """max x: of a background row it is (q·p) times the largest or the smallest entry of p."""
    start, stop = x.starts[i], x.starts[i + 1]
    largest = 0.0 if stop - start < len(Q) and x.c0[i] == 0 else -math.inf
    for row in range(start, stop):
        largest = max(largest, x.rows[row].max())
    if x.c0[i] > 0:
        high, low = x.p[i].argmax(), x.p[i].argmin()
        own = start
        for app in range(len(Q)):
            if own < stop and x.apps[own] == app:
                own += 1
                continue
            product = taste(Q, app, x.p[i])
            largest = max(largest, background(x, i, product, high if product > 0 else low))
    return largest
