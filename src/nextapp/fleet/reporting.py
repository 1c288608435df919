"""A round of a fleet: the sum of all phones' reports, from which the server takes its mean.

Every phone has its own bits and ranges of phones are added in order, so neither threads nor shards
change a report. Shards change a sum of floats by rounding at most, and a sum of whole numbers not
at all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nextapp.fleet.columns import Fleet, Mask, cut, each_range
from nextapp.fleet.encoders import ENCODERS, LARGEST, Encoder, PartialSum
from nextapp.fleet.gradients import (
    BALLS,
    Gradients,
    ShardRound,
    add_up,
    gradients,
    into_balls,
)
from nextapp.fleet.stepping import terms
from nextapp.fleet.sum_law import LAWS, has_law
from nextapp.privacy import Mechanism
from nextapp.wire import Broadcast, Floats

_LEAST_RANGE, _RANGES = 256, 64  # fewest phones in a range; ranges of a small fleet


@dataclass(frozen=True, eq=False)
class Sums:
    """A round of some phones, summed. ``+`` joins shards.

    ``state`` is the sum of the reports (`nextapp.fleet.encoders.PartialSum`): whole numbers where a
    report is made of whole numbers. ``true_sum`` (n_apps, d) is the sum of the clipped gradients
    before any noise, ``loss`` that of the phones' losses, eq. (3). ``law``: drawn from its law.
    """

    seed: int
    round: int
    n_reports: int
    state: PartialSum
    true_sum: Floats
    loss: float
    mechanism: str
    law: bool

    def __add__(self, other: Sums) -> Sums:
        for name in ("mechanism", "law", "seed", "round"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(
                    f"sums of one round can be joined; here {name} is {mine!r} and {theirs!r}."
                )
        state = {
            name: np.maximum(mine, other.state[name])
            if name == LARGEST
            else mine + other.state[name]
            for name, mine in self.state.items()
        }
        return replace(
            self,
            n_reports=self.n_reports + other.n_reports,
            state=state,
            true_sum=self.true_sum + other.true_sum,
            loss=self.loss + other.loss,
        )

    def mean(self, mechanism: Mechanism) -> Floats:
        """(n_apps, d): what ``mechanism.decode`` makes of these reports."""
        if mechanism.name != self.mechanism:
            raise ValueError(f"these are reports of {self.mechanism!r}, not {mechanism.name!r}.")
        if self.n_reports == 0:
            raise ValueError("a mean needs at least one report.")
        return encoder_for(mechanism, self.law).mean(self)


def sum_reports(
    fleet: Fleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    seed: int,
    user_vectors: Floats | None = None,
    reporting: Mask | None = None,
    *,
    law: bool = False,
    solving: bool = True,
    dtype: npt.DTypeLike = np.float64,
    threads: int | None = None,
) -> Sums:
    """The sum of the reports of the phones in `reporting`.

    A report is that of `PhoneCore.draw_report` with ``KeyedBits(seed, phone, round, "report")``.

    Parameters
    ----------
    user_vectors : (n_phones, d)
        Solved anew in place if `solving`, else taken as they are; None: solved and not kept.
    reporting : (n_phones,)
        None: all.
    law
        Draw the sum from its law where it has one (docs/fleet.md); else every report is simulated.
    dtype
        float64, or float32 for the step; what follows it is always float64.
    """
    if user_vectors is None:
        user_vectors = np.zeros((len(fleet), broadcast.dim), dtype)
    if reporting is None:
        reporting = np.ones(len(fleet), np.bool_)
    check_round(fleet.n_apps, broadcast, mechanism)
    if reporting.shape != (len(fleet),) or reporting.dtype != np.bool_:
        raise ValueError(
            f"reporting must be {len(fleet)} bools, one per phone, got {reporting.dtype} of shape "
            f"{reporting.shape}."
        )
    if user_vectors.shape != (len(fleet), broadcast.dim):
        raise ValueError(
            f"user_vectors must be {(len(fleet), broadcast.dim)}, got {user_vectors.shape}."
        )
    law = law and has_law(mechanism.name, broadcast.settings.alpha)
    encoder = encoder_for(mechanism, law)
    block_gradients = gradients_of_blocks(
        fleet, broadcast, mechanism, user_vectors, reporting, solving=solving, dtype=dtype
    )
    r = round_of(seed, fleet.first_phone, broadcast)
    unit = mechanism.clip if mechanism.ball != "none" else 1.0
    vectors = broadcast.app_vectors

    def work(first: int, last: int) -> Sums:
        state, total = encoder.empty(), np.zeros(vectors.shape)
        common = np.zeros((broadcast.dim, broadcast.dim))
        losses, n_reports = 0.0, 0
        for start, stop in cut(first, last, encoder.block):
            x, loss = block_gradients(start, stop)
            add_up(x, vectors, total, common)
            encoder.add(state, x, r)
            losses += loss
            n_reports += len(x.phones)
        true_sum = unit * (total + vectors @ common)
        return Sums(seed, broadcast.round, n_reports, state, true_sum, losses, mechanism.name, law)

    size = min(encoder.size, max(_LEAST_RANGE, len(fleet) // _RANGES))
    return functools.reduce(Sums.__add__, each_range(len(fleet), work, size, threads))


def gradients_of_blocks(
    fleet: Fleet,
    broadcast: Broadcast,
    mechanism: Mechanism,
    user_vectors: Floats,
    reporting: Mask,
    *,
    solving: bool = True,
    dtype: npt.DTypeLike = np.float64,
) -> Callable[[int, int], tuple[Gradients, float]]:
    """x of the reporting phones of a block, and the sum of their losses."""
    columns, terms_ = fleet.columns, terms(broadcast, dtype)
    ball, clip = BALLS[mechanism.ball], mechanism.clip
    limit = 1.0 if mechanism.ball == "linf" else math.inf

    def work(first: int, last: int) -> tuple[Gradients, float]:
        x, loss = gradients(first, last, columns, terms_, user_vectors, reporting, solving, limit)
        if not np.isfinite(x.squares).all():
            phone = fleet.first_phone + x.phones[~np.isfinite(x.squares)][0]
            raise FloatingPointError(
                f"the gradient of phone {phone} is not finite, or too long for its square to be; "
                f"a report of it is refused. If the app vectors have grown without bound, lower "
                f"the learning rate."
            )
        if mechanism.ball != "none":
            into_balls(x, broadcast.app_vectors, ball, clip)
        return x, float(loss)

    return work


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


def encoder_for(mechanism: Mechanism, law: bool) -> Encoder:
    """How the reports of a mechanism are summed: one by one, or by the law of their sum."""
    return (LAWS if law else ENCODERS)[mechanism.name](mechanism)


def check_round(n_known: int, broadcast: Broadcast, mechanism: Mechanism) -> None:
    shape = broadcast.app_vectors.shape
    if n_known > broadcast.n_apps:
        raise ValueError(
            f"the fleet knows {n_known} apps, the broadcast has vectors for {broadcast.n_apps}: "
            f"every app needs a vector."
        )
    if (mechanism.n_apps, mechanism.d) != shape:
        raise ValueError(
            f"the mechanism was made for gradients of {(mechanism.n_apps, mechanism.d)}, the app "
            f"vectors are {shape}: make one for the catalogue of the broadcast."
        )
