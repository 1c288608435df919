"""Where a fleet is played: on the processor, or on a card. The one place that chooses."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nextapp.fleet import reporting as on_processor
from nextapp.fleet import transition_vectors, walsh
from nextapp.fleet.columns import Fleet
from nextapp.fleet.participation import Attendance, Participation, outcomes
from nextapp.names import unknown
from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.walsh import Walsh
from nextapp.wire import Broadcast, Floats

DEVICES = ("cpu", "gpu")


class PlacedFleet(Protocol):
    """A fleet where its rounds are played. All phones take part that are not left out."""

    def __len__(self) -> int: ...

    def sum_reports(
        self,
        broadcast: Broadcast,
        mechanism: Mechanism,
        seed: int,
        reporting: Any = None,
        *,
        mode: str = "exact",
    ) -> on_processor.Sums:
        """`nextapp.fleet.reporting.sum_reports` in float32; user vectors are solved anew."""
        ...

    def tally_transitions(self, mechanism: Walsh, seed: int) -> Tally:
        """`nextapp.fleet.walsh.tally_transitions`."""
        ...

    def tally_launches(self, mechanism: Walsh, seed: int) -> Tally:
        """`nextapp.fleet.walsh.tally_launches`."""
        ...

    def draw_estimate(self, mechanism: Walsh, seed: int) -> Floats:
        """`nextapp.fleet.transition_vectors.draw_estimate`."""
        ...

    def outcomes(
        self,
        settings: Participation,
        n_world: int,
        round_: int,
        seed: int,
        attendance: Attendance,
    ) -> npt.NDArray[np.int8]:
        """`nextapp.fleet.participation.outcomes`."""
        ...


class ProcessorFleet:
    """`PlacedFleet` on the processor's cores."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

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
    ) -> on_processor.Sums:
        n = len(self.fleet)
        return on_processor.sum_reports(
            self.fleet,
            broadcast,
            mechanism,
            seed,
            np.zeros((n, broadcast.dim), np.float32),
            np.ones(n, np.bool_) if reporting is None else reporting,
            mode=mode,
            dtype=np.float32,
        )

    def tally_transitions(self, mechanism: Walsh, seed: int) -> Tally:
        return walsh.tally_transitions(self.fleet, mechanism, seed)

    def tally_launches(self, mechanism: Walsh, seed: int) -> Tally:
        return walsh.tally_launches(self.fleet, mechanism, seed)

    def draw_estimate(self, mechanism: Walsh, seed: int) -> Floats:
        return transition_vectors.draw_estimate(self.fleet, mechanism, seed)

    def outcomes(
        self,
        settings: Participation,
        n_world: int,
        round_: int,
        seed: int,
        attendance: Attendance,
    ) -> npt.NDArray[np.int8]:
        return outcomes(
            settings, len(self.fleet), self.fleet.first_phone, n_world, round_, seed, attendance
        )


def check_device(device: str) -> None:
    """Raises where there is no such device; `NoGpu` says what a card lacks."""
    if device not in DEVICES:
        raise ValueError(unknown("device", device, DEVICES))
    if device == "gpu":
        from nextapp.fleet.gpu.card import first_card

        first_card()


def place_fleet(fleet: Fleet, device: str) -> PlacedFleet:
    """The fleet on this device; a card gets a copy of it."""
    check_device(device)
    if device == "cpu":
        return ProcessorFleet(fleet)
    from nextapp.fleet.gpu.card import first_card
    from nextapp.fleet.gpu.card_fleet import CardFleet

    return CardFleet(fleet, first_card())
