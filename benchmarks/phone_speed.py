"""How long a phone takes to note a launch and to predict, beside an MRU list in memory.

    python benchmarks/phone_speed.py [--check]

With the file on this machine's disk: 30 apps, 2,000 in the catalogue, d = 32, and a crowd.
`observe` is the call a launcher waits for: the launch is in the file when it returns. `predict` is
timed where all launches were learnt from, and right after a launch, where it learns from that one
first. A cold start is a phone of 100,000 launches of 30 apps opened from its file, and its first
prediction. Then the predictor alone, in memory, with and without a crowd, and compiled on a whole
log. --check fails where the median of observe is over 100 µs, of predict over 60 µs, of predict
right after a launch over 200 µs, or where a cold start takes over 20 ms.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.evaluation import exam, find_preset
from nextapp.phone import Phone, Store
from nextapp.predictor import Habits
from nextapp.predictors.nextapp import NextApp
from nextapp.predictors.predictor_loop import compile_now
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
    """The rival, as stock Android has it: the apps by last use, in a list."""

    def __init__(self) -> None:
        self.apps: list[str | int] = []

    def observe(self, app: str | int, when: float = 0.0) -> None:
        if app in self.apps:
            self.apps.remove(app)
        self.apps.insert(0, app)

    def predict(self, n: int) -> list[str | int]:
        return self.apps[:n]


class InMemory(Habits):
    """The predictor without a file."""

    def predict(self, n: int) -> list[int]:
        known = self.apps
        return [known[place] for place in np.argsort(-self.chances(known))[:n].tolist()]


def random_crowd(rng: np.random.Generator, followers: int) -> Crowd:
    following = [rng.choice(N_APPS, followers, replace=False) for _ in range(N_APPS)]
    return Crowd(
        rng.dirichlet(np.ones(N_APPS)),
        np.arange(N_APPS + 1, dtype=np.int64) * followers,
        np.concatenate(following).astype(np.int64),
        rng.dirichlet(np.ones(followers), N_APPS).ravel(),
    )


def broadcast(rng: np.random.Generator) -> Broadcast:
    crowd = random_crowd(rng, 20)
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


def random_launches(seed: int, n: int) -> list[tuple[int, float]]:
    rng = np.random.default_rng(seed)
    follows = rng.dirichlet(np.full(N_OWN, 0.15), N_OWN)
    app, when, found = 0, 1.7e9, []
    for _ in range(n):
        app = int(rng.choice(N_OWN, p=follows[app]))
        when += float(rng.choice([20, 2000], p=[0.9, 0.1]))
        found.append((app, when))
    return found


def in_memory(phone: MRU | InMemory, launches: list[tuple[int, float]]) -> list[float]:
    """Median time of a prediction and of the launch after it, µs."""
    taken = []
    for app, when in launches:
        start = time.perf_counter()
        phone.predict(5)
        middle = time.perf_counter()
        phone.observe(app, when)
        taken.append((middle - start, time.perf_counter() - middle))
    return [1e6 * float(median) for median in np.median(taken, axis=0)]


def compiled() -> float:
    """The compiled form on a whole log: processor time of a launch, learning included, µs."""
    compile_now()  # by itself a log of this size compiles nothing
    log = read_log("synthetic:phones=40,apps=30,days=30,installed=30", seed=0)
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    predictor = NextApp()
    predictor.fit(test.history)
    questions = [chunk.questions for chunk in test.chunks]
    times = []
    for _ in range(N_RUNS):
        start = time.process_time()
        for asked in questions:
            predictor.score(asked)
        times.append(time.process_time() - start)
    return 1e6 * min(times) / len(test.whole)


def show_in_memory() -> None:
    launches = random_launches(0, 2 * N_TIMED)
    crowd = random_crowd(np.random.default_rng(1), 64)
    for name in ("an MRU list", "the predictor", "the predictor with a crowd"):
        medians = []
        for _ in range(N_RUNS):
            phone: MRU | InMemory = MRU() if name == "an MRU list" else InMemory()
            if isinstance(phone, InMemory) and name.endswith("crowd"):
                phone.crowd = crowd
            medians.append(in_memory(phone, launches))
        predict, observe = np.min(medians, axis=0)
        print(f"in memory, {name:<27} predict {predict:6.1f} µs   observe {observe:6.1f} µs")
    alone, habits = [], Habits()
    for _ in range(N_RUNS):
        habits = Habits()
        observe = habits.observe
        steps = [microseconds(lambda _, step=step, f=observe: f(*step), 1) for step in launches]
        alone.append(float(np.median(steps)))
    print(f"observe with no prediction before it: {min(alone):.1f} µs")
    start = time.perf_counter()
    data = habits.to_bytes()
    middle = time.perf_counter()
    Habits.from_bytes(data)
    end = time.perf_counter()
    print(
        f"state {len(data):,} bytes, written in {1e3 * (middle - start):.1f} ms, "
        f"read in {1e3 * (end - middle):.1f} ms"
    )
    each = compiled()
    print(
        f"compiled: {each:.2f} µs per launch, learning included, on one core: "
        f"{min(alone) / each:.0f} times as fast"
    )


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
    show_in_memory()
    over = [key for key, limit in LIMITS.items() if np.median(best[key]) > limit]
    if check and over:
        raise SystemExit(f"over its limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
