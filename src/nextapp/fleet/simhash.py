"""Signs of projections: the compiled form of `nextapp.privacy.simhash`; symbols as there."""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import philox, word
from nextapp.fleet.codewords import PIECE, ZERO, SeededEncoder, align, clear, fill, room
from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.encoder import Arrays, ShardRound, State, report_bits
from nextapp.fleet.gradients import Gradients
from nextapp.privacy.codewords import GROUP
from nextapp.privacy.simhash import SimHash
from nextapp.randomness import Words, purpose_word

_SIMHASH = np.uint64(purpose_word("simhash"))
_ONE = np.uint64(1)


class SimHashEncoder(SeededEncoder[SimHash]):
    """`SimHash`."""

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        m = self.mechanism
        return _hashes(x, r, self._table, m.b, np.uint64(m.threshold))

    def add(self, state: State, reports: Arrays) -> None:
        seeds, values = reports
        _add_signed_vectors(seeds, values, self.mechanism.b, self._table, state["sum"])


@compiled
def _hashes(
    x: Gradients, r: ShardRound, entries: Ints, b: int, threshold: Any
) -> tuple[Words, Longs]:
    n = len(x.phones)
    seeds, values = np.empty(n, np.uint64), np.zeros(n, np.int64)
    grid, groups, s = room(r.Q.size, b)
    for i in range(n):
        bits = report_bits(x, i, r)
        seeds[i], coin, other = word(bits), word(bits), word(bits)
        if coin < threshold:
            n_groups_in = fill(x, i, r.Q, grid, groups)
            align(grid, groups[:n_groups_in], seeds[i], _SIMHASH, entries, s)
            clear(grid, groups[:n_groups_in])
            for bit in range(b):
                values[i] |= np.int64(s[bit] >= 0) << bit
        else:
            values[i] = np.int64(other & ((_ONE << np.uint64(b)) - _ONE))
    return seeds, values


@compiled
def _add_signed_vectors(seeds: Words, values: Longs, b: int, entries: Ints, total: Longs) -> None:
    """All b vectors of every seed, each with the sign of its bit."""
    for i in range(len(seeds)):
        for group in range(len(total) // GROUP):
            for bit in range(b):
                sign = 1 if values[i] >> bit & 1 else -1
                at = group * GROUP
                block = np.uint64(group * b + bit + 1)
                for piece in philox(seeds[i], _SIMHASH, block, ZERO, ZERO, ZERO):
                    for shift in range(0, 64, 16):
                        total[at] += sign * entries[piece >> np.uint64(shift) & PIECE]
                        at += 1
