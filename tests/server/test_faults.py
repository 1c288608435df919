"""Kills, full disks, locks and nonsense: nothing acknowledged is lost or counted twice."""

from __future__ import annotations

import http.client
import json
import random
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from servers import MECHANISM, Device, ServerProcess, report_of, until

from nextapp.phone.client import LONGEST_WAIT
from nextapp.server.vault import Vault
from nextapp.wire import Report, unpack

DEVICES = 40
ROUNDS = 20  # that a device has tokens for; a quick machine may get through them


class Sender(threading.Thread):
    """A device that sends the report of each round until it is acknowledged, as phones do."""

    def __init__(self, server: ServerProcess, device: int, token: Device, stop: threading.Event):
        super().__init__()
        self.server, self.device, self.token, self.stop_ = server, device, token, stop
        self.acknowledged: set[int] = set()

    def body(self, round: int) -> bytes:
        return report_of(self.device, round, by=self.token)

    def run(self):
        round = 0
        while round < ROUNDS and not self.stop_.is_set():
            client = self.server.client(timeout=5.0)
            try:
                status, reason = client.report(self.token, self.body(round))
                if status in (200, 201):
                    self.acknowledged.add(round)
                assert (status, reason) in {
                    (201, "accepted"), (200, "repeated"), (410, "round_closed"),
                    (400, "wrong_round"), (503, "storage"), (503, "busy"), (503, "no_round"),
                }  # fmt: skip
                current = client.round()
                if current <= round:
                    time.sleep(0.02)
                round = max(round, current)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                time.sleep(0.02)  # the server was killed
            finally:
                client.close()


def test_after_kills_at_random_moments_every_acknowledged_report_is_in_its_sum_once(tmp_path, seed):
    """The oracle: from the app vectors of all rounds kept and the senders' own records alone."""
    chance = random.Random(seed)
    stop = threading.Event()
    kept: dict[int, np.ndarray] = {}
    sums: dict[int, tuple[int, np.ndarray]] = {}

    def look():
        for path in (tmp_path / "checkpoints").glob("round-*.safetensors"):
            tensors, words = unpack(path.read_bytes())
            kept[int(words["round"])] = np.array(tensors["app_vectors"])
        vault = Vault(tmp_path / "vault.sqlite", busy_seconds=10)
        for number in range(max(kept) + 1):
            if (reduced := vault.reduced(number)) is not None:
                sums[number] = (reduced.n_reports, reduced.tally)
        vault.close()

    with ServerProcess(tmp_path, goal=DEVICES // 2, deadline=3.0, minimum=2) as server:
        tokens = server.enrolled(DEVICES, rounds=ROUNDS)
        senders = [Sender(server, number, token, stop) for number, token in enumerate(tokens)]
        for sender in senders:
            sender.start()
        for _ in range(5):
            time.sleep(chance.uniform(0.3, 0.9))
            server.kill()
            look()
            server.start()
        client = server.client()
        until(lambda: client.round() > 3)
        stop.set()
        for sender in senders:
            sender.join()
        server.stop()
        look()
    assert len(sums) >= 3
    for number, (n_reports, tally) in sums.items():
        sent = [s.device for s in senders if number in s.acknowledged]
        reports = [Report.from_bytes(sender.body(number)) for sender in senders]
        each = [MECHANISM.tally([report]) for report in reports]
        missing = tally - sum(each[device] for device in sent)
        extra = n_reports - len(sent)  # taken, but the server died before it could say so
        assert extra >= 0
        others = [each[device] for device in range(DEVICES) if device not in sent]
        assert is_sum_of(missing, others, extra)
    for number in sorted(kept):  # and the step was taken along that sum, eq. (11)
        if number + 1 in kept and number in sums:
            n_reports, tally = sums[number]
            total = n_reports * MECHANISM.estimate(tally, n_reports)
            expected = kept[number] - 0.01 * (total + 0.3 * kept[number])
            np.testing.assert_allclose(kept[number + 1], expected, rtol=1e-12, atol=1e-12)


def is_sum_of(total, parts, n) -> bool:
    """Whether some n of the parts add up to the total; n is 0 or a few."""
    if n == 0:
        return not total.any()
    return any(
        is_sum_of(total - part, parts[place + 1 :], n - 1) for place, part in enumerate(parts)
    )


FULL_DISK = """
import resource, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import server_process
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
server_process.main()
"""


def test_a_full_disk_refuses_reports_and_loses_none(tmp_path):
    """Files of this process cannot grow beyond a limit, as on a disk without room."""
    with ServerProcess(tmp_path) as server:
        tokens = server.enrolled(300)
        server.stop()
        script = FULL_DISK.format(tests=str(Path(__file__).parent), limit=160_000)
        arguments = [str(tmp_path), str(server.port), json.dumps(server.settings),
                     json.dumps(server.limits), "{}"]  # fmt: skip
        server.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = server.process.stdout.readline()
        server.port, server.operator_port = map(int, line.split())
        client = server.client()
        bodies = [report_of(n, by=token) for n, token in enumerate(tokens)]
        answers, ready = [], []
        for each in zip(tokens, bodies, strict=True):
            answers.append(client.report(*each))
            if answers[-1] == (503, "storage") and not ready:
                ready.append(server.ready())  # now: a later report may find room again
        taken = [n for n, answer in enumerate(answers) if answer == (201, "accepted")]
        assert set(answers) == {(201, "accepted"), (503, "storage")}
        assert 0 < len(taken) < 300
        assert ready == [False]
        server.kill()
        assert server.log.count("storage") <= 2  # not a line a report
        server.start()  # with room again
        client = server.client()
        assert server.round().n_reports == len(taken)
        for n, token in enumerate(tokens):
            expected = (200, "repeated") if n in taken else (201, "accepted")
            assert client.report(token, bodies[n]) == expected


def test_while_the_vault_is_locked_reports_are_put_off_and_reads_go_on(tmp_path):
    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        other = sqlite3.connect(tmp_path / "vault.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        client = server.client()
        body = report_of(1, by=token)
        status, headers, data = client.request(
            "POST", "/v1/report", body, authorization=f"Token {token.token().text}"
        )
        assert (status, json.loads(data)["error"]) == (503, "storage")
        assert int(headers["retry-after"]) > 0
        assert client.request("GET", "/v1/broadcast")[0] == 200
        operator = server.operator()
        assert operator.json("GET", "/live") == (200, {"status": "ok"})
        status, words = operator.json("GET", "/ready")
        assert (status, words["status"]) == (503, "not ready")
        assert "locked" in words["why"]
        other.execute("ROLLBACK")
        other.close()
        assert client.report(token, body) == (201, "accepted")
        until(lambda: operator.json("GET", "/ready")[0] == 200)


def test_phones_that_come_while_a_round_ends_are_not_all_told_the_same_second(tmp_path):
    with ServerProcess(tmp_path, goal=1, grace=500.0) as server:
        (device,) = server.enrolled(1)
        client = server.client()
        assert client.report(device, report_of(0, by=device)) == (201, "accepted")
        until(lambda: client.request("GET", "/v1/digest")[0] == 503)
        asked = [client.request("GET", "/v1/digest") for _ in range(60)]
        left = server.round().ends - time.time()
        deadline = server.metric("nextapp_round_deadline_seconds")
        assert deadline == server.round().ends  # or an alarm said that the round is stuck
    waits = [int(headers["retry-after"]) for _, headers, _ in asked]
    assert left < min(waits) < max(waits) <= 1011
    assert max(waits) - min(waits) > 250  # of 500: less by chance once in 10**16


def test_sigterm_right_after_it_takes_reports_ends_it_in_order(tmp_path):
    """It was said before signals were waited for, which then ended the process at once."""
    server = ServerProcess(tmp_path)
    for _ in range(5):
        server.start()
        for line in server.process.stderr:
            if "taking reports" in line:
                break
        assert server.stop() == 0
    assert server.log.count('"stopped"') == 5


def test_while_no_round_is_open_no_phone_is_asked_and_reports_are_to_be_kept(tmp_path):
    """The round has its goal and cannot be closed, since its step cannot be written. Phones went on
    drawing reports for it, were told 410, and had spent their ε; health said ok."""
    with ServerProcess(tmp_path, goal=2) as server:
        tokens = server.enrolled(3)
        client, operator = server.client(), server.operator()
        assert server.metric("nextapp_round_open") == 1
        steps, away = tmp_path / "checkpoints", tmp_path / "away"
        steps.rename(away)
        for device in range(2):
            body = report_of(device, by=tokens[device])
            assert client.report(tokens[device], body) == (201, "accepted")
        until(lambda: client.request("GET", "/v1/digest")[0] == 503)
        for path in ("/v1/digest", "/v1/broadcast"):
            status, headers, data = client.request("GET", path)
            assert (status, json.loads(data)["error"]) == (503, "no_round")
            assert 0 < int(headers["retry-after"]) <= LONGEST_WAIT  # a phone waits for it
        late = report_of(2, by=tokens[2])
        assert client.report(tokens[2], late) == (503, "no_round")
        status, words = operator.json("GET", "/ready")
        assert (status, "not open yet" in words["why"]) == (503, True)
        assert server.metric("nextapp_round_open") == 0
        away.rename(steps)
        until(lambda: client.round() == 1)
        until(server.ready)
        assert client.report(tokens[2], late) == (410, "round_closed")


def test_when_too_many_reports_wait_for_the_disk_the_others_are_told_to_come_back(tmp_path):
    limits = {"waiting_reports": 1, "device_burst": 1e9}
    with ServerProcess(tmp_path, limits=limits) as server:
        tokens = server.enrolled(8)
        other = sqlite3.connect(tmp_path / "vault.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(8) as pool:
            waiting = [
                pool.submit(server.client().report, token, report_of(device, by=token))
                for device, token in enumerate(tokens)
            ]
            answers = [one.result() for one in waiting]
        other.execute("ROLLBACK")
        other.close()
        assert set(answers) == {(503, "busy"), (503, "storage")}
        client = server.client()
        assert server.round().n_reports == 0
        for device, token in enumerate(tokens):
            assert client.report(token, report_of(device, by=token)) == (201, "accepted")


def nonsense(chance: random.Random, token: Device) -> bytes:
    """Random bytes, or a request of ours with bytes changed, doubled or cut out."""
    body = report_of(chance.randrange(50), by=token)
    whole = (
        b"POST /v1/report HTTP/1.1\r\nhost: x\r\nauthorization: Token %s\r\ncontent-length: %d"
        b"\r\n\r\n%s" % (token.token().text.encode(), len(body), body)
    )
    others = [
        b"GET /v1/broadcast HTTP/1.1\r\nhost: x\r\nif-none-match: \"x\"\r\n\r\n",
        b"GET /v1/digest HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/digests HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: 15\r\n\r\n{\"code\": \"ABCD\"}",
        b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"POST /v1/report HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    ]  # fmt: skip
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(1, 400))
    request = bytearray(chance.choice([whole, *others]))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(request))
        kind = chance.randrange(4)
        if kind == 0:
            request[at] = chance.randrange(256)
        elif kind == 1:
            request[at:at] = request[: chance.randrange(1, 60)]
        elif kind == 2:
            del request[at : at + chance.randrange(1, 20)]
            request = request or bytearray(b"x")
        else:
            request[at:at] = chance.choice(
                [b"\r\n", b"\0", b"\r\n\r\n", b"%00", b"\xff" * 9, b": "]
            )
    return bytes(request)


def test_nonsense_on_the_socket_is_never_answered_by_a_5xx(tmp_path, seed):
    chance = random.Random(seed)
    with ServerProcess(tmp_path, limits={"request_seconds": 0.5, "device_burst": 1e9}) as server:
        (token,) = server.enrolled(1)
        statuses = set()
        for _ in range(1500):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5.0) as opened:
                try:
                    opened.sendall(nonsense(chance, token))
                    opened.shutdown(socket.SHUT_WR)
                    answer = opened.recv(4096)
                except OSError:
                    continue
            if answer:
                assert answer.startswith(b"HTTP/1.1 "), answer
                statuses.add(answer[9:12])
        assert not {status for status in statuses if status >= b"500"}
        assert {b"400", b"401"} <= statuses
        assert server.ready()
        server.process.terminate()
        errors = server.process.communicate(timeout=30)[1]
    assert "Traceback" not in errors, errors[errors.index("Traceback") :][:3000]


@pytest.mark.filterwarnings("default")
def test_the_api_is_as_its_description_says(tmp_path):
    """schemathesis, small: what it generates from /openapi.json, checked against it."""
    import schemathesis
    from hypothesis import HealthCheck, given, settings
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
        for operation in schema.get_all_operations():
            strategy = operation.ok().as_strategy()

            @settings(
                max_examples=15, deadline=None, database=None, suppress_health_check=HealthCheck
            )
            @given(case=strategy)
            def check(case):
                if case.path == "/v1/report":  # OpenAPI has no words for its bytes
                    excluded = [positive_data_acceptance]
                    headers = {"Authorization": f"Token {token.token().text}"}
                else:
                    excluded, headers = [], None
                case.call_and_validate(headers=headers, excluded_checks=excluded)

            check()
