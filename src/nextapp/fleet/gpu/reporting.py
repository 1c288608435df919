"""A fleet whose columns lie on a card, and its rounds: `sum_reports`, as on the processor.

harmony                    simulated on the card, bit by bit
identity, laplace (law)    their sum is that of the gradients
walsh (law, α = 0)         drawn on the card
all others                 refused: the card would wait for the processor
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.fleet.columns import Columns, Fleet, Ints, Shorts, cut, each_range
from nextapp.fleet.encoders import (
    FAR,
    LAW,
    MIDDLE,
    TAIL,
    UNIT,
    HarmonyEncoder,
    IdentityEncoder,
    PartialSum,
    SumOfWalsh,
    has_law,
    normal_table,
)
from nextapp.fleet.gpu.card import Card, KernelSource
from nextapp.fleet.gradients import BALLS, REPORT, ShardRound
from nextapp.fleet.rounds import Sums, check_round, encoder_for, round_of
from nextapp.fleet.stepping import READING_CODES
from nextapp.privacy import Mechanism
from nextapp.privacy.harmony import Harmony
from nextapp.wire import Broadcast

LARGEST_DIM = 64
DRAWS = KernelSource("draws.cu", options=("--fmad=false",))
_STEP_OPTIONS = ("--prec-div=false", "--prec-sqrt=false")  # of float; doubles stay exact
_KINDS = {"float32": "float", "float64": "double"}
_SHARED_BYTES = 200 * 1024  # of the 227 KiB that a block can have
_BLOCK_BYTES = 48 * 1024  # of shared memory for a block, so that several share a multiprocessor
_SCRATCH_BYTES = 1 << 30
THREADS = 128
_PER_BLOCK = 1024  # phones whose backgrounds a block sums,
_BATCH = 32  # at a time: BATCH of step.cu
_WHOLE_BITS = 62  # of a sum
_TALLEST = 16.0  # entry of an unclipped gradient that a first try has room for
_TALLEST_DRAWN = 32.0  # entry of a report drawn by its law: 5 standard normal numbers of 6


CAPACITIES = (12, 16, 20, 24, 32, 48, 64)
"""Own apps that a workspace in shared memory has room for."""


@dataclass(frozen=True)
class FleetPart:
    """Phones ``first`` to ``last`` − 1 of the order: those with at most `capacity` own apps."""

    capacity: int
    first: int
    last: int


class ResidentFleet:
    """The columns of a `Fleet` on a card; they are copied there once.

    ``order`` (n_phones,) are the phones as they are processed, by their number of own apps, and
    ``parts`` its parts: the phones that a warp shares walk in step, so they should have the same
    way to go.
    """

    def __init__(self, fleet: Fleet, card: Card) -> None:
        xp = card.xp
        self.card = card
        self.n_phones = len(fleet)
        self.n_apps = fleet.n_apps
        self.first_phone = fleet.first_phone
        self.columns = _place(fleet.columns, card)
        self.n_own = xp.diff(self.columns[0])
        most = int(self.n_own.max()) if self.n_phones else 0
        room = next((each for each in CAPACITIES if each >= most), 16 * (-(-most // 16)))
        capacities = (*(each for each in CAPACITIES if each < most), room)
        self.order = xp.argsort(self.n_own, kind="stable").astype(np.int32)
        bounds = xp.asarray(np.array(capacities))
        ends = xp.searchsorted(self.n_own[self.order], bounds, side="right")
        cuts = [0, *card.download(ends).tolist()]
        self.parts = [
            FleetPart(capacity, first, last)
            for capacity, (first, last) in zip(capacities, pairwise(cuts), strict=True)
            if last > first
        ]
        self._rooms: dict[tuple[int, str], Any] = {}

    def __len__(self) -> int:
        return self.n_phones

    def user_vectors(self, d: int, dtype: Any) -> Any:
        """Room for (n_phones, d) user vectors, the same each time."""
        key = (d, np.dtype(dtype).name)
        if key not in self._rooms:
            self._rooms.clear()
            self._rooms[key] = self.card.xp.zeros((self.n_phones, d), dtype)
        return self._rooms[key]


def _place(c: Columns, card: Card) -> tuple[Any, ...]:
    """app_starts, apps, counts, transition_starts, then the transitions as the kernels take them:
    as words, or where a word has no room for them, as three columns."""

    def copied(column: npt.NDArray[Any]) -> Any:
        def fill(first: int, last: int, part: npt.NDArray[Any]) -> None:
            part[:] = column[first:last]

        return card.upload(len(column), column.dtype, fill)

    def fill_words(first: int, last: int, part: npt.NDArray[Any]) -> None:
        def work(start: int, stop: int) -> None:
            _write_words(start, stop, first, c.previous, c.following, c.times, part)

        list(each_range(last - first, work, size=1 << 20))

    always = [copied(each) for each in (c.app_starts, c.apps, c.counts, c.transition_starts)]
    most = max(int(each.max(initial=0)) for each in (c.previous, c.following))
    if most < 1 << 8 and c.times.max(initial=0) < 1 << 16:
        words = card.upload(len(c.times), np.uint32, fill_words)
        return (*always, words, None, None, None)
    return (*always, None, *(copied(each) for each in (c.previous, c.following, c.times)))


@compiled
def _write_words(
    start: int,
    stop: int,
    first: int,
    previous: Shorts,
    following: Shorts,
    times: Ints,
    words: npt.NDArray[np.uint32],
) -> None:
    """A transition in a word: the previous app in 8 bits, the following in 8, the times in 16."""
    for e in range(start, stop):
        at = first + e
        words[e] = (
            np.uint32(previous[at]) | np.uint32(following[at]) << 8 | np.uint32(times[at]) << 16
        )


class Step(NamedTuple):
    """What a step leaves on the card, a row for each phone in their order, and the sum of x."""

    user_vectors: Any  # (n_phones, d)
    sum: Any  # (n_apps, d), whole numbers of 1 / scale, without the background
    scale: float
    losses: Any
    common_c0: Any  # of x, in units of the clip; 0 where the background was added entry by entry
    squares: Any  # ‖x‖²
    entries: Any  # (n, k)   F at the positions asked for
    row_starts: Any
    rows: Any  # (n_own, d)   x at own apps, if asked for


def sum_reports(
    fleet: ResidentFleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    seed: int,
    *,
    law: bool = False,
    dtype: npt.DTypeLike = np.float32,
) -> Sums:
    """`nextapp.fleet.rounds.sum_reports` on a card; user vectors stay on it.

    Sums are of whole numbers, so they do not depend on the order of the phones.
    """
    check_round(fleet.n_apps, broadcast, mechanism)
    law = law and has_law(mechanism.name, broadcast.settings.alpha)
    encoder = encoder_for(mechanism, law)
    if broadcast.dim > LARGEST_DIM:
        raise ValueError(
            f"a card takes app vectors of at most {LARGEST_DIM} numbers, got {broadcast.dim}: say "
            f"device 'cpu'."
        )
    if not isinstance(encoder, HarmonyEncoder | IdentityEncoder | SumOfWalsh):
        raise ValueError(
            f"a card simulates harmony and identity, and by the law of their sum laplace and, with "
            f"alpha = 0, walsh; not {mechanism.name} otherwise: say device 'cpu'."
        )
    r = round_of(seed, fleet.first_phone, broadcast)
    kind = np.dtype(dtype)
    positions = words = None
    if isinstance(encoder, HarmonyEncoder):
        positions, words = _draw_positions(fleet, encoder.mechanism, r)
    with_rows = isinstance(encoder, SumOfWalsh)
    step = _step(fleet, broadcast, mechanism, kind, positions, with_rows)
    state = encoder.empty()
    if isinstance(encoder, HarmonyEncoder):
        state = _count_signs(fleet.card, encoder.mechanism, positions, words, step.entries)
    elif isinstance(encoder, SumOfWalsh):
        state = _lean(fleet, step, encoder, r, kind)
    unit = mechanism.clip if mechanism.ball != "none" else 1.0
    return Sums(
        seed,
        broadcast.round,
        fleet.n_phones,
        state,
        unit * _true_sum(fleet, step, broadcast),
        float(step.losses.sum(dtype=np.float64)),
        law,
    )


# --- the step ----------------------------------------------------------------------------------


def width(d: int) -> int:
    """WIDTH of step.cu."""
    edge = 4 if d <= 32 else 8
    return -(-d // edge) * edge


def workspace_size(capacity: int, d: int) -> int:
    """`workspace_size` of step.cu."""
    wide = width(d)
    most_at_once = 24 if d <= 16 else 32  # own apps: MANY * SPAN
    own = capacity * (wide + 4) * (2 if capacity > most_at_once else 1)
    table = -(-capacity * (capacity + 1) // 4) * 4
    return own + table + 5 * capacity + 2 * (wide + 4) + wide


def _source(d: int, kind: np.dtype[Any], dense: bool) -> KernelSource:
    defined = (("DIM", str(d)), ("REAL", _KINDS[kind.name]), ("DENSE", str(int(dense))))
    return KernelSource("step.cu", defined, _STEP_OPTIONS)


def _step(
    fleet: ResidentFleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    kind: np.dtype[Any],
    positions: Any,
    with_rows: bool,
) -> Step:
    """h, p, F and x of the phones, in their order."""
    xp, d, n = fleet.card.xp, broadcast.dim, fleet.n_phones
    n_positions = 0 if positions is None else positions.shape[1]
    row_starts = rows = None
    if with_rows:
        n_own = fleet.n_own[fleet.order]
        row_starts = xp.zeros(n + 1, np.int64)
        xp.cumsum(n_own, out=row_starts[1:])
        rows = xp.zeros((int(row_starts[-1]), d), kind)
    step = Step(
        fleet.user_vectors(d, kind), xp.zeros(broadcast.app_vectors.shape, np.int64), 0.0,
        xp.zeros(n, kind), xp.zeros(n, kind), xp.zeros(n, kind),
        xp.zeros((n, max(1, n_positions)), kind), row_starts, rows,
    )  # fmt: skip
    limit = 2.0 if mechanism.ball != "none" else _TALLEST
    given = fleet, broadcast, mechanism, kind, positions, step
    while (tallest := _launch_step(*given, limit)) > limit:
        step.sum[:] = 0
        limit = 2.0 ** math.ceil(math.log2(tallest) + 1e-6)
    return step._replace(scale=_scale_of_sums(limit, n))


def _scale_of_sums(limit: float, n: int) -> float:
    """A power of two: n terms up to `limit`, in whole numbers of one over it, fit a word."""
    return 2.0 ** (_WHOLE_BITS - math.ceil(math.log2(limit)) - math.ceil(math.log2(max(n, 1))))


def _launch_step(
    fleet: ResidentFleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    kind: np.dtype[Any],
    positions: Any,
    step: Step,
    limit: float,
) -> float:
    """Returns the tallest entry beyond the limit, 0 if there is none."""
    xp, settings = fleet.card.xp, broadcast.settings
    n_apps, d = broadcast.app_vectors.shape
    wide = width(d)
    Q, gram = np.zeros((n_apps, wide), kind), np.zeros((wide, wide), kind)
    Q[:, :d], gram[:d, :d] = broadcast.app_vectors, broadcast.gram
    longest = math.sqrt((broadcast.app_vectors**2).sum(axis=1).max(initial=0.0))
    flags = xp.asarray(
        np.array([0, 2**64 - 1], np.uint64)
    )  # the tallest entry, the first bad phone
    shared = [
        *fleet.columns, xp.asarray(Q), xp.asarray(gram), np.int32(n_apps), np.float64(longest),
        np.float64(settings.lam), np.float64(settings.alpha), np.float64(settings.gamma),
        np.int32(READING_CODES[settings.reading]), step.user_vectors,
        np.int32(BALLS[mechanism.ball]), np.float64(mechanism.clip),
        np.float64(_scale_of_sums(limit, fleet.n_phones)), np.float64(limit), step.sum, flags[:1],
        flags[1:],
    ]  # fmt: skip
    source = _source(d, kind, settings.alpha > 0)
    for part in fleet.parts:
        _launch_part(fleet, source, part, d, kind, shared, positions, step)
    found = fleet.card.download(flags)
    bad = int(found[1])
    if bad < 2**64 - 1:
        raise FloatingPointError(
            f"the gradient of phone {fleet.first_phone + bad} is not finite, or too long for its "
            f"square to be; a report of it is refused. Have the app vectors grown without bound?"
        )
    return float(found[:1].view(np.float32)[0])


def _launch_part(
    fleet: ResidentFleet,
    source: KernelSource,
    part: FleetPart,
    d: int,
    kind: np.dtype[Any],
    shared: list[Any],
    positions: Any,
    step: Step,
) -> None:
    n_positions = np.int32(0 if positions is None else positions.shape[1])
    workspace_bytes = workspace_size(part.capacity, d) * kind.itemsize
    in_warp = 32 // (8 if d <= 16 else 16 if d <= 32 else 32)  # phones: by LANES of step.cu
    fits = workspace_bytes * in_warp <= _SHARED_BYTES
    n_warps = min(max(_BLOCK_BYTES // (workspace_bytes * in_warp), 1), 4) if fits else 1
    in_block = n_warps * in_warp
    at_once = part.last - part.first if fits else max(_SCRATCH_BYTES // workspace_bytes, 1)
    rooms = min(at_once, part.last) + in_warp - 1  # also for lanes of a warp that have no phone
    scratch = None if fits else fleet.card.xp.empty(rooms * workspace_bytes, np.uint8)
    for first, last in cut(part.first, part.last, at_once):
        chosen = slice(first, last)
        arguments = [
            _of(fleet.order, chosen), np.int64(last - first), np.int32(part.capacity), scratch,
            *shared, step.losses[chosen], step.common_c0[chosen],
            step.squares[chosen], _of(positions, chosen), n_positions, step.entries[chosen],
            _of(step.row_starts, chosen), step.rows,
        ]  # fmt: skip
        n_blocks = -(-(last - first) // in_block)
        name = "play_phones" if part.capacity <= 16 else "play_wide_phones"
        if fits:
            fleet.card.launch(
                source, name, n_blocks, 32 * n_warps, workspace_bytes * in_block, arguments
            )
        else:
            fleet.card.launch(source, "play_large_phones", n_blocks, 32 * n_warps, 0, arguments)


def _of(array: Any, part: slice) -> Any:
    return None if array is None else array[part]


def _true_sum(fleet: ResidentFleet, step: Step, broadcast: Broadcast) -> npt.NDArray[np.float64]:
    """Σ x (n_apps, d)."""
    total: npt.NDArray[np.float64] = fleet.card.download(step.sum) / step.scale
    if broadcast.settings.alpha > 0 and fleet.n_phones:
        d, n_blocks = broadcast.dim, -(-fleet.n_phones // _PER_BLOCK)
        partial = fleet.card.xp.zeros((n_blocks, d * d), np.float64)
        source = _source(d, step.common_c0.dtype, True)
        arguments = [
            fleet.order, np.int64(fleet.n_phones), step.user_vectors, step.common_c0,
            np.int64(_PER_BLOCK), partial,
        ]  # fmt: skip
        n_bytes = 2 * _BATCH * d * 8
        fleet.card.launch(source, "sum_backgrounds", n_blocks, 256, n_bytes, arguments)
        common = fleet.card.download(partial.sum(axis=0)).reshape(d, d)
        total = total + broadcast.app_vectors @ common
    return total


# --- reports -----------------------------------------------------------------------------------


def _draw_positions(fleet: ResidentFleet, mechanism: Harmony, r: ShardRound) -> tuple[Any, Any]:
    """Positions (n, k) and the words of their signs."""
    xp, n, k = fleet.card.xp, fleet.n_phones, mechanism.k
    positions, words = xp.zeros((n, k), np.int32), xp.zeros((n, k), np.uint64)
    arguments = [
        fleet.order, np.int64(n), r.first_phone, r.seed, r.number, REPORT, np.int64(mechanism.D),
        np.int32(k), positions, words,
    ]  # fmt: skip
    fleet.card.launch(DRAWS, "draw_positions", -(-n // THREADS), THREADS, 0, arguments)
    return positions, words


def _count_signs(
    card: Card, mechanism: Harmony, positions: Any, words: Any, entries: Any
) -> PartialSum:
    counts = card.xp.zeros((2, mechanism.D), np.uint32)
    arguments = [
        np.int64(positions.size), positions, words, entries, np.float64(mechanism.clip),
        np.uint64(mechanism.floor), counts[0], counts[1],
    ]  # fmt: skip
    name = f"sign_{_KINDS[entries.dtype.name]}"
    card.launch(DRAWS, name, -(-positions.size // THREADS), THREADS, 0, arguments)
    positive, negative = card.download(counts).astype(np.int64)
    return {"tally": positive - negative}


def _lean(
    fleet: ResidentFleet,
    step: Step,
    encoder: SumOfWalsh,
    r: ShardRound,
    kind: np.dtype[Any],
) -> PartialSum:
    """What `SumOfWalsh` draws phone by phone."""
    card, lean, (n_apps, d) = fleet.card, encoder.lean, r.Q.shape
    total = card.xp.zeros((n_apps, d), np.int64)
    owners = card.xp.zeros(n_apps, np.int64)
    scale = _scale_of_sums(_TALLEST_DRAWN, fleet.n_phones)
    arguments = [
        fleet.order, np.int64(fleet.n_phones), r.first_phone, r.seed, r.number, LAW,
        fleet.columns[0], fleet.columns[1], step.row_starts, step.rows, step.squares, np.int32(d),
        np.uint64(lean.threshold), np.int32(lean.k), np.int32(lean.m),
        card.xp.asarray(np.array([MIDDLE, TAIL, FAR])), card.xp.asarray(normal_table()),
        np.float64(1.0 / UNIT), np.float64(scale), total, owners,
    ]  # fmt: skip
    n_blocks = -(-fleet.n_phones // (THREADS // 32))
    card.launch(DRAWS, f"lean_{_KINDS[kind.name]}", n_blocks, THREADS, 0, arguments)
    return {"sum": card.download(total) / scale, "owners": card.download(owners)}
