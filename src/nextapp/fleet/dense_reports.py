"""Reports of one float per entry of the gradient, as `laplace` and `privunit` send them."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np

from nextapp.compiled import compiled
from nextapp.fleet.encoder import Arrays, Encoder, Kind, State
from nextapp.wire import Floats

_NUMBERS_AT_ONCE = 1 << 19


class DenseEncoder(Encoder, Generic[Kind]):
    """Reports of `n_floats` floats of 4 bytes; the first D of them are summed."""

    size = 256

    def __init__(self, mechanism: Kind, n_floats: int) -> None:
        self.mechanism = mechanism
        self.payload_bytes = 4 * n_floats
        self.block = max(1, _NUMBERS_AT_ONCE // mechanism.D)

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [row.astype("<f4").tobytes() for row in reports[0]]

    def empty(self) -> State:
        return {"sum": np.zeros(self.mechanism.D)}

    def add(self, state: State, reports: Arrays) -> None:
        _add_rows(reports[0], state["sum"])


@compiled
def _add_rows(rows: Any, total: Floats) -> None:
    """Add rows to a total; what they hold beyond its length is left out."""
    for i in range(len(rows)):
        for j in range(len(total)):
            total[j] += rows[i, j]
