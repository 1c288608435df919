from __future__ import annotations

import numpy as np

from nextapp.data import LaunchLog
from nextapp.experiments.settings import Experiment
from nextapp.experiments.tuning import tuned, tuning_exam


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
        assert tuned(log, experiment, "seqmf") == tuned(other, experiment, "seqmf")


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
    first = tuned(log, experiment, "mf")
    assert first == tuned(log, experiment, "mf")
    assert (first.model.reading, first.model.inference) == ("none", "none")
