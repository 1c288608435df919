"""A gateway with TLS that is killed and stays away for longer than the coordinator waits."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from regions import APPS, Region

from all_reports import apply_reports
from nextapp.server.federation import checkpoints
from nextapp.server.flower.gateway_rounds import Pace
from nextapp.server.flower.launching import SAID, Loopback, members
from nextapp.server.folders import create_or_resume
from nextapp.server.settings import settings_of
from nextapp.server.vault import Vault
from nextapp.wire import Broadcast, History, unpack

pytest.importorskip("flwr", reason="Flower has an environment of its own: make flower")

SETTINGS = {
    "goal": 8,
    "minimum": 4,
    "deadline": 60.0,
    "grace": 0.0,
}  # the rest by default: the crowd, walsh


def learnt(folder):
    """The broadcast after each round that was played, without the chain of those before it."""
    return {
        int(path.stem.removeprefix("round-")): replace(
            Broadcast.from_bytes(unpack(path.read_bytes())[0]["broadcast"].tobytes()),
            history=History(),
            keys=(),
        ).to_bytes()
        for path in checkpoints(folder / "checkpoints")
    }


def kill(federation, gateway):
    """kill -9 of a gateway and its SuperNode, between two messages.

    In the middle of an answer Flower would hold the coordinator up for 3 minutes.
    """
    log, before, since = federation.processes.logs / "superlink.log", -1, time.monotonic()
    while time.monotonic() - since < 4:
        running = [Path(f"/proc/{pid}/cmdline") for pid in members(federation.data / gateway)]
        busy = any(path.exists() and b"flwr-clientapp" in path.read_bytes() for path in running)
        pushed = log.read_text().count("/v1/fleet/push-")
        if busy or pushed != before:
            before, since = pushed, time.monotonic()
        time.sleep(0.2)
    federation.processes.kill(gateway)
    for pid in members(federation.data / gateway):
        os.kill(pid, signal.SIGKILL)


def test_patience_costs_a_lost_gateways_reports_of_that_round_and_it_is_back_for_the_next(tmp_path):
    """Round 0: the second gateway has acknowledged 5 reports and is gone; after the patience the
    crowd is that of the first one's 8 reports, which are the goal. The SuperLink refuses its node
    until the last heartbeat is a minute old; it comes back for round 1, which has all 13. Every
    crowd equals, to the last bit, that of one learner which is given these reports."""
    data, said = tmp_path / "federation", []
    (data / "coordinator").mkdir(parents=True)
    create_or_resume(data / "coordinator", SETTINGS, APPS)
    pace = Pace(gateways=2, poll=12.0, patience=30.0)
    federation = Loopback(
        data, n_gateways=2, rounds=2, pace=pace, say=said.append,
        gateway_options=("--reports-per-period", "2"),
    )  # fmt: skip
    with federation:
        first, second = (
            Region(url, data / name, numbers)
            for url, name, numbers in zip(
                federation.urls, federation.ports, (range(8), range(8, 13)), strict=True
            )
        )
        regions = [
            {secret.partition(".")[0] for secret in each.secrets.values()}
            for each in (first, second)
        ]
        assert [len(each) for each in regions] == [1, 1]
        assert regions[0] != regions[1]
        lost = second.report(second.broadcast(0))
        kill(federation, "gateway-2")
        counted = [first.report(first.broadcast(0))]
        give_up, log = time.monotonic() + 240, data / "coordinator" / SAID
        while "is lost, and its reports with it" not in log.read_text():
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.5)
        assert not federation.wait(3)  # now it is started again
        counted.append(second.report(second.broadcast(1)))
        counted[1] += first.report(first.broadcast(1))
        assert federation.wait(300), (said, federation.processes.said("run"))
    vault = Vault(data / "gateway-2" / "vault.sqlite")
    assert vault.reduced(0).n_reports == len(lost) == 5  # kept, and in no step
    vault.close()
    single = settings_of(SETTINGS).new_learner(APPS)
    found = learnt(data / "coordinator")
    assert found.keys() == {0, 1, 2}
    for round_, reports in enumerate(counted):
        assert found[round_] == single.broadcast.to_bytes()
        apply_reports(single, reports)
    assert found[2] == single.broadcast.to_bytes()
    assert single.broadcast.request.mechanism == "walsh"
