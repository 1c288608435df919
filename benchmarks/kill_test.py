"""Kill server and phones at random moments; nothing acknowledged may be lost or counted twice.

    python benchmarks/kill_test.py --kills 50

A server (gateway and coordinator in one process) and two processes of real phones run on loopback,
with short rounds. Again and again one of the three gets kill -9 and is started anew. Phones write
down, outside their stores, every report they send and every acknowledgement they get. From these
records alone the sum of each round is put together and held against the tally that the server made
of it; and the app vectors of the checkpoints against steps along these sums.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from nextapp.phone import Client, Phone, Store
from nextapp.phone.client import ServerError
from nextapp.privacy import mechanism
from nextapp.server import listening
from nextapp.server.folders import VaultOptions, lock_folder, open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.listening import ServerLimits
from nextapp.server.vault import Vault
from nextapp.wire import Report, unpack

N_APPS, DIM, RATE, LAM = 30, 4, 0.01, 0.3
PHONES = 30  # of each process
TOKENS = 40  # of a phone
SETTINGS = {
    "learn": "seqmf",
    "mechanism": "harmony", "epsilon": 2.0, "clip": 1.0, "goal": PHONES, "minimum": 5,
    "deadline": 5.0, "grace": 0.0, "dim": DIM, "optimiser": "sgd", "rate": RATE,
}  # fmt: skip
LIMITS = ServerLimits(device_burst=1e9, address_burst=1e9)
PHONE = {
    "lifetime": 1e6, "per_day": 1e6, "per_report": 10.0, "hours": 0.0,
    "predictor": "seqmf",  # or it would not answer a server of app vectors
}  # fmt: skip


def serve(folder: Path, port: int) -> None:
    apps = tuple(f"app-{number:04d}" for number in range(N_APPS))
    new = not (folder / "settings.json").exists()
    with lock_folder(folder):
        federation, _ = open_federation(
            folder,
            SETTINGS,
            apps if new else None,
            now=time.time(),
            options=VaultOptions(30.0, TOKENS),
        )
        opened = listening.open_socket("127.0.0.1", port)
        print(opened.getsockname()[1], flush=True)
        listening.serve(federation, Gateway(federation.vault, LIMITS), opened)


class Recorded(Client):
    """A client that writes down what it sends and what is acknowledged."""

    record: Path

    def submit(self, report: bytes, token: str) -> None:
        self._write("sent", report)
        super().submit(report, token)
        self._write("acknowledged", report)

    def _write(self, word: str, report: bytes) -> None:
        line = f"{word} {self.record.stem} {report.hex()}\n".encode()
        handle = os.open(self.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, line)
        os.close(handle)


def run_phones(folder: Path, url: str, code: str) -> None:
    """Phones of one process, sync after sync, for ever."""

    def live(number: int) -> None:
        path = folder / f"phone-{number:03d}.sqlite"
        rng = np.random.default_rng(number)
        client = Recorded(url, attempts=1, timeout=5.0)
        client.record = folder / f"{folder.name}-{number:03d}.record"
        store = Store(path) if path.exists() else Store.create(path, **PHONE)
        phone = Phone(store)
        while True:
            try:
                if store.setting("secret") is None:
                    phone.join(client, code)
                app = f"app-{rng.integers(N_APPS):04d}"
                phone.observe(app)
                phone.sync(client, now=True)
            except ServerError:
                client.close()
            time.sleep(float(rng.uniform(0.05, 0.25)))

    threads = [threading.Thread(target=live, args=(n,), daemon=True) for n in range(PHONES)]
    for thread in threads:
        thread.start()
    print("running", flush=True)
    for thread in threads:
        thread.join()


class Part:
    """A process that is killed and started anew."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = [sys.executable, __file__, *map(str, arguments)]

    def start(self) -> str:
        self.process = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, text=True)
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def is_sum_of(total: np.ndarray, parts: list[np.ndarray], n: int) -> bool:
    """Whether some n of the parts add up to the total."""
    if n == 0:
        return not total.any()
    return any(
        is_sum_of(total - part, parts[place + 1 :], n - 1) for place, part in enumerate(parts)
    )


class Watch:
    """What a server's folder has shown: the tally of every round, the app vectors of most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vault = Vault(folder / "vault.sqlite", busy_seconds=10)
        self.sums: dict[int, tuple[int, np.ndarray]] = {}
        self.vectors: dict[int, np.ndarray] = {}

    def look(self) -> None:
        for path in (self.folder / "checkpoints").glob("round-*.safetensors"):
            try:
                tensors, words = unpack(path.read_bytes())
            except FileNotFoundError:
                continue  # an old one, dropped meanwhile
            self.vectors[int(words["round"])] = np.array(tensors["app_vectors"])
        for number in range(max(self.vectors) + 1):
            if number not in self.sums and (reduced := self.vault.reduced(number)) is not None:
                self.sums[number] = (reduced.n_reports, reduced.tally)


def killing(folder: Path, kills: int, chance: random.Random) -> tuple[Watch, dict[str, int]]:
    """Run a server and two groups of phones, and kill one of them again and again."""
    (folder / "server").mkdir()
    server = Part("serve", folder / "server", 0)
    port = int(server.start())
    server.arguments[-1] = str(port)
    watch = Watch(folder / "server")
    code = watch.vault.devices.issue_code(uses=100 * PHONES, expires=1e12)
    groups = []
    for number in range(2):
        (folder / f"group{number}").mkdir()
        groups.append(Part("phones", folder / f"group{number}", f"http://127.0.0.1:{port}", code))
        groups[-1].start()
    while not watch.sums:  # all have enrolled and have their tokens
        watch.look()
        time.sleep(0.1)
    killed = {"server": 0, "phones": 0}
    for kill in range(kills):
        until = time.monotonic() + chance.uniform(0.2, 1.8)
        while time.monotonic() < until:
            watch.look()
            time.sleep(0.1)
        name, part = ("server", server) if chance.random() < 0.6 else ("phones", groups[kill % 2])
        killed[name] += 1
        part.kill()
        watch.look()
        part.start()
        print(f"kill {kill + 1}, round {max(watch.vectors)}", file=sys.stderr, flush=True)
    time.sleep(2.0)
    for group in groups:
        group.kill()
    time.sleep(0.5)
    watch.look()
    server.kill()
    watch.vault.close()
    return watch, killed


def records(folder: Path) -> tuple[dict[tuple[str, int], set[bytes]], dict[int, dict[str, bytes]]]:
    """What phones sent, by phone and round, and what was acknowledged, by round and phone."""
    sent: dict[tuple[str, int], set[bytes]] = {}
    acknowledged: dict[int, dict[str, bytes]] = {}
    for record in folder.glob("group*/*.record"):
        for line in record.read_text().splitlines():
            word, phone, data = line.split()
            report = Report.from_bytes(bytes.fromhex(data))
            sent.setdefault((phone, report.round), set()).add(report.payload)
            if word == "acknowledged":
                acknowledged.setdefault(report.round, {})[phone] = report.payload
    return sent, acknowledged


def judged(watch: Watch, folder: Path) -> dict:
    """Whether the server's sums and steps are those of the phones' records."""
    made = mechanism("harmony", n_apps=N_APPS, d=DIM, epsilon=2.0, clip=1.0)
    sent, acknowledged = records(folder)
    wrong, unsure, steps = [], 0, 0
    for number, (n_reports, tally) in watch.sums.items():
        sure = acknowledged.get(number, {})
        rest = tally - made.tally([Report("harmony", number, one) for one in sure.values()])
        extra = n_reports - len(sure)  # taken, but the server died before it could say so
        unsure += max(extra, 0)
        others = [
            made.tally([Report("harmony", number, payload)])
            for (phone, round_), payloads in sent.items()
            if round_ == number and phone not in sure
            for payload in payloads
        ]
        if extra < 0 or not is_sum_of(rest, others, extra):
            wrong.append(number)
        before, after = watch.vectors.get(number), watch.vectors.get(number + 1)
        if before is not None and after is not None:
            total = n_reports * made.estimate(tally, n_reports)
            steps += 1
            if not np.allclose(after, before - RATE * (total + LAM * before), 1e-12, 1e-12):
                wrong.append(number)
    return {
        "rounds_checked": len(watch.sums),
        "steps_checked": steps,
        "reports_acknowledged": sum(map(len, acknowledged.values())),
        "reports_counted_without_acknowledgement": unsure,
        "rounds_wrong": wrong,
        "reports_drawn_twice_for_a_round": sum(len(payloads) > 1 for payloads in sent.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        watch, killed = killing(Path(name), given.kills, random.Random(given.seed))
        result = {
            "kills": killed,
            "seconds": round(time.monotonic() - start, 1),
            **judged(watch, Path(name)),
        }
    print(json.dumps(result, indent=2))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")
    bad = result["rounds_wrong"] or result["reports_drawn_twice_for_a_round"] or not watch.sums
    sys.exit(bool(bad))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["phones"]:
        run_phones(Path(sys.argv[2]), *sys.argv[3:])
    else:
        main()
