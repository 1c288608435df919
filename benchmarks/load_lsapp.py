"""Seconds and memory to load a log of LSApp's size: `nextapp.data.loading.read_log` beside csv.

Run:  python benchmarks/load_lsapp.py [--rows 3658590]

A file in LSApp's format (3,658,590 rows, about 179 MB, 46 % of them Opened) is made in a temporary
folder. Each reader then loads it in a process of its own, which reports the seconds of the load
and its peak memory, libraries included. The peer is a loop over Python's csv module that keeps the
same launches, so that both must count the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

HEADER = ("user_id", "session_id", "timestamp", "app_name", "event_type")
EVENTS = ("Opened", "Closed", "User Interaction", "Broken")
N_USERS = 292
N_APPS = 87


def make_lsapp(path: Path, n_rows: int) -> None:
    """Users one after another, each in order of time, apps and events drawn with seed 0."""
    random = Random(0)
    apps = [f"Software {i}" for i in range(N_APPS)]
    start = datetime(2018, 1, 16, 6, 1, 5)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(HEADER)
        for row in range(n_rows):
            user, since = divmod(row * N_USERS, n_rows)
            moment = start + timedelta(seconds=since // N_USERS * 900)
            event = random.choices(EVENTS, (46, 44, 8, 2))[0]
            writer.writerow((user, row // 48, moment, random.choice(apps), event))


def launches_by_nextapp(path: Path) -> int:
    from nextapp.data.loading import read_log

    return len(read_log(path))


def launches_by_csv(path: Path) -> int:
    users, times, apps = [], [], []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["event_type"] == "Opened":
                users.append(row["user_id"])
                moment = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
                times.append(int(moment.timestamp() * 1000))
                apps.append(row["app_name"])
    order = sorted(range(len(times)), key=lambda i: (users[i], times[i]))
    return len([(users[i], times[i], apps[i]) for i in order])


READERS = {"nextapp.load": launches_by_nextapp, "csv loop": launches_by_csv}


def measure_here(reader: str, path: Path) -> None:
    """Load in this process and print what it took as JSON."""
    start = time.perf_counter()
    n_launches = READERS[reader](path)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_bytes = peak if sys.platform == "darwin" else peak * 1024
    print(json.dumps({"launches": n_launches, "seconds": seconds, "n_bytes": n_bytes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=3_658_590)
    parser.add_argument("--measure", nargs=2, metavar=("READER", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        reader, path = arguments.measure
        measure_here(reader, Path(path))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lsapp.tsv"
        make_lsapp(path, arguments.rows)
        print(f"{arguments.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")
        print(f"{'reader':<14}{'launches':>12}{'seconds':>10}{'peak MiB':>10}")
        for reader in READERS:
            command = [sys.executable, __file__, "--measure", reader, str(path)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            took = json.loads(output)
            print(
                f"{reader:<14}{took['launches']:>12,}{took['seconds']:>10.2f}"
                f"{took['n_bytes'] / 2**20:>10.0f}"
            )


if __name__ == "__main__":
    main()
