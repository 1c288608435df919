"""Rivals that learn through the test part, against lists and counters."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import exam, find_preset
from nextapp.predictors.rivals import (
    MIX_FADE,
    MIX_PRIOR,
    MIX_USUAL_FADE,
    ChromeOS,
    CountMix,
    Kiss,
    OnlineMFU,
    OnlineSR,
    OnlineSROnDevice,
    Recents,
)


@pytest.fixture
def test(rng):
    n_users, n_each, n_apps = 4, 80, 9
    log = LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each),
        rng.zipf(1.3, n_users * n_each) % n_apps,
        np.cumsum(rng.choice([20_000, 2_000_000], (n_users, n_each), p=[0.8, 0.2]), axis=1).ravel(),
        [f"u{k}" for k in range(n_users)],
        [f"a{k}" for k in range(n_apps)],
    )
    return exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset("paper"))


def expected(rival, before: list[int], others: list[list[int]], app: int) -> float:
    """The score of an app, from all launches of the phone before the one asked for."""
    if rival is Recents:
        return max((t for t, other in enumerate(before) if other == app), default=-1)
    if rival is OnlineMFU:
        return before.count(app)
    if rival is Kiss:
        if app not in before:
            return 0.0
        ago = before[::-1].index(app)
        return before[-1500:].count(app) / (ago + 0.001)
    if rival is ChromeOS:
        return sum(0.2 * 0.8**ago for ago, other in enumerate(before[::-1]) if other == app)
    moves = Counter(pairwise(before))
    if rival is OnlineSR:
        for other in others:
            moves.update(pairwise(other))
    return moves[before[-1], app]


@pytest.mark.parametrize("rival", [Recents, Kiss, ChromeOS, OnlineMFU, OnlineSR, OnlineSROnDevice])
@pytest.mark.usefixtures("form")
def test_each_prediction_knows_all_that_came_before_it(test, rival):
    model = rival()
    model.fit(test.history)
    whole, n_asked = test.whole, 0
    found = np.concatenate([model.score(chunk.questions) for chunk in test.chunks])
    history = [test.history.app[test.history.user == user].tolist() for user in range(4)]
    cell = 0
    for row in test.rows.tolist():
        user = int(whole.user[row])
        own = test.candidates[slice(*test.candidate_starts[user : user + 2])].tolist()
        before = whole.app[whole.starts[user] : row].tolist()
        others = [launches for other, launches in enumerate(history) if other != user]
        scores = [expected(rival, before, others, app) for app in own]
        told = found[cell : cell + len(own)]
        if rival is Recents:  # any numbers in this order
            assert (
                np.argsort(told, kind="stable").tolist()
                == np.argsort(scores, kind="stable").tolist()
            )
        else:
            assert told.tolist() == pytest.approx(scores, rel=1e-12)
        cell += len(own)
        n_asked += 1
    assert cell == len(found)
    assert n_asked > 60


@pytest.mark.usefixtures("form")
def test_the_count_mix_is_its_formula(test):
    """P(i) = (n(i) + a P'(i)) / (Σn + a), for no app, the last and the last two, counts faded."""
    model = CountMix()
    model.fit(test.history)
    found = np.concatenate([model.score(chunk.questions) for chunk in test.chunks])
    cell = 0
    for row in test.rows.tolist():
        user = int(test.whole.user[row])
        own = test.candidates[slice(*test.candidate_starts[user : user + 2])].tolist()
        before = test.whole.app[test.whole.starts[user] : row].tolist()
        expected = dict.fromkeys(own, 1 / len(own))
        for length, prior, fade in ((0, 1.0, MIX_USUAL_FADE), (1, MIX_PRIOR, MIX_FADE),
                                    (2, MIX_PRIOR, MIX_FADE)):  # fmt: skip
            context = before[len(before) - length :]
            came = [
                before[at]
                for at in range(length, len(before))
                if before[at - length : at] == context
            ]
            weight = dict.fromkeys(own, 0.0)
            for ago, app in enumerate(came[::-1]):
                weight[app] += fade**ago
            total = sum(weight.values())
            expected = {a: (weight[a] + prior * expected[a]) / (total + prior) for a in own}
        assert np.exp(found[cell : cell + len(own)]) == pytest.approx(list(expected.values()))
        cell += len(own)
    assert cell == len(found)
