"""A server under load: one gateway, a whole round of the crowd, and several gateways.

    python benchmarks/server_load.py gateway --seconds 60 --rate 2200
    python benchmarks/server_load.py crowd --apps 2000 --reports 120000 --rate 2200
    make bench-gateways        # .venv-flower/bin/python benchmarks/server_load.py gateways

An open loop: reports are due at fixed times even if the gateway is slow, and a latency counts from
when the report was due. A closed loop sends as fast as reports are answered. Every report comes
from a device of its own; payloads are drawn at random, as those of phones look.

gateway   Durable reports/s through one gateway, load generator included. The peer, in the same run,
          is a bare Starlette endpoint that reads the body and answers 201 without storing anything.
          At the end the acknowledged reports are counted in the vault.
crowd     Reports are sent at a fixed rate until the round has all that it wants; the clock stops
          when the next broadcast, with the crowd that they tell, is handed out. What a round costs
          after its last report is shown in parts.
gateways  The same reports go to one `nextapp serve`, and to 1, 2 and 4 gateways joined by Flower,
          directly and through nginx with deploy/nginx-gateways.conf: in a closed loop, then at a
          fixed rate. What each process spends of the processor is read from /proc: where all share
          the cores with the load generator, processor seconds per report tell how far more machines
          would go, not reports/s. In a further run a gateway gets kill -9 under load. The broadcast
          that is learnt must be the same bytes in every run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import uvicorn
import uvloop
from signed_tokens import signed_tokens
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nextapp.privacy.tokens import Token
from nextapp.server import listening
from nextapp.server.flower.gateway_rounds import Pace
from nextapp.server.flower.launching import Loopback, free_port, members
from nextapp.server.folders import create_or_resume, open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.vault import GATEWAY_ID, Vault
from nextapp.wire import Broadcast, History, Report, unpack

CONNECTIONS = 256
INDICES = 16  # of a report: below the number of codewords at every ε
GROUPS = 4  # of phones; a gateway has one or more of them
N_APPS = 200
POLL_SECONDS = 20.0
KILL_RATE = 400.0
NGINX = Path(__file__).parents[1] / "deploy" / "nginx-gateways.conf"
_SERVERS = ("nextapp serve", *(f"gateway-{number}" for number in range(1, 65)))
_PERCENTILES = {"p50, ms": 50, "p99, ms": 99, "p99.9, ms": 99.9, "most, ms": 100}
_TICKS = os.sysconf("SC_CLK_TCK")


class Phones:
    """n phones in four groups, and one whole HTTP request of each, once its token is signed."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.requests = [b""] * n

    def of(self, gateway: int, n_gateways: int, part: slice) -> list[int]:
        """Which of a part are the phones of a gateway."""
        return [
            number
            for number in range(*part.indices(self.n))
            if number % GROUPS % n_gateways == gateway
        ]

    def sign(self, vault: Vault, numbers: Sequence[int] | None = None) -> None:
        """Give these phones, or all, tokens by the key of this vault."""
        mine = range(self.n) if numbers is None else numbers
        for number, token in zip(mine, signed_tokens(vault, len(mine)), strict=True):
            self.requests[number] = request_of(token)


def request_of(token: Token) -> bytes:
    seed = token.coins.words(1).astype("<u8").tobytes()
    body = Report("walsh", 0, seed + bytes([secrets.randbelow(INDICES)])).to_bytes()
    return (
        b"POST /v1/report HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Token %s\r\n"
        b"content-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n%s"
        % (token.text.encode(), len(body), body)
    )


def app_names(n: int) -> tuple[str, ...]:
    return tuple(f"org.example.app{number:05d}" for number in range(n))


def settings(n_apps: int, n_reports: int) -> dict:
    return {
        "mechanism": "walsh", "epsilon": 1.0, "slots": n_apps, "goal": n_reports,
        "minimum": n_reports, "deadline": 1e6, "grace": 0.0,
    }  # fmt: skip


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

    async def run(self, port: int, seconds: float, n_connections: int = CONNECTIONS) -> float:
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


def figures(loads: Sequence[Load], seconds: float) -> dict:
    spread = np.concatenate([load.latencies for load in loads]) * 1000
    statuses: Counter[str] = Counter()
    for load in loads:
        statuses.update({status.decode(): n for status, n in load.statuses.items()})
    parts = {name: float(np.percentile(spread, q)) for name, q in _PERCENTILES.items()}
    return {
        "reports": len(spread),
        "seconds": round(seconds, 2),
        "reports/s": round(len(spread) / seconds),
        **{name: round(value, 2) for name, value in parts.items()},
        "statuses": dict(statuses),
    }


def run_server(folder: str, given: dict, opened: socket.socket) -> None:
    federation, _ = open_federation(Path(folder), given, None, now=time.time())
    listening.serve(federation, Gateway(federation.vault), opened)


@contextlib.contextmanager
def in_a_process(target, *arguments) -> Iterator[int]:
    """A server in a process of its own, on a free port."""
    opened = listening.open_socket("127.0.0.1", 0)
    process = multiprocessing.get_context("fork").Process(
        target=target, args=(*arguments, opened), daemon=True
    )
    process.start()
    port = opened.getsockname()[1]
    opened.close()
    try:
        yield port
    finally:
        process.terminate()
        process.join()


# --- one gateway ---------------------------------------------------------------------------------


def run_bare(opened: socket.socket) -> None:
    async def report(request: Request) -> JSONResponse:
        await request.body()
        return JSONResponse({"status": "accepted"}, 201)

    app = Starlette(routes=[Route("/v1/report", report, methods=["POST"])])
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws="none")
    uvicorn.Server(config).run([opened])


def measure_gateway(given: argparse.Namespace) -> dict:
    result: dict = {"connections": CONNECTIONS, "rate": given.rate}
    learning = {
        "learn": "seqmf", "mechanism": "walsh", "epsilon": 4.0, "clip": 1.0, "goal": 10**9,
        "minimum": 1, "deadline": 1e6, "grace": 0.0,
    }  # fmt: skip
    n_open, n_closed = int(given.rate * given.seconds) + 1, int(20_000 * given.closed_seconds)
    phones = Phones(n_open + n_closed)
    acknowledged = 0
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        federation, _ = open_federation(Path(folder), learning, app_names(500), now=time.time())
        phones.sign(federation.vault)
        federation.vault.close()
        servers = {"gateway": (run_server, folder, learning), "bare": (run_bare,)}
        for name, server in servers.items():
            with in_a_process(*server) as port:
                time.sleep(2.0)
                loops = {"closed": (slice(n_open, None), None, given.closed_seconds)}
                if name == "gateway":
                    loops["open"] = (slice(0, n_open), given.rate, given.seconds)
                for loop, (part, rate, seconds) in loops.items():
                    load = Load(phones.requests[part], rate)
                    took = uvloop.run(load.run(port, seconds))
                    result[f"{name}_{loop}_loop"] = figures([load], took)
                    acknowledged += load.statuses.get(b"201", 0) if name == "gateway" else 0
        vault = Vault(Path(folder) / "vault.sqlite")
        result["acknowledged"], result["in_the_vault"] = acknowledged, vault.round().n_reports
        vault.close()
    speeds = [result[f"{name}_closed_loop"]["reports/s"] for name in ("gateway", "bare")]
    result["ratio_to_bare"] = round(speeds[0] / speeds[1], 3)
    return result


# --- a round of the crowd ------------------------------------------------------------------------


def round_at(port: int) -> int | None:
    """The round that is open; None while one is closed and the next is not open yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/digest", timeout=60) as answer:
            return int(json.loads(answer.read())["round"])
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return None


def parts_of(n_apps: int, n_reports: int, folder: Path) -> dict[str, float]:
    """Seconds of processor time of each step after the last report, in this process."""
    given = settings(n_apps, n_reports)
    federation, _ = open_federation(folder, given, app_names(n_apps), now=0.0)
    learner, took = federation.coordinator.learner, {}
    reports = [Report("walsh", 0, secrets.token_bytes(8) + b"\0") for _ in range(n_reports)]

    def timed(name: str, step):
        start = time.process_time()
        found = step()
        took[name] = round(time.process_time() - start, 3)
        return found

    mechanism = learner.mechanism
    tally = timed("sum of all reports", lambda: mechanism.tally(reports))
    total = timed("transform", lambda: n_reports * mechanism.estimate(tally, n_reports))
    timed("crowd", lambda: learner.apply_sum(total, n_reports))
    timed("checkpoint", federation.coordinator.save)
    federation.vault.close()
    return took


def measure_crowd(given: argparse.Namespace) -> dict:
    phones, wanted = Phones(given.reports), settings(given.apps, given.reports)
    with tempfile.TemporaryDirectory() as folder:
        result = {"parts, s": parts_of(given.apps, given.reports, Path(folder) / "parts")}
        data = Path(folder) / "served"
        federation, _ = open_federation(data, wanted, app_names(given.apps), now=0.0)
        phones.sign(federation.vault)
        federation.vault.close()
        with in_a_process(run_server, str(data), wanted) as port:
            _await_handout(f"http://127.0.0.1:{port}")
            load = Load(phones.requests, given.rate)
            start = time.perf_counter()
            taken = uvloop.run(load.run(port, given.reports / given.rate))
            while not round_at(port):
                time.sleep(0.05)
            whole = time.perf_counter() - start
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result | {
        "apps": given.apps,
        "reports": given.reports,
        "statuses": {status.decode(): n for status, n in load.statuses.items()},
        "taken, s": round(taken, 1),
        "crowd published, s": round(whole, 1),
        "server's processor time, s": round(spent.ru_utime + spent.ru_stime, 1),
        "reports/s to a published crowd": round(given.reports / whole),
    }


# --- several gateways ----------------------------------------------------------------------------


def processor_seconds(pid: int) -> float:
    """Spent by a process and its children that have ended; 0 for one that has ended itself."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / _TICKS


class Spending:
    """Processor seconds of named groups of processes between two times."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {name: sum(map(processor_seconds, pids)) for name, pids in self._groups.items()}

    def so_far(self) -> dict[str, float]:
        return {name: round(spent - self._before[name], 2) for name, spent in self._now().items()}


def send(
    phones: Phones, part: slice, ports: Sequence[int], rate: float | None
) -> tuple[list[Load], float]:
    """Send a part of the reports, each to its gateway; the seconds until all were answered."""
    loads, shares = [], []
    for gateway in range(len(ports)):
        mine = phones.of(gateway, len(ports), part)
        share = len(mine) / len(range(*part.indices(phones.n)))
        shares.append(len(mine))
        requests = [phones.requests[number] for number in mine]
        loads.append(Load(requests, None if rate is None else rate * share))

    async def all_at_once() -> None:
        await asyncio.gather(
            *(
                load.run(port, n / load.rate if load.rate else 600.0, CONNECTIONS // len(ports))
                for load, port, n in zip(loads, ports, shares, strict=True)
            )
        )

    start = time.perf_counter()
    uvloop.run(all_at_once())
    return loads, time.perf_counter() - start


def with_spending(found: dict, spent: dict[str, float]) -> dict:
    """The figures, and what the processes spent in all and per report."""
    n = sum(found["statuses"].values())
    servers = sum(used for name, used in spent.items() if name in _SERVERS)
    others = {name: used for name, used in spent.items() if name not in _SERVERS}
    each = {"all gateways": servers, **others}
    per_report = {name: round(1e6 * used / n) for name, used in each.items()}
    return {**found, "processor s": spent, "processor µs per report": per_report}


def loaded(
    phones: Phones, n_fast: int, rate: float, ports: Sequence[int], groups: dict[str, list[int]]
) -> dict:
    """First as fast as they are answered, then at a rate."""
    groups = {**groups, "load generator": [os.getpid()]}
    found = {}
    for name, part, pace in (
        ("fast", slice(0, n_fast), None), ("at a rate", slice(n_fast, None), rate)
    ):  # fmt: skip
        spending = Spending(groups)
        loads, seconds = send(phones, part, ports, pace)
        found[name] = with_spending(figures(loads, seconds), spending.so_far())
        if found[name]["statuses"].keys() != {"201"}:
            raise RuntimeError(f"reports were refused: {found[name]['statuses']}.")
    return found


def learnt(folder: Path) -> bytes:
    """What was learnt in the one round that was run, once it is there, without keys and chain."""
    path = folder / "checkpoints" / "round-0000000001.safetensors"
    give_up = time.monotonic() + 300
    while not path.exists():
        if time.monotonic() > give_up:
            raise TimeoutError(f"no round was closed in {folder}: see its logs.")
        time.sleep(0.2)
    found = Broadcast.from_bytes(unpack(path.read_bytes())[0]["broadcast"].tobytes())
    return replace(found, history=History(), keys=()).to_bytes()


def in_one_process(folder: Path, phones: Phones, n_fast: int, rate: float) -> tuple[dict, bytes]:
    """The same reports at one `nextapp serve`."""
    given = folder / "settings.toml"
    (folder / "apps.txt").write_text("".join(f"{app}\n" for app in app_names(N_APPS)))
    given.write_text(
        "".join(f"{name} = {json.dumps(v)}\n" for name, v in settings(N_APPS, phones.n).items())
    )
    data = folder / "data"
    command = [sys.executable, "-m", "nextapp", "serve", "--data", str(data), "--port", "0"]
    command += ["--operator", "off"]
    command += ["--settings", str(given), "--apps", str(folder / "apps.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline().split()[0].rpartition(":")[2].rstrip(",;"))
            vault = Vault(data / "vault.sqlite", busy_seconds=30.0)
            phones.sign(vault)
            vault.close()
            found = loaded(phones, n_fast, rate, [port], {"nextapp serve": [server.pid]})
            return found, learnt(data)
        finally:
            server.terminate()


@contextlib.contextmanager
def federation(folder: Path, phones: Phones, n_gateways: int) -> Iterator[Loopback]:
    """Gateways joined by Flower, with round 0 open at all of them and their phones enrolled."""
    (folder / "coordinator").mkdir(parents=True)
    create_or_resume(
        folder / "coordinator",
        settings(N_APPS, phones.n),
        app_names(N_APPS),
    )
    loopback = Loopback(
        folder,
        n_gateways=n_gateways,
        rounds=1,
        pace=Pace(gateways=n_gateways, poll=POLL_SECONDS),
        gateway_options=("--trust-proxy", "127.0.0.1"),
        say=lambda words: print(f"  {words}", file=sys.stderr),
    )
    over = threading.Event()

    def tend() -> None:
        while not over.wait(0.2) and not loopback.tend():
            pass

    with loopback:
        tending = threading.Thread(target=tend)
        tending.start()
        try:
            for gateway, name in enumerate(loopback.ports):
                mine = phones.of(gateway, n_gateways, slice(None))
                vault = Vault(folder / name / "vault.sqlite", busy_seconds=30.0)
                phones.sign(vault, mine)
                while vault.round() is None:
                    time.sleep(0.2)
                vault.close()
            for url in loopback.urls:
                _await_handout(url)
            yield loopback
        finally:
            over.set()
            tending.join()


def _await_handout(url: str) -> None:
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/v1/digest", timeout=10).close()
            return
        time.sleep(0.1)


@contextlib.contextmanager
def proxy(folder: Path, loopback: Loopback) -> Iterator[tuple[int, list[int]]]:
    """nginx as in deploy/, for plain HTTP: its port and processes."""
    port, ports = free_port(), list(loopback.ports.values())
    regions = [(folder / name / GATEWAY_ID).read_text().strip() for name in loopback.ports]
    lines = []
    for line in NGINX.read_text(encoding="utf-8").splitlines():
        if "0123456789abcdef" in line:
            lines += [f'"~^\\w+ {region}[.-]" nextapp_{region};' for region in regions]
        elif line.startswith("upstream nextapp_a"):
            lines += [
                line.replace("nextapp_a", f"nextapp_{region}").replace("8443", str(to))
                for region, to in zip(regions, ports, strict=True)
            ]
        elif not (
            "fedcba9876543210" in line
            or line.startswith("upstream nextapp_b")
            or line.strip().startswith("ssl_")
        ):
            lines.append(line)
    words = "\n".join(lines).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    words = words.replace("127.0.0.1:8443", f"127.0.0.1:{ports[0]}")
    words = words.replace("127.0.0.1:8444", f"127.0.0.1:{ports[-1]}")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/errors;\n"
        f"events {{ worker_connections 4096; }}\n"
        f"http {{ {paths}\n{words} }}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as nginx:
        try:
            _await_handout(f"http://127.0.0.1:{port}")
            children = Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
            yield port, [nginx.pid, *map(int, children)]
        finally:
            nginx.terminate()


def groups_of(folder: Path, loopback: Loopback) -> dict[str, list[int]]:
    """Process ids: each gateway, and all of Flower that runs beside them."""
    gateways = {name: [loopback.processes.pid(name)] for name in loopback.ports}
    known = {pid for pids in gateways.values() for pid in pids}
    return {**gateways, "Flower": [pid for pid in members(folder) if pid not in known]}


def through_gateways(
    folder: Path, phones: Phones, n_fast: int, rate: float, n_gateways: int, by_nginx: bool
) -> tuple[dict, bytes]:
    with federation(folder, phones, n_gateways) as loopback:
        ports, groups = list(loopback.ports.values()), groups_of(folder, loopback)
        if by_nginx:
            with proxy(folder, loopback) as (port, pids):
                found = loaded(phones, n_fast, rate, [port], {**groups, "nginx": pids})
        else:
            found = loaded(phones, n_fast, rate, ports, groups)
        start = time.monotonic()
        broadcast = learnt(folder / "coordinator")
        found["closed and learnt after, s"] = round(time.monotonic() - start, 1)
    return found, broadcast


class Persistent:
    """Phones that send the same bytes again until they are taken, and what they saw."""

    def __init__(self, phones: Phones, rate: float) -> None:
        self.phones, self.rate = phones, rate
        self.taken: list[tuple[float, float, int, bytes]] = []  # due, when, number, status
        self.refused: Counter[str] = Counter()

    async def run(self, port: int) -> None:
        self.start = time.perf_counter()
        self._free = asyncio.Semaphore(CONNECTIONS // 2)
        tasks = []
        for number in range(self.phones.n):
            due = number / self.rate
            await asyncio.sleep(max(0.0, due - (time.perf_counter() - self.start)))
            tasks.append(asyncio.create_task(self._send(port, number, due)))
        await asyncio.gather(*tasks)

    async def _send(self, port: int, number: int, due: float) -> None:
        while True:
            async with self._free:
                status = await self._once(port, self.phones.requests[number])
            if status in (b"200", b"201"):
                when = time.perf_counter() - self.start
                self.taken.append((due, when, number, status))
                return
            self.refused[status.decode() or "no answer"] += 1
            await asyncio.sleep(random.uniform(0.5, 1.5))

    async def _once(self, port: int, request: bytes) -> bytes:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
            answer = await reader.read()
            writer.close()
        except OSError:
            return b""
        return answer[9:12]


def killed_under_load(folder: Path, phones: Phones) -> tuple[dict, bytes]:
    """Two gateways behind nginx; the second gets kill -9 when a third of the reports are in."""
    with (
        federation(folder, phones, 2) as loopback,
        proxy(folder, loopback) as (port, _),
    ):
        load = Persistent(phones, KILL_RATE)
        victim, when_killed = "gateway-2", phones.n / KILL_RATE / 3

        def kill() -> None:
            os.kill(loopback.processes.pid(victim), signal.SIGKILL)

        killer = threading.Timer(when_killed, kill)
        killer.start()
        uvloop.run(load.run(port))
        killer.join()
        broadcast = learnt(folder / "coordinator")
        counted = {
            name: _kept(folder / name / "vault.sqlite", phones.of(place, 2, slice(None)))
            for place, name in enumerate(loopback.ports)
        }
    found: dict = {
        "reports": phones.n,
        "acknowledged": len(load.taken),
        "taken before the kill, answered again": sum(status == b"200" for *_, status in load.taken),
        "refused meanwhile": dict(load.refused),
        "in the sums": {name: n for name, (n, _) in counted.items()},
        "phones": {name: n for name, (_, n) in counted.items()},
    }
    for place, name in enumerate(loopback.ports):
        mine = sorted(
            (when, when - due) for due, when, number, _ in load.taken
            if number % GROUPS % 2 == place
        )  # fmt: skip
        times = np.array([when for when, _ in mine])
        waits = np.array([wait for _, wait in mine]) * 1000
        found[name] = {
            "killed": name == victim,
            "longest time without an acknowledgement, s": round(float(np.diff(times).max()), 2),
            "p50, ms": round(float(np.percentile(waits, 50)), 1),
            "p99, ms": round(float(np.percentile(waits, 99)), 1),
        }
    return found, broadcast


def _kept(path: Path, mine: list[int]) -> tuple[int, int]:
    vault = Vault(path, busy_seconds=30.0)
    reduced = vault.reduced(0)
    vault.close()
    return reduced.n_reports, len(mine)


def measure_gateways(given: argparse.Namespace) -> dict:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started is ended
    phones = Phones(given.fast + int(given.rate * given.seconds))
    few = Phones(given.kill_reports)
    result: dict = {}
    learnt_in: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)

        def measure(what: str, make, *arguments) -> None:
            print(what, file=sys.stderr, flush=True)
            folder = root / str(len(result))
            folder.mkdir()
            result[what], learnt_in[what] = make(folder, *arguments)
            print(json.dumps(result[what], ensure_ascii=False), file=sys.stderr, flush=True)

        amount = (phones, given.fast, given.rate)
        measure("nextapp serve", in_one_process, *amount)
        for n in map(int, given.gateways.split(",")):
            measure(f"{n} gateway{'s' if n > 1 else ''}", through_gateways, *amount, n, False)
        if shutil.which("nginx"):
            measure("2 gateways behind nginx", through_gateways, *amount, 2, True)
        result["the same broadcast learnt in all"] = len(set(learnt_in.values())) == 1
        if shutil.which("nginx"):
            learnt_in.clear()
            measure("kill -9 of one of two", killed_under_load, few)
            measure("the same without a kill", in_one_process, few, few.n // 2, KILL_RATE)
            result["the same broadcast learnt with a kill"] = len(set(learnt_in.values())) == 1
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path)
    parts = parser.add_subparsers(required=True)
    gateway = parts.add_parser("gateway", help="durable reports/s of one gateway")
    gateway.add_argument("--seconds", type=float, default=60.0)
    gateway.add_argument("--rate", type=float, default=2200.0)
    gateway.add_argument("--closed-seconds", type=float, default=8.0)
    gateway.add_argument("--folder", type=Path, help="on the disk to measure; default: a temporary")
    gateway.set_defaults(measure=measure_gateway)
    crowd = parts.add_parser("crowd", help="reports/s until a crowd is published")
    crowd.add_argument("--apps", type=int, default=2000)
    crowd.add_argument("--reports", type=int, default=120_000)
    crowd.add_argument("--rate", type=float, default=2200.0)
    crowd.set_defaults(measure=measure_crowd)
    gateways = parts.add_parser("gateways", help="gateways joined by Flower, and a kill")
    gateways.add_argument("--fast", type=int, default=20_000, help="reports in the closed loop")
    gateways.add_argument("--rate", type=float, default=1000.0, help="reports/s of the second part")
    gateways.add_argument("--seconds", type=float, default=20.0, help="of the second part")
    gateways.add_argument("--gateways", default="1,2,4")
    gateways.add_argument("--kill-reports", type=int, default=12_000)
    gateways.set_defaults(measure=measure_gateways)
    given = parser.parse_args()
    text = json.dumps(result := given.measure(given), indent=2, ensure_ascii=False)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    sys.exit(not all(value is not False for value in result.values()))


if __name__ == "__main__":
    main()
