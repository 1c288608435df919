"""A round of a fleet: every phone's report, or only what the server makes of all of them.

`encode_reports` draws the report of each phone, with that phone's bits, and returns all of them as
columns. `sum_reports` adds them up and keeps none. Since every phone has its own bits and ranges of
phones are added in order, neither threads nor shards change a report. Shards change a sum of floats
by rounding at most, and a sum of whole numbers not at all.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.fleet.columns import Fleet, Mask, in_ranges
from nextapp.fleet.encoder import Arrays, Encoder, ShardRound, Side, Totals
from nextapp.fleet.gradients import BALLS, Gradients, add_up, gradients, into_balls
from nextapp.fleet.harmony import HarmonyEncoder
from nextapp.fleet.identity import IdentityEncoder
from nextapp.fleet.kashin import KashinEncoder
from nextapp.fleet.laplace import LaplaceEncoder
from nextapp.fleet.qharmony import QHarmonyEncoder
from nextapp.fleet.stepping import terms
from nextapp.fleet.sum_law import sum_law
from nextapp.fleet.walsh import WalshEncoder
from nextapp.privacy import Mechanism
from nextapp.wire import Broadcast, Floats, Report

MODES = ("exact", "law")

_ENCODERS: Mapping[str, Callable[[Any], Encoder]] = {
    "identity": IdentityEncoder,
    "harmony": HarmonyEncoder,
    "qharmony": QHarmonyEncoder,
    "laplace": LaplaceEncoder,
    "kashin": KashinEncoder,
    "walsh": WalshEncoder,
}
FLEET_MECHANISMS = tuple(_ENCODERS)
"""Mechanisms that a fleet can report its gradients through."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The reports of a round as columns, block by block in the order of the phones."""

    phones: npt.NDArray[np.int64]
    blocks: list[Arrays]
    encoder: Encoder
    mechanism: str
    round: int

    def __len__(self) -> int:
        return len(self.phones)

    def reports(self) -> list[Report]:
        """One `Report` per phone, as it sends it; ``phones`` has their numbers."""
        return [
            Report(self.mechanism, self.round, payload)
            for block in self.blocks
            for payload in self.encoder.payloads(block)
        ]


@dataclass(frozen=True, eq=False)
class Sums(Totals):
    """`Totals` that know how they came about."""

    mechanism: str
    mode: str

    def __add__(self, other: Sums) -> Sums:
        for name in ("mechanism", "mode", "seed", "round"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(
                    f"sums of one round can be joined; here {name} is {mine!r} and {theirs!r}."
                )
        return self.join(other)

    def mean(self, mechanism: Mechanism) -> Floats:
        """(n_apps, d): what ``mechanism.decode`` makes of these reports."""
        if mechanism.name != self.mechanism:
            raise ValueError(f"these are reports of {self.mechanism!r}, not {mechanism.name!r}.")
        if self.n_reports == 0:
            raise ValueError("a mean needs at least one report.")
        return side_for(mechanism, self.mode).mean(self)


def encode_reports(
    fleet: Fleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    seed: int,
    user_vectors: Floats,
    reporting: Mask,
    *,
    solving: bool = True,
    dtype: npt.DTypeLike = np.float64,
    threads: int | None = None,
) -> Batch:
    """The reports of the phones in `reporting`, each drawn with the phone's own bits.

    They are those of `PhoneCore.draw_report` with ``KeyedBits(seed, phone, round, "report")``.

    Parameters
    ----------
    user_vectors : (n_phones, d)
        Solved anew in place if `solving`, else taken as they are.
    reporting : (n_phones,)
    dtype
        float64, or float32 for the step; what follows it is always float64.
    """
    check_round(len(fleet), fleet.n_apps, broadcast, mechanism, user_vectors, reporting)
    encoder = _encoder(mechanism)
    block_gradients = _block_gradients(
        fleet, broadcast, mechanism, user_vectors, reporting, solving, dtype
    )
    r = round_of(seed, fleet.first_phone, broadcast)

    def work(first: int, last: int) -> list[tuple[npt.NDArray[np.int64], Arrays]]:
        blocks = []
        for start, stop in cut(first, last, encoder.block):
            x = block_gradients(start, stop)[0]
            blocks.append((x.phones, encoder.encode(x, r)))
        return blocks

    ranges: list[Any] = in_ranges(len(fleet), work, threads, encoder.size)
    blocks = [block for blocks in ranges or [work(0, 0)] for block in blocks]
    phones = np.concatenate([numbers for numbers, _ in blocks]) + fleet.first_phone
    arrays = [arrays for _, arrays in blocks]
    return Batch(phones, arrays, encoder, mechanism.name, broadcast.round)


def sum_reports(
    fleet: Fleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    seed: int,
    user_vectors: Floats,
    reporting: Mask,
    *,
    mode: str = "exact",
    solving: bool = True,
    dtype: npt.DTypeLike = np.float64,
    threads: int | None = None,
) -> Sums:
    """The sum of the reports of the phones in `reporting`; parameters as in `encode_reports`.

    ``mode="exact"`` plays every phone's bits; ``mode="law"`` draws the sum from its law where that
    is far cheaper (docs/fleet.md).
    """
    check_round(len(fleet), fleet.n_apps, broadcast, mechanism, user_vectors, reporting)
    background = broadcast.settings.alpha > 0
    side = side_for(mechanism, mode, background)
    block_gradients = _block_gradients(
        fleet, broadcast, mechanism, user_vectors, reporting, solving, dtype
    )
    r = round_of(seed, fleet.first_phone, broadcast)
    unit = mechanism.clip if mechanism.ball != "none" else 1.0
    vectors = broadcast.app_vectors
    per_report = len(Report(mechanism.name, 0, b"").to_bytes())

    def work(first: int, last: int) -> Sums:
        state, total = side.empty(), np.zeros(vectors.shape)
        common = np.zeros((broadcast.dim, broadcast.dim))
        losses, n_reports, n_bytes = 0.0, 0, 0
        for start, stop in cut(first, last, side.block):
            x, loss = block_gradients(start, stop)
            add_up(x, vectors, total, common)
            side.play(state, x, r)
            losses += loss
            n_reports += len(x.phones)
            n_bytes += side.n_bytes(x) + per_report * len(x.phones)
        true_sum = unit * (total + vectors @ common)
        return Sums(
            seed, broadcast.round, n_reports, state, true_sum, losses, n_bytes,
            mechanism.name, mode,
        )  # fmt: skip

    sums = functools.reduce(Sums.__add__, run_in_order(work, len(fleet), side.size, threads))
    return replace(sums, state=side.finish(sums.state, r))


def _block_gradients(
    fleet: Fleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    user_vectors: Floats,
    reporting: Mask,
    solving: bool,
    dtype: npt.DTypeLike,
) -> Callable[[int, int], tuple[Gradients, float]]:
    """x of the reporting phones of a block, and the sum of their losses."""
    columns, terms_ = fleet.columns, terms(broadcast, dtype)
    ball, clip = BALLS[mechanism.ball], mechanism.clip
    limit = 1.0 if mechanism.ball == "linf" else math.inf

    def work(first: int, last: int) -> tuple[Gradients, float]:
        x, loss = gradients(first, last, columns, terms_, user_vectors, reporting, solving, limit)
        if not np.isfinite(x.squares).all():
            phone = fleet.first_phone + x.phones[~np.isfinite(x.squares)][0]
            raise ValueError(
                f"the gradient of phone {phone} is not finite, or too long for its square to be; "
                f"a report of it is refused. Have the app vectors grown without bound?"
            )
        if mechanism.ball != "none":
            into_balls(x, broadcast.app_vectors, ball, clip)
        return x, float(loss)

    return work


def run_in_order(
    work: Callable[[int, int], Sums], n_phones: int, size: int, threads: int | None
) -> Iterator[Sums]:
    """work(first, last) for ranges of phones, one result after the other; none is kept."""
    ranges = list(cut(0, n_phones, size))
    if threads == 1 or len(ranges) == 1:
        yield from (work(first, last) for first, last in ranges)
        return
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        yield from pool.map(lambda ends: work(*ends), ranges)


def cut(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """first to last in pieces of at most `size`; one piece, empty, if there is nothing."""
    return pairwise([first, *range(first + size, last, size), last])


def round_of(seed: int, first_phone: int, broadcast: Broadcast) -> ShardRound:
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be a whole number from 0 to 2^64 - 1, got {seed!r}.")
    return ShardRound(
        np.ascontiguousarray(broadcast.app_vectors),
        np.ascontiguousarray(broadcast.gram),
        np.uint64(seed),
        np.uint64(first_phone),
        np.uint64(broadcast.round),
    )


def _encoder(mechanism: Mechanism) -> Encoder:
    return _ENCODERS[mechanism.name](mechanism)


def side_for(mechanism: Mechanism, mode: str, background: bool = False) -> Side:
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}.")
    return _encoder(mechanism) if mode == "exact" else sum_law(mechanism, _encoder, background)


def check_round(
    n_phones: int,
    n_known: int,
    broadcast: Broadcast,
    mechanism: Mechanism,
    user_vectors: Floats,
    reporting: Mask,
) -> None:
    shape = broadcast.app_vectors.shape
    if n_known > broadcast.n_apps:
        raise ValueError(
            f"the fleet knows {n_known} apps, the broadcast has vectors for {broadcast.n_apps}: "
            f"every app needs a vector."
        )
    if (mechanism.n_apps, mechanism.d) != shape:
        raise ValueError(
            f"the mechanism was made for gradients of {(mechanism.n_apps, mechanism.d)}, the app "
            f"vectors are {shape}: make one for the catalogue at hand."
        )
    if user_vectors.shape != (n_phones, broadcast.dim):
        raise ValueError(
            f"user_vectors must be {(n_phones, broadcast.dim)}, got {user_vectors.shape}."
        )
    if reporting.shape != (n_phones,) or reporting.dtype != np.bool_:
        raise ValueError(
            f"reporting must be {n_phones} bools, one per phone, got {reporting.dtype} of shape "
            f"{reporting.shape}."
        )
