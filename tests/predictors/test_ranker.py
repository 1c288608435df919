"""The ranker: what it is given to learn from, and what it does with it."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path

import numpy as np
import pytest

from nextapp import predictors
from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.predictors import launch_streams
from nextapp.predictors.nextapp import NextApp, crowd_cells
from nextapp.predictors.pooled import Pooled

FILE = Path(__file__).parents[2] / "benchmarks/rivals/ranker.py"


def Ranker(kind="Ranker"):
    return predictors.build(f"{FILE}:{kind}")


def made(rng, n_users=5, n_each=300, n_apps=9) -> LaunchLog:
    """What comes next is of_crowd by the launch three before, which no statistic alone says."""
    apps = rng.integers(0, n_apps, (n_users, n_each))
    for walk in apps:
        for step in range(3, n_each):
            if rng.random() < 0.6:
                walk[step] = (walk[step - 3] + 1) % n_apps
    return LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each), apps.ravel(),
        np.tile(1_500_000_000_000 + 60_000 * np.arange(n_each), n_users),
        [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)],
    )  # fmt: skip


def test_it_sees_what_the_predictor_saw(rng):
    """Scores by candidate are those of nextapp, and the app that came is among them."""
    test = exam(made(rng), Split.parse("fraction:0.8,0,0.2"), find_preset("paper"))
    model = NextApp(crowd=Pooled)
    model.fit(test.history)
    ranker = sys.modules[type(Ranker()).__module__]
    for chunk in test.chunks:
        q = chunk.questions
        of_crowd = crowd_cells(model.crowd, q.users, q.candidates, q.candidate_starts)
        seen, cells, scores = ranker._features(
            launch_streams(test.history, q), q.candidate_starts, of_crowd
        )
        expected = model.score(q)
        np.testing.assert_allclose(scores, expected, rtol=1e-12)
        there = seen.candidates >= 0
        said = seen.features[:, :, ranker.SEEN.index("score")]
        np.testing.assert_allclose(said[there], expected[cells[there]], rtol=1e-6)
        assert (np.diff(said, axis=1) <= 0)[there[:, 1:]].all()  # likeliest first
        assert (seen.candidates == seen.launched[:, None]).any(axis=1).all()
        assert seen.launched.tolist() == q.launches.tolist()


def test_it_ranks_at_least_as_well_as_what_it_starts_from(rng):
    pytest.importorskip("lightgbm")
    test = exam(made(rng), Split.parse("fraction:0.8,0,0.2"), find_preset("paper"))
    found = evaluate(test, [NextApp(crowd=Pooled), Ranker()], 0).summary()["models"]
    assert found["ranker"]["HR@1"] >= found["nextapp"]["HR@1"] - 0.02
    assert found["ranker"]["calibration"] is None


def test_updated_it_adds_trees_after_each_quarter_and_knows_nothing_later(rng):
    pytest.importorskip("lightgbm")
    log = made(rng)
    scores = {}
    for kind in ("Ranker", "RankerOnline"):
        for changed in (False, True):
            apps = log.app.copy()
            if changed:  # the last eighth of what each phone is asked
                late = (np.arange(len(log)) % 300) >= 300 - 300 // 40
                apps[late] = (apps[late] + 1) % 9
            test = exam(
                LaunchLog.from_columns(log.user, apps, log.time, log.users, log.apps),
                Split.parse("fraction:0.8,0,0.2"),
                find_preset("paper"),
            )
            model = Ranker(kind)
            model.fit(test.history)
            per_chunk = [model.score(chunk.questions) for chunk in test.chunks]
            order = [np.argsort(np.argsort(each.reshape(-1, 9))) for each in per_chunk]
            scores[kind, changed] = np.concatenate(order).reshape(5, 60, 9)
    frozen, online = scores["Ranker", False], scores["RankerOnline", False]
    assert np.array_equal(online[:, :15], frozen[:, :15])
    assert not np.array_equal(online[:, 15:], frozen[:, 15:])
    assert np.array_equal(scores["RankerOnline", True][:, :45], online[:, :45])


def test_without_lightgbm_the_error_says_how_to_install_it(rng, monkeypatch):
    plain = builtins.__import__

    def missing(name, *rest, **more):
        if name == "lightgbm":
            raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError, match="pip install lightgbm"):
        Ranker().fit(made(rng, 2, 20))
