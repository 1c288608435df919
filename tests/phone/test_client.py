"""The HTTP client against servers that do not behave."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from nextapp.phone.client import (
    BadAnswer,
    Client,
    NotAsPublished,
    Overloaded,
    Refused,
    Unreachable,
    Untrusted,
)
from nextapp.phone.core import MOST_BYTES
from nextapp.wire import Report
from phone.small_server import FIRST, KEY, SECRET, new_token, serving

TOKEN = new_token().text


@pytest.fixture
def server(make_broadcast):
    with serving(make_broadcast(3)) as server:
        yield server


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def client(server, pauses):
    with Client(server.url, timeout=60.0, sleep=pauses.append) as client:
        yield client


def test_a_broadcast_comes_packed_and_only_when_it_is_new(server, client):
    data = client.current()
    assert data == server.data()
    assert client.current(hashlib.sha256(data).hexdigest()) is None
    paths = [path for _, path, _ in server.requests]
    assert paths == ["/v1/digest", "/v1/broadcast", "/v1/digest"]
    for _, _, headers in server.requests:  # a fetch does not say who asks or what is held
        assert set(headers) == {"Host", "Accept-Encoding"}


@pytest.mark.parametrize("step", [0, 1])
def test_an_endless_list_of_digests_is_not_read_to_its_end(server, client, step):
    """Pages that lead nowhere, or by one round each."""

    def mishap(handler):
        first = int(handler.path.partition("=")[2])
        return handler.answer(200, {"digests": [[first * step, "0" * 64]]})

    server.mishap = mishap
    if step:
        assert len(client.digests(5000, 10**6)) == 64
    else:
        with pytest.raises(BadAnswer, match="which broadcasts"):
            client.digests(5000, 10**6)
    assert server.requests[0][1] == "/v1/digests?from=4096"


@pytest.mark.parametrize("round_", [-1, 1 << 53, 10**400, 5000.0, True])
def test_a_list_of_rounds_that_are_none_is_refused(server, client, round_):
    server.mishap = lambda handler: handler.answer(200, {"digests": [[round_, "0" * 64]]})
    with pytest.raises(BadAnswer, match="which broadcasts"):
        client.digests(0, 10**6)


def test_no_string_of_the_server_comes_back_to_it(server, client):
    """ETags, cookies and the like would let a server recognise a phone."""
    mark = "f00dfacef00dface"

    def mishap(handler):
        headers = {"ETag": f'"{mark}"', "Set-Cookie": f"id={mark}", "Last-Modified": mark}
        if handler.path == "/v1/broadcast":
            return handler.answer(200, server.data(), **headers)
        return False

    server.mishap = mishap
    client.current()
    client.current(client.published().digest)
    client.submit(Report("harmony", 3, b"x").to_bytes(), TOKEN)
    assert mark not in str(server.requests)


def test_fetching_and_reporting_use_different_connections(server, client):
    ports = []

    def note(handler):
        ports.append((handler.path, handler.client_address[1]))
        return False

    server.mishap = note
    client.current()
    client.submit(Report("harmony", 3, b"x").to_bytes(), TOKEN)
    client.current()
    fetched = {port for path, port in ports if path != "/v1/report"}
    reported = {port for path, port in ports if path == "/v1/report"}
    assert not fetched & reported
    assert len(fetched) == 2  # nor do two fetches share one


def test_a_broadcast_that_is_not_the_published_one_is_not_taken(server, client):
    server.digest = "0" * 64
    with pytest.raises(NotAsPublished, match="stale or changed"):
        client.current()


def test_a_round_that_closes_between_digest_and_broadcast_is_no_error(
    server, client, make_broadcast
):
    def mishap(handler):
        if handler.path == "/v1/broadcast" and server.round == 3:
            server.publish(make_broadcast(4))
        return False

    server.mishap = mishap
    assert client.current() == server.data()
    assert client.published().round == 4


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"round": 3},
        {"round": "3", "sha256": "0" * 64},
        {"round": True, "sha256": "0" * 64},
        {"round": -1, "sha256": "0" * 64},
        {"round": 1 << 53, "sha256": "0" * 64},
        {"round": 10**400, "sha256": "0" * 64},
        {"round": 3, "sha256": "0" * 63},
        {"round": 3, "sha256": "G" * 64},
        {"round": 3, "sha256": 7},
    ],
    ids=str,
)
def test_a_digest_that_is_none_is_refused(server, client, words):
    server.mishap = lambda handler: handler.answer(200, words)
    with pytest.raises(BadAnswer, match="which broadcast"):
        client.current()


def test_a_code_becomes_a_secret_and_that_signatures(server):
    blinded = [number.to_bytes(256) for number in (5, 6)]
    with Client(server.url) as client:
        secret = client.enrol("welcome")
        assert secret == SECRET
        signed = client.sign(secret, KEY.id, blinded)
        assert signed == client.sign(secret, KEY.id, blinded) == list(map(FIRST.sign, blinded))
    asked = [headers for _, path, headers in server.requests if path == "/v1/tokens"]
    assert [headers["Authorization"] for headers in asked] == [f"Bearer {SECRET}"] * 2
    with Client(server.url) as client, pytest.raises(Refused, match="unknown_secret"):
        client.sign("main." + "x" * 43, KEY.id, blinded)
    with Client(server.url) as client, pytest.raises(Refused, match="bad_code"):
        client.enrol("guess")


@pytest.mark.parametrize(
    "words", [{}, {"signatures": []}, {"signatures": [5]}, {"signatures": "AAAA"}, [], {"x": None}]
)
def test_signatures_that_are_none_are_refused(server, client, words):
    server.mishap = lambda handler: handler.answer(200, json.dumps(words).encode())
    with pytest.raises(BadAnswer, match="one signature for each"):
        client.sign(SECRET, KEY.id, [bytes(256)])


def test_a_server_that_is_down_for_a_while_gets_the_same_bytes_again(server, client, pauses):
    answers = iter([503, 500, None])

    def mishap(handler):
        status = next(answers)
        return status is not None and handler.answer(status, Retry_After="3")

    server.mishap = mishap
    report = Report("harmony", 3, b"payload").to_bytes()
    client.submit(report, TOKEN)
    assert server.arrived == [report] * 3
    assert len(pauses) == 2
    assert all(pause >= 3.0 for pause in pauses)  # as the server asked


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_server_that_says_not_now_has_not_refused(server, client, pauses, status):
    server.mishap = lambda handler: handler.answer(status, {"error": "x", "message": "not now"})
    with pytest.raises(Overloaded, match="not now"):
        client.submit(b"report", TOKEN)
    assert server.arrived == [b"report"] * 4
    assert len(pauses) == 3


def test_an_answer_that_is_lost_is_asked_for_again(server, client, pauses):
    lost = iter([True, True, False, False])

    def mishap(handler):
        if next(lost):
            handler.take = lambda body: None  # it arrived, but the line breaks
            handler.connection.shutdown(socket.SHUT_RDWR)
            return True
        return False

    server.mishap = mishap
    client.submit(Report("harmony", 3, b"payload").to_bytes(), TOKEN)
    assert len(set(server.arrived)) == 1
    assert len(server.arrived) == 3
    assert len(pauses) == 2
    assert all(
        0.25 <= pause <= 1.5 for pause in pauses
    )  # 0.5 s and 1 s, each by half to one and a half


def test_pauses_differ_between_phones(server):
    server.mishap = lambda handler: handler.answer(503)
    seen = set()
    for _ in range(4):
        pauses: list[float] = []
        with (
            Client(server.url, sleep=pauses.append, attempts=2) as client,
            pytest.raises(Overloaded),
        ):
            client.broadcast()
        seen.update(pauses)
    assert len(seen) == 4


def test_a_server_that_asks_for_a_long_pause_is_left_alone(server, client, pauses):
    server.mishap = lambda handler: handler.answer(
        429, {"error": "slow_down", "message": "too many"}, Retry_After="3600"
    )
    with pytest.raises(Overloaded, match="too many") as caught:
        client.broadcast()
    assert caught.value.pause == 3600.0
    assert pauses == []


def test_a_pause_may_be_a_date(server, client, pauses):
    server.mishap = lambda handler: handler.answer(503, Retry_After="Wed, 21 Oct 2065 07:28:00 GMT")
    with pytest.raises(Overloaded) as caught:
        client.broadcast()
    assert caught.value.pause == 30 * 86_400.0  # a month at most


def test_a_refusal_is_final_and_carries_the_servers_reason(server, client, pauses):
    server.mishap = lambda handler: handler.answer(
        400, {"error": "wrong_size", "message": "must have 8 bytes, got 7"}
    )
    with pytest.raises(Refused, match="must have 8 bytes") as caught:
        client.submit(b"report", TOKEN)
    assert (caught.value.status, caught.value.code) == (400, "wrong_size")
    assert pauses == []


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"error": 7}', b"[" * 100_000, b"\xff\xfe"])
def test_a_refusal_in_any_words_is_a_refusal(server, client, body):
    server.mishap = lambda handler: handler.answer(404, body[:60_000])
    with pytest.raises(Refused):
        client.submit(b"report", TOKEN)


def test_nobody_is_followed_to_another_address(server, client):
    server.mishap = lambda handler: handler.answer(307, Location="https://elsewhere.example/")
    for call in (client.broadcast, lambda: client.submit(b"report", TOKEN)):
        with pytest.raises(BadAnswer, match=r"elsewhere\.example"):
            call()
    assert len(server.requests) == 2


def test_an_answer_beyond_the_limit_is_not_read(server, client):
    for size in (MOST_BYTES + 1, 5_000_000):
        server.publish(bytes(size))
        with pytest.raises(BadAnswer, match="larger than"):
            client.broadcast()


def test_a_bomb_in_gzip_is_not_unpacked(server):
    bomb = gzip.compress(bytes(100_000_000), 9)
    assert len(bomb) < 100_000

    server.mishap = lambda handler: handler.answer(200, bomb, Content_Encoding="gzip", ETag='"b"')
    with Client(server.url) as client, pytest.raises(BadAnswer, match="larger than"):
        client.broadcast()


def test_an_answer_cut_short_is_no_answer(server, pauses):
    data = gzip.compress(server.broadcast.to_bytes())

    def cut(handler, packing):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        if packing:
            handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2])
        handler.close_connection = True
        return True

    for packing in (True, False):
        server.mishap = lambda handler, packing=packing: cut(handler, packing)
        with (
            Client(server.url, attempts=1, timeout=60.0) as client,
            pytest.raises(Unreachable, match=r"short|broke off"),
        ):
            client.broadcast()
    server.mishap = lambda handler: handler.answer(200, data[:-9], Content_Encoding="gzip")
    with Client(server.url, attempts=1) as client, pytest.raises(Unreachable, match="short"):
        client.broadcast()


def test_a_server_that_never_answers_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Client(url, timeout=0.1, attempts=2, sleep=lambda s: None) as client,
            pytest.raises(Unreachable, match="not reached"),
        ):
            client.broadcast()


def test_a_server_that_is_not_there_is_unreachable(server, pauses):
    url = server.url
    server.server_close()
    with (
        Client(url, sleep=pauses.append, attempts=3) as client,
        pytest.raises(Unreachable, match="not reached"),
    ):
        client.broadcast()
    assert len(pauses) == 2


@pytest.mark.parametrize(
    "url", ["", "ftp://host", "https://", "https://host:x", "https://me:pw@host", "https://h/?q=1"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match="must look like"):
        Client(url)


def test_plain_http_is_for_this_machine_only():
    with pytest.raises(ValueError, match="not encrypted"):
        Client("http://server.example:8080")
    for here in ("http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"):
        Client(here)


def test_no_relay_is_used_that_was_not_named(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url.replace("localhost", "127.0.0.1"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    away = "http://127.0.0.1:9/base"  # where nothing listens
    with Client(away, attempts=1, timeout=1.0) as client, pytest.raises(Unreachable):
        client.broadcast()
    assert server.requests == []


@pytest.mark.parametrize("relay", ["", "https://host:1", "http://host", "host:1"])
def test_what_is_no_relay_is_refused(relay):
    with pytest.raises(ValueError, match="must look like http://host:port"):
        Client("https://server.example", relay=relay)


def test_tls_with_a_ca_of_its_own(make_broadcast, certificate):
    ca, pair = certificate
    with serving(make_broadcast(3), pair) as server:
        with Client(server.url, ca=ca) as client:
            assert client.broadcast() == server.data()
            client.submit(Report("harmony", 3, b"x").to_bytes(), TOKEN)
        assert list(server.taken) == [3]


def test_a_server_that_cannot_show_who_it_is_gets_nothing(make_broadcast, certificate, pauses):
    ca, pair = certificate
    with serving(make_broadcast(3), pair) as server:
        with (
            Client(server.url, sleep=pauses.append) as stranger,
            pytest.raises(Untrusted, match="Nothing was sent"),
        ):
            stranger.submit(b"report", TOKEN)
        other_name = server.url.replace("localhost", "127.0.0.1")
        with (
            Client(other_name, ca=ca, sleep=pauses.append) as client,
            pytest.raises(Untrusted, match="127"),
        ):
            client.submit(b"report", TOKEN)
        assert server.requests == []
        assert pauses == []  # asking again would not help


def test_a_ca_file_that_is_none_is_told(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ValueError, match="CA file"):
        Client("https://localhost", ca=tmp_path / "ca.pem")


@contextmanager
def saying(*pieces: bytes, again: float = 0.0):
    """A server that says these pieces, the last of them over and over, every `again` seconds."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                while not ended.wait(again):
                    connection.sendall(pieces[-1])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.close()
        thread.join(5.0)


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n",),
    "a header by the letter": (HEAD, b"x"),
    "trailers": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
    "tiny chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nxx\r\n"),
    "a slow body": (HEAD + b"Content-Length: 100000\r\n\r\n", b"x"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_an_answer_without_end_is_cut_off(what):
    with saying(*ENDLESS[what], again=0.01) as url:
        start = time.monotonic()
        with (  # no single read takes so long as `timeout`: something always comes
            Client(url, patience=0.5, timeout=60.0, attempts=1) as client,
            pytest.raises((Unreachable, BadAnswer)),
        ):
            client.broadcast()
        assert time.monotonic() - start < 50.0


def test_what_comes_after_the_end_of_a_packed_answer_is_not_read():
    packed = gzip.compress(b"{}")
    head = HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
    with (
        saying(head + packed, b"x" * 65536) as url,
        Client(url, patience=5.0, attempts=1) as client,
        pytest.raises(BadAnswer, match="after the end of the answer"),
    ):
        client.published()


@pytest.mark.parametrize("words", ["\ud800", "\x00\x1b[2J", "a\r\nb"])
def test_what_a_server_says_can_be_shown_and_kept(server, client, words):
    body = json.dumps({"error": words, "message": words}).encode()
    server.mishap = lambda handler: handler.answer(400, body)
    with pytest.raises(Refused) as caught:
        client.submit(b"report", TOKEN)
    assert str(caught.value).isprintable()
    str(caught.value).encode()


@pytest.mark.parametrize(
    "head",
    [
        b"\x1b[2J\x1b]0;owned\x07\r\n\r\n",
        b"HTTP/\x1b[31m9 200 OK\r\n\r\n",
        b"HTTP/1.1 301 x\r\nLocation: \x1b[2J\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: \x1b[2J\r\n\r\n",
    ],
)
def test_no_escape_of_a_server_reaches_the_screen(head):
    with saying(head) as url, Client(url, patience=5.0, attempts=1) as client:
        with pytest.raises((Unreachable, BadAnswer)) as caught:
            client.published()
        assert str(caught.value).isprintable()


def test_all_addresses_of_a_host_share_one_deadline(monkeypatch):
    """Twelve of them that say nothing took twelve times as long as one."""
    waited: list[float] = []

    def silent(address, timeout, source):
        waited.append(timeout)
        raise TimeoutError("timed out")

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 9)) for n in range(12)]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr("socket.create_connection", silent)
    monkeypatch.setattr("nextapp.phone.client.time.monotonic", lambda: sum(waited))
    client = Client("http://localhost:9", timeout=1.0, patience=3.5, attempts=1)
    with pytest.raises(Unreachable, match="timed out"):
        client.published()
    assert waited == [1.0, 1.0, 1.0, 0.5]


@pytest.mark.parametrize("end", ["\n", "\r\n X: y", "\0", " b", "", "é"])
def test_a_secret_that_would_break_a_header_is_refused(server, end):
    secret = f"main.{'a' * 15 * (end == '') or 'a' * 20}{end}"
    server.mishap = lambda handler: handler.answer(201, {"secret": secret})
    with Client(server.url) as client, pytest.raises(BadAnswer, match="gave no secret"):
        client.enrol("welcome")
