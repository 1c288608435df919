"""How long a phone takes to note a launch and to predict, beside an MRU list in memory.

    python benchmarks/phone_speed.py [--check]

30 apps, 2,000 in the catalogue, d = 32, with a crowd, the file on this machine's disk. `observe` is
the call a launcher waits for: the launch is in the file when it returns. `predict` is timed where
all launches were learnt from, and right after a launch, where it learns from that one first.
A cold start is a phone of 100,000 launches of 30 apps opened from its file, and its first
prediction. --check fails where the median of observe is over 100 µs, of predict over 60 µs, of
predict right after a launch over 200 µs, or where a cold start takes over 20 ms.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nextapp.phone import Phone, Store
from nextapp.wire import Broadcast, Crowd, ModelSettings

N_APPS, N_OWN, DIM = 2_000, 30, 32
N_HISTORY, N_TIMED, N_RUNS = 3_000, 1_000, 3
N_COLD = 100_000
COLD = f"cold start, {N_COLD:,} launches"
LIMITS = {
    "observe": 100.0,
    "predict(5)": 60.0,
    "predict(5) right after a launch": 200.0,
    COLD: 20_000.0,
}


class MRU:
    """The rival: the apps by last use, in a list."""

    def __init__(self) -> None:
        self.apps: list[str] = []

    def observe(self, app: str) -> None:
        if app in self.apps:
            self.apps.remove(app)
        self.apps.insert(0, app)

    def predict(self, n: int) -> list[str]:
        return self.apps[:n]


def broadcast(rng: np.random.Generator) -> Broadcast:
    following = np.concatenate([rng.choice(N_APPS, 20, replace=False) for _ in range(N_APPS)])
    crowd = Crowd(
        rng.dirichlet(np.ones(N_APPS)),
        np.arange(N_APPS + 1, dtype=np.int64) * 20,
        following.astype(np.int64),
        np.full(20 * N_APPS, 0.04),
    )
    vectors = rng.normal(0.0, 0.1, (N_APPS, DIM))
    names = tuple(f"app-{number:04d}" for number in range(N_APPS))
    return Broadcast(0, vectors, ModelSettings(), names, crowd=crowd)


def microseconds(
    call: Callable[[int], object], n: int, before: Callable[[int], object] | None = None
):
    times = np.empty(n)
    for number in range(n):
        if before is not None:
            before(number)
        start = time.perf_counter()
        call(number)
        times[number] = time.perf_counter() - start
    return times * 1e6


def one_run(folder: Path, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    own = rng.choice(N_APPS, N_OWN, replace=False)
    shares = rng.dirichlet(np.ones(N_OWN))
    apps = [f"app-{own[i]:04d}" for i in rng.choice(N_OWN, N_HISTORY + 4 * N_TIMED, p=shares)]
    pauses = rng.choice([20.0, 60.0, 3600.0], len(apps), p=[0.5, 0.4, 0.1])
    clock = 1.79e9 + np.cumsum(pauses)
    found: dict[str, np.ndarray] = {}
    with Phone(Store.create(folder / f"{seed}.db", lifetime=1.0, per_day=1.0)) as phone:
        phone.learn(
            (app, float(when), 0) for app, when in zip(apps[:N_HISTORY], clock, strict=False)
        )
        phone.take(broadcast(rng).to_bytes(), 1.79e9)
        at = [N_HISTORY]

        def observe(_: int) -> None:
            phone.observe(apps[at[0]], float(clock[at[0]]))
            at[0] += 1

        def predict(_: int) -> None:
            phone.predict(5, float(clock[at[0] - 1]) + 5.0)

        found["observe"] = microseconds(observe, N_TIMED)
        predict(0)
        found["predict(5)"] = microseconds(predict, N_TIMED)
        found["predict(5) right after a launch"] = microseconds(predict, N_TIMED, observe)
        found["observe and predict(5)"] = microseconds(
            lambda number: (observe(number), predict(number)), N_TIMED
        )
        start = time.perf_counter()
        phone.observe(apps[0], float(clock[-1]), durable=True)
        found["observe(durable=True)"] = np.array([1e6 * (time.perf_counter() - start)])
    start = time.perf_counter()
    Phone(Store(folder / f"{seed}.db")).close()
    found["open and close"] = np.array([1e6 * (time.perf_counter() - start)])
    mru = MRU()
    found["MRU list: observe"] = microseconds(lambda number: mru.observe(apps[number]), N_TIMED)
    found["MRU list: predict(5)"] = microseconds(lambda number: mru.predict(5), N_TIMED)
    return found


def cold_start(folder: Path) -> np.ndarray:
    rng = np.random.default_rng(9)
    apps = [f"app-{i:04d}" for i in rng.choice(N_OWN, N_COLD, p=rng.dirichlet(np.ones(N_OWN)))]
    clock = 1.79e9 + np.cumsum(rng.choice([20.0, 60.0, 3600.0], N_COLD, p=[0.6, 0.35, 0.05]))
    file, end = folder / "cold.db", float(clock[-1]) + 5.0
    with Phone(Store.create(file, lifetime=1.0, per_day=1.0, window=1e10)) as phone:
        phone.learn((app, float(when), 0) for app, when in zip(apps, clock, strict=True))
        phone.predict(5, end)

    def start(_: int) -> None:
        with Store(file) as store:
            Phone(store).predict(5, end)

    return microseconds(start, 20)


def commits(folder: Path, synchronous: str, n: int) -> np.ndarray:
    """What SQLite alone takes for one row, committed."""
    connection = sqlite3.connect(folder / f"{synchronous}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE launches (number INTEGER PRIMARY KEY, app, clock, zone)")
    times = microseconds(
        lambda number: connection.execute(
            "INSERT INTO launches (app, clock, zone) VALUES (?, ?, 0)", (number % 30, number)
        ),
        n,
    )
    connection.close()
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="fail where a limit is passed")
    check = options.parse_args().check
    with tempfile.TemporaryDirectory(dir=".") as name:  # a disk, not memory
        folder = Path(name)
        runs = [one_run(folder, seed) for seed in range(N_RUNS)]
        best = {
            key: min(runs, key=lambda run, key=key: np.median(run[key]))[key] for key in runs[0]
        }
        best[COLD] = cold_start(folder)
        best["SQLite, synchronous NORMAL: a row"] = commits(folder, "NORMAL", N_TIMED)
        best["SQLite, synchronous FULL: a row"] = commits(folder, "FULL", 100)
    title = f"best of {N_RUNS} runs, µs"
    print(f"{title:<36} {'median':>9} {'p95':>9} {'mean':>9} {'most':>9}")
    for key, times in best.items():
        print(
            f"{key:<36} {np.median(times):>9.1f} {np.quantile(times, 0.95):>9.1f} "
            f"{times.mean():>9.1f} {times.max():>9.0f}"
        )
    over = [key for key, limit in LIMITS.items() if np.median(best[key]) > limit]
    if check and over:
        raise SystemExit(f"over its limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
