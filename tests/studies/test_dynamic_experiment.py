from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from nextapp.data.cutting import Cycling, collapse_repeats
from nextapp.data.loading import read_log
from nextapp.predictors.training import Training
from nextapp.randomness import KeyedBits
from nextapp.settings import as_toml
from nextapp.studies import dynamic
from nextapp.studies.dynamic import DynamicExperiment, run
from nextapp.studies.experiment import plain_values, settings_on_data
from nextapp.wire import ModelSettings

SOURCE = "synthetic:phones=25,apps=20,days=12,sessions=4"
SMALL = Training(ModelSettings(lam=0.2), dim=4, rounds=3)


@pytest.fixture(scope="module")
def log():
    return read_log(SOURCE, seed=3)


def small(**changes) -> DynamicExperiment:
    values = {"cycles": "users:6", "q_every": 2, "seqmf": SMALL, "mf": SMALL, "seed": 3}
    return DynamicExperiment(SOURCE, **(values | changes))


def test_the_defaults_are_the_papers():
    lsapp, week = DynamicExperiment("lsapp.tsv"), DynamicExperiment("data/App_usage_trace.txt")
    assert (lsapp.cycles, lsapp.q_every, lsapp.epsilon) == ("users:34", 10, 4.5)
    assert (week.cycles, week.q_every, week.epsilon) == ("users:8", 2, 1.1)
    assert DynamicExperiment("synthetic:app-usage").cycles == "users:8"
    assert DynamicExperiment("lsapp.tsv", cycles="days").q_every == 2


def test_there_is_always_something_to_compare_with(log):
    assert small(regimes=(), models=()).regimes == ("full",)
    assert small(regimes=("global",)).regimes == ("full", "global")
    series = run(small(regimes=(), models=("mru",), mechanisms=("harmony",)), log).as_json()[
        "series"
    ]
    assert series["mru"]["delta"]["reference"] == "none"


def test_the_oracle_is_above_all_in_every_cycle(log):
    """What it knows does not depend on what was learnt, nor on the seeds of the others."""
    experiment = small(regimes=(), models=("mru", "sr-od", "ceiling"), seeds=2)
    series = run(experiment, log).as_json()["series"]
    assert series["ceiling"]["seeds"] == [3]
    for name in ("mru", "sr-od", "full"):
        pairs = zip(series["ceiling"]["HR@5"]["mean"], series[name]["HR@5"]["mean"], strict=True)
        assert all(highest > other for highest, other in pairs)


def test_settings_come_back_from_toml():
    experiment = small(
        mechanisms=("harmony", "walsh"),
        metrics=("HR@1",),
        seeds=2,
    )
    assert experiment.metrics == ("HR@5", "HR@1")
    written = tomllib.loads(as_toml(plain_values(experiment)))
    assert settings_on_data(DynamicExperiment, written) == experiment


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cycels": "days"}, "did you mean 'cycles'"),
        ({"mechanisms": ["harmonie"]}, "did you mean 'harmony'"),
        ({"models": ["sr-om"]}, "did you mean 'sr-od'"),
        ({"regimes": ["ful"]}, "did you mean 'full'"),
        ({"metrics": ["HR@7"]}, "unknown metric"),
        ({"cycles": "weeks"}, "cycles must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"seeds": -2}, "seeds must be"),
        ({"preset": "neural"}, "use authors, paper or honest"),
        ({"pretraining": "second"}, "unknown pretraining"),
        ({"seeds": "two"}, "seeds must be of type int"),
        ({"q_every": -1}, "q_every must be 1 or more"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_right(values, message):
    with pytest.raises(ValueError, match=message):
        settings_on_data(DynamicExperiment, {"data": SOURCE, **values})


def test_a_result_has_what_the_report_reads(log):
    heard = []
    result = run(
        small(models=("mru", "sr-od", "mf"), metrics=("HR@5", "NDCG@3"), seeds=2),
        log,
        lambda what, done, total: heard.append(what),
    ).as_json()
    json.dumps(result, allow_nan=False)
    assert "cycle" in heard
    assert [each["number"] for each in result["cycles"]] == [1, 2, 3, 4, 5, 6]
    assert result["evaluated"] == [2, 3, 4, 5, 6]
    assert result["q_moves_after"] == [3, 5]
    assert set(result["series"]) == {"full", "rare", "global", "mru", "sr-od", "mf"}
    for name, series in result["series"].items():
        assert series["seeds"] == ([3] if name in ("mru", "sr-od") else [3, 4])
        assert series["delta"]["reference"] == "full"
        for metric in ("HR@5", "NDCG@3"):
            curve = series[metric]
            assert len(curve["mean"]) == 5
            for mean, low, high in zip(curve["mean"], curve["low"], curve["high"], strict=True):
                assert 0 <= low <= mean <= high <= 1
        steps = np.diff([0, *series["delta"]["mean"]])
        gaps = np.subtract(series["HR@5"]["mean"], result["series"]["full"]["HR@5"]["mean"])
        np.testing.assert_allclose(steps, gaps, atol=1e-12)
    for metric in ("HR@5", "NDCG@3"):
        gap = result["differences"]["mru"]["mf"][metric]
        means = [result["series"][name]["over_cycles"][metric]["mean"] for name in ("mru", "mf")]
        assert gap["mean"] == pytest.approx(means[0] - means[1])
        assert gap["low"] <= gap["mean"] <= gap["high"]


def test_until_q_or_p_moves_all_regimes_are_one(log):
    series = run(small(models=()), log).as_json()["series"]
    first = {name: each["HR@5"]["mean"][0] for name, each in series.items()}
    assert len(set(first.values())) == 1
    assert series["rare"]["HR@5"]["mean"][1] == series["global"]["HR@5"]["mean"][1]
    assert series["full"]["HR@5"]["mean"][1] != series["rare"]["HR@5"]["mean"][1]


def test_what_a_phone_spends_is_what_it_reported(log):
    """Counted by hand: Q moves after the cycles 3 and 5."""
    experiment = small(
        mechanisms=("harmony", "qharmony"),
        regimes=(),
        models=(),
        epsilon=0.7,
    )
    result = run(experiment, log)
    cycles = Cycling.parse("users:6").cut(collapse_repeats(log))
    spent = []
    for user in range(log.n_users):
        here = set(cycles.cycle[cycles.whole.user == user].tolist())
        rounds = bool(here & {1, 2}) + bool(here & {3, 4})
        spent.append(0.7 * rounds)
    found = result.privacy["harmony"]
    assert found["worst"] == pytest.approx(max(spent))
    assert found["mean"] == pytest.approx(np.mean([each for each in spent if each]))
    assert found["n_rounds"] == 2
    assert result.privacy["frozen"]["worst"] == 0.0
    assert result.privacy["zero"]["n_rounds"] == 2
    series = result.as_json()["series"]
    assert series["none"]["epsilon_spent"] is None
    assert series["qharmony"]["epsilon_spent"] is None
    assert "f_max" in series["qharmony"]["privacy"]["promise"]
    assert set(series) == {"none", "frozen", "zero", "harmony", "qharmony"}
    assert {each["delta"]["reference"] for each in series.values()} == {"none"}


def test_seeds_change_the_draws_and_nothing_else_does(log):
    experiment = small(regimes=("full",), mechanisms=("walsh",), models=(), seeds=2)
    first, again = (run(experiment, log).courses.by_user for _ in range(2))
    for name, values in first.items():
        assert np.array_equal(values, again[name], equal_nan=True)
    assert not np.array_equal(first["walsh"][0], first["walsh"][1], equal_nan=True)
    alone = run(replace(experiment, seed=4, seeds=1), log).courses.by_user["walsh"]
    assert np.array_equal(alone[0], first["walsh"][1], equal_nan=True)
    assert np.array_equal(first["none"], first["full"], equal_nan=True)


def test_the_clip_is_public(log):
    """Other phones in the log, the same clip."""
    other = read_log(SOURCE, seed=4)
    experiment = small(
        mechanisms=("walsh",), regimes=(), models=(), pretraining="none", start="zero"
    )
    clips = [run(experiment, each).privacy["walsh"]["clip"] for each in (log, other)]
    assert clips[0] == clips[1] > 0


def test_pretraining_on_all_data_is_another_q(log):
    by_how = {
        how: run(small(pretraining=how, regimes=("full",), models=()), log).courses.by_user["full"]
        for how in ("first", "all", "none")
    }
    assert not np.array_equal(by_how["first"], by_how["all"], equal_nan=True)
    assert not np.array_equal(by_how["first"], by_how["none"], equal_nan=True)


def test_every_series_has_the_rate_that_was_best_on_the_other_half(log, monkeypatch):
    """Played again one rate at a time, and put together by hand."""
    monkeypatch.setattr(dynamic, "WIDENINGS", 0)
    rates = (0.0003, 0.03, 3.0)
    experiment = small(
        mechanisms=("harmony", "laplace"), regimes=(), models=(), rates=rates, seeds=2
    )
    result = run(experiment, log)
    alone = {
        rate: run(replace(experiment, rates=(), update_rate=rate), log).courses.by_user
        for rate in rates
    }
    halves = KeyedBits(3, purpose="halves").generator().permutation(log.n_users) % 2 == 1
    for name, (on_first, on_second) in result.chosen.items():
        first_seed = {rate: found[name][0, ..., 0] for rate, found in alone.items()}
        best = [
            max(rates, key=lambda rate: np.nanmean(first_seed[rate][:, half]))
            for half in (~halves, halves)
        ]
        assert [on_first, on_second] == best
        mine = result.courses.by_user[name]
        assert mine.shape[0] == 2
        for half, rate in ((halves, on_first), (~halves, on_second)):
            assert np.array_equal(mine[:, :, half], alone[rate][name][:, :, half], equal_nan=True)
    found = result.as_json()["rates"]
    assert found["tried"] == list(rates)
    frozen = [each["mean"] for each in found["series"]["frozen"]["over_frozen"]]
    assert frozen == [0.0, 0.0, 0.0]
    for rate, point in zip(rates, found["series"]["harmony"]["over_frozen"], strict=True):
        gap = np.nanmean(
            np.nanmean(alone[rate]["harmony"][0, ..., 0], axis=1)
            - np.nanmean(alone[rate]["frozen"][0, ..., 0], axis=1)
        )
        assert point["mean"] == pytest.approx(gap)


def test_rates_are_tried_further_where_the_best_is_at_an_edge(log):
    """Chosen is the best of all that were tried, which end only beyond it, or it is said."""
    rates = (0.003, 0.03)
    experiment = small(mechanisms=("harmony", "laplace"), regimes=(), models=(), rates=rates)
    result = run(experiment, log)
    found = result.as_json()["rates"]
    assert found["tried"][0] == pytest.approx(0.003 / 10**dynamic.WIDENINGS)
    second = dynamic.second_half(log.n_users, experiment.seed)
    for name, pair in result.chosen.items():
        tried = {rate: courses.by_user[name][0, ..., 0]
                 for rate, courses in result.at_rate.items()
                 if name in courses.by_user}  # fmt: skip
        for half, chosen in zip((~second, second), pair, strict=True):
            scores = {rate: np.nanmean(values[:, half]) for rate, values in tried.items()}
            assert scores[chosen] == max(scores.values())
        at_edge = min(tried) in pair or max(tried) in pair
        assert found["series"][name]["at_edge"] == (at_edge and name != "frozen")
        if at_edge and name != "frozen":  # tried as far as it goes, in that direction
            reach = 10**dynamic.WIDENINGS * (1 + 1e-9)
            assert min(tried) <= 0.003 / reach * 1.001 or max(tried) >= 0.03 * reach * 0.999


def test_steps_that_run_away_are_the_worst_and_break_nothing(log):
    experiment = small(
        mechanisms=("laplace",), regimes=(), models=(), rates=(0.001, 1e9), epsilon=0.01
    )
    result = run(experiment, log)
    assert max(result.chosen["laplace"]) <= 0.001
    assert np.nanmax(result.at_rate[1e9].by_user["laplace"]) == 0.0
    json.dumps(result.as_json(), allow_nan=False)


def test_a_window_is_what_phones_would_know_had_they_forgotten_the_rest(log):
    """With a window of a thousand days nothing changes; with one of a day, user vectors do."""
    whole = run(small(models=("sr-od",)), log).courses.by_user
    wide = run(small(models=("sr-od",), window=1000.0), log).courses.by_user
    day = run(small(models=("sr-od",), window=1.0), log).courses.by_user
    for name in whole:
        assert np.array_equal(whole[name], wide[name], equal_nan=True)
    assert np.array_equal(whole["sr-od"], day["sr-od"], equal_nan=True)  # no phone of SeqMF
    assert not np.array_equal(whole["full"], day["full"], equal_nan=True)
