"""A server as a phone maker would size it: whole visits behind nginx, and a million phones.

    python benchmarks/server_marks.py visits --seconds 20
    python benchmarks/server_marks.py million
    python benchmarks/server_marks.py all        # and server_load.py gateway; what results.md shows

visits   A visit as phones make it, to nginx with deploy/nginx.conf: digest and broadcast over a new
         TLS connection without resumption, then a report over another one. The broadcast has a
         crowd of 400 apps. Eight clients, each a process with an address of its own, share the
         cores with nginx and the server.
million  A server of a million devices whose round has a million reports but one: processor seconds
         and memory after the start, then the seconds from the last report to the next broadcast.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import multiprocessing
import re
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from server_load import (
    app_names,
    measure_gateway,
    processor_seconds,
    request_of,
    round_at,
    settings,
)
from signed_tokens import signed_tokens

from nextapp.privacy.tokens import PREFIX_BYTES, Token
from nextapp.server import certificates
from nextapp.server.database import row_sum
from nextapp.server.federation import Coordinator
from nextapp.server.flower.launching import free_port
from nextapp.server.folders import VaultOptions, create_or_resume, open_federation
from nextapp.server.issuing import secret_hash
from nextapp.server.vault import Submission, Vault
from nextapp.wire import Report

CLIENTS = 8
MILLION = 1_000_000
AT_ONCE = 1000
RESULT = Path(__file__).parent / "results" / "server.json"
NGINX = Path(__file__).parents[1] / "deploy" / "nginx.conf"


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen]]:
    """`nextapp serve` on a folder: the port for phones, and the process."""
    command = [sys.executable, "-m", "nextapp", "serve", "--data", str(folder), "--port", "0"]
    command += ["--operator", "off", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield int(re.search(r":(\d+)", server.stdout.readline())[1]), server
        finally:
            server.terminate()


@contextlib.contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[tuple[int, ssl.SSLContext]]:
    """nginx with deploy/nginx.conf and a certificate of its own: its port, and whom to trust."""
    ca, cert, key = certificates.development(folder / "tls")
    port = free_port()
    words = NGINX.read_text(encoding="utf-8")
    for old, new in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/nextapp/chain.pem": str(cert),
        "/etc/nextapp/key.pem": str(key),
        "127.0.0.1:8443": f"127.0.0.1:{upstream}",
    }.items():
        if old not in words:
            raise RuntimeError(f"{NGINX} no longer says {old!r}.")
        words = words.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/errors;\nworker_processes auto;\n"
        f"events {{ worker_connections 4096; }}\nhttp {{ {paths}\n{words} }}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1.0).close()
                    break
                time.sleep(0.05)
            yield port, ssl.create_default_context(cafile=str(ca))
        finally:
            process.terminate()


def answer(connection: ssl.SSLSocket, request: bytes) -> bytes:
    """The status of a request; its body is read whole."""
    connection.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    missing = int(re.search(rb"(?i)content-length: (\d+)", head)[1]) - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536))
    return head[9:12]


def visit(port: int, trust: ssl.SSLContext, address: str, report: bytes) -> tuple[bytes, ...]:
    ask = b"GET /v1/%s HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: gzip\r\n\r\n"
    answers: list[bytes] = []
    for requests in ([ask % b"digest", ask % b"broadcast"], [report]):
        with (
            socket.create_connection(("127.0.0.1", port), 10.0, (address, 0)) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            answers += [answer(connection, request) for request in requests]
    return tuple(answers)


def client(port: int, ca: str, address: str, reports: list[bytes], seconds: float, found) -> None:
    trust, latencies, wrong = ssl.create_default_context(cafile=ca), [], 0
    end = time.perf_counter() + seconds
    for report in reports:
        start = time.perf_counter()
        if start > end:
            break
        wrong += visit(port, trust, address, report) != (b"200", b"200", b"201")
        latencies.append(time.perf_counter() - start)
    found.put((latencies, wrong))


def learnt_from_others(coordinator: Coordinator) -> None:
    """Let the first broadcast have a crowd, of a million reports without noise."""
    learner, rng = coordinator.learner, np.random.default_rng(0)
    shape = learner.mechanism.n_apps, learner.mechanism.d
    told = rng.random(shape) ** 8 / np.arange(1.0, shape[0] + 1)[:, None]
    learner.apply_sum(MILLION * told / np.linalg.norm(told), MILLION)
    learner.broadcast = replace(learner.broadcast, round=0)
    coordinator.publish(())
    coordinator.save()


def measure_visits(given: argparse.Namespace) -> dict:
    seconds = given.seconds
    n = int(1500 * seconds)
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), Path(name) / "data"
        given, apps = settings(400, 10**7), app_names(400)
        learnt_from_others(create_or_resume(data, given, apps)[0])
        first = VaultOptions(new_vault=True)
        federation, _ = open_federation(data, given, apps, now=time.time(), options=first)
        size = len(gzip.compress(federation.vault.broadcast()))
        reports = [request_of(token) for token in signed_tokens(federation.vault, n)]
        federation.vault.close()
        with (
            served(data, "--trust-proxy", "127.0.0.1") as (upstream, server),
            nginx(folder, upstream) as (port, _),
        ):
            fork = multiprocessing.get_context("fork")
            found, ca = fork.Queue(), str(folder / "tls" / "ca.pem")
            clients = [
                fork.Process(
                    target=client,
                    args=(
                        port,
                        ca,
                        f"127.0.0.{2 + number}",
                        reports[number::CLIENTS],
                        seconds,
                        found,
                    ),
                )
                for number in range(CLIENTS)
            ]
            spent, start = processor_seconds(server.pid), time.perf_counter()
            for each in clients:
                each.start()
            answers = [found.get() for _ in clients]
            took = time.perf_counter() - start
            spent = processor_seconds(server.pid) - spent
        vault = Vault(data / "vault.sqlite")
        kept = vault.round().n_reports
        vault.close()
    latencies = sorted(each for part, _ in answers for each in part)
    return {
        "bytes of the broadcast": size,
        "visits": len(latencies),
        "visits/s": round(len(latencies) / took),
        "p50, ms": round(1000 * latencies[len(latencies) // 2], 1),
        "p99, ms": round(1000 * latencies[int(0.99 * len(latencies))], 1),
        "other answers": sum(wrong for _, wrong in answers),
        "server's processor time per visit, ms": round(1000 * spent / len(latencies), 2),
        "all acknowledged reports are kept": kept == len(latencies),
    }


def filled(vault: Vault, n: int) -> None:
    """Enrol n devices, and take n - 1 reports, as `Devices.enrol` and `Vault.admit` do."""
    key = vault.keys.listed()[-1].id
    with vault.database.transaction() as write:
        for _ in range(n):
            row = secret_hash(secrets.token_hex(32)), 20_000, 1 << 40, "first"
            write.execute("INSERT INTO devices VALUES (?, ?, ?, ?, ?)", (*row, row_sum(*row)))
    for first in range(0, n - 1, AT_ONCE):
        vault.admit([
            Submission(
                Token(key, secrets.token_bytes(PREFIX_BYTES), secrets.token_bytes(256)), 0,
                Report("walsh", 0, secrets.token_bytes(8) + bytes([secrets.randbelow(16)])).payload,
            )
            for _ in range(min(AT_ONCE, n - 1 - first))
        ])  # fmt: skip


def memory(pid: int, what: str) -> int:
    """Megabytes of a process: VmRSS now, VmHWM at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) * 1024 / 1e6)


def measure_million(given: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        data, now = Path(name) / "data", time.time()
        federation, _ = open_federation(data, settings(400, given.n), app_names(400), now=now)
        filled(federation.vault, given.n)
        (token,) = signed_tokens(federation.vault, 1)
        federation.vault.close()
        print("filled", file=sys.stderr, flush=True)
        start = time.perf_counter()
        with served(data) as (port, server):
            found = {
                "start, s": round(time.perf_counter() - start, 2),
                "of the processor, s": processor_seconds(server.pid),
                "memory after the start, MB": memory(server.pid, "VmRSS"),
                "most until then, MB": memory(server.pid, "VmHWM"),
            }
            for _ in range(20):
                time.sleep(0.1)
                round_at(port)
            with socket.create_connection(("127.0.0.1", port), 10.0) as connection:
                start = time.perf_counter()
                status = answer(connection, request_of(token))
            if status != b"201":
                raise RuntimeError(f"the last report was answered with {status!r}.")
            while not round_at(port):
                time.sleep(0.02)
            found["closed and learnt after, s"] = round(time.perf_counter() - start, 2)
            found["most at all, MB"] = memory(server.pid, "VmHWM")
    return found


def measure_all(given: argparse.Namespace) -> dict:
    """All of it, kept in `RESULT`."""
    given = argparse.Namespace(
        seconds=20.0, rate=2200.0, closed_seconds=8.0, n=MILLION, folder=given.folder
    )
    found = {
        "reports": measure_gateway(given),
        "whole visits": measure_visits(given),
        "a million devices": measure_million(given),
    }
    RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parts = parser.add_subparsers(required=True)
    visits = parts.add_parser("visits", help="whole visits with TLS behind nginx")
    visits.add_argument("--seconds", type=float, default=20.0)
    visits.set_defaults(measure=measure_visits)
    million = parts.add_parser("million", help="start, memory and end of a round of a million")
    million.add_argument("--n", type=int, default=MILLION)
    million.add_argument("--folder", type=Path, help="on the disk to measure; default: a temporary")
    million.set_defaults(measure=measure_million)
    whole = parts.add_parser("all", help="both, and reports at a rate; kept in results/server.json")
    whole.add_argument("--folder", type=Path, help="on the disk to measure; default: a temporary")
    whole.set_defaults(measure=measure_all)
    given = parser.parse_args()
    print(json.dumps(given.measure(given), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
