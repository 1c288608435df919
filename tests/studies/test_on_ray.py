"""The same fleet on Ray: the same Q, and a killed worker costs time, not the run."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from nextapp.predictors.training import Training
from nextapp.studies.simulation import Settings, run
from nextapp.wire import ModelSettings

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own making

SETTINGS = Settings(
    phones=400,
    apps=60,
    dim=4,
    rounds=3,
    mechanism="harmony",
    epsilon=2.0,
    seed=5,
    sample=40,
    shards=4,
    training=Training(ModelSettings(alpha=0.0), rate=0.02),
)


@pytest.fixture(scope="module")
def started():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def world(workers, settings=SETTINGS):
    from nextapp.studies.on_ray import RayWorld

    return RayWorld(settings, workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_q_as_in_one_process(started, workers):
    alone = run(SETTINGS)
    spread = run(SETTINGS, world(workers))
    assert spread["sha256_of_app_vectors"] == alone["sha256_of_app_vectors"]
    assert [r["phones"] for r in spread["rounds"]] == [r["phones"] for r in alone["rounds"]]


def test_a_killed_worker_costs_time_not_the_run(started):
    spread = world(2)
    killed = []

    def kill_one(record):
        if record["round"] == 0:
            pid = ray.get(spread.workers[1].process.remote())
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    result = run(SETTINGS, spread, on_round=kill_one)
    assert killed
    assert result["sha256_of_app_vectors"] == run(SETTINGS)["sha256_of_app_vectors"]


def test_more_workers_than_shards_are_refused(started):
    with pytest.raises(ValueError, match="number of shards, 1, got 2"):
        world(2, replace(SETTINGS, shards=1))
