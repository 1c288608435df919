"""Tunings repeated, windows, costs and one round: small ones, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.data.cutting import DAY_MS, Split, launches_in_window
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, exam, find_preset, mark
from nextapp.evaluation.seqmf import SeqMF
from nextapp.predictors.training import frozen
from nextapp.studies.dynamic import DynamicExperiment
from nextapp.studies.experiment import Experiment, training_from
from nextapp.studies.reproduce.studies import (
    Cost,
    OneRound,
    run_cost,
    run_one_round,
    run_windows,
)
from nextapp.studies.tuning import RepeatedTuning, tune

SOURCE = "synthetic:phones=25,apps=15,days=8,sessions=4"
SPLIT = "fraction:0.7,0.1,0.2"


@pytest.fixture(scope="module")
def log():
    return read_log(SOURCE, seed=0)


def reached(log, training, seed):
    """(n_users, 9) of SeqMF with these settings in the test part, asked directly."""
    ready = exam(log, Split.parse(SPLIT), find_preset("honest"))
    model = SeqMF(training, seed)
    model.fit(ready.history)
    return mark(ready, model)["all"]


def test_a_table_is_the_mean_over_its_tunings_and_budgets_are_their_first_trials(log):
    experiment = Experiment(SOURCE, SPLIT, models=("mru", "mf", "seqmf", "seqmf-frozen"), tune=4)
    result = RepeatedTuning(log, experiment, 2, (1, 2)).run()
    assert list(result["variants"]) == ["1 trials", "2 trials", "tuning 1 alone", "tuning 2 alone"]
    own = [tune(log, Experiment(SOURCE, SPLIT, seed=seed, tune=4), "seqmf") for seed in (0, 1)]
    by_tuning = [reached(log, each.training, seed) for seed, each in enumerate(own)]
    at = METRICS.index("HR@5")
    means = [values[:, at].mean() for values in by_tuning]
    assert result["models"]["seqmf"]["HR@5"] == pytest.approx(np.mean(means))
    for number, mean in enumerate(means, 1):
        alone = result["variants"][f"tuning {number} alone"]["models"]["seqmf"]
        assert alone["HR@5"] == pytest.approx(mean)
    # One trial is the defaults; two are what a tuning of two trials finds.
    usual = [reached(log, Experiment(SOURCE).seqmf, seed)[:, at].mean() for seed in (0, 1)]
    assert result["variants"]["1 trials"]["models"]["seqmf"]["HR@5"] == pytest.approx(
        np.mean(usual)
    )
    two = tune(log, Experiment(SOURCE, SPLIT, seed=0, tune=2), "seqmf")
    assert own[0].within("seqmf", 2).training == two.training
    # The difference is that of the means, and trained settings are also played frozen.
    mru = result["models"]["mru"]["HR@5"]
    gap = result["differences"]["seqmf"]["mru"]["HR@5"]
    assert gap["mean"] == pytest.approx(np.mean(means) - mru)
    assert gap["low"] <= gap["mean"] <= gap["high"]
    cold = [
        reached(log, frozen(each.training), seed)[:, at].mean() for seed, each in enumerate(own)
    ]
    assert result["models"]["seqmf-frozen"]["HR@5"] == pytest.approx(np.mean(cold))
    assert result["models"]["seqmf"]["n_tunings"] == 2
    assert result["models"]["mru"]["n_tunings"] == 1
    first = result["tuning"]["seqmf"]["tunings"][0]["settings"]
    assert training_from(first, "seqmf", own[0].training) == own[0].training


def test_tunings_that_disagree_widen_the_interval(log):
    """Two tunings far apart: the interval of their mean reaches to both."""
    experiment = Experiment(SOURCE, SPLIT, models=("mru", "seqmf"), tune=1)
    study = RepeatedTuning(log, experiment, 2)
    low, high = np.full((25, 9), 0.2), np.full((25, 9), 0.8)
    users = len(study.exam.users)
    study._of = lambda name, seed, budget: (low if seed == 0 else high)[:users]
    ends = study.run()["models"]["seqmf"]["ci95"]["HR@5"]
    assert ends == pytest.approx([0.2, 0.8])


def test_recent_launches_are_counted_back_from_each_users_last():
    log = LaunchLog.from_columns(
        [0, 0, 0, 1, 1], [0, 1, 2, 0, 1],
        [0, 5 * DAY_MS, 9 * DAY_MS, 0, DAY_MS], ["a", "b"], ["x", "y", "z"],
    )  # fmt: skip
    assert launches_in_window(log, 0) is log
    assert launches_in_window(log, 5).time.tolist() == [5 * DAY_MS, 9 * DAY_MS, 0, DAY_MS]
    assert launches_in_window(log, 1).time.tolist() == [9 * DAY_MS, DAY_MS]  # none loses all
    assert len(launches_in_window(log.where(np.zeros(5, bool)), 3)) == 0


def test_windows_are_compared_with_all_history(log):
    found = run_windows(DynamicExperiment(SOURCE, cycles="users:5", q_every=2), (1.0, 100.0), log)
    rows = found["windows"]
    assert list(rows) == ["all history", "1 days", "100 days"]
    assert rows["all history"]["gain"] is None
    assert rows["100 days"]["gain"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert rows["100 days"]["n_launches"] == rows["all history"]["n_launches"]
    assert rows["1 days"]["n_launches"] < rows["all history"]["n_launches"]
    gap = rows["1 days"]["HR@5"]["mean"] - rows["all history"]["HR@5"]["mean"]
    assert rows["1 days"]["gain"]["mean"] == pytest.approx(gap)


def test_costs_are_those_of_the_forms_that_phones_run():
    names = ("laplace", "kashin", "qharmony-printed", "harmony")
    study = Cost(sizes=(30,), dim=4, phones=5, repeats=2, mechanisms=names)
    rows = run_cost(study)["sizes"]["30"]
    of_model = ("user vector and gradient", "full score (4)", "light score (8)")
    assert list(rows) == [*names, *of_model]
    gradient, full, light = (rows.pop(name) for name in of_model)
    assert gradient["ms"]["mean"] > full["ms"]["mean"] > light["ms"]["mean"] > 0
    assert full["times"]["mean"] > 1.0
    assert light["times"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert rows["laplace"]["bytes"] == 4 * 30 * 4
    assert rows["qharmony-printed"]["times"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    for row in rows.values():
        assert 0 < row["ms"]["low"] <= row["ms"]["mean"] <= row["ms"]["high"]
    with pytest.raises(ValueError, match="mechanisms must include qharmony-printed"):
        Cost(mechanisms=("kashin",))


def test_one_round_sends_what_its_messages_hold():
    found = run_one_round(OneRound(apps=20, dim=4))
    printed, repaired = found["up"]["qharmony-printed"], found["up"]["harmony"]
    # 9 positions of 80 entries at 7 bits and 9 signs, in whole bytes, then f_max
    assert printed["payload_bytes"] == -(-9 * (7 + 1) // 8) + 8
    assert printed["sent_in_clear"] == ["f_max"]
    assert printed["epsilon"] is None
    assert (repaired["sent_in_clear"], repaired["epsilon"]) == ([], 4.5)
    assert not any(row["holds_user_vector"] or row["holds_history"] for row in found["up"].values())
    assert found["phone"]["user_vector_bytes"] == 8 * 4
    assert found["down"]["bytes"] > 8 * 20 * 4
