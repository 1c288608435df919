"""What `nextapp.predictor.Habits` has inside: log P of candidates before it leaves room for a new
app, and the weights as they stand."""

from __future__ import annotations

import numpy as np

from nextapp.predictor import CHANGED, STATISTICS, Habits
from nextapp.wire import Floats


def scores_of(habits: Habits, candidates, when: float | None = None) -> Floats:
    apps = [int(app) for app in candidates]
    chances = habits._chances(apps, habits._slots_of(apps), when, crowded=True)
    return np.log(np.maximum(chances, 1e-100))


def mix_of(habits: Habits, row: int = CHANGED) -> dict[str, float]:
    """The weights of a set as they stand now, or what is added to them after an app."""
    return dict(zip(STATISTICS, habits._state.mix[row].tolist(), strict=True))
