"""A fleet's rounds, on the processor or on a card: `place_fleet` is the one place that chooses.

A round is the sum of all phones' reports, from which the server takes its mean (`sum_reports`).
Every phone has its own bits and ranges of phones are added in order, so neither threads nor shards
change a report. Shards change a sum of floats by rounding at most, and a sum of whole numbers not
at all.

And the phones of a round as `nextapp.learners.Phones`, a function of the broadcast: a fleet through
a mechanism (`fleet_phones`), the phones of a log without one (`training_phones`), or a sum of zero,
where λQ and the optimiser act alone (`zero_phones`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nextapp.data import synthetic
from nextapp.fleet.columns import Fleet, Mask, cut, each_range
from nextapp.fleet.encoders import ENCODERS, LARGEST, LAWS, Encoder, PartialSum, has_law
from nextapp.fleet.gradients import (
    BALLS,
    Gradients,
    ShardRound,
    add_up,
    gradients,
    into_balls,
)
from nextapp.fleet.stepping import terms
from nextapp.learners import Phones
from nextapp.model import seqmf_gradient
from nextapp.privacy import Mechanism, mechanism
from nextapp.randomness import KeyedBits
from nextapp.settings import unknown
from nextapp.wire import Broadcast, Floats

_LEAST_RANGE, _RANGES = 256, 64  # fewest phones in a range; ranges of a small fleet


@dataclass(frozen=True, eq=False)
class Sums:
    """A round of some phones, summed. ``+`` joins shards of the same round.

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
    law: bool

    def __add__(self, other: Sums) -> Sums:
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
        return Sums(seed, broadcast.round, n_reports, state, true_sum, losses, law)

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


DEVICES = ("cpu", "gpu")
CARD_MECHANISMS = ("identity", "harmony", "laplace", "walsh")
"""Mechanisms whose reports of gradients a card simulates (`nextapp.fleet.gpu.reporting`)."""


PlacedFleet = Callable[..., Sums]
"""`sum_reports` on a device, for one fleet: in float32, and by law."""


def check_device(device: str, mechanism: str | None = None) -> None:
    """Raises where there is no such device, or where it does not simulate this mechanism.

    `NoGpu` says what a card lacks.
    """
    if device not in DEVICES:
        raise ValueError(unknown("device", device, DEVICES))
    if device == "gpu":
        if mechanism is not None and mechanism not in CARD_MECHANISMS:
            raise ValueError(
                f"a card simulates {', '.join(CARD_MECHANISMS)}, not {mechanism}: say device 'cpu'."
            )
        from nextapp.fleet.gpu.card import first_card

        first_card()


def place_fleet(fleet: Fleet, device: str) -> PlacedFleet:
    """The fleet on this device; a card gets a copy of it."""
    check_device(device)
    if device == "cpu":
        return partial(sum_reports, fleet, law=True, dtype=np.float32)
    from nextapp.fleet.gpu import reporting as on_card
    from nextapp.fleet.gpu.card import first_card

    return partial(on_card.sum_reports, on_card.ResidentFleet(fleet, first_card()), law=True)


def estimate_sum(sums: Sums, mechanism: Mechanism) -> Floats | None:
    """What the server makes of reports, eq. (13); None if there are none."""
    return mechanism.total(sums.mean(mechanism), sums.n_reports) if sums.n_reports else None


def zero_phones(broadcast: Broadcast) -> Floats:
    return np.zeros_like(broadcast.app_vectors)


def fleet_phones(fleet: Fleet, mechanism: Mechanism, seed: int, device: str = "cpu") -> Phones:
    """All phones of a fleet, in float32, by the law of their sum where there is one."""
    placed = place_fleet(fleet, device)
    return lambda broadcast: estimate_sum(placed(broadcast, mechanism, seed), mechanism)


def training_phones(fleet: Fleet, dim: int, solve_every: int) -> Phones:
    """All phones of a fleet without a mechanism, in float64.

    They solve their user vectors in every ``solve_every``-th round.
    """
    vectors, plain = np.zeros((len(fleet), dim)), mechanism("identity", n_apps=fleet.n_apps, d=dim)

    def report(broadcast: Broadcast) -> Floats:
        solving = broadcast.round % solve_every == 0
        return sum_reports(fleet, broadcast, plain, 0, vectors, solving=solving).true_sum

    return report


def cosine(first: Floats, second: Floats) -> float | None:
    """Between two gradients; None where one of them is zero."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.sum(first * second)) / norms if norms > 0 else None


def public_seed(seed: int) -> int:
    """Another seed, for the public phones of an experiment with this one."""
    return int(KeyedBits(seed, purpose="public").words(1)[0] >> np.uint64(1))


def public_clips(
    population: synthetic.Parameters, seed: int, broadcast: Broadcast
) -> dict[str, float]:
    """A clip for each kind of ball: the median length of F(u), eq. (12), of synthetic phones.

    Phones without a launch do not count. Nothing private is looked at: the phones are nobody's, and
    drawn with another seed than those that report.
    """
    starts, apps = synthetic.histories(population, seed, 0, population.phones)
    lengths: dict[str, list[float]] = {"linf": [], "l1": [], "l2": []}
    for first, last in pairwise(starts.tolist()):
        if last > first:
            history = apps[first:last].astype(np.int64)
            entries = np.abs(seqmf_gradient(history, broadcast).dense())
            lengths["linf"].append(float(entries.max()))
            lengths["l1"].append(float(entries.sum()))
            lengths["l2"].append(float(np.sqrt((entries**2).sum())))
    return {ball: float(np.median(found)) for ball, found in lengths.items()}
