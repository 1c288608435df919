"""A corner of the cube: the compiled form of `nextapp.privacy.duchi`; symbols as there.

v and t are words of 64 signs, lowest bit first, 1 for +1; t·v counts the bits in which they agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import word
from nextapp.fleet.columns import Longs
from nextapp.fleet.encoder import Arrays, ShardRound, State, TallyEncoder, report_bits
from nextapp.fleet.gradients import Gradients, spread_out, sweep
from nextapp.privacy.duchi import Duchi
from nextapp.privacy.exact import W
from nextapp.privacy.mechanism import Tally
from nextapp.randomness import Words

_ONE, _SIGNS = np.uint64(1), 64


class DuchiEncoder(TallyEncoder[Duchi]):
    """`Duchi`."""

    size = 256

    def __init__(self, mechanism: Duchi) -> None:
        self.mechanism = mechanism
        self.payload_bytes = mechanism.payload_bytes

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        return [_corners(x, r, np.uint64(W - self.mechanism.floor))]

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [row.astype("<u8").tobytes()[: self.payload_bytes] for row in reports[0]]

    def empty(self) -> State:
        return {"sum": np.zeros(self.mechanism.D, np.int64)}

    def add(self, state: State, reports: Arrays) -> None:
        _add_signs(reports[0], state["sum"])

    def tally(self, state: State) -> Tally:
        return state["sum"]


@compiled
def _corners(x: Gradients, r: ShardRound, threshold: Any) -> Words:
    n, size = len(x.phones), r.Q.size
    n_words = (size + _SIGNS - 1) // _SIGNS
    corners = np.empty((n, n_words), np.uint64)
    v = np.empty(n_words, np.uint64)
    dense = np.zeros(size)
    last = ~np.uint64(0) >> np.uint64(n_words * _SIGNS - size)  # the signs of the last word
    for i in range(n):
        bits = report_bits(x, i, r)
        spread_out(x, i, r.Q, dense)
        v[:] = 0
        for j in range(size):
            up = np.uint64((1.0 + dense[j]) * 2.0**52)  # P[v_j = +1] · 2^53
            positive = np.uint64(word(bits) >> np.uint64(11) < up)
            v[j // _SIGNS] |= positive << np.uint64(j % _SIGNS)
        sweep(x, i, r.Q.shape[1], dense)
        t = corners[i]
        for place in range(n_words):
            t[place] = word(bits)
        t[n_words - 1] &= last
        differing = 0
        for place in range(n_words):
            differing += _ones(t[place] ^ v[place])
        product = size - 2 * differing  # t·v
        agree = word(bits) < threshold
        if product != 0 and (product > 0) != agree:
            for place in range(n_words):
                t[place] = ~t[place]
            t[n_words - 1] &= last
    return corners


@compiled
def _ones(word_: Any) -> int:
    """How many bits of a word are 1."""
    word_ -= word_ >> _ONE & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word_ = (word_ & pairs) + (word_ >> np.uint64(2) & pairs)
    word_ = word_ + (word_ >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64(word_ * np.uint64(0x0101010101010101) >> np.uint64(56))  # type: ignore[return-value]


@compiled
def _add_signs(corners: Words, total: Longs) -> None:
    for i in range(len(corners)):
        for place in range(corners.shape[1]):
            signs = corners[i, place]
            first = place * _SIGNS
            for j in range(first, min(first + _SIGNS, len(total))):
                total[j] += 2 * np.int64(signs & _ONE) - 1
                signs >>= _ONE
