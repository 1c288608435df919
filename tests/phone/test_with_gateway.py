"""Phones against the real server, `nextapp serve`, over TLS on loopback."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from nextapp.phone import Client, Phone, Store
from nextapp.phone.commands import main

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("uvicorn", "starlette", "click")),
    reason="the server is not installed here",
)
NOON = 1_790_000_000.0
MANY = 1_000_000


class Gateway:
    def __init__(self, folder, goal: int) -> None:
        self.folder = folder
        words = (
            "--port",
            "0",
            "--dev-tls",
            "--operator",
            "off",
            "--learn",
            "seqmf",
            "--apps",
            "40",
            "--dim",
            "8",
            "--mechanism",
            "walsh",
        )
        more = ("--epsilon", "0.5", "--clip", "0.2", "--goal", str(goal), "--grace", "0")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nextapp", "serve", "--data", str(folder), *words, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        )
        self.url = ""
        while not self.url:
            line = self.process.stdout.readline()
            assert line, "the server did not start"
            found = re.search(r"https://[\w.:]+", line)
            self.url = found[0] if found else ""
        self.ca = folder / "tls" / "ca.pem"

    def code(self, uses: int) -> str:
        from nextapp.server.vault import Vault

        vault = Vault(self.folder / "vault.sqlite", busy_seconds=10.0)
        try:
            return vault.devices.issue_code(uses=uses, expires=time.time() + 3600)
        finally:
            vault.close()

    def n_reports(self) -> int:
        from nextapp.server.vault import Vault

        with closing(Vault(self.folder / "vault.sqlite", busy_seconds=10.0)) as vault:
            return vault.round().n_reports

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("federation"), goal=MANY)
    yield gateway
    gateway.stop()


def joined(path, gateway: Gateway, code: str) -> None:
    with (
        Store.create(path, lifetime=5.0, per_day=1.0, predictor="seqmf") as store,
        Client(gateway.url, ca=gateway.ca) as client,
    ):
        phone = Phone(store)
        for number in range(60):
            phone.observe(f"app-00{number * 7 % 40:02d}", NOON + 100 * number)
        phone.join(client, code)


def test_a_person_tries_it_by_hand(gateway, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--lifetime", "5", "--per-day", "1", "--predictor", "seqmf"]) == 0
    assert main(["log", "app-0001", "diary", "app-0002", "app-0001"]) == 0
    join = ["sync", "--server", gateway.url, "--ca", str(gateway.ca), "--code", gateway.code(1)]
    join.append("--now")
    assert main(join) == 0
    assert main(["sync", "--now"]) == 0  # the server, its CA and the token are kept
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert "Its report was sent" in said
    assert "the server has it" in said
    assert "knows 2 of the 3 apps" in said
    assert main(join) == 1  # the code was for one phone
    assert "bad_code" in capsys.readouterr().err
    assert main(["sync", "--now"]) == 0  # and the phone is as it was


def test_phones_killed_in_the_middle_of_a_sync_send_one_report_each(gateway, tmp_path, seed):
    """9 phones, each killed by SIGKILL 3 times at random moments and then left to finish.

    Other bytes for the round would be refused (already_reported) and end as "refused"; a second
    draw would be charged. The server's count shows that none is missing or counted twice.
    """
    chance = random.Random(seed)
    code = gateway.code(10)
    before = gateway.n_reports()
    drawn_when_killed = 0
    paths = [tmp_path / f"phone {number}.db" for number in range(10)]
    for path in paths:
        joined(path, gateway, code)
    start = time.perf_counter()
    os.waitpid(syncing(paths[0], gateway), 0)
    a_sync = time.perf_counter() - start
    for path in paths[1:]:
        first = None
        for attempt in range(3):
            child = syncing(path, gateway)
            threading.Event().wait(chance.uniform(0.0, 1.2 * a_sync))
            while attempt == 2 and not has_drawn(path):  # the last kill comes after the draw
                time.sleep(0.01)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with Store(path) as store:
                reports, charges = store.reports(), store.ledger.entries()
                assert [report.round for report in reports] == [charge.round for charge in charges]
                assert len(reports) <= 1
                first = first or (reports[0].drawn if reports else None)
                assert first is None or reports[0].drawn == first
        drawn_when_killed += first is not None
        with Store(path) as store, Client(gateway.url, ca=gateway.ca) as client:
            synced = Phone(store).sync(client, now=True)
            assert synced.broadcast in ("new", "same")
            assert synced.report in ("accepted", "done"), synced.message
            (report,) = store.reports()
            assert report.state == "accepted"
            assert first is None or report.drawn == first
            (charge,) = store.ledger.entries()
            assert charge.epsilon == 0.5
    assert gateway.n_reports() == before + 10
    assert drawn_when_killed == 9


def has_drawn(path) -> bool:
    """Whether a report is in the phone's file; looked at from outside, without a lock."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        return file.execute("SELECT count(*) FROM reports").fetchone()[0] > 0


def syncing(path, gateway: Gateway) -> int:
    """The pid of a process that syncs and ends."""
    child = os.fork()
    if child == 0:
        try:
            with Store(path) as store, Client(gateway.url, ca=gateway.ca) as client:
                Phone(store).sync(client, now=True)
        finally:
            os._exit(0)
    return child
