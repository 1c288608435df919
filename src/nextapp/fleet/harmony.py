"""A few positions with a sign each: the compiled form of `nextapp.privacy.harmony`.

Symbols as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import word
from nextapp.fleet.columns import Longs, Mask
from nextapp.fleet.draws import distinct, is_positive
from nextapp.fleet.encoder import Arrays, ShardRound, State, TallyEncoder, report_bits
from nextapp.fleet.gradients import Gradients, entry
from nextapp.privacy.harmony import Harmony, SignedPositions
from nextapp.privacy.mechanism import Tally


class HarmonyEncoder(TallyEncoder[Harmony]):
    """`Harmony`."""

    def __init__(self, mechanism: Harmony) -> None:
        self.mechanism = mechanism
        self._fields = SignedPositions(mechanism.k, mechanism.D)
        self.payload_bytes = mechanism.payload_bytes

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        return _signs_of_entries(x, r, self.mechanism.k, np.uint64(self.mechanism.floor))

    def empty(self) -> State:
        return no_signs(self.mechanism.D)

    def add(self, state: State, reports: Arrays) -> None:
        count_signs(reports[0], reports[1], state["positive"], state["negative"])

    def tally(self, state: State) -> Tally:
        return sum_of_signs(state)

    def payloads(self, reports: Arrays) -> list[bytes]:
        return signed_positions(self._fields, reports)


def signed_positions(fields: SignedPositions, reports: Arrays) -> list[bytes]:
    return [
        fields.pack(positions, positive)
        for positions, positive in zip(reports[0].tolist(), reports[1].tolist(), strict=True)
    ]


def no_signs(n: int) -> State:
    """Of n positions, how often each came with either sign."""
    return {"positive": np.zeros(n, np.int64), "negative": np.zeros(n, np.int64)}


def sum_of_signs(state: State) -> Tally:
    return state["positive"] - state["negative"]


@compiled
def count_signs(positions: Any, positive: Any, n_positive: Any, n_negative: Any) -> None:
    for i in range(positions.shape[0]):
        for place in range(positions.shape[1]):
            if positive[i, place]:
                n_positive[positions[i, place]] += 1
            else:
                n_negative[positions[i, place]] += 1


@compiled
def _signs_of_entries(x: Gradients, r: ShardRound, k: int, floor: Any) -> tuple[Longs, Mask]:
    n = len(x.phones)
    positions, positive = np.empty((n, k), np.int64), np.empty((n, k), np.bool_)
    for i in range(n):
        bits = report_bits(x, i, r)
        distinct(bits, r.Q.size, positions[i])
        for place in range(k):
            f = entry(x, i, r.Q, positions[i, place])
            positive[i, place] = is_positive(word(bits), f, floor)
    return positions, positive
