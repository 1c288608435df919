"""One of a seed's codewords: the compiled form of `nextapp.privacy.codebook`; symbols as there."""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import below, word
from nextapp.fleet.codewords import SeededEncoder, add_vectors, align, clear, fill, room
from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.encoder import Arrays, ShardRound, State, report_bits
from nextapp.fleet.gradients import Gradients
from nextapp.privacy.codebook import Codebook
from nextapp.randomness import Words, purpose_word

_CODEBOOK = np.uint64(purpose_word("codebook"))


class CodebookEncoder(SeededEncoder[Codebook]):
    """`Codebook`."""

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        m = self.mechanism
        return _indices(x, r, self._table, m.m, m.k, np.uint64(m.threshold))

    def add(self, state: State, reports: Arrays) -> None:
        seeds, chosen = reports
        others = np.full_like(seeds, _CODEBOOK)
        add_vectors(seeds, others, chosen, self.mechanism.m, self._table, state["sum"])


@compiled
def _indices(
    x: Gradients, r: ShardRound, entries: Ints, m: int, k: int, threshold: Any
) -> tuple[Words, Longs]:
    n = len(x.phones)
    seeds, chosen = np.empty(n, np.uint64), np.empty(n, np.int64)
    grid, groups, s = room(r.Q.size, m)
    for i in range(n):
        bits = report_bits(x, i, r)
        seeds[i], coin = word(bits), word(bits)
        if coin < threshold:
            n_groups_in = fill(x, i, r.Q, grid, groups)
            align(grid, groups[:n_groups_in], seeds[i], _CODEBOOK, entries, s)
            clear(grid, groups[:n_groups_in])
            chosen[i] = among_best(s, k, below(bits, k))
        else:
            chosen[i] = below(bits, m)
    return seeds, chosen


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
