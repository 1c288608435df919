"""A fleet's rounds, on the processor or on a card: `place_fleet` is the one place that chooses.

And the phones of a round for `nextapp.learners.run_round`, as a function of the broadcast: a fleet
through a mechanism (`fleet_phones`), the phones of a log without one (`training_phones`), or a sum
of zero, where λQ and the optimiser act alone (`zero_phones`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from nextapp.data import synthetic
from nextapp.fleet import reporting
from nextapp.fleet.columns import Fleet
from nextapp.fleet.reporting import Sums
from nextapp.learners import RoundSum
from nextapp.model import seqmf_gradient
from nextapp.privacy import Mechanism, mechanism
from nextapp.randomness import KeyedBits
from nextapp.settings import unknown
from nextapp.wire import Broadcast, Floats

DEVICES = ("cpu", "gpu")
CARD_MECHANISMS = ("identity", "harmony", "laplace", "walsh")
"""Mechanisms whose reports of gradients a card simulates (`nextapp.fleet.gpu.reporting`)."""


PlacedFleet = Callable[..., Sums]
"""`nextapp.fleet.reporting.sum_reports` on a device, for one fleet: in float32, and by law."""


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
        return partial(reporting.sum_reports, fleet, law=True, dtype=np.float32)
    from nextapp.fleet.gpu import reporting as on_card
    from nextapp.fleet.gpu.card import first_card

    return partial(on_card.sum_reports, on_card.ResidentFleet(fleet, first_card()), law=True)


@dataclass(frozen=True, eq=False)
class ReportSum(RoundSum):
    """`RoundSum` of reports, with what only a simulation knows: their sum and the true one."""

    sums: Sums

    @property
    def cosine(self) -> float | None:
        """Between the estimate and the true sum; None where one of them is zero."""
        return None if self.estimate is None else cosine(self.estimate, self.sums.true_sum)


def estimate_sum(sums: Sums, mechanism: Mechanism) -> Floats | None:
    """What the server makes of reports, eq. (13); None if there are none."""
    return mechanism.total(sums.mean(mechanism), sums.n_reports) if sums.n_reports else None


def zero_phones(broadcast: Broadcast) -> RoundSum:
    return RoundSum(np.zeros_like(broadcast.app_vectors))


def fleet_phones(
    fleet: Fleet, mechanism: Mechanism, seed: int, device: str = "cpu"
) -> Callable[[Broadcast], ReportSum]:
    """All phones of a fleet, in float32, by the law of their sum where there is one."""
    placed = place_fleet(fleet, device)

    def report(broadcast: Broadcast) -> ReportSum:
        sums = placed(broadcast, mechanism, seed)
        return ReportSum(estimate_sum(sums, mechanism), sums)

    return report


def training_phones(fleet: Fleet, dim: int, solve_every: int) -> Callable[[Broadcast], RoundSum]:
    """All phones of a fleet without a mechanism, in float64.

    They solve their user vectors in every ``solve_every``-th round.
    """
    vectors, plain = np.zeros((len(fleet), dim)), mechanism("identity", n_apps=fleet.n_apps, d=dim)

    def report(broadcast: Broadcast) -> RoundSum:
        solving = broadcast.round % solve_every == 0
        sums = reporting.sum_reports(fleet, broadcast, plain, 0, vectors, solving=solving)
        return RoundSum(sums.true_sum)

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
