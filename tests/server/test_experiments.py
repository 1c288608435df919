"""Several experiments in one server: who is in which, what it costs, and how they stay apart."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from servers import Client as PlainClient
from servers import token_bytes, until
from typer.testing import CliRunner

from fixed_ports import fixed_port
from nextapp.cli.commands import app
from nextapp.phone import Client, Phone, Store
from nextapp.phone import client as client_module
from nextapp.phone.server_errors import BadAnswer, Refused
from nextapp.server.experiments import (
    Experiment,
    assign_experiment,
    experiments_of,
    plan_experiments,
)
from nextapp.server.vault import Vault
from nextapp.wire import Broadcast

NOON = 1_790_000_000.0
APPS = [f"app-{number:04d}" for number in range(12)]
FILE = """
[plain]
share = 0.5
epsilon = 1.0

[cheap]
share = 0.5
epsilon = 0.25
mechanism = "codebook"
"""
COMMON = "apps = 12\nslots = 16\ngoal = 1000\nminimum = 1\ndeadline = 100000.0\n"


class Server:
    """`nextapp serve --experiments`, on the same port at every start."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.log = folder / "data", fixed_port(), ""
        self.file, self.common = folder / "experiments.toml", folder / "common.toml"
        self.file.write_text(FILE)
        self.common.write_text(COMMON)

    def start(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nextapp", "serve", "--data", str(self.folder), "--port",
             str(self.port), "--operator-at", "127.0.0.1:0", "--log", "json", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "COLUMNS": "250", "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.operator_port = 0
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1])
        assert f":{self.port} " in line
        while not self.operator_port:
            line = self.process.stderr.readline()
            self.log += line
            if found := re.search(r"health at http://127\.0\.0\.1:(\d+)", line):
                self.operator_port = int(found[1])

    def first_start(self) -> None:
        self.start("--experiments", str(self.file), "--settings", str(self.common))

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.log += self.process.communicate(timeout=120)[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def vault(self, name: str) -> Vault:
        return Vault(self.folder / "experiments" / name / "vault.sqlite", busy_seconds=10)

    def code(self, uses: int) -> str:
        with closing(Vault(self.folder / "vault.sqlite", busy_seconds=10)) as vault:
            return vault.issue_code(uses=uses, expires=1e12, name="trial")

    def metrics(self) -> str:
        with closing(PlainClient(self.operator_port, 60.0)) as operator:
            return operator.request("GET", "/metrics")[2].decode()

    def ask(self, path: str) -> tuple[int, dict]:
        with closing(PlainClient(self.port, 60.0)) as client:
            return client.json("GET", path)


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    server.first_start()
    yield server
    if server.process.poll() is None:
        server.end(signal.SIGKILL)
    server.process.stdout.close()
    server.process.stderr.close()


def phone(path: Path, lifetime: float = 10.0) -> Phone:
    made = Phone(
        Store.create(path, hours=0.0, per_day=100.0, lifetime=lifetime, flush_after=None),
        clock=lambda: NOON,
    )
    made.learn((APPS[n * n % 7], NOON - 5000 + n, 0) for n in range(40))
    return made


def phones(folder: Path, server: Server, least: int) -> list[Phone]:
    """Phones of both experiments, as many of each as `least` or more."""
    made: list[Phone] = []
    while min(len(of(made, number)) for number in (1, 2)) < least:
        assert len(made) < 60  # with even shares this happens once in 10^15 runs
        made.append(enrolled(folder / f"{len(made)}.db", server))
    return made


def enrolled(path: Path, server: Server) -> Phone:
    one = phone(path)
    with Client(server.url) as client:
        one.join(client, server.code(1))
    return one


def of(made: list[Phone], number: int) -> list[Phone]:
    return [one for one in made if one.status().experiment == number]


def synced(one: Phone, server: Server, when: float = NOON) -> str:
    with Client(server.url) as client:
        return one.sync(client, when=when, now=True).report


def admin(*words: object) -> str:
    found = CliRunner().invoke(app, ["admin", *map(str, words)], env={"COLUMNS": "250"})
    assert found.exit_code == 0, found.output
    return found.output


def test_a_hash_of_the_token_divides_phones_by_the_shares():
    plan = [Experiment("a", 1, 0.7), Experiment("b", 2, 0.0), Experiment("c", 3, 0.3)]
    found = [assign_experiment(number.to_bytes(32, "big"), plan).name for number in range(20_000)]
    # 4 standard errors of a share of 0.7 among 20,000 are 0.013
    assert found.count("a") / 20_000 == pytest.approx(0.7, abs=0.013)
    assert found.count("b") == 0
    # (printf 'nextapp experiment'; head -c 32 /dev/zero) | sha256sum begins with e0d66fdce4fb8b75
    place = int("758bfbe4dc6fd6e0", 16) / 2**64  # the lowest byte first
    for share, expected in ((place, "rest"), (place + 1e-12, "low")):
        two = [Experiment("low", 1, share), Experiment("rest", 2, 1 - share)]
        assert assign_experiment(bytes(32), two).name == expected


def test_what_a_plan_must_be(tmp_path):
    with pytest.raises(ValueError, match=r"sum to 1, got 0\.9"):
        plan_experiments(tmp_path, {"a": 0.5, "b": 0.4})
    with pytest.raises(ValueError, match="'A b'"):
        plan_experiments(tmp_path, {"A b": 1.0})
    with pytest.raises(ValueError, match="must lie in 0 to 1"):
        plan_experiments(tmp_path, {"a": 1.5, "b": -0.5})
    with pytest.raises(ValueError, match="must be a number"):
        plan_experiments(tmp_path, {"a": "half", "b": 0.5})
    with pytest.raises(ValueError, match="1 to 16 experiments"):
        plan_experiments(tmp_path, {f"e{n}": 1 / 17 for n in range(17)})
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match="a folder of their own"):
        plan_experiments(tmp_path, {"a": 1.0})


def test_phones_pay_what_their_experiment_asks_and_stay_in_it(server, tmp_path):
    """Two experiments of ε 1 and ε 1/4: shares, ledgers, rounds, kill -9, other shares."""
    made = phones(tmp_path, server, 3)
    numbers = [one.status().experiment for one in made]
    counts = {number: numbers.count(number) for number in (1, 2)}
    shares = server.ask("/v1/experiments")[1]["experiments"]
    assert shares == [{"experiment": 1, "share": 0.5}, {"experiment": 2, "share": 0.5}]
    plan = experiments_of(server.folder)
    asks = {1: ("walsh", 1.0), 2: ("codebook", 0.25)}
    for one, number in zip(made, numbers, strict=True):
        assert assign_experiment(token_bytes(one.store.setting("token")), plan).number == number
        assert synced(one, server) == "accepted"
        asked = Broadcast.from_bytes(one.store.broadcast().data).request
        assert (asked.mechanism, asked.epsilon) == asks[number]
        assert one.status().spent.lifetime == {1: 1.0, 2: 0.25}[number]
    for number in (1, 2):
        at_hand = server.ask(f"/v1/experiments/{number}/round")[1]
        assert at_hand["n_reports"] == counts[number]
    said = admin("status", server.folder)
    assert re.search(r"experiment +plain +cheap", said)
    assert re.search(rf"devices +{counts[1]} +{counts[2]}\b", said)
    assert re.search(r"phones report by +walsh, ε = 1 +codebook, ε = 0\.25", said)
    metrics = server.metrics()
    for number, name in ((1, "plain"), (2, "cheap")):
        n = counts[number]
        assert f'nextapp_reports_total{{outcome="accepted",experiment="{name}"}} {n}\n' in metrics
        assert f'nextapp_devices{{experiment="{name}"}} {n}\n' in metrics
        assert f'nextapp_ready{{experiment="{name}"}} 1.0\n' in metrics
    assert metrics.count("# TYPE nextapp_reports_total counter") == 1

    server.end(signal.SIGKILL)
    server.start()  # as it was, without the file
    for number in (1, 2):
        at_hand = server.ask(f"/v1/experiments/{number}/round")[1]
        assert at_hand["n_reports"] == counts[number]
    for one, number in zip(made, numbers, strict=True):
        assert one.status().experiment == number
        assert synced(one, server, NOON + 60) == "done"
    # other shares send new phones elsewhere, and move none
    server.end(signal.SIGTERM)
    other = FILE.replace("share = 0.5", "share = 1.0", 1).replace("share = 0.5", "share = 0")
    server.file.write_text(other)
    server.start("--experiments", str(server.file))
    more = [enrolled(tmp_path / f"more-{number}.db", server) for number in range(5)]
    assert {one.status().experiment for one in more} == {1}
    assert {synced(one, server, NOON + 120) for one in made} == {"done"}
    for one in [*made, *more]:
        one.close()


def test_a_token_is_known_in_its_own_experiment_only(server, tmp_path):
    """Else a report with the ε of one could be counted in the other."""
    one = enrolled(tmp_path / "one.db", server)
    own = one.status().experiment
    with Client(server.url) as client:
        client.token, client.experiment = one.store.setting("token"), 3 - own
        with pytest.raises(Refused, match="unknown_token"):
            client.submit(b"anything")
        client.experiment = own
        with pytest.raises(Refused, match="bad_report"):
            client.submit(b"anything")
    status, words = server.ask("/v1/broadcast")  # there is none for all
    assert (status, words["error"]) == (404, "not_found")
    assert "/v1/experiments/N/broadcast" in words["message"]
    assert server.ask("/v1/experiments/3/broadcast")[0] == 404
    assert server.ask("/v1/experiments/1/enrol")[0] == 404
    one.close()


def test_the_ledger_holds_one_limit_over_all_experiments(server, tmp_path):
    """A phone that enrols again and again pays from one account, whatever experiment it gets.

    It answers round 0 of each experiment once, until the limit is below what the next one costs.
    """
    one = phone(tmp_path / "one.db", lifetime=1.1)
    outcomes, spent = [], 0.0
    while "budget" not in outcomes:
        assert len(outcomes) < 60
        when = NOON + 3600 * len(outcomes)
        with Client(server.url) as client:
            one.join(client, server.code(1))
            outcomes.append(one.sync(client, when=when, now=True).report)
        if outcomes[-1] == "accepted":
            spent += {1: 1.0, 2: 0.25}[one.status(when).experiment]
        assert one.status(when).spent.lifetime == spent <= 1.1
    assert outcomes.count("accepted") == 1  # both together would cost 1.25
    one.close()


def test_a_failure_of_one_experiment_leaves_the_other_as_it_is(server, tmp_path):
    made = phones(tmp_path, server, 2)
    plain, cheap = of(made, 1), of(made, 2)
    path = server.folder / "experiments" / "cheap" / "vault.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # holds its lock
        assert synced(plain[0], server) == "accepted"
        with Client(server.url, attempts=1) as client:
            assert cheap[0].sync(client, when=NOON, now=True).report == "later"
        other.execute("ROLLBACK")
    assert synced(cheap[0], server) == "accepted"
    server.end(signal.SIGKILL)
    with closing(sqlite3.connect(path)) as other:  # as a bad disk would
        other.execute("UPDATE broadcasts SET data = x'00'")
        other.commit()
    server.start()
    assert synced(plain[1], server) == "accepted"
    assert server.ask("/v1/experiments/2/digest")[0] == 503
    assert 'nextapp_ready{experiment="cheap"} 0.0\n' in server.metrics()
    with closing(PlainClient(server.operator_port, 60.0)) as operator:
        assert operator.json("GET", "/ready")[0] == 200
    server.end(signal.SIGTERM)
    said = [json.loads(line) for line in server.log.splitlines()]
    (down,) = (line["message"] for line in said if line["level"] == "critical")
    assert down.startswith("experiment cheap does not run, the others do: the broadcast of round 0")
    for one in made:
        one.close()


def test_the_vault_of_the_codes_is_not_replaced_in_silence(server):
    server.code(1)
    server.end(signal.SIGTERM)
    for file in server.folder.glob("vault.sqlite*"):
        file.unlink()
    with pytest.raises(RuntimeError, match="is missing"):
        server.start()
    server.start("--new-vault")
    with closing(Vault(server.folder / "vault.sqlite")) as vault:
        assert vault.codes(0.0) == []
    server.end(signal.SIGTERM)
    server.start()


def test_rounds_of_one_experiment_close_without_the_other(server, tmp_path):
    made = phones(tmp_path, server, 3)
    cheap = of(made, 2)
    admin("set", server.folder / "experiments" / "cheap", "--goal", 3)
    for one in cheap[:3]:
        assert synced(one, server) == "accepted"
    until(lambda: server.ask("/v1/experiments/2/round")[1]["round"] == 1)
    assert server.ask("/v1/experiments/1/round")[1]["round"] == 0
    assert synced(cheap[0], server, NOON + 60) == "accepted"
    assert cheap[0].status().spent.lifetime == 0.5
    server.end(signal.SIGTERM)
    messages = [json.loads(line)["message"] for line in server.log.splitlines()]
    assert any(line.startswith("experiment cheap: round 0: one step along 3") for line in messages)
    for one in made:
        one.close()


EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = {
    "javascript": ["node", str(EXAMPLES / "client.mjs")],
    "python": [sys.executable, str(EXAMPLES / "other_client.py")],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_written_from_the_protocol_page_is_in_an_experiment(server, tmp_path, client):
    """Enough of them that both experiments are among theirs; a second visit sends the same."""
    command = CLIENTS[client]
    if shutil.which(command[0]) is None:
        pytest.skip("apt-get install nodejs")
    found: dict[int, int] = {1: 0, 2: 0}
    while 0 in found.values():
        assert sum(found.values()) < 60
        state = tmp_path / f"{sum(found.values())}.json"
        words = ["--server", server.url, "--state", str(state), "--history", ",".join(APPS[:5])]
        for _ in range(2):
            visit = [*command, *words, "--code", server.code(1), "--now"]
            done = subprocess.run(visit, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
        found[json.loads(state.read_text())["experiment"]] += 1
    for number, n in found.items():
        assert server.ask(f"/v1/experiments/{number}/round")[1]["n_reports"] == n


def test_experiments_are_backed_up_and_restored_together(server, tmp_path):
    one, other = (enrolled(tmp_path / f"{number}.db", server) for number in range(2))
    assert synced(one, server) == "accepted"
    admin("backup", server.folder, tmp_path / "backup")
    admin("check", server.folder)
    assert admin("devices", server.folder).count("trial") == 2
    server.end(signal.SIGKILL)
    server.folder = tmp_path / "elsewhere"
    admin("restore", tmp_path / "backup", server.folder)
    server.start()
    assert synced(one, server) == "done"
    assert synced(other, server) == "accepted"
    assert "2 devices" in admin("expel", server.folder, "--code", "trial")
    one.close()
    other.close()


def test_a_server_may_not_number_phones_by_experiments(monkeypatch):
    """More numbers would tell phones apart when they fetch."""
    for number, fine in ((1, 1), (16, 1), (17, 0), (0, 0), ("1", 0), (True, 0)):
        one = Client("http://127.0.0.1:9")
        words = json.dumps({"token": "t" * 43, "experiment": number}).encode()
        answer = client_module._Answer(201, {}, words)
        monkeypatch.setattr(one, "_call", lambda *_, answer=answer, **__: answer)
        if fine:
            one.enrol("code")
            assert one.experiment == number
        else:
            with pytest.raises(BadAnswer, match="none of 1 to 16"):
                one.enrol("code")
