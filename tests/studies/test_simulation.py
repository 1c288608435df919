from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from nextapp.fleet.columns import Fleet
from nextapp.predictors.training import Training
from nextapp.studies.simulation import SimulationSettings, run
from nextapp.wire import ModelSettings

SMALL = SimulationSettings(
    phones=300,
    apps=60,
    dim=4,
    rounds=3,
    mechanism="harmony",
    epsilon=2.0,
    seed=5,
    sample=60,
    training=Training(ModelSettings(alpha=0.0), rate=0.02),
)


def test_every_round_says_what_it_did():
    result = run(SMALL)
    assert [record["round"] for record in result["rounds"]] == [0, 1, 2]
    for record in result["rounds"]:
        assert record["phones"] == 300
        assert record["phones_per_second"] > 0
        assert -1 <= record["cosine"] <= 1
        low, high = record["hr5_ci95"]
        assert low <= record["hr5"] <= high
    assert [record["epsilon_spent"] for record in result["rounds"]] == [2.0, 4.0, 6.0]
    assert result["guarantee"]["epsilon"] == 2.0


def test_without_privacy_the_loss_falls_and_the_cosine_is_one():
    result = run(replace(SMALL, mechanism="identity", epsilon=None, rounds=6))
    losses = [record["loss"] for record in result["rounds"]]
    assert losses[-1] < losses[0]
    assert all(record["cosine"] == pytest.approx(1) for record in result["rounds"])
    assert result["rounds"][-1]["epsilon_spent"] == "no bound"


@pytest.mark.parametrize("mechanism", ["harmony", "qharmony", "kashin"])
def test_sums_of_whole_numbers_give_the_same_q_on_any_number_of_shards(mechanism):
    digests = {
        run(replace(SMALL, mechanism=mechanism, shards=n, rounds=2))["sha256_of_app_vectors"]
        for n in (1, 2, 4)
    }
    assert len(digests) == 1


def test_streamed_shards_give_the_same_q_as_shards_kept():
    digests = {
        run(replace(SMALL, shards=3, keep_shards=keep))["sha256_of_app_vectors"]
        for keep in (True, False)
    }
    assert len(digests) == 1


def test_a_run_goes_on_from_its_checkpoint_to_the_same_q(tmp_path):
    settings = replace(SMALL, rounds=5)
    straight = run(settings)
    run(replace(settings, rounds=2), folder=tmp_path)
    seen = []
    resumed = run(settings, folder=tmp_path, on_round=lambda record: seen.append(record["round"]))
    assert seen == [2, 3, 4]
    assert resumed["sha256_of_app_vectors"] == straight["sha256_of_app_vectors"]
    assert [r["phones"] for r in resumed["rounds"]] == [r["phones"] for r in straight["rounds"]]


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    run(replace(SMALL, rounds=1), folder=tmp_path)
    with pytest.raises(ValueError, match=r"other settings \(epsilon\)"):
        run(replace(SMALL, epsilon=3.0), folder=tmp_path)


def test_a_killed_command_is_resumed_with_the_same_final_q(tmp_path):
    """The command is killed after its first checkpoint; run again it ends with the same Q."""
    command = [
        sys.executable, "-m", "nextapp", "simulate", "--phones", "2000", "--apps", "100", "--dim",
        "8", "--rounds", "40", "--mechanism", "harmony", "--epsilon", "1", "--sample", "50",
    ]  # fmt: skip
    child = subprocess.Popen([*command, "--out", str(tmp_path / "killed")])
    while not (tmp_path / "killed" / "checkpoint.json").exists():
        assert child.poll() is None
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    vectors = []
    for name in ("killed", "whole"):
        subprocess.run([*command, "--out", str(tmp_path / name)], check=True, capture_output=True)
        vectors.append((tmp_path / name / "round-000040.server").read_bytes())
    assert vectors[0] == vectors[1]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"phones": 0}, "phones must be 1 or more"),
        ({"epsilon": None}, "needs an epsilon"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"mechanism": "identity"}, "has no epsilon"),
        ({"mechanism": "harmoni"}, "harmony"),
        ({"shards": 301}, "1 to 300 shards"),
        ({"rounds": -1}, "rounds must be"),
    ],
)
def test_bad_settings_are_errors_before_any_work_starts(bad, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **bad)


def test_shards_are_parts_of_one_world():
    bounds = replace(SMALL, shards=3).bounds
    assert bounds == [(0, 100), (100, 200), (200, 300)]
    parts = [Fleet.of_synthetic(SMALL.parameters, 5, *each) for each in bounds]
    back, whole = Fleet.join(parts), Fleet.of_synthetic(SMALL.parameters, 5, 0, 300)
    for mine, theirs in zip(back.columns, whole.columns, strict=True):
        assert np.array_equal(mine, theirs)


def test_shards_made_again_in_every_round_train_the_same_q(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from nextapp.cli.commands import app

    monkeypatch.chdir(tmp_path)
    words = (
        "simulate --phones 200 --apps 40 --dim 4 --rounds 2 --mechanism harmony --epsilon 1 "
        "--sample 30 --shards 3 --json "
    )
    digests = set()
    for name, more in (("a", ""), ("b", " --stream")):
        done = CliRunner().invoke(app, (words + name + more).split())
        assert done.exit_code == 0, done.output
        digests.add(json.loads((tmp_path / name).read_text())["sha256_of_app_vectors"])
    assert len(digests) == 1
