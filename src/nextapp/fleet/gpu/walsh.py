"""`nextapp.fleet.walsh` on a card: reports of transition vectors and of launches, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.fleet.encoder import REPORT
from nextapp.fleet.gpu.reporting import THREADS
from nextapp.fleet.gpu.resident import ResidentFleet
from nextapp.fleet.gpu.transition_vectors import VECTORS, vectors
from nextapp.fleet.transition_vectors import check_shares_of
from nextapp.fleet.walsh import WALSH, check_launches_of, vector_reports
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.walsh import L, Walsh
from nextapp.wire import Report

MOST_ENTRIES = 1 << 17
"""Entries of a vector at most: so many add up in whole numbers of 32 bits (`put` of vectors.cu)."""

_WARP = 32
_SUMS_BYTES = 8 * 1024  # of shared memory that the sums of a warp may take
_BLOCK_BYTES = 48 * 1024


def tally_transitions(
    fleet: ResidentFleet, mechanism: Walsh, seed: int, *, round: int = 0, reporting: Any = None
) -> Tally:
    """`nextapp.fleet.walsh.tally_transitions`."""
    check_shares_of(fleet.n_apps, mechanism)
    return _tally(fleet, mechanism, seed, round, reporting, launches=False)


def tally_launches(
    fleet: ResidentFleet, mechanism: Walsh, seed: int, *, round: int = 0, reporting: Any = None
) -> Tally:
    """`nextapp.fleet.walsh.tally_launches`."""
    check_launches_of(fleet.n_apps, mechanism)
    return _tally(fleet, mechanism, seed, round, reporting, launches=True)


def encode_transitions(
    fleet: ResidentFleet, mechanism: Walsh, seed: int, *, round: int = 0, reporting: Any = None
) -> list[Report]:
    """`nextapp.fleet.walsh.encode_transitions`."""
    check_shares_of(fleet.n_apps, mechanism)
    return _encode(fleet, mechanism, seed, round, reporting, launches=False)


def encode_launches(
    fleet: ResidentFleet, mechanism: Walsh, seed: int, *, round: int = 0, reporting: Any = None
) -> list[Report]:
    """`nextapp.fleet.walsh.encode_launches`."""
    check_launches_of(fleet.n_apps, mechanism)
    return _encode(fleet, mechanism, seed, round, reporting, launches=True)


def parts_at_once(size: int) -> int:
    """How many of the L Walsh functions a warp sums side by side, in columns of `size` numbers."""
    return int(min(_WARP, max(1, _SUMS_BYTES // (4 * size))))


def desk_bytes(m: int, size: int) -> int:
    """`Desk` of vectors.cu, in whole vectors of 16 bytes."""
    n_bytes = 16 * m + 4 * (L + 2 * _WARP + size * parts_at_once(size))
    return -(-n_bytes // 16) * 16


def _draw(
    fleet: ResidentFleet, m: Walsh, seed: int, round: int, reporting: Any, launches: bool
) -> tuple[Any, Any, Any]:
    """Phones, and the seed and index of the report of each, on the card."""
    card, order = fleet.card, fleet.order(reporting)
    most = int(fleet.n_transitions.max()) if len(fleet) else 0
    if most > MOST_ENTRIES:
        raise ValueError(
            f"a card plays phones with at most {MOST_ENTRIES:,} different transitions, got "
            f"{most:,}: say device 'cpu'."
        )
    seeds, chosen = card.xp.zeros(order.n, np.uint64), card.xp.zeros(order.n, np.int32)
    arguments = [
        order.phones, np.int64(order.n), np.uint64(fleet.first_phone), np.uint64(seed),
        np.uint64(round), REPORT, np.uint64(m.threshold), np.int32(m.m), np.int32(m.k), seeds,
        chosen,
    ]  # fmt: skip
    card.launch(VECTORS, "draw_coins", -(-order.n // THREADS), THREADS, 0, arguments)
    kept = card.xp.flatnonzero(chosen < 0)
    size = min(m.m, m.N)
    n_bytes = desk_bytes(m.m, size)
    n_warps = min(max(_BLOCK_BYTES // n_bytes, 1), THREADS // _WARP)
    for part in vectors(fleet, order.phones[kept], m.clip, launches=launches):
        n = part.last - part.first
        arguments = [
            kept[part.first : part.last], np.int64(n), WALSH, np.int32(m.n), np.int32(m.m),
            np.int32(m.k), np.int32(parts_at_once(size)), np.int32(n_bytes), part.starts,
            part.cells, part.x, part.squares, np.int32(m.D), seeds, chosen,
        ]  # fmt: skip
        card.launch(
            VECTORS, "choose_codewords", -(-n // n_warps), _WARP * n_warps, n_bytes * n_warps,
            arguments,
        )  # fmt: skip
    return order.phones, seeds, chosen


def _tally(
    fleet: ResidentFleet, m: Walsh, seed: int, round: int, reporting: Any, *, launches: bool
) -> Tally:
    _, seeds, chosen = _draw(fleet, m, seed, round, reporting, launches)
    counts = fleet.card.xp.zeros(m.N, np.int64)
    arguments = [np.int64(len(seeds)), WALSH, np.int32(m.n), seeds, chosen, counts]
    n_blocks = -(-len(seeds) // THREADS)
    fleet.card.launch(VECTORS, "count_rows", n_blocks, THREADS, 0, arguments)
    found: npt.NDArray[np.int64] = fleet.card.download(counts)
    return found


def _encode(
    fleet: ResidentFleet, m: Walsh, seed: int, round: int, reporting: Any, *, launches: bool
) -> list[Report]:
    drawn = _draw(fleet, m, seed, round, reporting, launches)
    phones, seeds, chosen = map(fleet.card.download, drawn)
    at = np.argsort(phones)
    return vector_reports((seeds[at], chosen[at].astype(np.int64)), m, round)
