from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from contextlib import closing

import numpy as np
import pytest

from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.studies.experiment import Experiment, settings_on_data, training_values
from nextapp.studies.tuning import tune, tuning_exam


def small_log(seed=0) -> LaunchLog:
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(6), 100)
    app = (user * 2 + rng.geometric(0.4, 600)) % 10
    time = np.tile(np.cumsum(rng.choice([20_000, 2_000_000], 100)), 6)
    names = [str(k) for k in range(10)]
    return LaunchLog.from_columns(user, app, time, names[:6], names)


def test_tuning_never_sees_the_test_part():
    """Whatever stands in the test part, the choice is the same."""
    log = small_log()
    for split in ("fraction:0.6,0,0.4", "fraction:0.5,0.1,0.4"):
        experiment = Experiment("x", split=split, preset="paper", tune=3)
        late = (np.arange(600) % 100) >= 60
        other = LaunchLog(
            log.user, np.where(late, 9 - log.app, log.app), log.time, log.users, log.apps
        )
        first, second = (tune(each, experiment, "seqmf") for each in (log, other))
        assert first.training == second.training
        assert first.trials == second.trials


def test_the_validation_part_is_what_is_asked_for():
    log = small_log()
    asked = tuning_exam(log, Experiment("x", split="fraction:0.5,0.25,0.25", preset="paper"))
    assert np.bincount(asked.history.user).tolist() == [50] * 6
    assert np.bincount(asked.whole.user).tolist() == [75] * 6


def test_without_a_validation_part_the_end_of_the_training_part_is():
    log = small_log()
    asked = tuning_exam(log, Experiment("x", split="fraction:0.8,0,0.2", preset="paper"))
    assert np.bincount(asked.history.user).tolist() == [70] * 6
    assert np.bincount(asked.whole.user).tolist() == [80] * 6


def test_tuning_is_seeded_and_keeps_mf_deaf_to_order():
    log = small_log()
    experiment = Experiment("x", preset="paper", tune=3, seed=5)
    first = tune(log, experiment, "mf").training
    assert first == tune(log, experiment, "mf").training
    assert (first.model.reading, first.model.inference) == ("none", "none")


def finished(storage) -> int:
    """Trials that are done, asked of the file itself."""
    if not storage.exists():
        return 0
    try:
        with closing(sqlite3.connect(storage)) as database:
            states = database.execute("select state from trials").fetchall()
    except sqlite3.OperationalError:
        return 0
    return sum(state in ("COMPLETE", "PRUNED") for (state,) in states)


def test_a_killed_tuning_goes_on_to_what_it_would_have_found(tmp_path):
    """Killed by the hardest signal in mid-run; no finished trial is lost or played twice."""
    small_log().write(tmp_path / "log.csv")
    log = read_log(tmp_path / "log.csv")
    command = [sys.executable, "-m", "nextapp", "tune", "log.csv", "--trials", "14"]
    command += ["--preset", "paper", "--models", "seqmf"]
    storage = tmp_path / "tuned.db"
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        while finished(storage) < 3 and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
    finally:
        running.wait(30)
    before = finished(storage)
    assert 3 <= before < 14
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert finished(storage) == 14

    whole = tune(log, Experiment("log.csv", preset="paper"), "seqmf", trials=14)
    written = settings_on_data(Experiment, tomllib.loads((tmp_path / "tuned.toml").read_text()))
    assert written.seqmf == whole.training
    assert written.tune == 0  # evaluate --settings does not tune again


def test_every_trial_runs_once_and_is_kept(tmp_path):
    log, experiment = small_log(), Experiment("x", preset="paper")
    told = []
    found = tune(
        log,
        experiment,
        "mf",
        lambda what, done, total: told.append((done, total)),
        trials=9,
        storage=tmp_path / "study.db",
    )
    assert sorted(row["slot"] for row in found.trials) == list(range(9))
    assert told[-1] == (9, 9)
    assert finished(tmp_path / "study.db") == 9


def test_the_defaults_are_the_first_trial_so_the_choice_is_no_worse():
    experiment = Experiment("x", preset="paper")
    found = tune(small_log(), experiment, "seqmf", trials=3)
    first = next(row for row in found.trials if row["slot"] == 0)
    assert {key: first[key] for key in training_values(experiment.seqmf)} == training_values(
        experiment.seqmf
    )
    assert found.hit_rate >= first["HR@5"]


def test_a_storage_of_other_data_is_refused_by_name(tmp_path):
    storage = tmp_path / "study.db"
    experiment = Experiment("x", preset="paper")
    tune(small_log(), experiment, "mf", trials=1, storage=storage)
    with pytest.raises(ValueError, match="trials with other launches: use the same"):
        tune(small_log(1), experiment, "mf", trials=1, storage=storage)


def test_a_laggard_is_given_up():
    found = tune(small_log(), Experiment("x", preset="paper"), "seqmf", trials=30)
    assert any(
        row["HR@5"] is None and row["given_up_after"] in (2, 5, 10, 20) for row in found.trials
    )
    assert found.trials[0]["HR@5"] == found.hit_rate
