"""The same fleet on Ray: the same Q, and a killed worker costs time, not the run."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from nextapp.predictors.training import Training
from nextapp.studies.simulation import SimulationSettings, run
from nextapp.wire import ModelSettings

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own making

SETTINGS = SimulationSettings(
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


def test_more_workers_than_processors_are_refused_and_not_waited_for(started):
    with pytest.raises(ValueError, match="Ray has 2 processors and a worker needs one, got 3"):
        world(3)


@pytest.mark.slow
def test_a_cluster_that_is_there_is_joined_and_its_second_node_works_too(tmp_path):
    """RAY_ADDRESS names it; two real nodes of one processor each, and the same Q."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # its sockets allow no long name
    own = ["--num-cpus=1", "--block"]
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = os.environ | secret
    try:
        with ExitStack() as ending:
            started = [*own, "--head", "--port=0", "--include-dashboard=false"]
            ray_node(ending, environment, *started, f"--temp-dir={folder}")
            address = folder / "ray_current_cluster"
            wait_until(lambda: address.exists() and bool(address.read_text()))
            where = address.read_text()
            ray_node(ending, environment, *own, f"--address={where}")
            found = subprocess.run(
                [sys.executable, __file__], env=environment | {"RAY_ADDRESS": where},
                capture_output=True, text=True, check=False, timeout=600,
            )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert found.returncode == 0, found.stderr
    *nodes, spread = found.stdout.split()
    assert len(set(nodes)) == 2
    assert spread == run(SETTINGS)["sha256_of_app_vectors"]


def ray_node(ending, environment, *words):
    """`ray start`, ended with the stack by its process id: `ray stop` would end other clusters."""
    node = subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", "--disable-usage-stats", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    ending.callback(node.wait, 120)
    ending.callback(node.terminate)


def wait_until(true):
    end = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


def play_on_two_nodes():
    """In a process of its own: the nodes of both workers, and the hash of Q."""
    from nextapp.cli.simulate import _world

    ray.init(log_to_driver=False)
    wait_until(lambda: ray.cluster_resources().get("CPU") == 2.0)
    ray.shutdown()
    spread = _world(SETTINGS, 2, "cpu")
    for worker in spread.workers:
        print(ray.get(worker.__ray_call__.remote(_node)))
    print(run(SETTINGS, spread)["sha256_of_app_vectors"])


def _node(worker):
    return ray.get_runtime_context().get_node_id()


if __name__ == "__main__":
    play_on_two_nodes()
