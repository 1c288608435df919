"""The neural rival: its gradients by finite differences, and that it learns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nextapp import predictors
from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.predictors.rivals import MFU

FILE = Path(__file__).parents[2] / "benchmarks/rivals/appusage2vec.py"
rival = sys.modules[type(predictors.build(f"{FILE}:AppUsage2Vec")).__module__]


def batch(rng, n=9, n_users=4, n_apps=6, n_recent=3) -> rival.RecentLaunches:
    return rival.RecentLaunches(
        rng.integers(0, n_users, n),
        rng.integers(0, n_apps + 1, (n, n_recent)),  # n_apps: no launch there
        rng.random((n, n_recent)),
        np.stack([rng.integers(0, 24, n), 24 + rng.integers(0, 7, n)], axis=1),
    )


def test_gradients_are_those_of_the_loss(rng):
    training = rival.NetworkTraining(dim=5, n_recent=3)
    parameters = rival.starting_parameters(4, 6, training, rng, np.float64)
    for name in parameters:
        parameters[name] += rng.normal(0.0, 0.3, parameters[name].shape)
    parameters["apps"][-1] = 0.0
    known, target = batch(rng), rng.integers(0, 6, 9)
    _, gradients = rival.loss_and_gradient(parameters, known, target)
    assert sorted(gradients) == sorted(parameters)
    for name, value in parameters.items():
        movable = value[:-1] if name == "apps" else value
        way = rng.normal(0.0, 1.0, movable.shape)
        losses = []
        for step in (1e-5, -2e-5):
            movable += step * way
            losses.append(rival.loss_and_gradient(parameters, known, target)[0])
        movable += 1e-5 * way
        expected = (losses[0] - losses[1]) / 2e-5
        told = gradients[name][:-1] if name == "apps" else gradients[name]
        assert float((told * way).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-9), name


def test_forward_is_the_papers_formula_for_one_row(rng):
    training = rival.NetworkTraining(dim=4, n_recent=3)
    p = rival.starting_parameters(4, 6, training, rng, np.float64)
    p["C_z"] += rng.normal(0.0, 1.0, p["C_z"].shape)
    known = batch(rng, n=1)
    logits, _ = rival.forward(p, known)
    vectors = [p["apps"][app] for app in known.apps[0]]
    x = np.concatenate([[*v, age] for v, age in zip(vectors, known.ages[0], strict=True)])
    weight = np.exp(np.tanh(x @ p["A"] + p["b_A"]))
    s = sum(w * v for w, v in zip(weight / weight.sum(), vectors, strict=True))
    f = np.tanh(np.tanh(s @ p["f1"] + p["b_f1"]) @ p["f2"] + p["b_f2"])
    u = p["users"][known.user[0]]
    g = np.tanh(np.tanh(u @ p["g1"] + p["b_g1"]) @ p["g2"] + p["b_g2"])
    hour, weekday = known.times[0]
    expected = (f * g) @ p["C"] + p["b_C"] + p["C_z"][hour] + p["C_z"][weekday]
    np.testing.assert_allclose(logits[0], expected, rtol=1e-12)


def test_it_learns_a_circle_and_its_chances_sum_to_one(rng):
    """Phones go round eight apps, with a stray launch now and then."""
    n_users, n_each, n_apps = 6, 200, 8
    apps = (np.arange(n_each) + rng.integers(0, n_apps, (n_users, 1))) % n_apps
    apps = np.where(rng.random(apps.shape) < 0.1, rng.integers(0, n_apps, apps.shape), apps)
    log = LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each), apps.ravel(),
        np.tile(60_000 * np.arange(n_each), n_users),
        [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)],
    )  # fmt: skip
    test = exam(log, Split.parse("fraction:0.7,0,0.3"), find_preset("paper"))
    model = rival.AppUsage2Vec(0, rival.NetworkTraining(dim=16, epochs=30, batch=64, rate=0.01))
    found = evaluate(test, [model, MFU()], 0).summary()["models"]
    assert found["appusage2vec"]["HR@1"] > 0.6 > found["mfu"]["HR@1"] + 0.3
    scores = model.score(test.chunks[0].questions)
    np.testing.assert_allclose(np.exp(scores.reshape(-1, n_apps)).sum(axis=1), 1.0, rtol=1e-6)


def test_updated_it_learns_from_what_it_predicted_and_from_nothing_later(rng):
    """The first block is that of the network as trained; a block depends on earlier ones only."""
    apps = rng.integers(0, 5, (2, 120))
    training = rival.NetworkTraining(dim=8, epochs=2, batch=64, rate=0.05)

    def scores(kind, changed: int | None = None) -> np.ndarray:
        played = apps.copy()
        if changed is not None:
            played[:, changed] = (played[:, changed] + 1) % 5
        log = LaunchLog.from_columns(
            np.repeat([0, 1], 120), played.ravel(), np.tile(60_000 * np.arange(120), 2),
            ["u", "v"], list("abcde"),
        )  # fmt: skip
        test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
        model = kind(0, training)
        model.fit(test.history)
        return np.concatenate([model.score(c.questions) for c in test.chunks]).reshape(2, 60, 5)

    frozen, online = scores(rival.AppUsage2Vec), scores(rival.AppUsage2VecOnline)
    n = rival.BLOCK
    np.testing.assert_allclose(online[:, :n], frozen[:, :n])
    assert np.abs(online[:, n:] - frozen[:, n:]).max(axis=(1, 2)).min() > 1e-3
    again = scores(rival.AppUsage2VecOnline, changed=60 + 3 * n)
    np.testing.assert_allclose(again[:, : 3 * n], online[:, : 3 * n])


def test_settings_are_chosen_on_the_last_eighth_of_each_history(rng):
    log = LaunchLog.from_columns(
        np.repeat([0, 1], 160), rng.integers(0, 5, 320), np.tile(60_000 * np.arange(160), 2),
        ["u", "v"], list("abcde"),
    )  # fmt: skip
    asked = []

    class Noting(rival.AppUsage2Vec):
        def _hits(self, training, early, late):
            asked.append((training, early, late))
            return float(len(asked) == 3)  # the third trial is the best

    model = Noting()
    model.fit(log)
    assert len(asked) == rival.TRIALS
    assert model.training == asked[2][0]
    assert asked[0][0] == rival.NetworkTraining()
    _, early, late = asked[0]
    assert sorted(late % 160) == sorted([*range(140, 160)] * 2)
    assert set(early % 160) == set(range(1, 140))
