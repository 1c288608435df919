"""A relay between phone and server: what each of them sees, and what a bad relay can do."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from fixed_ports import fixed_port
from nextapp.phone import Store
from nextapp.phone.client import Client, Unreachable, Untrusted
from nextapp.phone.commands import main
from phone.small_server import serving

DEPLOY = Path(__file__).parents[2] / "deploy"
PHONE, RELAY = "127.0.0.1", "127.0.0.2"  # where connections to the server come from


class SmallRelay(ThreadingTCPServer):
    """Tunnels to where CONNECT says, or to ``detour``; notes what it was asked and what it saw."""

    def __init__(self, detour: tuple[str, int] | None = None, answer: bytes = b"200 Go on") -> None:
        super().__init__((PHONE, 0), Tunnel)
        self.detour, self.answer = detour, answer
        self.asked: list[bytes] = []
        self.passed = b""
        self.url = f"http://{PHONE}:{self.server_address[1]}"


class Tunnel(StreamRequestHandler):
    server: SmallRelay

    def handle(self) -> None:
        head = b"".join(iter(self.rfile.readline, b"\r\n"))
        self.server.asked.append(head)
        self.wfile.write(b"HTTP/1.1 " + self.server.answer + b"\r\n\r\n")
        if not self.server.answer.startswith(b"200"):
            return
        host, port = head.split()[1].decode().split(":")
        to = self.server.detour or (host, int(port))
        with socket.create_connection(to, source_address=(RELAY, 0)) as server:
            back = threading.Thread(target=self.pump, args=(server, self.request))
            back.start()
            self.pump(self.request, server)
            back.join()

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.server.passed += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relaying(**how):
    with SmallRelay(**how) as relay:
        thread = threading.Thread(target=relay.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()


@pytest.fixture
def relay():
    with relaying() as relay:
        yield relay


@contextmanager
def seeing(make_broadcast, certificate=None):
    """A server, and the addresses from which requests came to it."""
    seen: list[str] = []
    with serving(make_broadcast(3), certificate) as server:
        server.mishap = lambda handler: seen.append(handler.client_address[0])
        yield server, seen


def test_the_server_sees_the_relay_and_the_relay_sees_only_which_server(
    make_broadcast, certificate, relay
):
    ca, pair = certificate
    with seeing(make_broadcast, pair) as (server, seen):
        with Client(server.url, ca=ca, relay=relay.url) as client:
            assert client.current() == server.data()
        assert seen == [RELAY, RELAY]
        with Client(server.url, ca=ca) as client:
            client.published()
        assert seen[2:] == [PHONE]  # without the relay it is the phone's
    (head,) = set(relay.asked)  # the same for every phone: it names the server, and nothing else
    target = server.url.removeprefix("https://").encode()
    assert head.split()[:2] == [b"CONNECT", target]
    assert set(head.split(b"\r\n")[1:]) <= {b"", b"Host: " + target}
    for word in (b"/v1/", b"HTTP", b"sha256"):
        assert word not in relay.passed


def test_a_phone_keeps_to_its_relay(make_broadcast, certificate, relay, tmp_path):
    """The relay is remembered; `none` forgets it; a wrong one leaves no way around it."""
    ca, pair = certificate
    at = ("--store", str(tmp_path / "phone.db"))
    main(["init", *at])
    with seeing(make_broadcast, pair) as (server, seen):
        first = ("--server", server.url, "--code", "welcome", "--ca", ca)
        with relaying(answer=b"403 Filtered") as shut:
            assert main(["sync", *at, *first, "--relay", shut.url]) == 1
            with Store(tmp_path / "phone.db") as store:
                assert store.setting("relay") == shut.url
        assert seen == []
        main(["sync", *at, *first, "--relay", relay.url])
        main(["sync", *at])
        assert len(relay.asked) > 2
        assert set(seen) == {RELAY}
        main(["sync", *at, "--relay", "none"])
        main(["sync", *at])
        assert seen[-1] == PHONE
        with Store(tmp_path / "phone.db") as store:
            assert store.setting("relay") == "none"


def test_a_relay_cannot_take_the_server_s_place(make_broadcast, certificate):
    """It leads to a server without the certificate for this name."""
    ca, pair = certificate
    with seeing(make_broadcast, pair) as (server, seen):
        detour = ("127.0.0.1", server.server_address[1])
        with (
            relaying(detour=detour) as relay,
            Client("https://other.example", ca=ca, relay=relay.url) as client,
            pytest.raises(Untrusted, match="not trusted"),
        ):
            client.broadcast()
        assert seen == []
    assert relay.asked[0].split()[1] == b"other.example:443"


def test_a_relay_that_refuses_or_is_not_there_is_named(make_broadcast):
    with relaying(answer=b"403 Filtered") as shut:
        url = shut.url
        with (
            Client("https://server.example", relay=url, attempts=1) as client,
            pytest.raises(Unreachable, match=r"through its relay, 127.0.0.1:\d+: .*403"),
        ):
            client.broadcast()
    with (
        Client(
            "https://server.example", relay=f"http://{PHONE}:{fixed_port()}", attempts=1
        ) as client,
        pytest.raises(Unreachable, match="through its relay"),
    ):
        client.broadcast()


def test_a_relay_that_never_ends_its_answer_is_given_up():
    def drip(phone):
        with phone, suppress(OSError):
            phone.sendall(b"HTTP/1.1 200 Go on\r\n")
            while True:
                phone.sendall(b"X-More: 1\r\n")
                time.sleep(0.01)

    with socket.create_server((PHONE, 0)) as listener:
        dripping = threading.Thread(target=lambda: drip(listener.accept()[0]))
        dripping.start()
        url = f"http://{PHONE}:{listener.getsockname()[1]}"
        with (
            Client("https://server.example", relay=url, patience=0.3, attempts=1) as client,
            pytest.raises(Unreachable),
        ):
            client.broadcast()
        dripping.join()


def test_a_relay_needs_tls_behind_it_but_for_tries_on_this_machine(make_broadcast, relay):
    with pytest.raises(ValueError, match="without TLS"):
        Client("http://localhost:8080", relay="http://relay.example:8888")
    with seeing(make_broadcast) as (server, seen):
        with Client(server.url, relay=relay.url) as client:
            assert client.broadcast() == server.data()
        assert seen == [RELAY]


@pytest.fixture
def tinyproxy(tmp_path):
    """Starts the relay of `deploy/` for a port of this machine; its address, and its log."""
    if shutil.which("tinyproxy") is None:
        pytest.skip("there is no tinyproxy here: apt-get install tinyproxy")
    started = []

    def start(server_port: int) -> tuple[str, Path]:
        port, log = fixed_port(), tmp_path / "relay.log"
        filters = (DEPLOY / "tinyproxy-filter").read_text()
        assert filters == "^phones\\.example\\.org:443$\n"
        (tmp_path / "filter").write_text(f"^localhost:{server_port}$\n")
        words = (DEPLOY / "tinyproxy.conf").read_text()
        for old, new in (
            ("User tinyproxy\nGroup tinyproxy\n", f"Listen {PHONE}\nBind {RELAY}\n"),
            ("Port 8888", f"Port {port}"),
            ("ConnectPort 443", f"ConnectPort {server_port}"),
            ("/var/log/tinyproxy/tinyproxy.log", str(log)),
            ("/etc/tinyproxy/nextapp-filter", str(tmp_path / "filter")),
        ):
            assert old in words
            words = words.replace(old, new)
        (tmp_path / "tinyproxy.conf").write_text(words)
        command = ["tinyproxy", "-d", "-c", str(tmp_path / "tinyproxy.conf")]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
        for _ in range(600):
            with suppress(OSError), socket.create_connection((PHONE, port)):
                return f"http://{PHONE}:{port}", log
            if started[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(started[-1].communicate(timeout=60)[0])

    yield start
    for process in started:
        process.terminate()
        said = process.communicate(timeout=60)[0]
        assert PHONE not in said


def test_the_relay_of_deploy_hides_the_phone_and_leads_nowhere_else(
    make_broadcast, certificate, tinyproxy
):
    ca, pair = certificate
    with seeing(make_broadcast, pair) as (server, seen):
        port = server.server_address[1]
        url, log = tinyproxy(port)
        with Client(server.url, ca=ca, relay=url) as client:
            assert client.current() == server.data()
        assert seen == [RELAY, RELAY]
        with (
            seeing(make_broadcast, pair) as (other, seen_by_other),
            Client(other.url, ca=ca, relay=url, attempts=1) as client,
            pytest.raises(Unreachable, match="403"),
        ):
            client.broadcast()  # another port
        with (
            Client(f"https://127.0.0.1:{port}", ca=ca, relay=url, attempts=1) as client,
            pytest.raises(Unreachable, match="403"),
        ):
            client.broadcast()  # another name
        with socket.create_connection((PHONE, int(url.rpartition(":")[2]))) as plain:
            plain.sendall(b"GET http://localhost:%d/v1/digest HTTP/1.0\r\n\r\n" % port)
            assert b"403" in plain.recv(100)  # no CONNECT
        assert (seen, seen_by_other) == ([RELAY, RELAY], [])
    assert not log.exists() or PHONE not in log.read_text()
