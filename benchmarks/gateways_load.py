"""Several gateways of the Flower form under load, one of them killed, and what they add up to.

    make bench-gateways        # .venv-flower/bin/python benchmarks/gateways_load.py

The same reports of the crowd (walsh, one a phone) go to one `nextapp serve`, and to 1, 2 and 4
gateways joined by Flower, directly and through nginx with deploy/nginx-gateways.conf: first as fast
as they are answered, then at a fixed rate. What each process spends of the processor is read from
/proc: where all share the cores with the load generator, processor seconds a report are what tells
how far more machines would go, not reports a second. In a further run a gateway gets kill -9 under
load. Whatever happens, the broadcast that is learnt must be the same bytes in every run.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import uvloop
from gateway_load import CONNECTIONS, Load, enrolled

from nextapp.randomness import DeviceCoins
from nextapp.server import single_process
from nextapp.server.devices import TOKEN_LETTERS, new_token
from nextapp.server.flower.launching import free_port
from nextapp.server.flower.loopback import Loopback
from nextapp.server.flower.processes import members
from nextapp.server.flower.round_driver import Pace
from nextapp.server.vault import Vault
from nextapp.wire import Report, unpack

LETTERS = TOKEN_LETTERS[:4]
N_APPS = 200
APPS = tuple(f"org.example.app{number:04d}" for number in range(N_APPS))
POLL_SECONDS = 20.0
KILL_RATE = 400.0
NGINX = Path(__file__).parents[1] / "deploy" / "nginx-gateways.conf"
_SERVERS = ("nextapp serve", *(f"gateway-{number}" for number in range(1, 65)))
_TICKS = os.sysconf("SC_CLK_TCK")


class Phones:
    """Tokens, a quarter for each of four letters, and one whole HTTP request of each."""

    def __init__(self, n: int) -> None:
        self.tokens = [new_token(LETTERS[number % len(LETTERS)]) for number in range(n)]
        self.requests = [_request(token) for token in self.tokens]

    def of(self, gateway: int, n_gateways: int, part: slice) -> list[int]:
        """Which of a part are the phones of a gateway."""
        return [
            number
            for number in range(*part.indices(len(self.tokens)))
            if number % len(LETTERS) % n_gateways == gateway
        ]


def _request(token: bytes) -> bytes:
    seed = DeviceCoins(token, 0).words(1).astype("<u8").tobytes()
    body = Report("walsh", 0, seed + secrets.token_bytes(1)).to_bytes()
    bearer = base64.urlsafe_b64encode(token).rstrip(b"=")
    return (
        b"POST /v1/report HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer %s\r\n"
        b"content-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n%s"
        % (bearer, len(body), body)
    )


def settings(n_reports: int) -> dict:
    return {
        "mechanism": "walsh", "epsilon": 1.0, "slots": N_APPS, "goal": n_reports,
        "minimum": n_reports, "deadline": 1e6,
    }  # fmt: skip


def processor_seconds(pid: int) -> float:
    """Spent by a process and its children that have ended; 0 for one that has ended itself."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / _TICKS


class Spending:
    """Processor seconds of named groups of processes between two moments."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {name: sum(map(processor_seconds, pids)) for name, pids in self._groups.items()}

    def so_far(self) -> dict[str, float]:
        return {name: round(spent - self._before[name], 2) for name, spent in self._now().items()}


def play(
    phones: Phones, part: slice, ports: Sequence[int], rate: float | None
) -> tuple[list[Load], float]:
    """Send a part of the reports, each to its gateway; the seconds until all were answered."""
    loads, shares = [], []
    for gateway in range(len(ports)):
        mine = phones.of(gateway, len(ports), part)
        share = len(mine) / len(range(*part.indices(len(phones.tokens))))
        shares.append(len(mine))
        requests = [phones.requests[number] for number in mine]
        loads.append(Load(requests, None if rate is None else rate * share))

    async def all_at_once() -> None:
        await asyncio.gather(
            *(
                load.play(port, n / load.rate if load.rate else 600.0, CONNECTIONS // len(ports))
                for load, port, n in zip(loads, ports, shares, strict=True)
            )
        )

    start = time.perf_counter()
    uvloop.run(all_at_once())
    return loads, time.perf_counter() - start


def figures(loads: Sequence[Load], seconds: float, spent: dict[str, float]) -> dict:
    spread = np.concatenate([load.latencies for load in loads]) * 1000
    statuses: Counter[str] = Counter()
    for load in loads:
        statuses.update({status.decode(): n for status, n in load.statuses.items()})
    return {
        "reports/s": round(len(spread) / seconds),
        "p50, ms": round(float(np.percentile(spread, 50)), 1),
        "p99, ms": round(float(np.percentile(spread, 99)), 1),
        "statuses": dict(statuses),
        "processor s": spent,
        "processor µs a report": {
            "all gateways": round(
                1e6 * sum(used for name, used in spent.items() if name in _SERVERS) / len(spread)
            ),
            **{
                name: round(1e6 * used / len(spread))
                for name, used in spent.items()
                if name not in _SERVERS
            },
        },
    }


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
        loads, seconds = play(phones, part, ports, pace)
        found[name] = figures(loads, seconds, spending.so_far())
        if found[name]["statuses"].keys() != {"201"}:
            raise RuntimeError(f"reports were refused: {found[name]['statuses']}.")
    return found


def learnt(folder: Path) -> bytes:
    """The broadcast after the one round that was played, once it is there."""
    path = folder / "checkpoints" / "round-0000000001.safetensors"
    give_up = time.monotonic() + 300
    while not path.exists():
        if time.monotonic() > give_up:
            raise TimeoutError(f"no round was closed in {folder}: see its logs.")
        time.sleep(0.2)
    return unpack(path.read_bytes())[0]["broadcast"].tobytes()


def in_one_process(folder: Path, phones: Phones, n_fast: int, rate: float) -> tuple[dict, bytes]:
    """The same reports at one `nextapp serve`."""
    given = folder / "settings.toml"
    (folder / "apps.txt").write_text("".join(f"{app}\n" for app in APPS))
    given.write_text(
        "".join(f"{name} = {json.dumps(v)}\n" for name, v in settings(len(phones.tokens)).items())
    )
    data = folder / "data"
    command = [sys.executable, "-m", "nextapp", "serve", "--data", str(data), "--port", "0"]
    command += ["--settings", str(given), "--apps", str(folder / "apps.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline().split()[0].rpartition(":")[2].rstrip(",;"))
            vault = Vault(data / "vault.sqlite", busy_seconds=30.0)
            enrolled(vault, phones.tokens)
            vault.close()
            found = loaded(phones, n_fast, rate, [port], {"nextapp serve": [server.pid]})
            return found, learnt(data)
        finally:
            server.terminate()


@contextlib.contextmanager
def federation(folder: Path, phones: Phones, n_gateways: int) -> Iterator[Loopback]:
    """Gateways joined by Flower, with round 0 open at all of them and their phones enrolled."""
    (folder / "coordinator").mkdir(parents=True)
    single_process.create_or_resume(folder / "coordinator", settings(len(phones.tokens)), APPS)
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
                enrolled(vault, [phones.tokens[number] for number in mine])
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
def proxy(folder: Path, ports: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """nginx as in deploy/, for plain HTTP: its port and processes."""
    text = NGINX.read_text(encoding="utf-8")
    port = free_port()
    letters = {letter: ports[place % len(ports)] for place, letter in enumerate(LETTERS)}
    lines = []
    for line in text.splitlines():
        if '"~^[Bb]earer B"' in line:  # the further letters
            lines += [f'"~^[Bb]earer {letter}" nextapp_{letter.lower()};' for letter in LETTERS[1:]]
        elif line.startswith("upstream nextapp_b"):
            lines += [
                line.replace("nextapp_b", f"nextapp_{letter.lower()}").replace("8444", str(to))
                for letter, to in list(letters.items())[1:]
            ]
        elif not line.strip().startswith("ssl_"):
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
            with proxy(folder, ports) as (port, pids):
                found = loaded(phones, n_fast, rate, [port], {**groups, "nginx": pids})
        else:
            found = loaded(phones, n_fast, rate, ports, groups)
        start = time.monotonic()
        told = learnt(folder / "coordinator")
        found["closed and learnt after, s"] = round(time.monotonic() - start, 1)
    return found, told


class Persistent:
    """Phones that send the same bytes again until they are taken, and what they saw."""

    def __init__(self, phones: Phones, rate: float) -> None:
        self.phones, self.rate = phones, rate
        self.taken: list[tuple[float, float, int, bytes]] = []  # due, when, number, status
        self.refused: Counter[str] = Counter()

    async def play(self, port: int) -> None:
        self.start = time.perf_counter()
        self._free = asyncio.Semaphore(CONNECTIONS // 2)
        tasks = []
        for number in range(len(self.phones.tokens)):
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
        proxy(folder, list(loopback.ports.values())) as (
            port,
            _,
        ),
    ):
        load = Persistent(phones, KILL_RATE)
        victim, when_killed = "gateway-2", len(phones.tokens) / KILL_RATE / 3

        def kill() -> None:
            os.kill(loopback.processes.pid(victim), signal.SIGKILL)

        killer = threading.Timer(when_killed, kill)
        killer.start()
        uvloop.run(load.play(port))
        killer.join()
        told = learnt(folder / "coordinator")
        counted = {
            name: _kept(folder / name / "vault.sqlite", phones.of(place, 2, slice(None)))
            for place, name in enumerate(loopback.ports)
        }
    found: dict = {
        "reports": len(phones.tokens),
        "acknowledged": len(load.taken),
        "taken before the kill, told again": sum(status == b"200" for *_, status in load.taken),
        "refused meanwhile": dict(load.refused),
        "in the sums": {name: n for name, (n, _) in counted.items()},
        "phones": {name: n for name, (_, n) in counted.items()},
    }
    for place, name in enumerate(loopback.ports):
        mine = sorted(
            (when, when - due) for due, when, number, _ in load.taken
            if number % len(LETTERS) % 2 == place
        )  # fmt: skip
        times = np.array([when for when, _ in mine])
        waits = np.array([wait for _, wait in mine]) * 1000
        found[name] = {
            "killed": name == victim,
            "longest time without an acknowledgement, s": round(float(np.diff(times).max()), 2),
            "p50, ms": round(float(np.percentile(waits, 50)), 1),
            "p99, ms": round(float(np.percentile(waits, 99)), 1),
        }
    return found, told


def _kept(path: Path, mine: list[int]) -> tuple[int, int]:
    vault = Vault(path, busy_seconds=30.0)
    reduced = vault.reduced(0)
    vault.close()
    return reduced.n_reports, len(mine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fast", type=int, default=20_000, help="reports sent as fast as can be")
    parser.add_argument("--rate", type=float, default=1000.0, help="reports/s of the second part")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the second part")
    parser.add_argument("--gateways", default="1,2,4")
    parser.add_argument("--kill-reports", type=int, default=12_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started is ended
    phones = Phones(given.fast + int(given.rate * given.seconds))
    few = Phones(given.kill_reports)
    result: dict = {}
    told: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)

        def measure(what: str, make, *arguments) -> None:
            print(what, file=sys.stderr, flush=True)
            folder = root / str(len(result))
            folder.mkdir()
            result[what], told[what] = make(folder, *arguments)
            print(json.dumps(result[what], ensure_ascii=False), file=sys.stderr, flush=True)

        amount = (phones, given.fast, given.rate)
        measure("nextapp serve", in_one_process, *amount)
        for n in map(int, given.gateways.split(",")):
            measure(f"{n} gateway{'s' if n > 1 else ''}", through_gateways, *amount, n, False)
        if shutil.which("nginx"):
            measure("2 gateways behind nginx", through_gateways, *amount, 2, True)
        result["the same broadcast learnt in all"] = len(set(told.values())) == 1
        if shutil.which("nginx"):
            told.clear()
            measure("kill -9 of one of two", killed_under_load, few)
            measure("the same without a kill", in_one_process, few, len(few.tokens) // 2, KILL_RATE)
            result["the same broadcast learnt with a kill"] = len(set(told.values())) == 1
    print(json.dumps(result, indent=2, ensure_ascii=False))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    sys.exit(not all(value for value in result.values()))


if __name__ == "__main__":
    main()
