"""One synchronous round: phones → sum → step.

The phones are a function of the broadcast: a fleet through a mechanism (`fleet_phones`), the phones
of a log without one (`training_phones`), or a sum of zero, where λQ and the optimiser act alone
(`zero_phones`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from nextapp.fleet.columns import Fleet, in_ranges
from nextapp.fleet.devices import place_fleet
from nextapp.fleet.reporting import Sums
from nextapp.fleet.stepping import sum_gradients, terms
from nextapp.fleet.sum_law import cheapest_mode
from nextapp.privacy import Mechanism
from nextapp.wire import Broadcast, Floats

_RANGE = 256  # phones of a log that a thread takes at a time


@dataclass(frozen=True, eq=False)
class RoundSum:
    """What the server steps along: an estimate (n_apps, d) of the sum of gradients, or None.

    None: there was no report.
    """

    estimate: Floats | None


@dataclass(frozen=True, eq=False)
class ReportSum(RoundSum):
    """`RoundSum` of reports, with what only a simulation knows: their sum and the true one.

    ``outcomes`` counts what became of the phones, where that is simulated.
    """

    sums: Sums
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def cosine(self) -> float | None:
        """Between the estimate and the true sum; None where one of them is zero."""
        return None if self.estimate is None else cosine(self.estimate, self.sums.true_sum)


Told = TypeVar("Told", bound=RoundSum)


class Steps(Protocol):
    """What a round is played with: a learner, as far as a round goes."""

    broadcast: Broadcast

    def apply_sum(self, estimate: Floats, /) -> object: ...

    def pass_over(self) -> object: ...


def play_round(server: Steps, phones: Callable[[Broadcast], Told]) -> Told:
    """The phones report on the broadcast; the server steps along their sum, or passes over."""
    told = phones(server.broadcast)
    if told.estimate is None:
        server.pass_over()
    else:
        server.apply_sum(told.estimate)
    return told


def estimate_sum(sums: Sums, mechanism: Mechanism) -> Floats | None:
    """What the server makes of reports, eq. (13); None if there are none."""
    return mechanism.total(sums.mean(mechanism), sums.n_reports) if sums.n_reports else None


def zero_phones(broadcast: Broadcast) -> RoundSum:
    return RoundSum(np.zeros_like(broadcast.app_vectors))


def fleet_phones(
    fleet: Fleet, mechanism: Mechanism, seed: int, device: str = "cpu"
) -> Callable[[Broadcast], ReportSum]:
    """All phones of a fleet, in float32, by the law of their sum where there is one."""
    placed, mode = place_fleet(fleet, device), cheapest_mode(mechanism.name)

    def tell(broadcast: Broadcast) -> ReportSum:
        sums = placed.sum_reports(broadcast, mechanism, seed, mode=mode)
        return ReportSum(estimate_sum(sums, mechanism), sums)

    return tell


def training_phones(fleet: Fleet, dim: int, solve_every: int) -> Callable[[Broadcast], RoundSum]:
    """All phones of a fleet without a mechanism, in float64.

    They solve their user vectors in every ``solve_every``-th round.
    """
    phones, everyone = fleet.columns, np.ones(len(fleet), bool)
    vectors = np.zeros((len(fleet), dim))

    def tell(broadcast: Broadcast) -> RoundSum:
        now, solving = terms(broadcast, np.float64), broadcast.round % solve_every == 0

        def gradient(first: int, last: int) -> Floats:
            return sum_gradients(first, last, phones, now, vectors, everyone, solving)[0]

        return RoundSum(np.sum(np.asarray(in_ranges(len(fleet), gradient, size=_RANGE)), axis=0))

    return tell


def cosine(first: Floats, second: Floats) -> float | None:
    """Between two gradients; None where one of them is zero."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.sum(first * second)) / norms if norms > 0 else None
