"""`nextapp.fleet.transition_vectors` on a card: what phones answer to the crowd's two questions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nextapp.fleet.gpu.card import Source
from nextapp.fleet.gpu.reporting import (
    DRAWS,
    TALLEST_DRAWN,
    THREADS,
    law_arguments,
    scale_of_sums,
)
from nextapp.fleet.gpu.resident import ResidentFleet
from nextapp.fleet.sum_law import LAW, lean_of
from nextapp.fleet.transition_vectors import add_rest, check_shares_of
from nextapp.privacy.walsh import Walsh
from nextapp.shares import REPEATS
from nextapp.wire import Floats

VECTORS = Source("vectors.cu", options=("--fmad=false",))
_ENTRIES_AT_ONCE = 1 << 26  # 12 bytes each


class Vectors(NamedTuple):
    """The vectors of some phones: entries ``starts[i]`` to ``starts[i + 1]`` are those of phone i.

    On the card.
    """

    first: int  # of the phones asked for
    last: int
    phones: Any
    starts: Any
    cells: Any
    x: Any  # in the ball, in units of the clip
    squares: Any  # ‖x‖²


def vectors(
    fleet: ResidentFleet, phones: Any, clip: float, *, launches: bool = False
) -> Iterator[Vectors]:
    """Transition vectors, or what phones tell of their launches, as many at a time as fit."""
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
        found = Vectors(
            first, last, chosen, starts, xp.zeros(size, np.int32), xp.zeros(size), xp.zeros(n)
        )
        arguments = [
            chosen, np.int64(n), *fleet.columns, *weights, np.float64(clip), starts, found.cells,
            found.x, found.squares,
        ]  # fmt: skip
        fleet.card.launch(VECTORS, name, -(-n // THREADS), THREADS, 0, arguments)
        yield found


def _parts(fleet: ResidentFleet, ends: Any) -> Iterator[tuple[int, int]]:
    """Ranges of phones whose vectors have about `_ENTRIES_AT_ONCE` entries together."""
    xp, n_phones = fleet.card.xp, len(ends) - 1
    bounds = xp.arange(0, int(ends[-1]) + 1, _ENTRIES_AT_ONCE)
    cuts = fleet.card.download(xp.searchsorted(ends, bounds)).tolist()
    return pairwise(sorted({0, *cuts, n_phones}))


def draw_estimate(
    fleet: ResidentFleet,
    mechanism: Walsh,
    seed: int,
    *,
    round: int = 0,
    reporting: Any = None,
) -> Floats:
    """`nextapp.fleet.transition_vectors.draw_estimate`; own cells are summed in whole numbers."""
    check_shares_of(fleet.n_apps, mechanism)
    card, order = fleet.card, fleet.order(reporting)
    if order.n == 0:
        raise ValueError("a mean needs at least one phone.")
    total, owners = (card.xp.zeros(mechanism.D, np.int64) for _ in range(2))
    scale = scale_of_sums(TALLEST_DRAWN, order.n)
    law = law_arguments(card, lean_of(mechanism)[0], scale)
    for part in vectors(fleet, order.phones, mechanism.clip):
        n = part.last - part.first
        arguments = [
            part.phones, np.int64(n), np.uint64(fleet.first_phone), np.uint64(seed),
            np.uint64(round), LAW, part.starts, part.cells, part.x, part.squares, *law, total,
            owners,
        ]  # fmt: skip
        card.launch(DRAWS, "lean_cells", -(-n // (THREADS // 32)), THREADS, 0, arguments)
    drawn = card.download(total) / scale
    return add_rest(mechanism, drawn, card.download(owners), order.n, seed, round)
