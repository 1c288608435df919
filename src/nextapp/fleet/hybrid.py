"""One entry, as a noisy value or a sign: the compiled form of `nextapp.privacy.hybrid`.

Symbols as there.
"""

from __future__ import annotations

import numpy as np

from nextapp.fleet.encoder import Arrays, ShardRound, State
from nextapp.fleet.gradients import Gradients
from nextapp.fleet.piecewise import PiecewiseEncoder, add_values, one_value
from nextapp.privacy.exact import W
from nextapp.privacy.hybrid import Hybrid


class HybridEncoder(PiecewiseEncoder):
    """`Hybrid`. A sign stands for ±c."""

    mechanism: Hybrid
    marks = 1

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        m, law = self.mechanism, self.mechanism.law
        threshold = np.uint64(m.alpha * W)
        return one_value(x, r, law.A, law.inside, law.largest, True, threshold, np.uint64(m.floor))

    def add(self, state: State, reports: Arrays) -> None:
        positions, piecewise, values = reports
        add_values(positions, piecewise, values, self.mechanism.c, state["sum"])
