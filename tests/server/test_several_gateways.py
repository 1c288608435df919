"""Several gateways behind one name: real processes, real nginx with deploy/nginx-gateways.conf."""

from __future__ import annotations

import base64
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
from servers import MECHANISM, N_APPS, Client, report_of, token_bytes

from fixed_ports import fixed_port
from nextapp import phone as phone_side
from nextapp.cli.commands import app
from nextapp.phone.client import Refused
from nextapp.server import administration, certificates
from nextapp.server.coordinator import Coordinator
from nextapp.server.devices import TOKEN_LETTERS, new_token
from nextapp.server.federation import gateway_identity, keep_letter, open_gateway_vault
from nextapp.server.flower.gateway_rounds import Letter, answer
from nextapp.server.settings import settings_of
from nextapp.server.vault import RoundRules, Vault
from nextapp.wire import Report

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx-gateways.conf"
APPS = tuple(f"app-{number:04d}" for number in range(N_APPS))
RULES = RoundRules(goal=10**6, minimum=1, seconds=1e6)
needs_nginx = pytest.mark.skipif(
    shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"
)


def text_of(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


@pytest.mark.parametrize("letter", ["A", "B", "z", "0", "9", "-", "_"])
def test_the_text_of_a_token_begins_with_its_letter_and_the_rest_is_random(letter):
    tokens = {new_token(letter) for _ in range(200)}
    assert len(tokens) == 200
    assert {text_of(token)[0] for token in tokens} == {letter}
    assert len({text_of(token)[1] for token in tokens}) > 30  # of 64, by chance never so few
    assert all(len(token) == 32 for token in tokens)


def test_without_a_letter_tokens_begin_with_any():
    assert len({text_of(new_token())[0] for _ in range(500)}) > 50
    assert sorted(TOKEN_LETTERS) == sorted({text_of(bytes([n << 2]))[0] for n in range(64)})


@pytest.mark.parametrize("letter", ["AB", "ä", "=", " "])
def test_what_is_no_letter_of_a_token_is_refused(letter):
    with pytest.raises(ValueError, match="one of ABC"):
        new_token(letter)


def test_a_gateway_keeps_its_letter_and_takes_no_other(tmp_path):
    assert keep_letter(tmp_path, "") == ""
    assert keep_letter(tmp_path, "C") == "C"
    assert keep_letter(tmp_path, "") == keep_letter(tmp_path, "C") == "C"
    with pytest.raises(ValueError, match="begin with 'C', got --token-letter 'D'"):
        keep_letter(tmp_path, "D")


def test_a_renewed_token_has_the_letter_of_its_gateway(tmp_path):
    vault = Vault(tmp_path / "vault.sqlite", token_letter="C")
    vault.publish(RULES.open_round(0, 0.0), b"broadcast", RULES)
    old = vault.devices.enrol(vault.devices.issue_code(expires=1e12), 1.0)
    new = vault.devices.offer_token(old)
    assert new != old
    for token in (old, new):
        assert base64.urlsafe_b64encode(token).startswith(b"C")
    vault.close()


def test_an_operator_looks_after_the_devices_of_a_gateway_but_not_after_its_rounds(tmp_path):
    vault = Vault(tmp_path / "vault.sqlite", token_letter="C")
    vault.publish(RULES.open_round(0, 0.0), b"broadcast", RULES)
    answer(Letter("count", RULES.open_round(0, 0.0)), vault, gateway_identity(tmp_path))
    token = vault.devices.enrol(vault.devices.issue_code(uses=2, expires=1e12, name="north"), 1.0)
    vault.close()
    opened = administration.open_vault(tmp_path)
    assert opened.devices.expel(code="north") == 1
    assert not opened.devices.knows(token)
    opened.close()
    with pytest.raises(ValueError, match="rounds and settings are the coordinator's"):
        administration.close_round(tmp_path, 2.0)


def test_a_gateway_is_backed_up_and_its_phones_go_on_elsewhere(tmp_path):
    folder, copy, elsewhere = (tmp_path / name for name in ("gateway", "copy", "elsewhere"))
    folder.mkdir()
    vault = open_gateway_vault(folder, keep_letter(folder, "C"))
    vault.publish(RULES.open_round(0, 0.0), b"broadcast", RULES)
    token = vault.devices.enrol(vault.devices.issue_code(expires=1e12), 1.0)
    assert CliRunner().invoke(app, ["admin", "backup", str(folder), str(copy)]).exit_code == 0
    vault.close()
    found = CliRunner().invoke(app, ["admin", "restore", str(copy), str(elsewhere)])
    assert "a gateway with 1 devices" in " ".join(found.output.split())
    assert gateway_identity(elsewhere) == gateway_identity(folder)
    other = open_gateway_vault(elsewhere, keep_letter(elsewhere, ""))
    assert (other.devices.token_letter, other.devices.knows(token)) == ("C", True)
    other.close()


def test_a_gateway_without_its_vault_or_with_a_damaged_one_does_not_start(tmp_path):
    """A lost vault was replaced by an empty one, and all its phones were told 401."""
    vault = open_gateway_vault(tmp_path, "")
    vault.publish(RULES.open_round(0, 0.0), b"broadcast", RULES)
    vault.close()
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        other.execute("UPDATE broadcasts SET data = x'00'")
        other.commit()
    command = [
        sys.executable, "-m", "nextapp", "flower", "gateway", "--data", str(tmp_path),
        "--superlink", "127.0.0.1:1", "--insecure", "--port", "0", "--operator-at", "off",
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
    open_gateway_vault(tmp_path, "", new_vault=True).close()


class GatewayProcess:
    """A gateway on a folder of its own; `start` and `kill`, always on the same port."""

    def __init__(self, folder: Path, letter: str) -> None:
        folder.mkdir()
        self.folder, self.letter, self.port = folder, letter, fixed_port()
        self.vault = Vault(folder / "vault.sqlite", busy_seconds=10.0)

    def start(self) -> None:
        script = Path(__file__).parent / "gateway_process.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(self.folder), self.letter, str(self.port)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert int(self.process.stdout.readline()) == self.port

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def open(self, coordinator: Coordinator) -> None:
        """What the coordinator's letter does; phones see it a moment later."""
        round = RULES.open_round(coordinator.round, time.time())
        answer(Letter("open", round, RULES, coordinator.published()), self.vault, self.letter)
        client = Client(self.port, 60.0)
        give_up = time.monotonic() + 120
        while client.request("GET", "/v1/digest")[0] != 200 or (
            client.json("GET", "/v1/digest")[1]["round"] != coordinator.round
        ):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        client.close()

    def close(self, number: int):
        return answer(
            Letter("close", RULES.open_round(number, 0.0)), self.vault, self.letter
        ).reduced


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
    gateways = [GatewayProcess(tmp_path / f"gateway-{letter}", letter) for letter in "AB"]
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


def enrolled_phones(address, gateways, n):
    """n phones for each gateway, by codes of their own, all at one address."""
    url, authority = address
    phones = []
    for gateway in gateways:
        code = gateway.vault.devices.issue_code(uses=n, expires=time.time() + 3600)
        for _ in range(n):
            client = phone_side.Client(url, ca=authority, attempts=1)
            client.enrol(code)
            assert client.token[0] == gateway.letter
            phones.append(client)
    return phones


@needs_nginx
def test_behind_one_name_every_phone_reaches_its_gateway_and_the_sum_is_that_of_one_server(
    tmp_path, two, proxied
):
    """Codes of both gateways work at one address, tokens find their gateway, and the app vectors
    equal those of a coordinator that is given all reports in one sum, to the last bit."""
    coordinator, *gateways = two
    phones = enrolled_phones(proxied, gateways, 4)
    reports = [report_of(number, token=client.token) for number, client in enumerate(phones)]
    for client, report in zip(phones, reports, strict=True):
        assert client.current()[0].round == 0
        client.submit(report)
        client.submit(report)  # the same again is the same
    assert [gateway.vault.round().n_reports for gateway in gateways] == [4, 4]
    closed = coordinator.absorb([gateway.close(0) for gateway in gateways])
    assert closed.n_reports == 8
    single = new_coordinator(tmp_path / "single")
    tally = MECHANISM.tally(list(map(Report.from_bytes, reports)))
    parts = replace(gateways[0].close(0), n_reports=8, tally=tally)
    single.absorb([parts])
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
    mine.submit(report_of(1, token=mine.token))
    assert mine.current()[0].round == 0  # whatever gateway this address was given
    with pytest.raises(phone_side.ServerError) as refusal:
        other.submit(report_of(2, token=other.token))
    assert not isinstance(refusal.value, Refused)  # come back, keep the report
    (newcomer,) = enrolled_phones(proxied, (first,), 1)
    assert first.vault.devices.knows(token_bytes(newcomer.token))
    second.start()
    other.submit(report_of(2, token=other.token))
    assert [gateway.vault.round().n_reports for gateway in (first, second)] == [1, 1]


@needs_nginx
def test_a_token_of_nobody_is_told_so_and_a_bad_code_too(two, proxied):
    url, authority = proxied
    stranger = phone_side.Client(url, ca=authority, token=text_of(new_token("B")), attempts=1)
    for token in (text_of(new_token("B")), text_of(new_token("Q"))):
        stranger.token = token
        with pytest.raises(Refused) as refusal:
            stranger.submit(report_of(1, token=token))
        assert (refusal.value.status, refusal.value.code) == (401, "unknown_token")
    with pytest.raises(Refused) as refusal:
        stranger.enrol("AAAA-AAAA-AAAA-AAAA")
    assert (refusal.value.status, refusal.value.code) == (403, "bad_code")


def test_a_phone_that_saw_the_next_round_elsewhere_is_asked_to_come_back(two):
    """The first gateway is in round 1 already; the second takes the report once it is, too."""
    coordinator, first, second = two
    code = second.vault.devices.issue_code(expires=time.time() + 3600)
    client = Client(second.port, 60.0)
    token = client.json("POST", "/v1/enrol", {"code": code})[1]["token"]
    coordinator.absorb([gateway.close(0) for gateway in (first, second)])
    first.open(coordinator)
    ahead = report_of(1, 1, token=token)
    assert client.report(token, ahead) == (503, "no_round")
    assert client.report(token, report_of(1, 2, token=token)) == (400, "wrong_round")
    second.open(coordinator)
    assert client.report(token, ahead) == (201, "accepted")
    client.close()
    elsewhere = Client(first.port, 60.0)
    assert elsewhere.report(token, ahead) == (401, "unknown_token")  # a phone has one gateway
    elsewhere.close()
    assert second.close(1).n_reports == 1
