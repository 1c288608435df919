"""The phones of a round, for `nextapp.learners.run_round`.

They are a function of the broadcast: a fleet through a mechanism (`fleet_phones`), the phones
of a log without one (`training_phones`), or a sum of zero, where λQ and the optimiser act alone
(`zero_phones`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from nextapp.fleet.columns import Fleet, in_ranges
from nextapp.fleet.devices import place_fleet
from nextapp.fleet.reporting import Sums
from nextapp.fleet.stepping import sum_gradients, terms
from nextapp.fleet.sum_law import cheapest_mode
from nextapp.learners import RoundSum
from nextapp.privacy import Mechanism
from nextapp.wire import Broadcast, Floats

_RANGE = 256  # phones of a log that a thread takes at a time


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

    def report(broadcast: Broadcast) -> ReportSum:
        sums = placed.sum_reports(broadcast, mechanism, seed, mode=mode)
        return ReportSum(estimate_sum(sums, mechanism), sums)

    return report


def training_phones(fleet: Fleet, dim: int, solve_every: int) -> Callable[[Broadcast], RoundSum]:
    """All phones of a fleet without a mechanism, in float64.

    They solve their user vectors in every ``solve_every``-th round.
    """
    phones, everyone = fleet.columns, np.ones(len(fleet), bool)
    vectors = np.zeros((len(fleet), dim))

    def report(broadcast: Broadcast) -> RoundSum:
        now, solving = terms(broadcast, np.float64), broadcast.round % solve_every == 0

        def gradient(first: int, last: int) -> Floats:
            return sum_gradients(first, last, phones, now, vectors, everyone, solving)[0]

        return RoundSum(np.sum(np.asarray(in_ranges(len(fleet), gradient, size=_RANGE)), axis=0))

    return report


def cosine(first: Floats, second: Floats) -> float | None:
    """Between two gradients; None where one of them is zero."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.sum(first * second)) / norms if norms > 0 else None
