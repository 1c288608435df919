"""`nextapp.fleet.devices.PlacedFleet` on a card: the modules of this folder behind its methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.fleet.gpu import reporting as on_card
from nextapp.fleet.gpu import transition_vectors, walsh
from nextapp.fleet.gpu.resident import ResidentFleet
from nextapp.fleet.participation import Attendance, Participation
from nextapp.fleet.reporting import Sums
from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.walsh import Walsh
from nextapp.wire import Broadcast, Floats


class CardFleet(ResidentFleet):
    """A fleet on a card."""

    def sum_reports(
        self,
        broadcast: Broadcast,
        mechanism: Mechanism,
        seed: int,
        reporting: Any = None,
        *,
        mode: str = "exact",
    ) -> Sums:
        return on_card.sum_reports(self, broadcast, mechanism, seed, None, reporting, mode=mode)

    def tally_transitions(self, mechanism: Walsh, seed: int) -> Tally:
        return walsh.tally_transitions(self, mechanism, seed)

    def tally_launches(self, mechanism: Walsh, seed: int) -> Tally:
        return walsh.tally_launches(self, mechanism, seed)

    def draw_estimate(self, mechanism: Walsh, seed: int) -> Floats:
        return transition_vectors.draw_estimate(self, mechanism, seed)

    def outcomes(
        self,
        settings: Participation,
        n_world: int,
        round_: int,
        seed: int,
        attendance: Attendance,
    ) -> npt.NDArray[np.int8]:
        last_round, n_reports = map(
            self.card.xp.asarray, (attendance.last_round, attendance.n_reports)
        )
        found = on_card.outcomes(settings, self, n_world, round_, seed, last_round, n_reports)
        return self.card.download(found)
