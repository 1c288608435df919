"""Figures 3 and 4: settings are chosen in the dynamic environment, on the other half of users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nextapp.data.loading import read_log
from nextapp.evaluation.dynamic_environment import Courses
from nextapp.studies import dynamic
from nextapp.studies.dynamic import DynamicExperiment
from nextapp.studies.experiment import training_values
from nextapp.studies.reproduce import running

DATA = "synthetic:lsapp,phones=40,days=12"


def silent(what, done, total):
    pass


def courses(default, *others, n_users=20):
    """Series whose HR@5 of user u is a value plus a spread times +1 and -1 in turn."""
    signs = np.where(np.arange(n_users) % 2, 1.0, -1.0)
    by_user = {
        str(number): (value + spread * signs)[None, None, :, None]
        for number, (value, spread) in enumerate((default, *others))
    }
    return Courses(by_user, ("HR@5",), 0)


@pytest.mark.parametrize(
    ("others", "n_users", "chosen"),
    [
        ([(0.8, 0.0)], 20, "1"),
        ([(0.6, 0.0)], 20, "0"),
        ([(0.72, 0.3)], 20, "0"),  # better on average, which may be chance
        ([(0.8, 0.0), (0.9, 0.0)], 20, "2"),
        ([(0.9, 0.0)], 4, "0"),  # too few users to choose by
    ],
)
def test_settings_replace_the_default_only_if_they_are_better_beyond_doubt(others, n_users, chosen):
    name, gain = running.best_of(courses((0.7, 0.0), *others, n_users=n_users))
    assert name == chosen
    assert gain == pytest.approx(others[int(chosen) - 1][0] - 0.7 if chosen != "0" else 0.0)


def tuned(monkeypatch, default, candidate):
    """The regimes after a tuning with one candidate; what was chosen; each setting run alone."""
    usual = DynamicExperiment(
        DATA, cycles="users:5", q_every=2, models=(), metrics=("HR@5",), seqmf=default
    )
    monkeypatch.setattr(running, "random_settings", lambda n, seed, start: [candidate])
    log = read_log(DATA, seed=0)
    found, chosen = running._tune_by_halves(usual, log, 1, silent)
    return found.courses.by_user, chosen, usual, log


def test_a_setting_that_harms_is_never_taken(monkeypatch):
    good = DynamicExperiment(DATA).seqmf
    poor = replace(good, dim=1, model=replace(good.model, lam=1000.0))
    found, chosen, usual, log = tuned(monkeypatch, good, poor)
    for half in chosen.values():
        assert half == {**training_values(good), "less default when chosen": 0.0}
    alone = dynamic.run(usual, log).courses.by_user
    for name, values in found.items():
        assert np.array_equal(values, alone[name], equal_nan=True)


def test_a_setting_that_helps_is_taken_on_both_halves(monkeypatch):
    good = DynamicExperiment(DATA).seqmf
    poor = replace(good, dim=1, model=replace(good.model, lam=1000.0))
    found, chosen, usual, log = tuned(monkeypatch, poor, good)
    for half in chosen.values():
        assert half["dim"] == good.dim
        assert half["less default when chosen"] > 0
    alone = dynamic.run(replace(usual, seqmf=good), log).courses.by_user
    for name, values in found.items():
        assert np.array_equal(values, alone[name], equal_nan=True)


def test_each_half_has_what_was_chosen_on_the_other(monkeypatch):
    """The two halves prefer different settings: each is measured at the other's choice."""
    good = DynamicExperiment(DATA).seqmf
    poor = replace(good, dim=1, model=replace(good.model, lam=1000.0))
    monkeypatch.setattr(running, "best_of", _in_turn([("0", 0.0), ("1", 0.1)]))
    found, _, usual, log = tuned(monkeypatch, good, poor)
    second = dynamic.second_half(log.n_users, usual.seed)
    for training, half in ((good, ~second), (poor, second)):
        alone = dynamic.run(replace(usual, seqmf=training), log).courses.by_user
        for name, values in found.items():
            expected = alone[name][:, :, half]
            assert np.array_equal(values[:, :, half], expected, equal_nan=True)


def _in_turn(answers):
    answers = iter(answers)
    return lambda courses: next(answers)
