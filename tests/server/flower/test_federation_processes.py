"""A federation for real: SuperLink, gateways, SuperNodes, coordinator, each its own processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from regions import APPS, SETTINGS, Region

from nextapp.server.federation import checkpoints
from nextapp.server.flower.gateway_rounds import Pace
from nextapp.server.flower.launching import Loopback, members
from nextapp.server.folders import create_or_resume
from nextapp.server.settings import settings_of
from nextapp.wire import unpack

pytest.importorskip("flwr", reason="Flower has an environment of its own: make flower")


def app_vectors(folder):
    """Q of every checkpoint that is kept, by round; plain safetensors."""
    return {
        int(path.stem.removeprefix("round-")): unpack(path.read_bytes())[0]["app_vectors"]
        for path in checkpoints(folder / "checkpoints")
    }


def of_one_server(sent):
    """Q by round where one server has all these reports."""
    learner = settings_of(SETTINGS).new_learner(APPS)
    found = {0: learner.broadcast.app_vectors}
    for number, reports in sent.items():
        mechanism = learner.mechanism
        total = mechanism.total(mechanism.decode(reports), len(reports))
        found[number + 1] = learner.apply_sum(total, len(reports)).app_vectors
    return found


def killed(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def coordinator_pid(folder):
    """The process id of the ServerApp of the federation in `folder`."""
    return [
        pid
        for pid in members(folder)
        if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("gateway-2", "coordinator"), id="gateway and coordinator"),
        pytest.param(
            ("superlink",),
            id="superlink",
            marks=pytest.mark.skipif(
                "NEXTAPP_ALL_KILLS" not in os.environ,
                reason="a minute more; NEXTAPP_ALL_KILLS=1 runs it",
            ),
        ),
    ],
)
def test_what_is_killed_in_mid_round_comes_back_and_leaves_the_app_vectors_of_one_server(
    tmp_path, victims
):
    """Two rounds, two gateways of 5 phones each. In round 1, when the second gateway has
    acknowledged its reports, processes are killed; they come back, nothing is lost or counted
    twice, and Q equals that of one server with the same reports to the last bit."""
    data, said = tmp_path / "federation", []
    (data / "coordinator").mkdir(parents=True)
    create_or_resume(data / "coordinator", SETTINGS, APPS)
    pace = Pace(gateways=2, poll=1.0)
    with Loopback(
        data,
        n_gateways=2,
        rounds=2,
        pace=pace,
        say=said.append,
        gateway_options=("--reports-per-period", "2"),
    ) as federation:
        regions = [
            Region(url, data / name, numbers)
            for url, name, numbers in zip(
                federation.urls, federation.ports, (range(5), range(5, 10)), strict=True
            )
        ]
        sent = {0: [], 1: []}
        for region in regions:
            sent[0] += region.report(region.broadcast(0))
        sent[1] += regions[1].report(regions[1].broadcast(1))
        for victim in victims:
            if victim == "coordinator":
                killed(coordinator_pid(data))
            else:
                federation.processes.kill(victim)
                killed(members(data / victim))
        assert not federation.wait(8)  # they are started again
        sent[1] += regions[0].report(regions[0].broadcast(1))
        assert federation.wait(300), (said, federation.processes.said("run"))
    assert members(data) == []
    together = app_vectors(data / "coordinator")
    single = of_one_server(sent)
    assert together.keys() == single.keys() == {0, 1, 2}
    for round_, vectors in single.items():
        assert np.array_equal(together[round_], vectors)
    for victim in victims:
        what = "run" if victim == "coordinator" else victim
        assert any(words.startswith(f"{what} has ended") for words in said)
    assert sum("one step, reports: 10" in words for words in said) == 2
