"""New phones with and without the crowd."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from habits_scores import scores_of
from nextapp.cli.commands import app as command
from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.predictor import Habits
from nextapp.studies.new_phones import (
    BINS,
    OPEN,
    WITHOUT,
    NewPhone,
    NewPhoneStudy,
    hit_rates,
    learn_from_vectors,
    run,
)
from nextapp.wire import Crowd

SMALL = NewPhoneStudy("log.csv", draws=2, epsilons=(4.5,), launches=40)


def log_of(n_users, pattern, n_apps, rng):
    """Every user goes round the same circle of apps, now and then astray."""
    apps, users, times = [], [], []
    for user in range(n_users):
        for step in range(40):
            astray = rng.random() < 0.1
            apps.append(int(rng.integers(n_apps)) if astray else pattern[step % len(pattern)])
            users.append(user)
            times.append(60_000 * step)
    names = [f"u{user}" for user in range(n_users)], [f"a{number}" for number in range(n_apps)]
    return LaunchLog.from_columns(users, apps, times, *names)


def test_a_shared_habit_is_a_gain_and_private_reports_keep_a_part_of_it(rng):
    log = log_of(30, [0, 4, 2, 7, 1, 5, 3, 6], 8, rng)
    result = run(SMALL, log)
    priors = result["priors"]
    assert list(priors) == [WITHOUT, OPEN, "ε = 4.5"]
    first = {name: priors[name]["bins"][0]["HR@1"]["mean"] for name in priors}
    assert first[OPEN] > first[WITHOUT] + 0.2
    assert first[WITHOUT] < first["ε = 4.5"] < first[OPEN]
    assert result["n_new"] == [9, 9]
    assert result["n_crowd"] == [21, 21]
    gain = priors[OPEN]["headline"]["gain@5"]
    assert gain["low"] <= gain["mean"] <= gain["high"]
    assert priors[WITHOUT]["bins"][-1]["HR@5"] is None  # nobody came so far
    assert len(priors[OPEN]["bins"]) == len(BINS)
    assert json.loads(json.dumps(result))["seed"] == 0


def test_copies_of_phones_teach_a_habit_that_few_phones_do_not(rng):
    """Eight apps in a circle: 100,000 copies at ε 1 keep most of the gain, 10 copies nothing."""
    log = log_of(30, [0, 4, 2, 7, 1, 5, 3, 6], 8, rng)
    few, many = (
        run(replace(SMALL, epsilons=(1.0,), copies=copies), log) for copies in (10, 100_000)
    )
    assert many["n_crowd"] == [100_000, 100_000]
    kept = [each["priors"]["ε = 1"]["kept"]["HR@1"]["mean"] for each in (few, many)]
    assert kept[0] < 0.3
    assert kept[1] > 0.7


def test_of_a_long_catalogue_the_apps_launched_most_are_asked_about(monkeypatch, seed):
    """20 apps and 8 slots: the habits among the apps that are in use are found, by their numbers.
    Which apps these are is told by a fifth of the phones; the others are told of by nobody."""
    monkeypatch.setattr("nextapp.studies.new_phones.CrowdRequests.most_slots", 12)
    monkeypatch.setattr("nextapp.studies.new_phones.SLOTS_BY_BUCKET", 8)
    history = np.tile([3, 11, 17, 5], 15)
    starts = np.arange(0, 60 * 50 + 1, 60)
    fleet = Fleet.of_histories(starts, np.tile(history, 50).astype(np.int32), 20)
    for copies in (0, 200_000):
        crowd = learn_from_vectors(fleet, 8.0, seed, copies)
        assert crowd.n_apps == 20
        for last, following in ((3, 11), (11, 17), (17, 5), (5, 3)):
            share, _ = crowd.shares(np.arange(20), last)
            assert share.argmax() == following
            assert share[following] > 0.3
        assert (np.diff(crowd.starts) > 0).sum() <= 8
        assert set(np.argsort(-crowd.popularity)[:4].tolist()) == {3, 5, 11, 17}


def test_the_same_seed_gives_the_same_result_and_another_another(rng):
    log = log_of(12, [0, 1, 2], 5, rng)
    settings = replace(SMALL, draws=1)
    once, again, other = (
        run(replace(settings, seed=seed), log)["priors"][OPEN] for seed in (1, 1, 2)
    )
    assert once == again
    assert once != other


def test_marks_are_those_of_a_phone_that_predicts_launch_by_launch(rng):
    apps = rng.integers(0, 5, 30)
    seconds = 1e9 + np.cumsum(rng.choice([100.0, 2000.0], 30))
    crowd = Crowd(
        np.full(6, 1 / 6), np.array([0, 2, 2, 3, 3, 3, 3]), np.array([1, 2, 4]),
        np.array([0.7, 0.2, 0.9]),
    )  # fmt: skip
    habits = Habits()
    habits.crowd = crowd
    hits = []
    candidates = np.unique(apps)
    for app, when in zip(apps.tolist(), seconds.tolist(), strict=True):
        scores = scores_of(habits, candidates, when)
        own = scores[np.searchsorted(candidates, app)]
        above, level = int((scores > own).sum()), int((scores == own).sum())
        hits.append([min(max((n - above) / level, 0.0), 1.0) for n in (1, 3, 5)])
        habits.observe(app, when)
    found = hit_rates(NewPhone(0, apps, seconds), crowd).reshape(-1, 3)
    np.testing.assert_allclose(found[0], np.mean(hits[:10], axis=0), atol=1e-12)
    np.testing.assert_allclose(found[-1], np.mean(hits[10:50], axis=0), atol=1e-12)
    assert np.isnan(found[3]).all()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"new": 1.0}, "new must lie between"),
        ({"draws": 0}, "draws must be"),
        ({"epsilons": (0.0,)}, "epsilon must be"),
        ({"copies": -1}, "copies must be 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(bad, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **bad)


def test_the_command_on_synthetic_phones(tmp_path):
    out = CliRunner().invoke(
        command,
        ["new-phones", "synthetic:fleet,phones=300,apps=20", "--at-most", "6", "--launches", "30",
         "--epsilon", "4.5", "--json", str(tmp_path / "r.json"), "--plot", str(tmp_path / "p")],
    )  # fmt: skip
    assert out.exit_code == 0, out.output
    assert "non-private" in out.output
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["n_crowd"] == [300]
    assert result["n_new"] == [6]
    assert result["data"]["kind"] == "synthetic phones, not data of people"
    assert (tmp_path / "p.svg").stat().st_size > 1000
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_a_wrong_epsilon_is_one_clear_line():
    out = CliRunner().invoke(command, ["new-phones", "synthetic:fleet", "--epsilon", "much"])
    assert out.exit_code == 1
    assert "separated by commas" in out.output
