"""How honest phones fare while one address floods the server: six floods, each beside a quiet run.

    python benchmarks/flood_gateway.py [--seconds 8]

Honest phones come from 127.0.0.2, one report every 20 ms, each on a connection of its own with TLS;
the flood comes from 127.0.0.1. Everything stays on loopback, bounded in count and time.

quiet        nothing else
silent       4,200 connections that say nothing
handshakes   1,500 that begin TLS and fall silent
broadcasts   16 clients that fetch the broadcast without end
enrolments   16 clients that send wrong codes without end; 100 honest phones enrol meanwhile
reports      16 clients that send reports with forged tokens
tokens       2 clients that have tokens signed without end, of one new device after the other
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from signed_tokens import signed_tokens

from nextapp.privacy import requested_mechanism
from nextapp.privacy.tokens import Token, to_base64
from nextapp.randomness import KeyedBits
from nextapp.server import certificates, listening
from nextapp.server.folders import open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.listening import start_log
from nextapp.server.operator import OPERATOR_SECRET, Operator
from nextapp.server.vault import Vault
from nextapp.wire import Broadcast

HONEST, HOSTILE = "127.0.0.2", "127.0.0.1"
SECRET = "secret"
SETTINGS = {
    "learn": "seqmf", "mechanism": "harmony", "epsilon": 1.0, "clip": 1.0, "goal": 10**9,
    "minimum": 1, "deadline": 1e6,
}  # fmt: skip
APPS = tuple(f"app-{number:04d}" for number in range(500))


def serve(folder: Path, ports: Any) -> None:
    start_log()
    federation, _ = open_federation(folder, SETTINGS, APPS, now=time.time())
    _, cert, key = certificates.development(folder / "tls")
    opened, operator = listening.open_socket("0.0.0.0", 0), listening.open_socket(HOSTILE, 0)
    gateway = Gateway(federation.vault)
    (folder / OPERATOR_SECRET).write_text(SECRET)
    ports.put((opened.getsockname()[1], operator.getsockname()[1]))
    listening.serve(
        federation, gateway, opened, operator=(Operator(gateway), operator),
        certificate=certificates.ServedCertificate(cert, key),
    )  # fmt: skip


class Flood:
    """Clients of one address that do one thing until they are stopped."""

    def __init__(self, work: Callable[[threading.Event], int], clients: int) -> None:
        self.over = threading.Event()
        self.n_done = 0
        self._threads = [threading.Thread(target=self._run, args=(work,)) for _ in range(clients)]

    def _run(self, work: Callable[[threading.Event], int]) -> None:
        while not self.over.is_set():
            try:
                self.n_done += work(self.over)
            except OSError:
                time.sleep(0.01)

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()


def held(port: int, n: int, first: bytes) -> Callable[[threading.Event], int]:
    """Open n connections, say `first` on each, and hold them; opened again where they are cut."""

    def work(over: threading.Event) -> int:
        opened = []
        for _ in range(n):
            if over.is_set():
                break
            try:
                one = socket.create_connection((HOSTILE, port), 1.0)
                one.sendall(first)
                opened.append(one)
            except OSError:
                continue
        over.wait(2.0)
        for one in opened:
            one.close()
        return len(opened)

    return work


def asked(
    port: int,
    trust: ssl.SSLContext,
    method: str,
    path: str,
    body: bytes | None = None,
    **headers: str,
) -> Callable[[threading.Event], int]:
    """The same request on one connection, again and again."""

    def work(over: threading.Event) -> int:
        client = http.client.HTTPSConnection(HOSTILE, port, timeout=5, context=trust)
        n = 0
        try:
            while not over.is_set():
                client.request(method, path, body, headers)
                client.getresponse().read()
                n += 1
        finally:
            client.close()
        return n

    return work


def asking_tokens(
    port: int, trust: ssl.SSLContext, vault: Path, n: int
) -> Callable[[threading.Event], int]:
    """Requests for a token each, by devices that enrolled here: a signature of 5 ms each."""
    with closing(Vault(vault, busy_seconds=20.0)) as opened:
        code = opened.devices.issue_code(uses=n, expires=1e12)
        secrets = [opened.devices.enrol(code, 1.0) for _ in range(n)]
        key = opened.keys.listed()[-1]
    body = json.dumps({"key": key.id, "blinded": [to_base64(bytes(255) + b"5")]}).encode()

    def work(over: threading.Event) -> int:
        client = http.client.HTTPSConnection(HOSTILE, port, timeout=20, context=trust)
        done = 0
        try:
            while not over.is_set() and secrets:
                headers = {"authorization": f"Bearer {secrets.pop()}"}
                client.request("POST", "/v1/tokens", body, headers)
                answer = client.getresponse()
                answer.read()
                done += answer.status == 200
        finally:
            client.close()
        return done

    return work


def honest_phones(
    port: int, trust: ssl.SSLContext, requests: list[tuple[str, bytes]], seconds: float
) -> tuple[list[float], int]:
    """Seconds until each acknowledgement, connection included, and how many got none."""
    took: list[float] = []
    lost = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        token, body = requests.pop()
        start = time.monotonic()
        try:
            client = http.client.HTTPSConnection(
                HOSTILE, port, timeout=10, context=trust, source_address=(HONEST, 0)
            )
            client.request("POST", "/v1/report", body, {"authorization": f"Token {token}"})
            ok = client.getresponse().status == 201
            client.close()
        except OSError:
            ok = False
        took.append(time.monotonic() - start)
        lost += not ok
        time.sleep(max(0.0, start + 0.02 - time.monotonic()))
    return took, lost


def honest_enrolments(port: int, trust: ssl.SSLContext, code: str, n: int) -> int:
    """How many of n phones, each on a connection of its own, are enrolled at their first try."""
    enrolled = 0
    for _ in range(n):
        client = http.client.HTTPSConnection(
            HOSTILE, port, timeout=10, context=trust, source_address=(HONEST, 0)
        )
        client.request("POST", "/v1/enrol", json.dumps({"code": code}).encode())
        enrolled += client.getresponse().status == 201
        client.close()
    return enrolled


def reports(folder: Path, n: int, port: int, trust: ssl.SSLContext) -> list[tuple[str, bytes]]:
    """Tokens by the vault's key, and a report with each."""
    client = http.client.HTTPSConnection(HOSTILE, port, context=trust)
    client.request("GET", "/v1/broadcast")
    mechanism = requested_mechanism(Broadcast.from_bytes(client.getresponse().read()))
    client.close()
    with closing(Vault(folder / "vault.sqlite", busy_seconds=20.0)) as vault:
        tokens = signed_tokens(vault, n)
    zeros = np.zeros((mechanism.n_apps, mechanism.d))
    return [
        (token.text, mechanism.encode(zeros, KeyedBits(number), 0, token.coins).to_bytes())
        for number, token in enumerate(tokens)
    ]


def dropped(port: int) -> int:
    client = http.client.HTTPConnection(HOSTILE, port)
    client.request("GET", "/metrics", headers={"authorization": f"Bearer {SECRET}"})
    lines = client.getresponse().read().decode().splitlines()
    client.close()
    counts = (line.split()[-1] for line in lines if line.startswith("nextapp_dropped"))
    return int(sum(map(float, counts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ports: Any = multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(folder, ports), daemon=True)
        server.start()
        port, operator = ports.get()
        time.sleep(1.0)
        trust = ssl.create_default_context(cafile=str(folder / "tls" / "ca.pem"))
        requests = reports(folder, int(6 * 60 * seconds), port, trust)
        with closing(Vault(folder / "vault.sqlite", busy_seconds=20.0)) as vault:
            code = vault.devices.issue_code(uses=1000, expires=1e12)
        wrong = json.dumps({"code": "AAAA-AAAA-AAAA-AAAA"}).encode()
        forged = Token.from_text(requests[0][0])._replace(signature=bytes(256)).text
        bearer = {"authorization": f"Token {forged}"}
        floods: dict[str, tuple[Callable[[threading.Event], int] | None, int]] = {
            "quiet": (None, 0),
            "silent": (held(port, 525, b""), 8),
            "handshakes": (held(port, 375, b"\x16\x03\x01\x02\x00\x01\x00"), 4),
            "broadcasts": (asked(port, trust, "GET", "/v1/broadcast"), 16),
            "enrolments": (asked(port, trust, "POST", "/v1/enrol", wrong), 16),
            "reports": (asked(port, trust, "POST", "/v1/report", b"x" * 30, **bearer), 16),
            "tokens": (asking_tokens(port, trust, folder / "vault.sqlite", int(400 * seconds)), 2),
        }
        print(f"{'flood':12}{'reports':>8}{'lost':>6}{'p50 ms':>8}{'p99 ms':>8}{'dropped':>9}")
        for flood, (work, clients) in floods.items():
            before = dropped(operator)
            if work is None:
                took, lost = honest_phones(port, trust, requests, seconds)
            else:
                with Flood(work, clients) as running:
                    time.sleep(1.0)
                    took, lost = honest_phones(port, trust, requests, seconds)
                    if flood == "enrolments":
                        start, n_wrong = time.monotonic(), running.n_done
                        n = honest_enrolments(port, trust, code, 100)
                        spent = time.monotonic() - start
            p50, p99 = 1000 * np.quantile(took, [0.5, 0.99])
            n_dropped = dropped(operator) - before
            print(f"{flood:12}{len(took):8}{lost:6}{p50:8.1f}{p99:8.1f}{n_dropped:9}", flush=True)
            if flood == "enrolments":
                rate = (running.n_done - n_wrong) / spent
                print(f"{'':12}{n} of 100 phones enrolled beside {rate:,.0f} wrong codes a second")
            time.sleep(1.0)
        server.terminate()
        server.join(20)


if __name__ == "__main__":
    main()
