"""log P of candidates as `nextapp.predictor.Habits` has it before it leaves room for a new app."""

from __future__ import annotations

import numpy as np

from nextapp.predictor import Habits
from nextapp.wire import Floats


def scores_of(habits: Habits, candidates, when: float | None = None) -> Floats:
    apps = [int(app) for app in candidates]
    chances = habits._chances(apps, habits._slots_of(apps), when, crowded=True)
    return np.log(np.maximum(chances, 1e-100))
