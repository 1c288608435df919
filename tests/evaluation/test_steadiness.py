"""How many suggestions change, against a plain loop and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.evaluation.metrics import FACTORS
from nextapp.predictors.rivals import MFU, PPM, Random


@pytest.fixture
def log(rng) -> LaunchLog:
    n_users, n_each, n_apps = 3, 120, 12
    pauses = rng.choice([20_000, 2_000_000], (n_users, n_each), p=[0.8, 0.2])
    return LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each),
        rng.zipf(1.3, n_users * n_each) % n_apps,
        np.cumsum(pauses, axis=1).ravel(),
        [f"u{k}" for k in range(n_users)],
        [f"a{k:02}" for k in range(n_apps)],
    )


def plainly(test, model, factor):
    """(new per launch, new per day, hits) by user: five apps, each kept unless another is `factor`
    times as likely; the open app is not shown."""
    scores = np.concatenate([model.score(chunk.questions) for chunk in test.chunks])
    found = {int(user): [0, 0, 0, 0] for user in test.users}
    times = {int(user): [] for user in test.users}
    shown, cell = {}, 0
    for number, row in enumerate(test.rows.tolist()):
        user, target = int(test.whole.user[row]), int(test.whole.app[row])
        v = int(np.searchsorted(test.users, user))
        own = test.candidates[slice(*test.candidate_starts[v : v + 2])].tolist()
        seen = test.seen_from[slice(*test.candidate_starts[v : v + 2])].tolist()
        chances = dict(zip(own, np.exp(scores[cell : cell + len(own)]).tolist(), strict=True))
        cell += len(own)
        last = int(test.whole.app[row - 1]) if test.within[number] else None
        there = [a for a, since in zip(own, seen, strict=True) if since < row and a != last]
        before = shown.get(user)
        worth = {a: chances[a] * (factor if before and a in before else 1.0) for a in there}
        row_shown = set(sorted(there, key=lambda a: (-worth[a], a))[:5])
        if before is not None:
            found[user][0] += len(row_shown - before)
            found[user][1] += 1
        if target != last:
            found[user][2] += target in row_shown
            found[user][3] += 1
        shown[user] = row_shown
        times[user].append(int(test.whole.time[row]))
    days = {user: max((seen[-1] - seen[0]) / 86_400_000, 1.0) for user, seen in times.items()}
    return np.array(
        [[new / n, new / days[user], hits / asked] for user, (new, n, hits, asked) in found.items()]
    )


@pytest.mark.parametrize("preset", ["paper", "honest"])
@pytest.mark.usefixtures("form")
def test_the_figures_are_those_of_a_plain_loop(log, preset):
    test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset(preset))
    model = PPM()
    found = evaluate(test, [model], seed=0).summary()["models"]["ppm"]["steadiness"]
    assert found["factor"] == FACTORS.tolist()
    for number, factor in enumerate(found["factor"]):
        expected = plainly(test, model, factor).mean(axis=0)
        means = [found[key][number]["mean"] for key in ("new_per_launch", "new_per_day", "HR@5")]
        assert means == pytest.approx(expected.tolist())
    new = [figure["mean"] for figure in found["new_per_launch"]]
    assert new == sorted(new, reverse=True)


def test_without_probabilities_there_is_one_factor_and_chance_changes_almost_all(log):
    test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset("paper"))
    found = evaluate(test, [MFU(), Random()], seed=0).summary()["models"]
    assert found["mfu"]["steadiness"]["factor"] == [1.0]
    by_chance = found["random"]["steadiness"]
    new, hits = by_chance["new_per_launch"][0]["mean"], by_chance["HR@5"][0]["mean"]
    assert new == pytest.approx(5 * (1 - hits), rel=0.05)  # 5/k of those shown were there before
    assert new > found["mfu"]["steadiness"]["new_per_launch"][0]["mean"]
