"""PPM against its formula in dictionaries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import exam, find_preset
from nextapp.predictors.rivals import CONTEXT_FADE, FADE, LONGEST, PPM


def expected(before: list[int], candidates: list[int]) -> list[float]:
    """P of the module's formula, from all launches before."""
    counts: dict[tuple[int, ...], dict[int, float]] = {}
    for t, app in enumerate(before):
        for order in range(min(t, LONGEST) + 1):
            after = counts.setdefault(tuple(before[t - order : t]), {})
            for other in after:
                after[other] *= CONTEXT_FADE if order else FADE
            after[app] = after.get(app, 0.0) + 1.0
    chance = dict.fromkeys(candidates, 1 / len(candidates))
    for order in range(min(len(before), LONGEST) + 1):
        after = counts.get(tuple(before[len(before) - order :]))
        if after is None:
            break
        total, different = sum(after.values()), len(after)
        chance = {
            app: (after.get(app, 0.0) + different * p) / (total + different)
            for app, p in chance.items()
        }
    return [chance[app] for app in candidates]


@pytest.mark.usefixtures("form")
def test_ppm_is_its_formula_and_its_chances_sum_to_one(rng):
    n_users, n_each, n_apps = 3, 120, 6
    log = LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each),
        rng.zipf(1.4, n_users * n_each) % n_apps,
        np.cumsum(rng.choice([20_000, 2_000_000], (n_users, n_each), p=[0.8, 0.2]), axis=1).ravel(),
        [f"u{k}" for k in range(n_users)],
        [f"a{k}" for k in range(n_apps)],
    )
    test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset("paper"))
    model = PPM()
    model.fit(test.history)
    found = np.concatenate([model.score(chunk.questions) for chunk in test.chunks])
    cell, n_asked = 0, 0
    for row in test.rows.tolist():
        user = int(test.whole.user[row])
        own = test.candidates[slice(*test.candidate_starts[user : user + 2])].tolist()
        before = test.whole.app[test.whole.starts[user] : row].tolist()
        chances = np.exp(found[cell : cell + len(own)])
        np.testing.assert_allclose(chances, expected(before, own), rtol=1e-12)
        assert math.isclose(chances.sum(), 1.0, rel_tol=1e-12)
        cell += len(own)
        n_asked += 1
    assert cell == len(found)
    assert n_asked > 60
