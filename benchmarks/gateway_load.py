"""Durable reports a second through one gateway, with its latencies, load generator included.

    python benchmarks/gateway_load.py --seconds 60 --rate 2200

An open loop: reports are due at fixed times whatever the gateway does, and a latency counts from
when the report was due. Every report comes from a device of its own. The peer, in the same run, is
a bare Starlette endpoint that reads the body and answers 201 without storing anything; both are
also driven as fast as they go (closed loop), which gives the ratio. At the end the acknowledged
reports are counted in the vault.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import secrets
import socket
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nextapp.randomness import DeviceCoins
from nextapp.server import listening, single_process
from nextapp.server.devices import token_hash
from nextapp.server.gateway import Gateway
from nextapp.server.vault import Vault
from nextapp.wire import Report

CONNECTIONS = 256
SETTINGS = {
    "learn": "seqmf",
    "mechanism": "codebook", "epsilon": 4.0, "clip": 1.0, "goal": 10**9, "minimum": 1,
    "deadline": 1e6,
}  # fmt: skip


def requests_of(n: int, host: str) -> tuple[list[bytes], list[bytes]]:
    """n tokens, and one whole HTTP request of each."""
    tokens = [secrets.token_bytes(32) for _ in range(n)]
    requests = []
    for token in tokens:
        seed = DeviceCoins(token, 0).words(1).astype("<u8").tobytes()
        body = Report("codebook", 0, seed + secrets.token_bytes(1)).to_bytes()
        bearer = base64.urlsafe_b64encode(token).rstrip(b"=")
        requests.append(
            b"POST /v1/report HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer %s\r\n"
            b"content-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n%s"
            % (host.encode(), bearer, len(body), body)
        )
    return tokens, requests


class Connection(asyncio.Protocol):
    """Keeps one request in flight; takes the next that is due."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.due = 0.0
        self.busy = False
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.received.endswith(b"}"):  # every answer is JSON, in one piece or in two
            return
        self.load.answered(self.received[9:12], self.due)
        self.received = b""
        self.busy = False
        self.load.idle(self)

    def send(self, request: bytes, due: float) -> None:
        self.due, self.busy = due, True
        self.transport.write(request)


class Load:
    """Plays requests against an address, at a rate or as fast as they are answered."""

    def __init__(self, requests: list[bytes], rate: float | None) -> None:
        self.requests = iter(requests)
        self.rate = rate
        self.latencies: list[float] = []
        self.statuses: dict[bytes, int] = {}
        self.waiting: deque[tuple[bytes, float]] = deque()
        self.free: deque[Connection] = deque()  # in turn: none is idle for long

    def answered(self, status: bytes, due: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.latencies.append(time.perf_counter() - due)

    def idle(self, connection: Connection) -> None:
        if self.rate is None:
            if self.going and (request := next(self.requests, None)) is not None:
                connection.send(request, time.perf_counter())
        elif self.waiting:
            connection.send(*self.waiting.popleft())
        else:
            self.free.append(connection)

    async def play(self, port: int, seconds: float, n_connections: int = CONNECTIONS) -> float:
        """The seconds it took until everything was answered."""
        loop = asyncio.get_running_loop()
        self.going = True
        connections = []
        for _ in range(n_connections):
            _, connection = await loop.create_connection(
                lambda: Connection(self), "127.0.0.1", port
            )
            connections.append(connection)
        start = time.perf_counter()
        if self.rate is None:
            for connection in connections:
                self.idle(connection)
            while time.perf_counter() - start < seconds and any(each.busy for each in connections):
                await asyncio.sleep(0.005)
            self.going = False
        else:
            self.free.extend(connections)
            sent, total = 0, int(self.rate * seconds)
            while sent < total:
                now = time.perf_counter() - start
                while sent < total and sent / self.rate <= now:
                    due = start + sent / self.rate
                    request = next(self.requests)
                    if self.free:
                        self.free.popleft().send(request, due)
                    else:
                        self.waiting.append((request, due))
                    sent += 1
                await asyncio.sleep(0.001)
        while any(connection.busy for connection in connections) or self.waiting:
            await asyncio.sleep(0.005)
        took = time.perf_counter() - start
        for connection in connections:
            connection.transport.close()
        return took


def run_gateway(folder: str, opened: socket.socket) -> None:
    federation, _ = single_process.open_federation(Path(folder), SETTINGS, None, now=time.time())
    listening.serve(federation, Gateway(federation.vault), opened)


def run_bare(opened: socket.socket) -> None:
    async def report(request: Request) -> JSONResponse:
        await request.body()
        return JSONResponse({"status": "accepted"}, 201)

    app = Starlette(routes=[Route("/v1/report", report, methods=["POST"])])
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws="none")
    uvicorn.Server(config).run([opened])


def measured(port: int, requests: list[bytes], rate: float | None, seconds: float) -> dict:
    load = Load(requests, rate)
    took = uvloop.run(load.play(port, seconds))
    spread = np.array(load.latencies) * 1000
    return {
        "reports": len(spread),
        "seconds": round(took, 2),
        "per_second": round(len(spread) / took),
        "statuses": {status.decode(): n for status, n in load.statuses.items()},
        "p50_ms": round(float(np.percentile(spread, 50)), 2),
        "p99_ms": round(float(np.percentile(spread, 99)), 2),
        "p999_ms": round(float(np.percentile(spread, 99.9)), 2),
        "max_ms": round(float(spread.max()), 2),
    }


def enrolled(vault: Vault, tokens: list[bytes]) -> None:
    with vault.database.transaction() as write:
        write.executemany(
            "INSERT INTO devices (hash) VALUES (?)", [(token_hash(token),) for token in tokens]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2200.0)
    parser.add_argument("--closed-seconds", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, help="On the disk to measure; default: a temporary.")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result: dict = {"connections": CONNECTIONS, "rate": given.rate}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        apps = tuple(f"app-{i:04d}" for i in range(500))
        federation, _ = single_process.open_federation(
            Path(folder), SETTINGS, apps, now=time.time()
        )
        n_open, n_closed = int(given.rate * given.seconds) + 1, int(20_000 * given.closed_seconds)
        tokens, requests = requests_of(n_open + n_closed, "127.0.0.1")
        enrolled(federation.vault, tokens)
        federation.vault.close()
        acknowledged = 0
        for name, target in (("gateway", run_gateway), ("bare", run_bare)):
            opened = listening.open_socket("127.0.0.1", 0)
            arguments = (folder, opened) if name == "gateway" else (opened,)
            process = multiprocessing.get_context("fork").Process(
                target=target, args=arguments, daemon=True
            )
            process.start()
            port = opened.getsockname()[1]
            opened.close()
            time.sleep(2.0)
            result[f"{name}_closed_loop"] = measured(
                port, requests[n_open:], None, given.closed_seconds
            )
            if name == "gateway":
                result["gateway_open_loop"] = measured(
                    port, requests[:n_open], given.rate, given.seconds
                )
                acknowledged = sum(
                    result[f"gateway_{kind}_loop"]["statuses"].get("201", 0)
                    for kind in ("open", "closed")
                )
            process.terminate()
            process.join()
        vault = Vault(Path(folder) / "vault.sqlite")
        kept = vault.round()
        result["acknowledged"], result["in_the_vault"] = acknowledged, kept.n_reports
        vault.close()
    result["ratio_to_bare"] = round(
        result["gateway_closed_loop"]["per_second"] / result["bare_closed_loop"]["per_second"], 3
    )
    print(json.dumps(result, indent=2))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
