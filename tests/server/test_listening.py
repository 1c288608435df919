"""Connections are counted when they are accepted; the log and the operator's port."""

from __future__ import annotations

import json
import logging
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers import SETTINGS, Client, ServerProcess, report_of, until

from nextapp.cli.commands import app
from nextapp.cli.serve import ListenOptions
from nextapp.server import certificates
from nextapp.server.folders import open_federation
from nextapp.server.listening import Acceptor, OnceInAWhile, ServerLimits, network_of
from nextapp.server.operator import OPERATOR_SECRET, Metrics

DIGEST = b"GET /v1/digest HTTP/1.1\r\nhost: x\r\n\r\n"
DROPPED = 'nextapp_dropped_connections_total{{why="{}"}}'


def answered_from(host: str, port: int) -> bool:
    """Whether a client at this address of loopback gets an answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), 60.0, (host, 0)) as opened:
            opened.sendall(DIGEST)
            return opened.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def test_silent_connections_of_one_address_do_not_shut_out_another(tmp_path):
    limits = {"connections": 100, "address_connections": 20, "request_seconds": 30}
    with ServerProcess(tmp_path, limits=limits) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(90)]
        until(lambda: server.metric(DROPPED.format("too_many_of_one_address")) == 70)
        assert server.metric("nextapp_open_connections") == 20
        assert not answered_from("127.0.0.1", server.port)
        assert answered_from("127.0.0.2", server.port)
        for opened in silent:
            opened.close()
        until(lambda: server.metric("nextapp_open_connections") == 0)
        assert answered_from("127.0.0.1", server.port)
        server.stop()
    lines = [json.loads(line) for line in server.log.splitlines()]
    refused = [line for line in lines if "refused" in line["message"]]
    assert len(refused) == 1  # not seventy
    assert {line["level"] for line in lines} == {"info", "warning"}
    assert "127.0.0" not in server.log


def test_a_trusted_proxy_may_hold_as_many_connections_as_there_is_room_for(tmp_path):
    limits = {"connections": 60, "address_connections": 5, "request_seconds": 30}
    with ServerProcess(tmp_path, limits=limits, options={"trusted": ["127.0.0.1"]}) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        until(lambda: server.metric("nextapp_open_connections") == 50)
        assert answered_from("127.0.0.1", server.port)
        for opened in held:
            opened.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize(
    ("host", "proxy", "statuses"),
    [
        ("127.0.0.1", "127.0.0.1", [403, 429, 403, 403]),
        ("::", "127.0.0.1", [403, 429, 403, 403]),
        ("::", "192.0.2.9", [403, 429, 429, 429]),
    ],
)
def test_clients_behind_a_trusted_proxy_are_told_apart(tmp_path, host, proxy, statuses):
    """Behind systemd's socket, which is of IPv6, all had the limits of one address."""
    limits, options = {"address_burst": 1, "address_seconds": 500}, {"host": host}
    with ServerProcess(tmp_path, limits=limits, options={**options, "trusted": [proxy]}) as server:
        client, code = server.client(), {"code": "AAAA"}
        addresses = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1"]
        heads = [{"x-forwarded-for": address} for address in addresses]
        assert [client.json("POST", "/v1/enrol", code, **head)[0] for head in heads] == statuses


def test_handshakes_that_never_end_are_counted_and_cut_off(tmp_path):
    _, cert, key = certificates.development(tmp_path / "tls")
    limits = {"connections": 100, "address_connections": 30, "handshake_seconds": 4.0}
    options = {"certificate": [str(cert), str(key)]}
    with ServerProcess(tmp_path, limits=limits, options=options) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
        until(lambda: server.metric(DROPPED.format("too_many_of_one_address")) == 10)
        until(lambda: server.metric(DROPPED.format("handshake")) == 30)
        until(lambda: server.metric("nextapp_open_connections") == 0)
        for opened in silent:
            opened.close()
        assert server.metric("process_open_fds") < 60  # nothing is left open
        server.stop()
    for why in ("too_many_of_one_address", "handshake"):  # one does not hide the other
        assert server.log.count(f'a connection was refused: {why}"') == 1


def test_with_few_files_the_server_takes_fewer_connections_and_goes_on(tmp_path):
    """The limit on open files is below the connections that are allowed."""
    code = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        arguments = server.process.args[1:]
        server.stop()
        server.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        server.port, server.operator_port = map(int, server.process.stdout.readline().split())
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        until(lambda: server.metric(DROPPED.format("too_many")) == 36)  # 128 less 64 kept free
        for opened in crowd:
            opened.close()
        until(lambda: server.metric("nextapp_open_connections") == 0)
        assert server.client().report(token, report_of(1, by=token)) == (201, "accepted")


def test_an_address_that_fetches_the_broadcast_again_and_again_must_wait(tmp_path):
    with ServerProcess(tmp_path, limits={"download_bytes": 5000, "download_rate": 1}) as server:
        client = server.client()
        answers = [client.request("GET", "/v1/broadcast") for _ in range(12)]
        n_bytes = len(answers[0][2])
        statuses = [status for status, _, _ in answers]
        assert statuses == [200] * (5000 // n_bytes) + [429] * (12 - 5000 // n_bytes)
        assert int(answers[-1][1]["retry-after"]) > 0
        tag = answers[0][1]["etag"]
        assert client.request("GET", "/v1/broadcast", if_none_match=tag)[0] == 304  # costs nothing


def test_the_list_of_digests_counts_among_what_an_address_fetches(tmp_path):
    """Up to a megabyte an answer, read from the vault each time: there was no limit on it."""
    with ServerProcess(tmp_path, limits={"download_bytes": 1000, "download_rate": 1}) as server:
        client = server.client()
        answers = [client.request("GET", "/v1/digests") for _ in range(20)]
        n_bytes = len(answers[0][2])
        digest = client.json("GET", "/v1/digest")[1]["sha256"]
        assert json.loads(answers[0][2]) == {"digests": [[0, digest]]}
        statuses = [status for status, _, _ in answers]
        assert statuses == [200] * (1000 // n_bytes) + [429] * (20 - 1000 // n_bytes)


def test_clients_that_do_not_read_cost_little_memory(tmp_path):
    """A broadcast lay in memory once for each of them: 3 MB a connection over TLS."""
    apps = tuple(f"app-{number:05d}" for number in range(20_000))
    settings = {**SETTINGS, "dim": 16}
    federation, _ = open_federation(tmp_path, settings, apps, now=time.time())
    n_bytes = len(federation.coordinator.published())
    federation.vault.close()
    authority, cert, key = certificates.development(tmp_path / "tls")
    trust = ssl.create_default_context(cafile=str(authority))
    memory, n = "process_resident_memory_bytes", 60
    with ServerProcess(
        tmp_path, dim=16, limits={"download_bytes": 1e12, "response_seconds": 600},
        options={"certificate": [str(cert), str(key)]},
    ) as server, ExitStack() as opened:  # fmt: skip
        before = server.metric(memory)
        for _ in range(n):
            plain = socket.create_connection(("127.0.0.1", server.port), 60.0)
            client = trust.wrap_socket(plain, server_hostname="127.0.0.1")
            opened.enter_context(client)
            client.sendall(b"GET /v1/broadcast HTTP/1.1\r\nhost: x\r\n\r\n")
        until(lambda: answered_broadcasts(server) == n)
        time.sleep(1.0)  # all that a server without bounds would write
        assert server.metric(memory) - before < n * n_bytes / 3
        last = client.makefile("rb")  # and whoever reads gets all of it
        while last.readline() != b"\r\n":
            pass
        assert sha256(last.read(n_bytes)).hexdigest() == sha256(
            federation.coordinator.published()
        ).hexdigest()  # fmt: skip
        last.close()


def answered_broadcasts(server: ServerProcess) -> float:
    try:
        return server.metric('nextapp_requests_total{code="200",route="broadcast"}')
    except ValueError:  # none so far
        return 0.0


def test_a_site_with_many_ipv6_networks_does_not_take_the_room_of_all():
    """Sixteen networks of a free /48 filled the server, 256 connections each."""
    limits = ServerLimits(connections=100, address_connections=10, site_connections=25)
    with socket.create_server(("127.0.0.1", 0)) as opened:
        acceptor = Acceptor(opened, lambda seat: None, limits, Metrics())
        hosts = [f"2001:db8:1:{number:x}::7" for number in range(20)]
        seats = [
            acceptor.seat(network_of(host))
            for host in hosts * 5
            if acceptor.refusal(network_of(host)) is None
        ]
        assert len(seats) == 25
        assert acceptor.refusal(network_of("2001:db8:2::7")) is None
        assert acceptor.refusal("192.0.2.1") is None
        seats[0]()
        assert acceptor.refusal(network_of(hosts[0])) is None
        for _ in range(10):
            acceptor.seat("192.0.2.1")
        assert acceptor.refusal("192.0.2.1") == "too_many_of_one_address"
        assert acceptor.refusal("192.0.2.2") is None


def test_all_phones_together_enrol_at_a_bounded_rate(tmp_path):
    limits = {"enrol_burst": 3, "enrol_seconds": 1000}
    with ServerProcess(tmp_path, limits=limits) as server:
        client, code = server.client(), server.code()
        wrong = {client.json("POST", "/v1/enrol", {"code": "AAAA"})[0] for _ in range(60)}
        assert wrong == {403, 429}  # and they take nothing from those who know a code
        answers = [client.json("POST", "/v1/enrol", {"code": code})[0] for _ in range(5)]
        assert answers == [201, 201, 201, 503, 503]


def test_the_operators_port_tells_of_build_process_and_disk(tmp_path):
    with ServerProcess(tmp_path) as server:
        operator = server.operator()
        text = operator.request("GET", "/metrics")[2].decode()
        assert 'nextapp_build_info{python="' in text
        assert server.metric("process_resident_memory_bytes") > 1e7
        assert server.metric("nextapp_disk_free_bytes") > 0
        assert server.metric("process_max_fds") == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        client = server.client()
        assert client.json("POST", "/v1/enrol", {"code": "AAAA"})[0] == 403
        assert server.metric('nextapp_requests_total{code="bad_code",route="enrol"}') == 1
        assert operator.request("GET", "/v1/broadcast")[0] == 404
        assert client.request("GET", "/ready")[0] == 404


@pytest.mark.parametrize("option", ["--port", "--operator"])
def test_a_start_refused_for_its_port_leaves_no_folder(tmp_path, option):
    """What answers at the operator's port is another server: its metrics would pass for ours."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        given = {"--port": "0", "--operator": "off"}
        given[option] = str(port) if option == "--port" else f"127.0.0.1:{port}"
        folder = tmp_path / "federation"
        words = [word for pair in given.items() for word in pair]
        done = CliRunner().invoke(app, ["serve", "--data", str(folder), *words])
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert f"port {port} cannot be listened on" in said
    assert ("--operator HOST:PORT" in said) == (option == "--operator")
    assert not folder.exists()


def test_the_operators_port_tells_strangers_no_counts_and_no_website_anything(tmp_path):
    with ServerProcess(tmp_path) as server:
        known, stranger = server.operator(), Client(server.operator_port, 60.0)
        secret_file = tmp_path / OPERATOR_SECRET
        assert secret_file.stat().st_mode & 0o777 == 0o600
        secret = secret_file.read_text()
        assert len(secret) >= 32
        for path in ("/live", "/ready", "/metrics"):
            here, at_name = (
                stranger.request("GET", path, host=host)[0]
                for host in (f"127.0.0.1:{server.operator_port}", "rebound.example:9464")
            )
            assert (here, at_name) == (401 if path == "/metrics" else 200, 421)
            # Prometheus in another container knows this one by a name, and has the secret
            assert known.request("GET", path, host="server:9464")[0] == 200
        wrong = f"Bearer {secret[:-1]}"
        status, _, said = stranger.request("GET", "/metrics", authorization=wrong)
        assert (status, json.loads(said)["error"]) == (401, "unauthorized")
        assert b"nextapp_devices" not in said
        for client in (known, stranger):
            status, headers, _ = client.request("GET", "/metrics/", host="127.0.0.1")
            assert status == 404
            assert "location" not in headers
        stranger.close()
        server.stop()
        assert secret not in server.log
        server.start()
        assert secret_file.read_text() == secret  # Prometheus has it still
        assert server.metric("nextapp_ready") == 1


def test_one_warning_of_a_kind_comes_through_and_the_others_are_counted():
    now = [0.0]
    sieve = OnceInAWhile(10.0, lambda: now[0])

    def comes(message, *args, level=logging.WARNING):
        record = logging.LogRecord("part", level, "", 0, message, args, None)
        return sieve.filter(record), record.getMessage()

    assert comes("storage: %s", "100 % full") == (True, "storage: 100 % full")
    assert [comes("storage: %s", n)[0] for n in range(1637)] == [False] * 1637
    assert comes("another")[0]
    assert [comes("round %d", n, level=logging.INFO)[0] for n in range(3)] == [True] * 3
    now[0] = 10.0
    assert comes("storage: %s", "100 % full") == (
        True, "storage: 100 % full (and 1,637 like it since)",
    )  # fmt: skip
    now[0] = 20.0
    assert comes("storage: %s", "x") == (True, "storage: x")


@pytest.mark.parametrize(
    ("host", "counted_as"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8::1", "2001:db8::"),
        ("2001:db8::ffff:1", "2001:db8::"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_subscriber_is_one_address(host, counted_as):
    assert network_of(host) == counted_as


def test_a_limit_of_zero_is_refused():
    with pytest.raises(ValueError, match="address_connections must be a number > 0"):
        ServerLimits(address_connections=0)


def until_said(process: subprocess.Popen, words: str) -> Iterator[str]:
    """The lines of a server's log, up to the one with these words."""
    for line in process.stderr:
        yield line
        if words in line:
            return


class Activated:
    """A socket that is held as systemd holds it, and servers that it is handed to one by one."""

    def __init__(self, folder: Path) -> None:
        self.held = socket.create_server(("127.0.0.1", 0))
        self.port = self.held.getsockname()[1]
        self._words = [
            sys.executable, "-m", "nextapp", "serve", "--data", str(folder), "--apps", "5",
            "--learn", "seqmf", "--mechanism", "harmony", "--epsilon", "1", "--clip", "1",
            "--operator", "off",
        ]  # fmt: skip

    def start(self) -> subprocess.Popen:
        code = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_FDS'] = '1'; "
            "os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[2], sys.argv[2:])"
        )
        number = self.held.fileno()
        return subprocess.Popen(
            [sys.executable, "-c", code, str(number), *self._words], pass_fds=[number],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Activated:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()


def test_a_restart_on_an_inherited_socket_refuses_nobody(tmp_path):
    """As systemd does it: it holds the socket, and clients that come meanwhile wait."""
    with Activated(tmp_path / "data") as activated:
        first = activated.start()
        until(lambda: answered_from("127.0.0.1", activated.port))
        first.terminate()
        first.communicate(timeout=60)
        with socket.create_connection(("127.0.0.1", activated.port), 60.0) as waiting:
            waiting.sendall(DIGEST)  # nobody serves now
            second = activated.start()
            assert waiting.recv(12) == b"HTTP/1.1 200"
        second.terminate()
        second.communicate(timeout=60)


def test_while_the_last_answers_are_given_those_who_come_wait_for_the_next_server(tmp_path):
    """A server that stops under load took connections to its end, and broke them off then."""
    with Activated(tmp_path / "data") as activated:
        first = activated.start()
        until(lambda: answered_from("127.0.0.1", activated.port))
        with socket.create_connection(("127.0.0.1", activated.port), 60.0) as slow:
            slow.sendall(b"POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
            until(lambda: answered_from("127.0.0.1", activated.port))  # so this one was accepted
            first.terminate()
            said = "".join(until_said(first, "stopping: "))
            waiting = socket.create_connection(("127.0.0.1", activated.port), 60.0)
            waiting.sendall(DIGEST)
            slow.sendall(b"}")
            assert slow.recv(12) == b"HTTP/1.1 400"  # answered, for what it is
        said += first.communicate(timeout=60)[1]
        assert first.returncode == 0
        assert "error" not in said
        second = activated.start()
        with waiting:
            assert waiting.recv(12) == b"HTTP/1.1 200"
        second.terminate()
        second.communicate(timeout=60)


def test_a_client_that_has_just_connected_is_served_before_the_server_stops(tmp_path):
    authority, cert, key = certificates.development(tmp_path / "tls")
    trust = ssl.create_default_context(cafile=str(authority))
    options = {"certificate": [str(cert), str(key)]}
    with ServerProcess(tmp_path, options=options) as server:
        opened = socket.create_connection(("127.0.0.1", server.port), 60.0)
        until(lambda: server.metric("nextapp_open_connections") == 1)
        server.process.terminate()
        with trust.wrap_socket(opened, server_hostname="127.0.0.1") as client:
            client.sendall(DIGEST)
            assert client.recv(12) == b"HTTP/1.1 200"
        assert server.stop() == 0


def test_a_certificate_that_was_renewed_is_shown_and_the_metric_is_of_the_one_shown(tmp_path):
    """The metric read the file: it said all was well while phones were shown the old one."""
    folder = tmp_path / "tls"
    authority, cert, key = certificates.development(folder)
    expiry = "nextapp_certificate_expiry_seconds"
    with ServerProcess(tmp_path, options={"certificate": [str(cert), str(key)]}) as server:
        before, first = server.metric(expiry), shown(server.port)
        for path in (authority, cert, key):
            path.unlink()
        certificates.development(folder, ("other.example", "127.0.0.1"))
        renewed, pair = cert.read_bytes(), key.read_bytes()
        key.write_bytes(b"half a file")
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert (server.metric(expiry), shown(server.port)) == (before, first)
        key.write_bytes(pair)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: shown(server.port) == ssl.PEM_cert_to_DER_cert(renewed.decode()))
        assert server.metric(expiry) >= before
        server.stop()
    assert "is still shown" in server.log
    assert "renewed" in server.log


def shown(port: int) -> bytes:
    """The certificate that whoever connects now is shown."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 60.0) as opened,
        anyone.wrap_socket(opened) as client,
    ):
        return client.getpeercert(binary_form=True)


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["flower", "gateway", "--superlink", "127.0.0.1:1", "--ca", "ca.pem", "--node-key", "node"],
    ],
)
def test_files_that_are_no_certificate_are_refused_and_leave_no_folder(tmp_path, command):
    _, cert, key = certificates.development(tmp_path / "tls")
    _, _, other = certificates.development(tmp_path / "other")
    for files in ((cert, other), (tmp_path / "missing", key), (key, key)):
        words = [*command, "--data", str(tmp_path / "new"), "--port", "0"]
        words += ["--cert", str(files[0]), "--key", str(files[1])]
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 1
        assert "cannot be used for TLS" in " ".join(found.output.split())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("proxies", ["10.0.0.0/8", "nginx", "127.0.0.1, proxy.example.org", "*"])
def test_proxies_that_are_no_addresses_are_refused(tmp_path, proxies):
    """They were taken without a word, and all phones had the limits of one address."""
    words = ["serve", "--data", str(tmp_path / "new"), "--port", "0", "--trust-proxy", proxies]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1
    assert "--trust-proxy takes addresses, such as 127.0.0.1" in " ".join(found.output.split())
    assert not (tmp_path / "new").exists()
    assert ListenOptions(trust_proxy="127.0.0.1, ::1").proxies == ["127.0.0.1", "::1"]


def test_the_certificate_at_hand_stays_until_its_files_are_a_pair(tmp_path):
    _, cert, key = certificates.development(tmp_path)
    _, other, other_key = certificates.development(tmp_path / "other")
    served = certificates.ServedCertificate(cert, key)
    context, expires = served.context, served.expires
    assert not served.renew()
    cert.write_bytes(other.read_bytes())  # its key is still that of the one before
    with pytest.raises(ssl.SSLError):
        served.renew()
    assert (served.context, served.expires) == (context, expires)
    key.write_bytes(other_key.read_bytes())
    assert served.renew()
    assert served.context is not context
    assert not served.renew()
