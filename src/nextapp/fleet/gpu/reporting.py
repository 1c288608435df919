"""Rounds of a fleet on a card, behind the functions that play them on the processor.

`sum_reports` and `encode_reports` take what their namesakes in `nextapp.fleet.reporting` take, with
a `ResidentFleet` for the fleet, and give what they give; `outcomes` is that of
`nextapp.fleet.participation`. Transition vectors of the crowd are reported by `walsh` and
`transition_vectors` beside this module.

harmony                                played on the card, bit by bit
identity, laplace (law)                their sum is that of the gradients
walsh                                  by its law drawn on the card for α = 0
all others                             the step on the card, the reports on the processor
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.fleet.columns import Longs
from nextapp.fleet.draws import FAR, MIDDLE, TAIL
from nextapp.fleet.encoder import REPORT, ShardRound, Side, State
from nextapp.fleet.gpu.card import Card, Source
from nextapp.fleet.gpu.resident import Order, Part, ResidentFleet
from nextapp.fleet.gradients import BALLS, Gradients
from nextapp.fleet.harmony import HarmonyEncoder
from nextapp.fleet.identity import IdentityEncoder
from nextapp.fleet.participation import HOME, PART, Participation
from nextapp.fleet.reporting import (
    Batch,
    Sums,
    check_round,
    cut,
    round_of,
    run_in_order,
    side_for,
)
from nextapp.fleet.stepping import READING_CODES
from nextapp.fleet.sum_law import LAW, UNIT, Lean, SumOfLaplace, SumOfLeaning, normal_table
from nextapp.privacy import Mechanism
from nextapp.privacy.harmony import Harmony
from nextapp.wire import Broadcast, Floats, Report

LARGEST_DIM = 64
DRAWS = Source("draws.cu", options=("--fmad=false",))
_STEP_OPTIONS = ("--prec-div=false", "--prec-sqrt=false")  # of float; doubles stay exact
_KINDS = {"float32": "float", "float64": "double"}
_SHARED_BYTES = 200 * 1024  # of the 227 KiB that a block can have
_BLOCK_BYTES = 48 * 1024  # of shared memory for a block, so that several share a multiprocessor
_SCRATCH_BYTES = 1 << 30
THREADS = 128
_PER_BLOCK = 1024  # phones whose backgrounds a block sums,
_BATCH = 32  # so many at a time: BATCH of step.cu
_WHOLE_BITS = 62  # of a sum
_TALLEST = 16.0  # entry of an unclipped gradient that a first try has room for
TALLEST_DRAWN = 32.0  # entry of a report drawn by its law: 5 standard normal numbers of 6


class Step(NamedTuple):
    """What a step leaves on the card, one row a phone of the order, and the sum of x."""

    user_vectors: Any  # (n_phones, d)
    sum: Any  # (n_apps, d), whole numbers of 1 / scale, without the background
    scale: float
    losses: Any
    c0: Any  # of x, in units of the clip
    common_c0: Any  # the same; 0 where the background was added entry by entry
    squares: Any  # ‖x‖²
    entries: Any  # (n, k)   F at the positions asked for
    row_starts: Any
    rows: Any  # (n_own, d)   x at own apps, if asked for


def sum_reports(
    fleet: ResidentFleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    seed: int,
    user_vectors: Floats | None = None,
    reporting: Any = None,
    *,
    mode: str = "exact",
    solving: bool = True,
    dtype: npt.DTypeLike = np.float32,
) -> Sums:
    """`nextapp.fleet.reporting.sum_reports` on a card.

    `user_vectors` None keeps them on the card, `reporting` None means everyone. Sums are of whole
    numbers, so they do not depend on the order in which the card plays the phones.
    """
    _check(fleet, broadcast, mechanism, user_vectors, reporting)
    background = broadcast.settings.alpha > 0
    side = side_for(mechanism, mode, background)
    r = round_of(seed, fleet.first_phone, broadcast)
    order, kind = fleet.order(reporting), np.dtype(dtype)
    vectors = _vectors(fleet, broadcast.dim, kind, user_vectors, solving)
    state: State
    by_law = isinstance(side, SumOfLeaning) and not background
    summed = isinstance(side, IdentityEncoder | SumOfLaplace)
    positions = words = None
    if isinstance(mechanism, Harmony):
        positions, words = _draw_positions(fleet, order, mechanism, r)
    wanted = not (isinstance(mechanism, Harmony) or summed)
    step = _step(fleet, order, broadcast, mechanism, vectors, solving, kind, positions, wanted)
    played: Sums | None = None
    if isinstance(mechanism, Harmony):
        _, counts = _signs(fleet.card, mechanism, positions, words, step.entries, keep=False)
        state = counts
    elif summed:
        state = side.empty()
    elif isinstance(side, SumOfLeaning) and by_law:
        state = side.finish(side.empty() | _lean(fleet, order, step, side, r, kind), r)
    else:
        played = _on_processor(fleet, order, step, broadcast, mechanism, side, r, mode)
        state = side.finish(played.state, r)
    if user_vectors is not None and solving:
        _write_back(fleet, order, step.user_vectors, user_vectors)
    per_report = len(Report(mechanism.name, 0, b"").to_bytes())
    n_bytes = played.n_bytes_up if played else _n_bytes(fleet, order, step, side, broadcast)
    unit = mechanism.clip if mechanism.ball != "none" else 1.0
    return Sums(
        seed,
        broadcast.round,
        order.n,
        state,
        unit * _true_sum(fleet, order, step, broadcast),
        float(step.losses.sum(dtype=np.float64)),
        n_bytes + per_report * order.n,
        mechanism.name,
        mode,
    )


def encode_reports(
    fleet: ResidentFleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    seed: int,
    user_vectors: Floats | None = None,
    reporting: Any = None,
    *,
    solving: bool = True,
    dtype: npt.DTypeLike = np.float32,
) -> Batch:
    """`nextapp.fleet.reporting.encode_reports` on a card, of harmony."""
    _check(fleet, broadcast, mechanism, user_vectors, reporting)
    if not isinstance(mechanism, Harmony):
        raise ValueError(
            f"a card encodes reports of harmony, not of {mechanism.name!r}: "
            f"nextapp.fleet.reporting.encode_reports does."
        )
    order, kind = fleet.order(reporting), np.dtype(dtype)
    vectors = _vectors(fleet, broadcast.dim, kind, user_vectors, solving)
    r = round_of(seed, fleet.first_phone, broadcast)
    positions, words = _draw_positions(fleet, order, mechanism, r)
    step = _step(fleet, order, broadcast, mechanism, vectors, solving, kind, positions, False)
    positive, _ = _signs(fleet.card, mechanism, positions, words, step.entries, keep=True)
    phones = fleet.card.download(order.phones)
    at = np.argsort(phones)
    found = (fleet.card.download(positions)[at].astype(np.int64), positive[at])
    numbers = phones[at].astype(np.int64) + fleet.first_phone
    return Batch(numbers, [found], HarmonyEncoder(mechanism), mechanism.name, broadcast.round)


def outcomes(
    settings: Participation,
    fleet: ResidentFleet,
    n_world: int,
    round_: int,
    seed: int,
    last_round: Any,
    n_reports: Any,
) -> Any:
    """`nextapp.fleet.participation.outcomes` on a card; the arrays are on it, and the result."""
    card = fleet.card
    found = card.xp.zeros(len(fleet), np.int8)
    if settings == Participation():
        return found  # a perfect world
    if settings.cohort > n_world:
        raise ValueError(
            f"a cohort of {settings.cohort:,} is larger than the fleet of {n_world:,} phones."
        )
    arguments = [
        np.int64(len(fleet)), np.uint64(fleet.first_phone), np.uint64(seed), np.int32(round_), PART,
        HOME, np.float64(settings.cohort / n_world if settings.cohort else 1.0),
        np.float64(round_ * settings.hours_per_round % 24.0),
        card.xp.asarray(np.array(settings.availability)), np.float64(settings.drop_out),
        np.float64(math.log(settings.deadline_seconds / settings.typical_seconds)),
        np.int32(settings.minimum_gap), np.int32(settings.lifetime_reports), last_round, n_reports,
        found,
    ]  # fmt: skip
    card.launch(DRAWS, "outcomes", -(-len(fleet) // THREADS), THREADS, 0, arguments)
    return found


def _check(
    fleet: ResidentFleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    user_vectors: Floats | None,
    reporting: Any,
) -> None:
    n, d = len(fleet), broadcast.dim
    if d > LARGEST_DIM:
        raise ValueError(
            f"a card plays app vectors of at most {LARGEST_DIM} numbers, got {d}: say device 'cpu'."
        )
    vectors = np.broadcast_to(0.0, (n, d)) if user_vectors is None else user_vectors
    mask = np.broadcast_to(np.True_, n) if reporting is None else reporting
    check_round(n, fleet.n_apps, broadcast, mechanism, vectors, mask)


def _vectors(
    fleet: ResidentFleet, d: int, kind: np.dtype[Any], given: Floats | None, solving: bool
) -> Any:
    vectors = fleet.user_vectors(d, kind)
    if given is not None and not solving:
        vectors[:] = fleet.card.xp.asarray(given.astype(kind))
    return vectors


def _write_back(fleet: ResidentFleet, order: Order, solved: Any, into: Floats) -> None:
    phones = fleet.card.download(order.phones)
    into[phones] = fleet.card.download(solved)[phones]


def _n_bytes(
    fleet: ResidentFleet, order: Order, step: Step, side: Side, broadcast: Broadcast
) -> int:
    """Of the payloads."""
    xp = fleet.card.xp
    if not isinstance(side, IdentityEncoder):
        nobody = _block(np.zeros(1, np.int64), np.zeros(2, np.int64), broadcast.dim)
        return order.n * side.n_bytes(nobody)
    starts = xp.zeros(order.n + 1, np.int64)
    xp.cumsum(fleet.n_own[order.phones], out=starts[1:])
    x = _block(np.zeros(1, np.int64), starts, broadcast.dim)
    p = step.user_vectors[order.phones] if broadcast.settings.alpha > 0 else step.c0[:, None]
    return side.n_bytes(x._replace(c0=step.c0, p=p))


def _block(phones: Longs, starts: Longs, d: int) -> Gradients:
    """Phones without own apps."""
    n = len(phones)
    return Gradients(
        phones, starts, np.zeros(0, np.int32), np.zeros((0, d)), np.zeros(n), np.zeros((n, d)),
        np.zeros(n), math.inf,
    )  # fmt: skip


# --- the step ----------------------------------------------------------------------------------


def lanes(d: int) -> int:
    """LANES of step.cu."""
    return 8 if d <= 16 else 16 if d <= 32 else 32


def width(d: int) -> int:
    """WIDTH of step.cu."""
    edge = 4 if d <= 32 else 8
    return -(-d // edge) * edge


def most_at_once(d: int) -> int:
    """MANY * SPAN of step.cu: own apps that are done at once."""
    return 24 if d <= 16 else 32


def desk_size(capacity: int, d: int) -> int:
    """`desk_size` of step.cu."""
    wide = width(d)
    own = capacity * (wide + 4) * (2 if capacity > most_at_once(d) else 1)
    table = -(-capacity * (capacity + 1) // 4) * 4
    return own + table + 5 * capacity + 2 * (wide + 4) + wide


def _source(d: int, kind: np.dtype[Any], dense: bool) -> Source:
    defined = (("DIM", str(d)), ("REAL", _KINDS[kind.name]), ("DENSE", str(int(dense))))
    return Source("step.cu", defined, _STEP_OPTIONS)


def _step(
    fleet: ResidentFleet,
    order: Order,
    broadcast: Broadcast,
    mechanism: Mechanism,
    user_vectors: Any,
    solving: bool,
    kind: np.dtype[Any],
    positions: Any,
    rows_wanted: bool,
) -> Step:
    """h, p, F and x of the phones of the order."""
    xp, d, n = fleet.card.xp, broadcast.dim, order.n
    n_positions = 0 if positions is None else positions.shape[1]
    row_starts = rows = None
    if rows_wanted:
        n_own = fleet.n_own[order.phones]
        row_starts = xp.zeros(n + 1, np.int64)
        xp.cumsum(n_own, out=row_starts[1:])
        rows = xp.zeros((int(row_starts[-1]), d), kind)
    step = Step(
        user_vectors, xp.zeros(broadcast.app_vectors.shape, np.int64), 0.0, xp.zeros(n, kind),
        xp.zeros(n, kind), xp.zeros(n, kind), xp.zeros(n, kind),
        xp.zeros((n, max(1, n_positions)), kind), row_starts, rows,
    )  # fmt: skip
    clipped = mechanism.ball != "none"
    tallest = _launch_step(
        fleet, order, broadcast, mechanism, solving, kind, positions, step,
        limit := 2.0 if clipped else _TALLEST,
    )  # fmt: skip
    if tallest > limit:
        step.sum[:] = 0
        limit = 2.0 ** math.ceil(math.log2(tallest) + 1e-6)
        _launch_step(
            fleet, order, broadcast, mechanism, solving, kind, positions, step, limit
        )  # fmt: skip
    return step._replace(scale=scale_of_sums(limit, n))


def scale_of_sums(limit: float, n: int) -> float:
    """A power of two: n terms up to `limit`, in whole numbers of one over it, fit a word."""
    return 2.0 ** (_WHOLE_BITS - math.ceil(math.log2(limit)) - math.ceil(math.log2(max(n, 1))))


def _launch_step(
    fleet: ResidentFleet,
    order: Order,
    broadcast: Broadcast,
    mechanism: Mechanism,
    solving: bool,
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
        np.int32(READING_CODES[settings.reading]), step.user_vectors, np.int32(solving),
        np.int32(BALLS[mechanism.ball]), np.float64(mechanism.clip),
        np.float64(scale_of_sums(limit, order.n)), np.float64(limit), step.sum, flags[:1],
        flags[1:],
    ]  # fmt: skip
    source = _source(d, kind, settings.alpha > 0)
    for part in order.parts:
        _launch_part(fleet.card, source, order, part, d, kind, shared, positions, step)
    found = fleet.card.download(flags)
    bad = int(found[1])
    if bad < 2**64 - 1:
        raise ValueError(
            f"the gradient of phone {fleet.first_phone + bad} is not finite, or too long for its "
            f"square to be; a report of it is refused. Have the app vectors grown without bound?"
        )
    return float(found[:1].view(np.float32)[0])


def _launch_part(
    card: Card,
    source: Source,
    order: Order,
    part: Part,
    d: int,
    kind: np.dtype[Any],
    shared: list[Any],
    positions: Any,
    step: Step,
) -> None:
    n_positions = np.int32(0 if positions is None else positions.shape[1])
    desk_bytes = desk_size(part.capacity, d) * kind.itemsize
    in_warp = 32 // lanes(d)
    fits = desk_bytes * in_warp <= _SHARED_BYTES
    n_warps = min(max(_BLOCK_BYTES // (desk_bytes * in_warp), 1), 4) if fits else 1
    in_block = n_warps * in_warp
    at_once = part.last - part.first if fits else max(_SCRATCH_BYTES // desk_bytes, 1)
    scratch = None if fits else card.xp.empty(min(at_once, part.last) * desk_bytes, np.uint8)
    for first, last in cut(part.first, part.last, at_once):
        played = slice(first, last)
        arguments = [
            _of(order.phones, played), np.int64(last - first), np.int32(part.capacity), scratch,
            *shared, step.losses[played], step.c0[played], step.common_c0[played],
            step.squares[played], _of(positions, played), n_positions, step.entries[played],
            _of(step.row_starts, played), step.rows,
        ]  # fmt: skip
        n_blocks = -(-(last - first) // in_block)
        name = "play_phones" if part.capacity <= 16 else "play_wide_phones"
        if fits:
            card.launch(source, name, n_blocks, 32 * n_warps, desk_bytes * in_block, arguments)
        else:
            card.launch(source, "play_large_phones", n_blocks, 32 * n_warps, 0, arguments)


def _of(array: Any, part: slice) -> Any:
    return None if array is None else array[part]


def _true_sum(
    fleet: ResidentFleet, order: Order, step: Step, broadcast: Broadcast
) -> npt.NDArray[np.float64]:
    """Σ x (n_apps, d)."""
    total: npt.NDArray[np.float64] = fleet.card.download(step.sum) / step.scale
    if broadcast.settings.alpha > 0 and order.n:
        d, n_blocks = broadcast.dim, -(-order.n // _PER_BLOCK)
        partial = fleet.card.xp.zeros((n_blocks, d * d), np.float64)
        source = _source(d, step.common_c0.dtype, True)
        arguments = [
            order.phones, np.int64(order.n), step.user_vectors, step.common_c0,
            np.int64(_PER_BLOCK), partial,
        ]  # fmt: skip
        n_bytes = 2 * _BATCH * d * 8
        fleet.card.launch(source, "sum_backgrounds", n_blocks, 256, n_bytes, arguments)
        common = fleet.card.download(partial.sum(axis=0)).reshape(d, d)
        total = total + broadcast.app_vectors @ common
    return total


# --- reports -----------------------------------------------------------------------------------


def _draw_positions(
    fleet: ResidentFleet, order: Order, mechanism: Harmony, r: ShardRound
) -> tuple[Any, Any]:
    """Positions (n, k) and the words of their signs."""
    xp, n, k = fleet.card.xp, order.n, mechanism.k
    positions, words = xp.zeros((n, k), np.int32), xp.zeros((n, k), np.uint64)
    arguments = [
        order.phones, np.int64(n), r.first_phone, r.seed, r.number, REPORT, np.int64(mechanism.D),
        np.int32(k), positions, words,
    ]  # fmt: skip
    fleet.card.launch(DRAWS, "draw_positions", -(-n // THREADS), THREADS, 0, arguments)
    return positions, words


def _signs(
    card: Card, mechanism: Harmony, positions: Any, words: Any, entries: Any, keep: bool
) -> tuple[npt.NDArray[np.bool_], State]:
    """Signs (n, k) if they are kept, and how often each position came with either."""
    xp, size = card.xp, positions.size
    kept = xp.zeros(positions.shape, np.int8) if keep else None
    counts = xp.zeros((2, mechanism.D), np.uint32)
    arguments = [
        np.int64(size), positions, words, entries, np.float64(mechanism.clip),
        np.uint64(mechanism.floor), kept, counts[0], counts[1],
    ]  # fmt: skip
    name = f"sign_{_KINDS[entries.dtype.name]}"
    card.launch(DRAWS, name, -(-size // THREADS), THREADS, 0, arguments)
    positive, negative = card.download(counts).astype(np.int64)
    signs = card.download(kept).astype(np.bool_) if keep else np.zeros((0, 0), np.bool_)
    return signs, {"positive": positive, "negative": negative}


def _lean(
    fleet: ResidentFleet,
    order: Order,
    step: Step,
    side: SumOfLeaning,
    r: ShardRound,
    kind: np.dtype[Any],
) -> State:
    """`nextapp.fleet.sum_law.Drawn` for α = 0: what is drawn phone by phone."""
    card, (n_apps, d) = fleet.card, r.Q.shape
    total = card.xp.zeros((n_apps, d), np.int64)
    owners = card.xp.zeros(n_apps, np.int64)
    scale = scale_of_sums(TALLEST_DRAWN, order.n)
    arguments = [
        order.phones, np.int64(order.n), r.first_phone, r.seed, r.number, LAW,
        fleet.columns[0], fleet.columns[1], step.row_starts, step.rows, step.squares, np.int32(d),
        *law_arguments(card, side.lean, scale), total, owners,
    ]  # fmt: skip
    n_blocks = -(-order.n // (THREADS // 32))
    card.launch(DRAWS, f"lean_{_KINDS[kind.name]}", n_blocks, THREADS, 0, arguments)
    return {"sum": card.download(total) / scale, "owners": card.download(owners)}


def law_arguments(card: Card, lean: Lean, scale: float) -> list[Any]:
    """LAW of draws.cu."""
    coefficients = card.xp.asarray(np.array([MIDDLE, TAIL, FAR]))
    return [
        np.uint64(lean.threshold), np.int32(lean.k), np.int32(lean.m), coefficients,
        card.xp.asarray(normal_table()), np.float64(1.0 / UNIT), np.float64(scale),
    ]  # fmt: skip


def _on_processor(
    fleet: ResidentFleet,
    order: Order,
    step: Step,
    broadcast: Broadcast,
    mechanism: Mechanism,
    side: Side,
    r: ShardRound,
    mode: str,
) -> Sums:
    """The reports of gradients that were made on the card."""
    card, xp = fleet.card, fleet.card.xp
    starts, apps = fleet.columns[0], fleet.columns[1]
    n_own = card.download(fleet.n_own[order.phones]).tolist()
    shift = xp.repeat(starts[order.phones] - step.row_starts[:-1], n_own)
    apps = apps[xp.arange(len(shift)) + shift]
    phones = fleet.card.download(order.phones).astype(np.int64)
    row_starts, apps = card.download(step.row_starts), card.download(apps)
    rows, c0, squares = map(card.download, (step.rows, step.c0, step.squares))
    vectors = card.download(step.user_vectors)
    limit = 1.0 if mechanism.ball == "linf" else math.inf
    nothing = np.zeros(broadcast.app_vectors.shape)

    def work(first: int, last: int) -> Sums:
        state, n_bytes = side.empty(), 0
        for start, stop in cut(first, last, side.block):
            own = slice(row_starts[start], row_starts[stop])
            x = Gradients(
                phones[start:stop],
                row_starts[start : stop + 1] - row_starts[start],
                apps[own],
                rows[own].astype(np.float64),
                c0[start:stop].astype(np.float64),
                vectors[phones[start:stop]].astype(np.float64),
                squares[start:stop].astype(np.float64),
                limit,
            )
            side.play(state, x, r)
            n_bytes += side.n_bytes(x)
        return Sums(
            int(r.seed), broadcast.round, last - first, state, nothing, 0.0, n_bytes,
            mechanism.name, mode,
        )  # fmt: skip

    return functools.reduce(Sums.__add__, run_in_order(work, order.n, side.size, None))
