"""What phones answer to the crowd's two questions, on a card: their vectors, and walsh's reports.

The reports are those of `nextapp.fleet.walsh`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nextapp.crowd import REPEATS
from nextapp.fleet.gpu.card import Source
from nextapp.fleet.gpu.reporting import THREADS
from nextapp.fleet.gpu.resident import ResidentFleet
from nextapp.fleet.gradients import REPORT
from nextapp.fleet.vectors import check_question
from nextapp.fleet.walsh import WALSH
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.walsh import L, Walsh

MOST_ENTRIES = 1 << 17
"""Most entries of a vector: this many add up in whole numbers of 32 bits (`put` of vectors.cu)."""

_SOURCE = Source("vectors.cu", options=("--fmad=false",))
_ENTRIES_AT_ONCE = 1 << 26  # 12 bytes each
_WARP = 32
_SUMS_BYTES = 8 * 1024  # of shared memory that the sums of a warp may take
_BLOCK_BYTES = 48 * 1024


def tally_answers(fleet: ResidentFleet, mechanism: Walsh, question: str, seed: int) -> Tally:
    """`nextapp.fleet.walsh.tally_answers`."""
    m, card = mechanism, fleet.card
    _, seeds, chosen = draw_answers(fleet, m, question, seed)
    counts = card.xp.zeros(m.N, np.int64)
    arguments = [np.int64(len(seeds)), WALSH, np.int32(m.n), seeds, chosen, counts]
    card.launch(_SOURCE, "count_rows", -(-len(seeds) // THREADS), THREADS, 0, arguments)
    return card.download(counts)


def draw_answers(
    fleet: ResidentFleet, mechanism: Walsh, question: str, seed: int
) -> tuple[Any, Any, Any]:
    """Phones in any order, and the seed and index of the report of each, on the card."""
    m = mechanism
    check_question(fleet.n_apps, m, question)
    card, order = fleet.card, fleet.order
    most = int(fleet.n_transitions.max()) if len(fleet) else 0
    if most > MOST_ENTRIES:
        raise ValueError(
            f"a card takes phones with at most {MOST_ENTRIES:,} different transitions, got "
            f"{most:,}: say device 'cpu'."
        )
    seeds, chosen = card.xp.zeros(order.n, np.uint64), card.xp.zeros(order.n, np.int32)
    arguments = [
        order.phones, np.int64(order.n), np.uint64(fleet.first_phone), np.uint64(seed),
        np.uint64(0), REPORT, np.uint64(m.threshold), np.int32(m.m), np.int32(m.k), seeds,
        chosen,
    ]  # fmt: skip
    card.launch(_SOURCE, "draw_coins", -(-order.n // THREADS), THREADS, 0, arguments)
    kept = card.xp.flatnonzero(chosen < 0)
    size = min(m.m, m.N)
    n_bytes = _workspace_bytes(m.m, size)
    n_warps = min(max(_BLOCK_BYTES // n_bytes, 1), THREADS // _WARP)
    for part in _vectors(fleet, order.phones[kept], m.clip, launches=question == "launches"):
        n = part.last - part.first
        arguments = [
            kept[part.first : part.last], np.int64(n), WALSH, np.int32(m.n), np.int32(m.m),
            np.int32(m.k), np.int32(_parts_at_once(size)), np.int32(n_bytes), part.starts,
            part.cells, part.x, part.squares, np.int32(m.D), seeds, chosen,
        ]  # fmt: skip
        card.launch(
            _SOURCE, "choose_codewords", -(-n // n_warps), _WARP * n_warps, n_bytes * n_warps,
            arguments,
        )  # fmt: skip
    return order.phones, seeds, chosen


def _parts_at_once(size: int) -> int:
    """How many of the L Walsh functions a warp sums side by side, in columns of `size` numbers."""
    return int(min(_WARP, max(1, _SUMS_BYTES // (4 * size))))


def _workspace_bytes(m: int, size: int) -> int:
    """`Workspace` of vectors.cu, in whole vectors of 16 bytes."""
    n_bytes = 16 * m + 4 * (L + 2 * _WARP + size * _parts_at_once(size))
    return -(-n_bytes // 16) * 16


class _Vectors(NamedTuple):
    """The vectors of phones ``first`` to ``last`` − 1 of those asked for, on the card.

    Entries ``starts[i]`` to ``starts[i + 1]`` are those of the i-th of them.
    """

    first: int
    last: int
    starts: Any
    cells: Any
    x: Any  # in the ball, in units of the clip
    squares: Any  # ‖x‖²


def _vectors(
    fleet: ResidentFleet, phones: Any, clip: float, *, launches: bool = False
) -> Iterator[_Vectors]:
    """Transition or launch vectors, as many at a time as fit."""
    xp = fleet.card.xp
    name = "launch_vectors" if launches else "transition_vectors"
    weights: list[Any] = [] if launches else [np.int32(fleet.n_apps), np.float64(REPEATS)]
    n_entries = fleet.n_own if launches else fleet.n_transitions
    ends = xp.zeros(len(phones) + 1, np.int64)
    xp.cumsum(n_entries[phones], out=ends[1:])
    for first, last in _parts(fleet, ends):
        starts = ends[first : last + 1] - ends[first]
        size = int(starts[-1])
        n, chosen = last - first, phones[first:last]
        found = _Vectors(first, last, starts, xp.zeros(size, np.int32), xp.zeros(size), xp.zeros(n))
        arguments = [
            chosen, np.int64(n), *fleet.columns, *weights, np.float64(clip), starts, found.cells,
            found.x, found.squares,
        ]  # fmt: skip
        fleet.card.launch(_SOURCE, name, -(-n // THREADS), THREADS, 0, arguments)
        yield found


def _parts(fleet: ResidentFleet, ends: Any) -> Iterator[tuple[int, int]]:
    """Ranges of phones whose vectors have about `_ENTRIES_AT_ONCE` entries together."""
    xp, n_phones = fleet.card.xp, len(ends) - 1
    bounds = xp.arange(0, int(ends[-1]) + 1, _ENTRIES_AT_ONCE)
    cuts = fleet.card.download(xp.searchsorted(ends, bounds)).tolist()
    return pairwise(sorted({0, *cuts, n_phones}))
