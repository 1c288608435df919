"""Several gateways behind one name: real processes, real nginx with deploy/nginx-gateways.conf."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from servers import MECHANISM, N_APPS, Client, report_of

from fixed_ports import fixed_port
from nextapp import phone as phone_side
from nextapp.cli.commands import app
from nextapp.phone.client import Refused
from nextapp.privacy.tokens import MESSAGE, Token, public_key
from nextapp.server import certificates, folders
from nextapp.server.federation import Coordinator
from nextapp.server.flower.gateway_rounds import Letter, answer
from nextapp.server.folders import VaultOptions, gateway_identity, open_gateway_vault
from nextapp.server.issuing import KeyRules
from nextapp.server.settings import settings_of
from nextapp.server.vault import RoundRules, Vault
from nextapp.wire import Broadcast, Report

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx-gateways.conf"
APPS = tuple(f"app-{number:04d}" for number in range(N_APPS))
RULES = RoundRules(goal=10**6, minimum=1, seconds=1e6)
needs_nginx = pytest.mark.skipif(
    shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"
)


def test_the_region_of_a_gateway_is_what_it_is_known_by(tmp_path):
    """Secrets and keys begin with it, so that a proxy finds the gateway of a phone."""
    vault = open_gateway_vault(tmp_path)
    region = gateway_identity(tmp_path)
    secret = vault.devices.enrol(vault.devices.issue_code(expires=1e12), 1.0)
    (key,) = vault.keys.for_next_round(1.0)
    assert secret.startswith(f"{region}.")
    assert key.id.startswith(f"{region}-")
    vault.close()


def test_an_operator_looks_after_the_devices_of_a_gateway_but_not_after_its_rounds(tmp_path):
    vault = open_gateway_vault(tmp_path)
    vault.publish(RULES.open_round(0, 0.0), b"broadcast")
    answer(Letter("count", RULES.open_round(0, 0.0)), vault, 0.0)
    token = vault.devices.enrol(vault.devices.issue_code(uses=2, expires=1e12, name="north"), 1.0)
    vault.close()
    opened = folders.open_vault(tmp_path)
    assert opened.devices.expel(code="north") == 1
    assert not opened.devices.knows(token)
    opened.close()
    with pytest.raises(ValueError, match="rounds and settings are the coordinator's"):
        folders.close_round(tmp_path, 2.0)


def test_a_gateway_is_backed_up_and_its_phones_go_on_elsewhere(tmp_path):
    folder, copy, elsewhere = (tmp_path / name for name in ("gateway", "copy", "elsewhere"))
    folder.mkdir()
    vault = open_gateway_vault(folder)
    vault.publish(RULES.open_round(0, 0.0), b"broadcast")
    token = vault.devices.enrol(vault.devices.issue_code(expires=1e12), 1.0)
    assert CliRunner().invoke(app, ["admin", "backup", str(folder), str(copy)]).exit_code == 0
    vault.close()
    found = CliRunner().invoke(app, ["admin", "restore", str(copy), str(elsewhere)])
    assert "a gateway with 1 devices" in " ".join(found.output.split())
    assert gateway_identity(elsewhere) == gateway_identity(folder)
    other = open_gateway_vault(elsewhere)
    assert (other.keys.region, other.devices.knows(token)) == (gateway_identity(folder), True)
    other.close()


def test_a_gateway_without_its_vault_or_with_a_damaged_one_does_not_start(tmp_path):
    """A lost vault was replaced by an empty one, and all its phones were told 401."""
    vault = open_gateway_vault(tmp_path)
    vault.publish(RULES.open_round(0, 0.0), b"broadcast")
    vault.close()
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        other.execute("UPDATE broadcasts SET data = x'00'")
        other.commit()
    command = [
        sys.executable, "-m", "nextapp", "flower", "gateway", "--data", str(tmp_path),
        "--superlink", "127.0.0.1:1", "--ca", "ca.pem", "--node-key", "node", "--port", "0",
        "--operator", "off",
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 1
    assert "is not what was written" in found.stderr
    for file in tmp_path.glob("vault.sqlite*"):
        file.unlink()
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 1
    assert "is missing" in found.stderr
    assert not (tmp_path / "vault.sqlite").exists()
    open_gateway_vault(tmp_path, VaultOptions(new_vault=True)).close()


class GatewayProcess:
    """A gateway on a folder of its own; `start` and `kill`, always on the same port."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.port = folder, fixed_port()
        self.region = gateway_identity(folder)
        self.vault = Vault(folder / "vault.sqlite", busy_seconds=10.0)
        self.vault.keys.set_rules(KeyRules(reports_per_period=3))

    def start(self) -> None:
        script = Path(__file__).parent / "gateway_process.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(self.folder), str(self.port)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert int(self.process.stdout.readline()) == self.port

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def open(self, coordinator: Coordinator) -> None:
        """What the coordinator's letter does; phones see it a moment later."""
        round = RULES.open_round(coordinator.round, time.time())
        answer(Letter("open", round, coordinator.published()), self.vault, 1.0)
        client = Client(self.port, 60.0)
        give_up = time.monotonic() + 120
        while client.round() != coordinator.round:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        client.close()

    def close(self, number: int):
        return answer(Letter("close", RULES.open_round(number, 0.0)), self.vault, 1.0).reduced


def new_coordinator(folder: Path) -> Coordinator:
    settings = settings_of(
        {
            "learn": "seqmf", "mechanism": "harmony", "epsilon": 2.0, "clip": 1.0, "dim": 4,
            "optimiser": "sgd", "rate": 0.01,
        }
    )  # fmt: skip
    return Coordinator.start(settings.new_learner(APPS), folder)


@pytest.fixture
def two(tmp_path):
    """Two gateways with round 0 open, and their coordinator."""
    coordinator = new_coordinator(tmp_path / "coordinator")
    gateways = [GatewayProcess(tmp_path / f"gateway-{number}") for number in (1, 2)]
    keys = [key for each in gateways for key in each.vault.keys.for_next_round(1.0)]
    coordinator.publish(tuple(keys))
    try:
        for gateway in gateways:
            gateway.start()
            gateway.open(coordinator)
        yield coordinator, *gateways
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.vault.close()


@pytest.fixture
def proxied(tmp_path, two):
    """(address of nginx, its CA file) in front of two gateways; the file as it is in deploy/."""
    authority, cert, key = certificates.development(tmp_path / "tls")
    port = fixed_port()
    words = CONFIGURATION.read_text()
    for old, new in (
        ("127.0.0.1:8443", f"127.0.0.1:{two[1].port}"),
        ("127.0.0.1:8444", f"127.0.0.1:{two[2].port}"),
        ("0123456789abcdef", two[1].region),
        ("fedcba9876543210", two[2].region),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("phones.example.org", "localhost"),
        ("/etc/nextapp/chain.pem", str(cert)),
        ("/etc/nextapp/key.pem", str(key)),
    ):
        assert old in words
        words = words.replace(old, new)
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ {paths} {words} }}\n"
    )
    proxy = subprocess.Popen(
        ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        give_up = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                assert time.monotonic() < give_up, (tmp_path / "errors").read_text()
                time.sleep(0.05)
        yield f"https://localhost:{port}", authority
    finally:
        proxy.terminate()
        proxy.communicate(timeout=120)


class Phone:
    """A client with the secret and tokens that it got by a code."""

    def __init__(self, address, code: str) -> None:
        url, authority = address
        self.client = phone_side.Client(url, ca=authority, attempts=1)
        self.secret = self.client.enrol(code)
        keys = Broadcast.from_bytes(self.client.broadcast()).keys
        (key,) = (key for key in keys if key.region == self.secret.partition(".")[0])
        public = public_key(key)
        blindings = [public.new_blinding(MESSAGE) for _ in range(3)]
        answers = self.client.sign(self.secret, key.id, [public.blind(one) for one in blindings])
        self.tokens = [Token.of(key, *pair) for pair in zip(blindings, answers, strict=True)]

    def token(self, round: int = 0) -> Token:
        return self.tokens[round]

    def round(self) -> int:
        with self.client:
            return self.client.published().round

    def submit(self, report: bytes) -> None:
        self.client.submit(report, self.token(Report.from_bytes(report).round).text)


def enrolled_phones(address, gateways, n) -> list[Phone]:
    """n phones for each gateway, by codes of their own, all at one address."""
    phones = []
    for gateway in gateways:
        code = gateway.vault.devices.issue_code(uses=n, expires=time.time() + 3600)
        phones += [Phone(address, code) for _ in range(n)]
        assert {phone.secret.partition(".")[0] for phone in phones[-n:]} == {gateway.region}
    return phones


@needs_nginx
def test_behind_one_name_every_phone_reaches_its_gateway_and_the_sum_is_that_of_one_server(
    tmp_path, two, proxied
):
    """Codes of both gateways work at one address, tokens find their gateway, and the app vectors
    equal those of a coordinator that is given all reports in one sum, to the last bit."""
    coordinator, *gateways = two
    phones = enrolled_phones(proxied, gateways, 4)
    reports = [report_of(number, by=phone) for number, phone in enumerate(phones)]
    for phone, report in zip(phones, reports, strict=True):
        assert phone.round() == 0
        phone.submit(report)
        phone.submit(report)  # the same again is the same
    assert [gateway.vault.round().n_reports for gateway in gateways] == [4, 4]
    closed = coordinator.absorb([gateway.close(0) for gateway in gateways], 1, coordinator.keys)
    assert closed.n_reports == 8
    single = new_coordinator(tmp_path / "single")
    single.publish(coordinator.keys)
    tally = MECHANISM.tally(list(map(Report.from_bytes, reports)))
    parts = replace(gateways[0].close(0), n_reports=8, tally=tally)
    single.absorb([parts], 1, single.keys)
    assert single.published() == coordinator.published()
    vectors = single.learner.broadcast.app_vectors
    assert not np.array_equal(
        vectors, new_coordinator(tmp_path / "x").learner.broadcast.app_vectors
    )


@needs_nginx
def test_a_gateway_that_is_down_stops_its_own_phones_only_and_they_lose_nothing(two, proxied):
    _, first, second = two
    mine, other = enrolled_phones(proxied, (first, second), 1)
    second.kill()
    mine.submit(report_of(1, by=mine))
    assert mine.round() == 0  # whatever gateway this address was given
    with pytest.raises(phone_side.ServerError) as refusal:
        other.submit(report_of(2, by=other))
    assert not isinstance(refusal.value, Refused)  # come back, keep the report
    (newcomer,) = enrolled_phones(proxied, (first,), 1)
    assert first.vault.devices.knows(newcomer.secret)
    second.start()
    other.submit(report_of(2, by=other))
    assert [gateway.vault.round().n_reports for gateway in (first, second)] == [1, 1]


@needs_nginx
def test_a_token_of_nobody_is_told_so_and_a_bad_code_too(two, proxied):
    (phone,) = enrolled_phones(proxied, (two[2],), 1)
    unsigned = phone.token()._replace(signature=bytes(256))
    for token in (unsigned, unsigned._replace(key="elsewhere-" + "0" * 32)):
        with pytest.raises(Refused) as refusal:
            phone.client.submit(report_of(1, by=phone), token.text)
        assert refusal.value.status == 401
    with pytest.raises(Refused) as refusal:
        phone.client.sign("elsewhere." + "A" * 43, "x", [bytes(256)])
    assert (refusal.value.status, refusal.value.code) == (401, "unknown_secret")
    with pytest.raises(Refused) as refusal:
        phone.client.enrol("AAAA-AAAA-AAAA-AAAA")
    assert (refusal.value.status, refusal.value.code) == (403, "bad_code")


def test_a_phone_that_saw_the_next_round_elsewhere_is_asked_to_come_back(two):
    """The first gateway is in round 1 already; the second takes the report once it is, too.

    Where it was cut off for longer it refused the report for good, and the phone dropped it.
    """
    coordinator, first, second = two
    code = second.vault.devices.issue_code(expires=time.time() + 3600)
    client = Client(second.port, 60.0)
    token = client.enrolled(code, 3)
    closed = [gateway.close(0) for gateway in (first, second)]
    coordinator.absorb(closed, 1, coordinator.keys)
    first.open(coordinator)
    ahead = report_of(1, 1, by=token)
    assert client.report(token, ahead) == (503, "no_round")
    assert client.report(token, report_of(1, 2, by=token)) == (503, "no_round")
    second.open(coordinator)
    assert client.report(token, ahead) == (201, "accepted")
    client.close()
    elsewhere = Client(first.port, 60.0)
    assert elsewhere.report(token, ahead) == (401, "unknown_key")  # a phone has one gateway
    elsewhere.close()
    assert second.close(1).n_reports == 1
