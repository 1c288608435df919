"""How fast a fleet is: the phone step against implicit, threads, sizes, and a round of a million.

    make peers                                    # once: the peers, in environments of their own
    python benchmarks/fleet_speed.py step         # h, p and F against implicit's p, one thread
    python benchmarks/fleet_speed.py rounds       # 10^4 to 10^6 phones; one and two threads
    python benchmarks/fleet_speed.py peers        # a round of harmony against pfl and Flower
    python benchmarks/fleet_speed.py make         # a million synthetic phones, and what they cost
    python benchmarks/fleet_speed.py ray          # rounds on two Ray workers beside one process

Best of several runs; steps, on one thread, in seconds of the processor. The peers run in the same
minute on the same machine, on the same fleet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from nextapp.data import synthetic
from nextapp.fleet.columns import Columns, Fleet
from nextapp.fleet.rounds import sum_reports
from nextapp.privacy import Mechanism, mechanism
from nextapp.wire import Broadcast, ModelSettings

HERE = Path(__file__).parent
console = Console()


def best_seconds(
    work: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(runs):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def broadcast_of(n_apps: int, d: int, alpha: float = 0.0) -> Broadcast:
    vectors = np.random.default_rng(0).normal(0, 0.1, (n_apps, d))
    return Broadcast(0, vectors, ModelSettings(alpha=alpha))


def fleet_of(n_phones: int, n_apps: int) -> Fleet:
    parameters = synthetic.fleet_parameters(n_phones, n_apps)
    return Fleet.of_synthetic(parameters, 0, 0, n_phones)


def twenty_apps(n_phones: int, n_apps: int) -> Fleet:
    """20 apps and 90 transitions on every phone."""
    rng = np.random.default_rng(0)
    apps = np.sort(np.argsort(rng.random((n_phones, n_apps)), axis=1)[:, :20], axis=1)
    pairs = np.sort(np.argsort(rng.random((n_phones, 400)), axis=1)[:, :90], axis=1)
    columns = Columns(
        20 * np.arange(n_phones + 1),
        apps.astype(np.int32).ravel(),
        rng.integers(1, 30, 20 * n_phones).astype(np.int32),
        90 * np.arange(n_phones + 1),
        (pairs // 20).astype(np.int16).ravel(),
        (pairs % 20).astype(np.int16).ravel(),
        rng.integers(1, 9, 90 * n_phones).astype(np.int32),
    )
    return Fleet(n_apps, columns)


def step() -> None:
    peer = peer_python("implicit")
    table = Table("d", "nextapp, h p F /s", "implicit, p only /s", "ratio", "wanted", box=None)
    n_phones, n_apps = 8_000, 500
    fleet = twenty_apps(n_phones, n_apps)
    for d, wanted in ((16, 1.5), (32, 1.0), (64, 1.0)):
        broadcast = broadcast_of(n_apps, d, alpha=0.001)
        plain, user_vectors = mechanism("identity", n_apps=n_apps, d=d), np.zeros((n_phones, d))

        def work(broadcast=broadcast, plain=plain, user_vectors=user_vectors) -> object:
            return sum_reports(
                fleet, broadcast, plain, 0, user_vectors, dtype=np.float32, threads=1
            )

        work()
        ours = theirs = 0.0
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "fleet.npz"
            np.savez(
                file,
                app_starts=fleet.columns.app_starts.astype(np.int32),
                apps=fleet.columns.apps,
                counts=fleet.columns.counts,
                app_vectors=broadcast.app_vectors,
            )
            for _ in range(3):
                ours = max(ours, n_phones / best_seconds(work, 7, time.process_time))
                theirs = max(theirs, asked(peer, "implicit_users.py", file)["users_per_second"])
        table.add_row(str(d), f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}", f"{wanted}")
    console.print(
        "One thread, processor time, float32, 20 apps and 90 transitions a phone, α = .001"
    )
    console.print(table)


def rounds() -> None:
    d, n_apps = 16, 2_000
    start = time.perf_counter()
    fleet = fleet_of(1_000_000, n_apps)
    seconds = time.perf_counter() - start
    console.print(
        f"a million phones made in {seconds:.0f} s (compilation included): "
        f"{len(fleet.columns.apps) / len(fleet):.1f} apps, "
        f"{len(fleet.columns.times) / len(fleet):.1f} transitions, "
        f"{sum(column.nbytes for column in fleet.columns) / len(fleet) + 4 * d:.0f} bytes a phone"
    )
    broadcast = broadcast_of(n_apps, d)
    shape = {"n_apps": n_apps, "d": d}
    cases: list[tuple[str, Mechanism]] = [
        ("no privacy", mechanism("identity", **shape)),
        ("harmony", mechanism("harmony", epsilon=1.0, clip=0.05, **shape)),
        ("walsh, law", mechanism("walsh", epsilon=1.0, clip=0.2, **shape)),
    ]
    table = Table("round of", "phones", "threads", "seconds", "µs a phone", box=None)
    for name, made in cases:
        for n_phones, threads in ((10_000, 2), (100_000, 2), (1_000_000, 2), (100_000, 1)):
            part = fleet.shard(0, n_phones)
            user_vectors = np.zeros((n_phones, d), np.float32)
            everyone = np.ones(n_phones, bool)

            def work(
                part=part, user_vectors=user_vectors, everyone=everyone,
                made=made, threads=threads,
            ) -> object:  # fmt: skip
                return sum_reports(
                    part, broadcast, made, 0, user_vectors, everyone,
                    law=True, dtype=np.float32, threads=threads,
                ).mean(made)  # fmt: skip

            work() if n_phones < 1_000_000 else None
            seconds = best_seconds(work, 5 if n_phones < 1_000_000 else 3)
            table.add_row(
                name, f"{n_phones:,}", str(threads), f"{seconds:.2f}",
                f"{seconds / n_phones * 1e6:.2f}",
            )  # fmt: skip
    console.print(table)


def make() -> None:
    fleet_of(2_001, 2_000)  # compiles
    for n_phones in (100_000, 1_000_000):
        wall, processor = time.perf_counter(), time.process_time()
        fleet_of(n_phones, 2_000)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        console.print(
            f"{n_phones:,} phones made in {wall:.1f} s, {processor:.1f} s of a processor, on "
            f"{os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}"
        )


def ray() -> None:
    """Best of five rounds each, in turn; written to results/ray-two-workers.json."""
    import ray as library

    from nextapp.studies.on_ray import RayWorld
    from nextapp.studies.simulation import LocalWorld, SimulationSettings

    library.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    broadcast, results = broadcast_of(2_000, 16), {}
    load = os.getloadavg()[0]
    table = Table("phones", "one process, ms", "two Ray workers, ms", "ratio", box=None)
    for n_phones in (1_000, 10_000, 100_000):
        settings = SimulationSettings(
            phones=n_phones, apps=2_000, dim=16, rounds=1, mechanism="harmony", seed=0,
            epsilon=1.0, clip=0.05, shards=2,
        )  # fmt: skip
        made = settings.build_mechanism(0.05)
        worlds = {
            "process": LocalWorld(settings),
            "ray": RayWorld(settings, workers=2),
        }
        best = dict.fromkeys(worlds, float("inf"))
        for world in worlds.values():
            world(broadcast, made)  # makes the phones
        for _ in range(5):
            for name, world in worlds.items():
                start = time.perf_counter()
                world(broadcast, made)
                best[name] = min(best[name], time.perf_counter() - start)
        for worker in worlds["ray"].workers:
            library.kill(worker)
        results[str(n_phones)] = {name: 1e3 * seconds for name, seconds in best.items()}
        table.add_row(
            f"{n_phones:,}", f"{1e3 * best['process']:.1f}", f"{1e3 * best['ray']:.1f}",
            f"{best['process'] / best['ray']:.2f}",
        )  # fmt: skip
    library.shutdown()
    found = {"cores": os.cpu_count(), "load": load, "harmony": results}
    file = HERE / "results" / "ray-two-workers.json"
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console.print(table)


def peers() -> None:
    n_apps, d, n_phones, n_many = 500, 16, 300, 100_000
    clip, epsilon = 0.05, 1.0
    pfl, flower = peer_python("pfl"), peer_python("flower")
    many = fleet_of(n_many, n_apps)
    broadcast = broadcast_of(n_apps, d)
    made = mechanism("harmony", n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)

    def ours(n: int, threads: int) -> float:
        fleet, user_vectors = many.shard(0, n), np.zeros((n, d), np.float32)
        everyone = np.ones(n, bool)

        def work() -> object:
            return sum_reports(
                fleet, broadcast, made, 0, user_vectors, everyone,
                dtype=np.float32, threads=threads,
            ).mean(made)  # fmt: skip

        work()
        return best_seconds(work, 5) / n

    theirs = {}
    with tempfile.TemporaryDirectory() as folder:
        file, same = Path(folder) / "fleet.npz", many.shard(0, n_phones)
        vectors = broadcast.app_vectors.astype(np.float32)
        np.savez(file, app_vectors=vectors, **same.columns._asdict())
        arguments = (file, clip, epsilon, broadcast.settings.lam)
        for name, python in (("pfl", pfl), ("flower", flower)):
            answer = asked(python, f"{name}_round.py", *arguments)
            theirs[name] = answer["seconds_per_phone"]
    table = Table("phones", "threads", "nextapp µs", "pfl", "Flower", box=None)
    table.add_row(
        f"{n_phones:,}", "", "",
        *(f"{seconds * 1e6:,.0f} µs" for seconds in theirs.values()),
    )  # fmt: skip
    for n, threads in ((n_phones, 1), (2_000, 1), (n_many, 1), (n_many, 2)):
        mine = ours(n, threads)
        table.add_row(
            f"{n:,}", str(threads), f"{mine * 1e6:.2f}",
            *(f"{seconds / mine:,.0f} times" for seconds in theirs.values()),
        )  # fmt: skip
    table.add_row("wanted", "", "", "30 times", "1,000 times")
    console.print(
        f"A round of harmony, ε = {epsilon:g}, {n_apps} apps, d = {d}, a phone of "
        f"{len(many.columns.apps) / len(many):.1f} apps and "
        f"{len(many.columns.times) / len(many):.1f} transitions; per phone. "
        f"pfl runs in one process, Flower a client on every core."
    )
    console.print(table)


def peer_python(name: str) -> Path:
    python = HERE.parent / f".venv-peer-{name}" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{name} is not installed here: make peers")
    return python


def asked(python: Path, script: str, *arguments: object) -> dict[str, float]:
    done = subprocess.run(
        [str(python), str(HERE / "peers" / script), *map(str, arguments)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    parts = {"step": step, "rounds": rounds, "peers": peers, "make": make, "ray": ray}
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    parts[sys.argv[1]]()
