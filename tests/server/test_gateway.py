"""The gateway over a real socket: every answer, every reason, every limit."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import re
import socket
import sqlite3
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import numpy as np
import pytest
from servers import MECHANISM, SETTINGS, Device, ServerProcess, report_of, until

from nextapp.phone import Client as PhonesClient
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.privacy.tokens import MESSAGE, Token, from_base64, public_key
from nextapp.randomness import KeyedBits, TokenCoins, distinct
from nextapp.server.gateway import PublishedRound
from nextapp.server.vault import RoundRules, Vault
from nextapp.wire import Broadcast, ModelSettings, Report, ReportRequest, unpack


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def client(server):
    client = server.client()
    yield client
    client.close()


def test_the_broadcast_has_a_name_and_comes_once(client):
    status, headers, body = client.request("GET", "/v1/broadcast")
    assert status == 200
    assert headers["content-type"] == "application/octet-stream"
    assert headers["etag"] == f'"{hashlib.sha256(body).hexdigest()}"'
    assert headers["nextapp-round"] == "0"
    broadcast = Broadcast.from_bytes(body)
    assert broadcast.app_vectors.shape == (12, 4)
    assert broadcast.apps[3] == "app-0003"
    asked = requested_mechanism(broadcast)
    for name in ("name", "epsilon", "clip", "n_apps", "d"):
        assert getattr(asked, name) == getattr(MECHANISM, name)
    for tag in (headers["etag"], f'"x", {headers["etag"]}', f"W/{headers['etag']}", "*"):
        status, again, nothing = client.request("GET", "/v1/broadcast", if_none_match=tag)
        assert (status, nothing, again["etag"]) == (304, b"", headers["etag"])
    status, zipped, data = client.request("GET", "/v1/broadcast", accept_encoding="br, gzip;q=0.5")
    assert zipped["content-encoding"] == "gzip"
    assert gzip.decompress(data) == body
    assert zipped["etag"] == headers["etag"]
    for refused in ("gzip;q=0", "br", "gzip; q=0.0"):
        plain = client.request("GET", "/v1/broadcast", accept_encoding=refused)
        assert plain[2] == body


def test_a_report_is_taken_once_and_its_round_counts_it(server, client):
    one, other = server.enrolled(2)
    before = server.round().n_reports
    assert client.report(one, report_of(1, by=one)) == (201, "accepted")
    assert client.report(one, report_of(1, by=one)) == (200, "repeated")
    drawn = (report_of(1, draw=draw, by=one) for draw in range(1, 100))
    different = next(body for body in drawn if body != report_of(1, by=one))
    assert client.report(one, different) == (409, "already_spent")
    assert client.report(other, report_of(1, by=other)) == (201, "accepted")
    round = server.round()
    assert round.n_reports == before + 2
    assert (round.number, round.extensions, round.closed) == (0, 0, False)
    assert round.deadline - round.opened == pytest.approx(1e6)
    assert server.metric("nextapp_round_goal") == 10**6
    assert server.metric("nextapp_round_reports") == before + 2
    assert server.ready()


def bad_reports():
    good = report_of(5)
    report = Report.from_bytes(good)
    other = report_of(5, round=7)
    wide = MECHANISM._fields.pack(
        [MECHANISM.D, MECHANISM.D + 1][: MECHANISM.k], [1, 1][: MECHANISM.k]
    )
    return {
        "bad_report": [b"", b"x", good[:-1], good + b"\0", good[:5] + b"\xff" + good[6:]],
        "wrong_round": [other],
        "wrong_mechanism": [Report("kashin", 0, report.payload).to_bytes()],
        "wrong_size": [Report("harmony", 0, b"").to_bytes(),
                       Report("harmony", 0, report.payload + b"\0").to_bytes()],
        "out_of_range": [Report("harmony", 0, wide).to_bytes(),
                         Report("harmony", 0, b"\xff" * len(report.payload)).to_bytes()],
    }  # fmt: skip


@pytest.mark.parametrize("reason", list(bad_reports()))
def test_a_bad_report_is_refused_with_its_reason_and_counted(server, client, reason):
    (token,) = server.enrolled(1)
    name = f'nextapp_reports_total{{outcome="{reason}"}}'
    before = server.metric(name)
    bodies = bad_reports()[reason]
    for body in bodies:
        assert client.report(token, body) == (400, reason)
    assert server.metric(name) == before + len(bodies)
    good = report_of(5, by=token)
    assert client.report(token, good) == (201, "accepted")  # nothing of it stuck


def test_positions_that_are_not_those_of_the_token_are_refused(server, client):
    own, *others = server.enrolled(3)
    name = 'nextapp_reports_total{outcome="wrong_coins"}'
    before = server.metric(name)
    due = distinct(own.token().coins, MECHANISM.k, MECHANISM.D)
    chosen = [(position + 1) % MECHANISM.D for position in due]
    # Tokens are random and one of 48 positions is drawn: by chance it can be the same one.
    strangers = [other.token().coins for other in others]
    strangers += [TokenCoins(own.token().nonce), TokenCoins(own.token().signature[::-1])]
    strangers += [KeyedBits(key) for key in (1, 2)]  # drawn with the phone's own bits
    drawn = [distinct(bits, MECHANISM.k, MECHANISM.D) for bits in strangers]
    bad = [
        Report("harmony", 0, MECHANISM._fields.pack(sorted(positions), [1] * MECHANISM.k))
        for positions in [chosen, *drawn]
        if sorted(positions) != sorted(due)
    ]
    assert len(bad) > 3
    for report in bad:
        assert client.report(own, report.to_bytes()) == (400, "wrong_coins")
    assert server.metric(name) == before + len(bad)
    for signs in ([0] * MECHANISM.k, [1] * MECHANISM.k):  # the signs are the phone's
        last = Report("harmony", 0, MECHANISM._fields.pack(due, signs)).to_bytes()
        assert client.report(own, last)[1] in ("accepted", "already_spent")


def test_a_seed_that_is_not_that_of_the_token_is_refused(tmp_path):
    """The seed is the first 8 bytes of HMAC-SHA256, written here by hand."""
    with ServerProcess(tmp_path, mechanism="walsh") as server:
        own, other = (device.token() for device in server.enrolled(2))
        client = server.client()
        made = requested_mechanism(Broadcast.from_bytes(client.request("GET", "/v1/broadcast")[2]))

        def seed(key: bytes, number: int = 0) -> bytes:
            said = b"nextapp coins" + number.to_bytes(8, "little")
            return hmac.new(key, said, hashlib.sha256).digest()[:8]

        report = made.encode(np.ones((12, 4)), KeyedBits(1), 0, own.coins)
        assert report.payload[:8] == seed(own.signature)
        rest = report.payload[8:]
        for wrong in (bytes(8), seed(other.signature), seed(own.signature, 1), seed(own.nonce)):
            body = Report("walsh", 0, wrong + rest).to_bytes()
            assert client.report(own, body) == (400, "wrong_coins")
        assert client.report(own, report.to_bytes()) == (201, "accepted")


def test_the_digest_is_that_of_the_broadcast_and_comes_from_no_cache(client):
    body = client.request("GET", "/v1/broadcast")[2]
    status, headers, data = client.request("GET", "/v1/digest")
    assert (status, headers["cache-control"]) == (200, "no-store")
    digest = hashlib.sha256(body).hexdigest()
    assert json.loads(data) == {"round": 0, "sha256": digest, "n_bytes": len(body)}
    status, headers, data = client.request("GET", "/v1/digests")
    assert (status, json.loads(data)) == (200, {"digests": [[0, digest]]})
    assert headers["cache-control"] == "no-cache"  # there will be more


def test_the_list_of_digests_comes_in_pages_that_are_kept_for_ever_once_they_are_full(tmp_path):
    """1,300 rounds, some skipped; both clients in Python read it to the end."""
    rounds = [number for number in range(3, 2000) if number % 3][:1300]
    listed = [[number, hashlib.sha256(b"%d" % number).hexdigest()] for number in rounds]
    with ServerProcess(tmp_path) as server:
        with closing(sqlite3.connect(tmp_path / "vault.sqlite", timeout=60)) as other, other:
            other.executemany("INSERT INTO digests VALUES (?, ?, 0)", listed)
        client, first, pages = server.client(), 1, []
        while page := client.json("GET", f"/v1/digests?from={first}")[1]["digests"]:
            pages.append(page)
            first = page[-1][0] + 1
        assert [len(page) for page in pages] == [512, 512, 1300 - 1024]
        assert [each for page in pages for each in page] == listed
        headers = client.request("GET", "/v1/digests?from=1")[1]
        assert headers["cache-control"] == "public, max-age=31536000, immutable"
        zipped = client.request("GET", "/v1/digests?from=1", accept_encoding="gzip")
        assert json.loads(gzip.decompress(zipped[2])) == {"digests": pages[0]}
        assert len(zipped[2]) < int(headers["content-length"]) * 0.6
        assert zipped[1]["vary"] == headers["vary"] == "accept-encoding"
        for wrong in ("x", "-1", "1.5", "9" * 17, "", "²"):
            path = f"/v1/digests?from={urllib.parse.quote(wrong)}"
            assert client.json("GET", path)[0:1] == (400,)
        with PhonesClient(f"http://127.0.0.1:{server.port}") as phones:
            found = phones.digests(1100, 1900)
        assert found[0][0] == 1024  # so that many phones ask for the same
        expected = [tuple(each) for each in listed if each[0] >= 1024]
        assert found == expected


def next_broadcast(server, client, token, round: int) -> bytes:
    """The broadcast after this round, which one report closes."""
    assert client.report(token, report_of(1, round, by=token)) == (201, "accepted")
    for _ in range(2000):
        _, headers, body = client.request("GET", "/v1/broadcast")
        if headers.get("nextapp-round") == str(round + 1):
            return body
        time.sleep(0.05)
    raise AssertionError(f"round {round} does not close")


def test_every_broadcast_tells_of_those_before_it_whatever_was_killed(tmp_path):
    """Digests and chain by hand, over kills in between; the bytes at hand stay the same."""
    with ServerProcess(tmp_path, goal=1) as server:
        (token,) = server.enrolled(1, rounds=5)
        client = server.client()
        bodies = [client.request("GET", "/v1/broadcast")[2]]
        for number in range(5):
            bodies.append(next_broadcast(server, client, token, number))
            if number % 2:
                server.kill()
                server.start()
                client = server.client()
                assert client.request("GET", "/v1/broadcast")[2] == bodies[-1]
        told = client.json("GET", "/v1/digests")[1]["digests"]
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]
    assert told == [[number, digest] for number, digest in enumerate(digests)]
    chain = bytes(32)
    for number, body in enumerate(bodies):
        words = unpack(body)[1]
        if number == 0:
            assert "history" not in words
        else:
            history = json.loads(words["history"])
            assert history == {"digests": told[:number], "chain": chain.hex()}
        chain = hashlib.sha256(chain + bytes.fromhex(digests[number])).digest()


def test_without_a_token_that_was_signed_there_is_no_report(server, client):
    good, other = (device.token() for device in server.enrolled(2))
    key, _, rest = good.text.partition(".")
    first = "A" if rest[-5] != "A" else "B"
    changed = rest[:-5] + first + rest[-4:]
    mixed = good._replace(nonce=other.nonce).text
    for text in (
        "A" * 43, "x", "", "é" * 5, rest, f"{key}.", f"{key}.{rest[:-4]}", f"{key}.{rest}AAAA",
        f"{key}.{'A' * 384}", f"{key}.{changed}", mixed, good.text.upper(), f" {good.text}",
    ):  # fmt: skip
        status, _, data = client.request(
            "POST", "/v1/report", report_of(1), authorization=f"Token {text}".encode()
        )
        assert (status, json.loads(data)["error"]) == (401, "bad_token"), text
    for header in ("", "Basic abc", f"Bearer {good.text}", "Bearer main." + "A" * 43):
        status, _, data = client.request("POST", "/v1/report", report_of(1), authorization=header)
        assert (status, json.loads(data)["error"]) == (401, "bad_token")
    assert client.json("POST", "/v1/report")[0] == 401


def test_a_token_of_a_key_that_is_not_listed_is_refused_as_such(server, client):
    (token,) = (device.token() for device in server.enrolled(1))
    for key in ("main-" + "0" * 32, "other-" + token.key.partition("-")[2]):
        foreign = token._replace(key=key)
        assert client.report(foreign, report_of(1)) == (401, "unknown_key")


def test_the_number_of_a_signature_has_one_form(server, client):
    """s + n fits the same bytes for some tokens; it would be a second coin."""
    body = client.request("GET", "/v1/broadcast")[2]
    (listed,) = Broadcast.from_bytes(body).keys
    public, n = public_key(listed), int(listed.modulus, 16)
    with closing(Vault(server.folder / "vault.sqlite")) as vault:
        private = vault.keys.private(listed.id)
    for _ in range(5000):  # a modulus near 2^2048 leaves room above few signatures
        blinding = public.new_blinding(MESSAGE)
        token = Token.of(listed, blinding, private.sign(public.blind(blinding)))
        twice = int.from_bytes(token.signature) + n
        if twice < 1 << 2048:
            changed = token._replace(signature=twice.to_bytes(256))
            assert client.report(changed, report_of(1)) == (401, "bad_token")
            return
    raise AssertionError("5,000 signatures in the upper part of their numbers")


def test_tokens_are_issued_once_and_the_same_request_has_the_same_answer(server, client):
    one, other = server.enrolled(2)
    listed = Broadcast.from_bytes(client.request("GET", "/v1/broadcast")[2]).keys[-1]
    secret = client.json("POST", "/v1/enrol", {"code": server.code()})[1]["secret"]
    n = int(listed.modulus, 16)
    blinded = [number.to_bytes(256) for number in (5, n - 7)]
    status, words = client.ask(secret, listed.id, blinded)
    assert status == 200
    assert [pow(int.from_bytes(from_base64(each)), 65_537, n) for each in words["signatures"]] == [
        5,
        n - 7,
    ]
    assert client.ask(secret, listed.id, blinded) == (200, words)
    for another in ([blinded[0]], blinded[::-1], [*blinded, blinded[0]]):
        status, refused = client.ask(secret, listed.id, another)
        assert (status, refused["error"]) == (409, "already_issued")
    for device in (one, other):
        assert client.ask(device.secret, listed.id, blinded)[1]["error"] == "already_issued"
    assert client.ask(secret, "main-" + "0" * 32, blinded)[1]["error"] == "unknown_key"
    assert client.ask("main." + "A" * 43, listed.id, blinded)[1]["error"] == "unknown_secret"
    assert client.ask("x", listed.id, blinded)[0] == 401


def test_what_is_no_request_for_tokens_is_refused(server, client):
    listed = Broadcast.from_bytes(client.request("GET", "/v1/broadcast")[2]).keys[-1]
    secret = client.json("POST", "/v1/enrol", {"code": server.code()})[1]["secret"]
    bearer = f"Bearer {secret}"
    n = int(listed.modulus, 16)
    for number in (b"", b"\1" * 255, b"\1" * 257, n.to_bytes(256), b"\xff" * 256):
        status, words = client.ask(secret, listed.id, [number])
        assert (status, words["error"]) == (400, "bad_request")
    assert client.ask(secret, listed.id, [b"\1" * 256] * 21)[1]["error"] == "too_many"
    for values in (
        {}, [], 5, {"key": listed.id}, {"key": listed.id, "blinded": []}, {"key": 5, "blinded": []},
        {"key": listed.id, "blinded": [5]}, {"key": listed.id, "blinded": "AAAA"},
        {"key": listed.id, "blinded": ["é"]}, {"key": listed.id, "blinded": ["A"]},
    ):  # fmt: skip
        status, words = client.json("POST", "/v1/tokens", values, authorization=bearer)
        assert (status, words["error"]) == (400, "bad_request"), values
    for body, status in ((b"[" * 4000, 400), (b"\xff", 400), (b"x" * 100_000, 413)):
        assert client.request("POST", "/v1/tokens", body, authorization=bearer)[0] == status
    assert len(client.tokens(secret, 20)) == 20  # nothing of it stuck


def test_enrolment_takes_a_code_and_nothing_else(server, client):
    code = server.code(uses=1)
    status, words = client.json("POST", "/v1/enrol", {"code": code})
    assert status == 201
    assert re.fullmatch(r"main\.[A-Za-z0-9_-]{43}", words["secret"])
    assert client.json("POST", "/v1/enrol", {"code": code})[0] == 403
    for values in ({}, {"code": 5}, {"code": ""}, [], "code", {"code": "x" * 101}, None):
        status, words = client.json("POST", "/v1/enrol", values)
        assert (status, words["error"]) == (400, "bad_request")
    assert client.request("POST", "/v1/enrol", b"[" * 4000)[0] == 400
    assert client.request("POST", "/v1/enrol", b"\xff\xfe")[0] == 400


def test_bodies_have_a_limit_announced_or_not(server, client):
    (token,) = server.enrolled(1)
    bearer = f"Token {token.token().text}"
    large = b"x" * 70_000
    assert client.request("POST", "/v1/report", b"x" * 1025, authorization=bearer)[0] == 413
    assert client.request("POST", "/v1/report", b"x" * 1024, authorization=bearer)[0] == 400
    assert client.request("POST", "/v1/enrol", b"x" * 5000)[0] == 413
    chunks = iter([large[:35_000], large[35_000:]])
    fresh = server.client()
    status, _, data = fresh.request(
        "POST", "/v1/report", chunks, authorization=bearer, transfer_encoding="chunked"
    )
    assert (status, json.loads(data)["error"]) == (413, "too_large")


def test_other_paths_and_methods_are_said_in_json(client):
    status, words = client.json("GET", "/v1/nothing")
    assert (status, words["error"]) == (404, "not_found")
    status, headers, _ = client.request("GET", "/v1/digest/", host="elsewhere.example")
    assert status == 404
    assert "location" not in headers
    for method, path, allowed in (
        ("GET", "/v1/report", "POST"), ("DELETE", "/v1/report", "POST"),
        ("PUT", "/v1/enrol", "POST"), ("POST", "/v1/broadcast", "GET, HEAD"),
    ):  # fmt: skip
        status, headers, data = client.request(method, path)
        assert (status, json.loads(data)["error"]) == (405, "method_not_allowed")
        assert sorted(headers["allow"].split(", ")) == allowed.split(", ")
    assert client.request("HEAD", "/v1/broadcast")[0] == 200


def test_metrics_are_what_prometheus_reads(server, client):
    """Every sample line is NAME{LABEL="…"} NUMBER, is announced, and buckets rise to the count."""
    (token,) = server.enrolled(1)
    assert client.report(token, report_of(9, by=token))[0] == 201
    assert client.request("GET", "/metrics")[0] == 404  # the operator's business
    lines = server.operator().request("GET", "/metrics")[2].decode().splitlines()
    announced = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    samples = [line for line in lines if not line.startswith("#")]
    for line in samples:
        match = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})? (\S+)', line)
        assert match, line
        float(match[3])
        assert re.sub(r"_(bucket|sum|count)$", "", match[1]) in announced | {match[1]}
    buckets = [
        float(line.split()[-1]) for line in samples if line.startswith("nextapp_report_seconds_b")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == server.metric("nextapp_report_seconds_count") >= 1
    assert server.metric("nextapp_devices") >= 1
    assert server.metric("nextapp_round_goal") == SETTINGS["goal"]


def test_reports_sent_at_once_are_all_answered_for_what_they_are(server):
    tokens = server.enrolled(24)
    clients = threading.local()

    def send(number):
        if not hasattr(clients, "own"):
            clients.own = server.client()
        token = tokens[number % 24]
        return clients.own.report(token, report_of(number % 24, by=token))

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(send, range(72)))
    assert sorted(answers) == [(200, "repeated")] * 48 + [(201, "accepted")] * 24


def test_the_round_closes_at_its_goal_and_the_next_one_has_another_q(tmp_path):
    with ServerProcess(tmp_path, goal=3, minimum=2) as server:
        client = server.client()
        first = Broadcast.from_bytes(client.request("GET", "/v1/broadcast")[2])
        tokens = server.enrolled(4, rounds=2)
        bodies = [report_of(device, by=tokens[device]) for device in range(3)]
        for token, body in zip(tokens, bodies, strict=False):
            assert client.report(token, body) == (201, "accepted")
        for _ in range(2000):
            _, headers, body = client.request("GET", "/v1/broadcast")
            if headers.get("nextapp-round") == "1":
                break
            time.sleep(0.05)
        second = Broadcast.from_bytes(body)
        assert client.report(tokens[3], report_of(3)) == (410, "round_closed")
        assert client.report(tokens[0], bodies[0]) == (200, "repeated")  # an answer got lost
        again = report_of(0, round=1, by=tokens[0])
        assert client.report(tokens[0], again) == (201, "accepted")
        reports = [Report.from_bytes(body) for body in bodies]
        slope = 3 * MECHANISM.decode(reports) + 0.3 * first.app_vectors
        np.testing.assert_allclose(
            second.app_vectors, first.app_vectors - 0.01 * slope, rtol=1e-12, atol=1e-12
        )
        assert server.stop() == 0
        server.start()  # goes on where it stopped
        client = server.client()
        assert (server.round().number, server.round().n_reports) == (1, 1)
        assert client.request("GET", "/v1/broadcast")[2] == body


def test_a_second_server_on_the_same_folder_is_refused(server):
    with pytest.raises(RuntimeError, match="another server runs"):
        ServerProcess(server.folder).start()


def test_settings_that_phones_rest_on_cannot_change_under_them(server, tmp_path):
    with ServerProcess(tmp_path) as one:
        one.stop()
        with pytest.raises(RuntimeError, match="epsilon"):
            ServerProcess(tmp_path, epsilon=3.0).start()
        with ServerProcess(tmp_path, goal=77) as again:
            assert again.metric("nextapp_round_goal") == 77


def dripping(server: ServerProcess, token: Device) -> list[socket.socket]:
    """Heads and bodies that do not end, and connections that say nothing (slowloris)."""
    starts = [
        b"", b"POST /v1/rep", b"GET /v1/broadcast HTTP/1.1\r\nhost: x\r\nx: ",
        b"POST /v1/report HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n"
        b"content-length: 50\r\n\r\nabc" % token.token().text.encode(),
    ]  # fmt: skip
    slow = []
    for number in range(40):
        opened = socket.create_connection(("127.0.0.1", server.port))
        opened.sendall(starts[number % 4])
        slow.append(opened)
    return slow


def test_others_do_not_notice_slow_clients(tmp_path):
    """None of these is sent away while the others are answered."""
    limits = {"request_seconds": 1e4, "connections": 60, "device_burst": 100.0}
    with ServerProcess(tmp_path, limits=limits) as server:
        (token,) = server.enrolled(1)
        slow = dripping(server, token)
        until(lambda: server.metric("nextapp_open_connections") >= 40)
        client = server.client()
        for _ in range(10):
            assert client.json("GET", "/v1/digest")[0] == 200
            for opened in slow[1::2]:  # those that go on as HTTP does
                opened.sendall(b"a")
        assert client.report(token, report_of(1, by=token)) == (201, "accepted")
        assert server.metric("nextapp_open_connections") >= 40
        for opened in slow:
            opened.close()


def test_slow_clients_are_sent_away(tmp_path):
    """Letters that come one by one do not win them time. More connections than fit are dropped."""
    limits = {"request_seconds": 1.0, "connections": 60, "device_burst": 100.0}
    with ServerProcess(tmp_path, limits=limits) as server:
        (token,) = server.enrolled(1)
        slow = dripping(server, token)

        def sent_away() -> bool:
            for opened in slow:
                with suppress(OSError):
                    opened.sendall(b"a")
            return server.metric('nextapp_dropped_connections_total{why="slow"}') >= 20

        until(sent_away)
        answers = []
        for opened in slow:
            opened.settimeout(60.0)
            try:
                answers.append(opened.recv(100)[:12])
            except ConnectionResetError:
                answers.append(b"")
            opened.close()
        assert set(answers) <= {b"", b"HTTP/1.1 408", b"HTTP/1.1 400"}  # "" is an end, too
        until(lambda: server.metric("nextapp_open_connections") == 0)
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(70)]
        until(lambda: server.metric('nextapp_dropped_connections_total{why="too_many"}') >= 5)
        for opened in crowd:
            opened.close()
        until(lambda: server.metric("nextapp_open_connections") == 0)
        assert server.client().report(token, report_of(1, by=token)) == (201, "accepted")


def test_an_endless_head_is_cut_off(server):
    with socket.create_connection(("127.0.0.1", server.port)) as opened:
        opened.settimeout(5.0)
        opened.sendall(b"GET /v1/digest HTTP/1.1\r\n")
        try:
            for number in range(4000):
                opened.sendall(b"x-%d: %s\r\n" % (number, b"y" * 200))
            answer = opened.recv(1000)
        except OSError:
            answer = b"HTTP/1.1 431"
    assert answer.startswith(b"HTTP/1.1 431")


def test_devices_and_addresses_that_ask_too_often_are_told_to_wait(tmp_path):
    limits = {"device_burst": 3, "device_seconds": 1000, "address_burst": 2, "address_seconds": 500}
    with ServerProcess(tmp_path, limits=limits) as server:
        client = server.client()
        one, other = server.enrolled(2)
        body = report_of(1, by=one)
        assert client.report(one, body)[0] == 201
        assert [client.report(one, body)[0] for _ in range(9)] == [200] * 9
        bearer = {"authorization": f"Bearer {one.secret}"}
        asked = [client.json("POST", "/v1/tokens", {}, **bearer)[0] for _ in range(3)]
        assert asked == [400, 400, 429]
        _, headers, _ = client.request("POST", "/v1/tokens", b"", **bearer)
        assert 900 <= int(headers["retry-after"]) <= 1000
        assert (
            client.json("POST", "/v1/tokens", {}, authorization=f"Bearer {other.secret}")[0] == 400
        )
        wrong = [client.json("POST", "/v1/enrol", {"code": "AAAA"})[0] for _ in range(3)]
        assert wrong == [403, 403, 429]
        assert client.json("POST", "/v1/enrol", {"code": server.code()})[0] == 201


def test_nothing_of_a_client_is_written_to_the_log(tmp_path):
    with ServerProcess(tmp_path) as server:
        client = server.client()
        (token,) = server.enrolled(1)
        client.report(token, report_of(1, by=token))
        client.report("A" * 43, report_of(1))
        client.request("GET", "/v1/broadcast")
        client.close()
        server.process.terminate()
        out, err = server.process.communicate(timeout=30)
    assert "127.0.0.1" not in out + err
    assert token.secret not in out + err
    assert token.token().text not in out + err


def test_a_body_may_be_as_long_as_a_report_of_the_round(rng):
    """The length by drawing one: kashin's grows with b, walsh sends nine bytes in all."""
    round_ = RoundRules(1, 1, 1.0).open_round(0, 0.0)
    for name, n_apps in (("kashin", 100), ("walsh", 1000), ("harmony", 5)):
        request = ReportRequest(name, 1.0, 1.0)
        told = Broadcast(0, np.full((n_apps, 16), 0.1), ModelSettings(), request=request)
        handout = PublishedRound(round_, told.to_bytes(), "main")
        drawn = handout.mechanism.encode(rng.normal(size=(n_apps, 16)), KeyedBits(1)).to_bytes()
        assert handout.report_bytes == max(1024, len(drawn)), name
    for made in (
        mechanism("kashin", n_apps=5, d=3, epsilon=2.0, clip=1.0),
        mechanism("harmony", n_apps=5, d=3, epsilon=8.0, clip=1.0),
        mechanism("walsh", n_apps=5, d=3, epsilon=8.0, clip=1.0, b=9),
    ):
        shares = np.zeros((made.n_apps, made.d))
        assert made.payload_bytes == len(made.encode(shares, KeyedBits(1)).payload), made.name


@pytest.mark.parametrize("n_pieces", [1, 2, 40])
@pytest.mark.parametrize("where", ["one field", "many fields", "path"])
def test_a_head_is_as_long_as_allowed_however_it_arrives(server, n_pieces, where):
    for n, expected in ((30_000, b"HTTP/1.1 200"), (33_000, b"HTTP/1.1 431")):
        path, fields = "/v1/digest", [f"x: {'y' * n}"]
        if where == "many fields":
            fields = [f"x-{number}: {'y' * 93}" for number in range(n // 100)]
        elif where == "path":
            path, fields = f"/v1/digest?{'y' * n}", []
        head = "\r\n".join([f"GET {path} HTTP/1.1", "host: here", *fields, "", ""]).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
            size = -(-len(head) // n_pieces)
            for start in range(0, len(head), size):
                with suppress(ConnectionError):  # it may be refused before its end
                    plain.sendall(head[start : start + size])
            answer = b""
            with suppress(ConnectionError):  # reset by what came after the refusal
                answer = plain.recv(100)
            assert answer.startswith(expected) or (n > 32_768 and n_pieces > 1 and not answer)
