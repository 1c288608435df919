"""Where rounds of a fleet run, on the processor or on a card: the one place that chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.fleet import participation, reporting, walsh
from nextapp.fleet.columns import Fleet
from nextapp.fleet.participation import Attendance, Participation
from nextapp.fleet.reporting import Sums
from nextapp.names import unknown
from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.walsh import Walsh
from nextapp.wire import Broadcast

DEVICES = ("cpu", "gpu")
CARD_MECHANISMS = ("identity", "harmony", "laplace", "walsh")
"""Mechanisms whose reports of gradients a card simulates (`nextapp.fleet.gpu.reporting`)."""


@dataclass(frozen=True, eq=False)
class PlacedFleet:
    """A fleet on a device, and the functions that run its rounds there.

    ``fleet`` is a `Fleet`, or a `ResidentFleet` on a card; the functions of `nextapp.fleet.gpu`
    take it as those of the processor take a `Fleet`.
    """

    fleet: Any
    _sum_reports: Callable[..., Sums]
    _tally_answers: Callable[..., Tally]
    _outcomes: Callable[..., npt.NDArray[np.int8]]

    def __len__(self) -> int:
        return len(self.fleet)

    def sum_reports(
        self,
        broadcast: Broadcast,
        mechanism: Mechanism,
        seed: int,
        reporting: Any = None,
        *,
        mode: str = "exact",
    ) -> Sums:
        """`nextapp.fleet.reporting.sum_reports` in float32; user vectors are solved anew."""
        return self._sum_reports(
            self.fleet,
            broadcast,
            mechanism,
            seed,
            reporting=reporting,
            mode=mode,
            dtype=np.float32,
        )

    def tally_answers(self, mechanism: Walsh, question: str, seed: int) -> Tally:
        """`nextapp.fleet.walsh.tally_answers`."""
        return self._tally_answers(self.fleet, mechanism, question, seed)

    def outcomes(
        self, settings: Participation, n_world: int, round_: int, seed: int, attendance: Attendance
    ) -> npt.NDArray[np.int8]:
        """`nextapp.fleet.participation.outcomes`."""
        return self._outcomes(settings, self.fleet, n_world, round_, seed, attendance)


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
        return PlacedFleet(
            fleet, reporting.sum_reports, walsh.tally_answers, participation.outcomes
        )
    from nextapp.fleet.gpu import reporting as reporting_on_card
    from nextapp.fleet.gpu import vectors
    from nextapp.fleet.gpu.card import first_card
    from nextapp.fleet.gpu.resident import ResidentFleet

    return PlacedFleet(
        ResidentFleet(fleet, first_card()),
        reporting_on_card.sum_reports,
        vectors.tally_answers,
        reporting_on_card.outcomes,
    )
