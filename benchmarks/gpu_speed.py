"""How fast a fleet is on a GPU, beside naive PyTorch, implicit's GPU ALS and a copy of its bytes.

    python benchmarks/gpu_speed.py                          # all of it, a few minutes
    python benchmarks/gpu_speed.py --only step,floor,peers  # parts
    python benchmarks/gpu_speed.py --phones 1000000 --many 10000000 --seed 0 --json FILE
    python benchmarks/gpu_speed.py --plot docs/images/fleet-devices.svg   # from benchmarks/results

Times are medians; kernels are timed by CUDA events, rounds by the clock with the card idle before
and after. PyTorch and implicit take part where they are installed; implicit solves p only, by three
steps of conjugate gradients. Synthetic phones; a fleet of `--many` is one of a tenth, ten times:
every phone has bits of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.fleet import reporting as on_processor
from nextapp.fleet.columns import Fleet
from nextapp.fleet.gpu import reporting as on_card
from nextapp.fleet.gpu.card import first_card
from nextapp.fleet.gpu.reporting import ResidentFleet
from nextapp.fleet.rounds import cosine, estimate_sum, place_fleet
from nextapp.learners import SeqMFLearner, adam, take_step
from nextapp.privacy import mechanism
from nextapp.wire import Broadcast, ModelSettings

N_APPS = 2_000
DIMS = {16: 3.0, 32: 8.0, 64: 30.0}  # and the milliseconds wanted for a million phones
PARTS = ("floor", "step", "rounds", "peers", "errors", "sizes", "training", "sweep")
RESULTS = Path(__file__).parent / "results"
TWO_CORES = ([10_000, 100_000, 1_000_000], [23.6, 198.0, 2070.0])  # fleet_speed.py rounds
ASKED = 400  # apps whose transitions a server of the crowd asks for, of 2,000


def synthetic_fleet(n_phones: int, seed: int) -> Fleet:
    parameters = synthetic.fleet_parameters(n_phones, N_APPS)
    return Fleet.of_synthetic(parameters, seed, 0, n_phones)


def repeated(fleet: Fleet, times: int) -> Fleet:
    """The fleet several times, one after the other."""
    copies = [Fleet(fleet.n_apps, fleet.columns, number * len(fleet)) for number in range(times)]
    return Fleet.join(copies)


def broadcast_of(d: int, alpha: float = 0.0) -> Broadcast:
    vectors = np.random.default_rng(0).normal(0, 0.1, (N_APPS, d))
    return Broadcast(0, vectors, ModelSettings(alpha=alpha))


def made(name: str, d: int, epsilon: float = 1.0) -> Any:
    options = {
        "identity": {},
        "harmony": {"epsilon": epsilon, "clip": 0.05},
        "walsh": {"epsilon": epsilon, "clip": 0.2},
    }[name]
    return mechanism(name, n_apps=N_APPS, d=d, **options)


def event_ms(work: Callable[[], object], runs: int = 11) -> float:
    """The median by CUDA events, after a warm-up."""
    import cupy

    work()
    found = []
    for _ in range(runs):
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        work()
        after.record()
        after.synchronize()
        found.append(cupy.cuda.get_elapsed_time(before, after))
    return statistics.median(found)


def clock_ms(work: Callable[[], object], runs: int = 7) -> float:
    """The median by the clock, with the card idle before and after."""
    import cupy

    work()
    found = []
    for _ in range(runs):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


class KernelClock:
    """A card that times its kernels: the sum of the events around each."""

    def __init__(self, card: Any) -> None:
        self._card, self.xp = card, card.xp
        self._events: list[tuple[str, Any, Any]] = []

    def launch(self, source: Any, name: str, *arguments: Any) -> None:
        cuda = self.xp.cuda
        before, after = cuda.Event(), cuda.Event()
        before.record()
        self._card.launch(source, name, *arguments)
        after.record()
        self._events.append((name, before, after))

    def upload(self, *arguments: Any) -> Any:
        return self._card.upload(*arguments)

    def download(self, array: Any) -> Any:
        return self._card.download(array)

    def milliseconds(self) -> dict[str, float]:
        """By kernel."""
        self.xp.cuda.Device().synchronize()
        spans: dict[str, float] = {}
        for name, *ends in self._events:
            spans[name] = spans.get(name, 0.0) + self.xp.cuda.get_elapsed_time(*ends)
        self._events.clear()
        return spans


def kernels_ms(fleet: ResidentFleet, work: Callable[[], object], runs: int = 9) -> dict[str, float]:
    """The median of the time in each of our kernels."""
    plain, clock = fleet.card, KernelClock(fleet.card)
    fleet.card = clock
    try:
        work()
        clock.milliseconds()
        found = []
        for _ in range(runs):
            work()
            found.append(clock.milliseconds())
    finally:
        fleet.card = plain
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def floor(fleet: Fleet, placed: ResidentFleet) -> dict[str, Any]:
    """Reading and writing once what a round reads and writes."""
    import cupy

    found = {}
    resident = sum(each.nbytes for each in placed.columns if each is not None)
    for d in DIMS:
        n_bytes = resident + 4 * d * len(fleet)
        data = cupy.random.default_rng(0).integers(0, 255, n_bytes, np.uint8)
        room = cupy.empty_like(data)
        found[d] = event_ms(lambda data=data, room=room: room.__setitem__(slice(None), data))
        del data, room
    return {"bytes_a_phone": resident / len(fleet), "copy_ms": found}


def step(placed: ResidentFleet) -> dict[str, Any]:
    """h, p, F and their sum; the same with harmony; α > 0; walsh by its law."""
    found: dict[str, Any] = {}
    scale = 1e6 / len(placed)
    for d, wanted in DIMS.items():
        cases = {
            "h p F": ("identity", 0.0),
            "h p F, alpha = .001": ("identity", 0.001),
            "harmony": ("harmony", 0.0),
            "walsh by its law": ("walsh", 0.0),
        }
        rows: dict[str, Any] = {"wanted": wanted}
        for label, (name, alpha) in cases.items():
            broadcast, kind = broadcast_of(d, alpha), made(name, d)

            def work(broadcast=broadcast, kind=kind) -> object:
                return on_card.sum_reports(placed, broadcast, kind, 0, law=True)

            rows[label] = {
                "kernels_ms": scale * sum(kernels_ms(placed, work).values()),
                "round_ms": scale * clock_ms(work),
            }
            print(d, label, rows[label], flush=True)
        found[str(d)] = rows
    return found


def processor_rounds(fleet: Fleet) -> dict[str, Any]:
    """The same rounds on all cores of this machine's processor, milliseconds."""
    found: dict[str, Any] = {"cores": os.cpu_count()}
    for n in [10**e for e in range(3, 8) if 10**e <= len(fleet)]:
        placed, broadcast = place_fleet(fleet.shard(0, n), "cpu"), broadcast_of(16)
        rows = {}
        for name in ("identity", "harmony"):
            kind, times = made(name, 16), []
            for _ in range(4):
                start = time.perf_counter()
                placed(broadcast, kind, 0)
                times.append(1e3 * (time.perf_counter() - start))
            rows[name] = statistics.median(times[1:])
        found[str(n)] = rows
        print(n, rows, flush=True)
    return found


def peers(fleet: Fleet) -> dict[str, Any]:
    """Naive PyTorch: h, p, F; implicit: p. Milliseconds a million phones."""
    found: dict[str, Any] = {}
    for name, measure in (("pytorch", torch_ms), ("implicit", implicit_ms)):
        try:
            found[name] = {str(d): measure(fleet, d) * 1e6 / len(fleet) for d in DIMS}
        except Exception as error:  # a peer that does not run here is said so, not hidden
            found[name] = f"does not run here: {type(error).__name__}: {error}"
        print(name, found[name], flush=True)
    return found


def torch_ms(fleet: Fleet, d: int) -> float:
    """Batched operators over phones padded to the same number of apps, in parts that fit."""
    import torch

    broadcast = broadcast_of(d)
    Q = torch.tensor(broadcast.app_vectors, dtype=torch.float32, device="cuda")
    lam = broadcast.settings.lam
    n, most = len(fleet), int(np.diff(fleet.columns.app_starts).max())

    def padded(values: np.ndarray, filler: float, dtype: Any) -> torch.Tensor:
        table = np.full((n, most), filler)
        sizes = np.diff(fleet.columns.app_starts)
        table[np.arange(most) < sizes[:, None]] = values
        return torch.tensor(table, dtype=dtype, device="cuda")

    apps = padded(fleet.columns.apps, 0, torch.int64)
    counts = padded(fleet.columns.counts, 0, torch.float32)
    phone = np.repeat(np.arange(n), np.diff(fleet.columns.transition_starts))
    cells = (phone * most + fleet.columns.previous) * most + fleet.columns.following
    cells = torch.tensor(cells, device="cuda")
    times = torch.tensor(fleet.columns.times, dtype=torch.float32, device="cuda")
    ends = torch.tensor(fleet.columns.transition_starts, device="cuda")
    at_once = max(1, min(n, 16_000_000 // (d * d)))

    def work() -> None:
        total = torch.zeros_like(Q)
        for first in range(0, n, at_once):
            last = min(first + at_once, n)
            c = counts[first:last]
            c = c / c.sum(1, keepdim=True)
            own = Q[apps[first:last]]
            moves = slice(int(ends[first]), int(ends[last]))
            S = torch.zeros((last - first) * most * most, device="cuda")
            S.index_add_(0, cells[moves] - first * most * most, times[moves])
            S = S.view(-1, most, most)
            S = S / S.sum(2, keepdim=True).clamp_min(1)
            SQ = torch.bmm(S, own)
            h = (own * SQ).sum(2)
            A = torch.bmm((c[..., None] * own).transpose(1, 2), own)
            A = A + lam * torch.eye(d, device="cuda")
            b = torch.bmm(own.transpose(1, 2), (c * (1 - h))[..., None])
            p = torch.linalg.solve(A, b)
            D = c[..., None] * (torch.bmm(own, p) + h[..., None] - 1)
            F = D * p.transpose(1, 2) + D * SQ + torch.bmm(S.transpose(1, 2), D * own)
            total.index_add_(0, apps[first:last].reshape(-1), F.reshape(-1, d))

    return _torch_clock(work)


def _torch_clock(work: Callable[[], object], runs: int = 5) -> float:
    import torch

    work()
    found = []
    for _ in range(runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


def implicit_ms(fleet: Fleet, d: int) -> float:
    import implicit.gpu._cuda as card
    from scipy import sparse

    users = sparse.csr_matrix(
        (
            fleet.columns.counts.astype(np.float32),
            fleet.columns.apps,
            fleet.columns.app_starts.astype(np.int32),
        ),
        shape=(len(fleet), N_APPS),
    )
    counts, solver = card.CSRMatrix(users), card.LeastSquaresSolver()
    items = card.Matrix(broadcast_of(d).app_vectors.astype(np.float32))
    solved = card.Matrix(np.zeros((len(fleet), d), np.float32))
    gram = card.Matrix(np.zeros((d, d), np.float32))

    def work() -> None:
        solver.calculate_yty(items, gram, 0.3)
        solver.least_squares(counts, solved, gram, items, 3)

    return clock_ms(work)


def errors(fleet: Fleet) -> dict[str, Any]:
    """float32 on the card against float64 on the processor: relative, and reports that differ."""
    some = fleet.shard(0, min(len(fleet), 100_000))
    found = {}
    for d in DIMS:
        for alpha in (0.0, 0.001):
            broadcast, kind = broadcast_of(d, alpha), made("harmony", d)
            vectors = np.zeros((len(some), d))
            theirs = on_processor.sum_reports(some, broadcast, kind, 5, vectors)
            card = ResidentFleet(some, first_card())
            mine = on_card.sum_reports(card, broadcast, kind, 5)
            solved = card.card.download(card.user_vectors(d, np.dtype(np.float32)))
            again = on_card.sum_reports(card, broadcast, kind, 5)
            found[f"d={d} alpha={alpha}"] = {
                "p": relative(solved, vectors),
                "sum": relative(mine.true_sum, theirs.true_sum),
                "loss": abs(mine.loss / theirs.loss - 1),
                "reports": mine.n_reports,
                "signs_that_differ": int(np.abs(mine.state["tally"] - theirs.state["tally"]).sum()),
                "same_bits_twice": bool(np.array_equal(mine.true_sum, again.true_sum)),
            }
    return found


def relative(mine: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))


def sizes(fleet: Fleet, many: int) -> dict[str, Any]:
    """A round against the number of phones, d = 16, by the clock."""
    found = {}
    big = repeated(fleet, -(-many // len(fleet)))
    for n in [10**e for e in range(3, 9) if 10**e <= many]:
        start = time.perf_counter()
        placed = ResidentFleet(big.shard(0, n), first_card())
        uploaded = time.perf_counter() - start
        rows: dict[str, float] = {"upload_ms": 1e3 * uploaded}
        for name in ("identity", "harmony"):
            kind, broadcast = made(name, 16), broadcast_of(16)

            def work(placed=placed, kind=kind, broadcast=broadcast) -> object:
                return on_card.sum_reports(placed, broadcast, kind, 0)

            rows[name] = clock_ms(work)
        found[str(n)] = rows
        print(n, rows, flush=True)
        del placed
    return found


def training(fleet: Fleet, many: int) -> dict[str, Any]:
    """Ten private rounds of many phones, from columns in memory to the last Q."""
    big = repeated(fleet, -(-many // len(fleet)))
    kind = made("harmony", 16)
    learner = SeqMFLearner(broadcast_of(16).app_vectors, ModelSettings(alpha=0.0), adam(0.01), kind)
    start = time.perf_counter()
    placed = place_fleet(big, "gpu")
    loaded = time.perf_counter() - start
    for _ in range(10):
        sums = placed(learner.broadcast, kind, 0)
        estimate = estimate_sum(sums, kind)
        take_step(learner, estimate)
    return {
        "phones": len(big),
        "gigabytes": sum(column.nbytes for column in big.columns) / 1e9,
        "loading_s": loaded,
        "ten_rounds_and_loading_s": time.perf_counter() - start,
        "cosine": cosine(estimate, sums.true_sum),
    }


def sweep(n_phones: int) -> dict[str, Any]:
    """Ten ε and five seeds, ten rounds of harmony each; phones are made for each seed."""
    start = time.perf_counter()
    making, n_rounds = 0.0, 0
    for seed in range(5):
        began = time.perf_counter()
        fleet = place_fleet(synthetic_fleet(n_phones, seed), "gpu")
        making += time.perf_counter() - began
        for epsilon in np.geomspace(0.5, 20, 10):
            kind = made("harmony", 16, float(epsilon))
            settings = ModelSettings(alpha=0.0)
            learner = SeqMFLearner(broadcast_of(16).app_vectors, settings, adam(0.01), kind)
            for _ in range(10):
                sums = fleet(learner.broadcast, kind, seed)
                learner.apply_sum(sums.n_reports * sums.mean(kind))
                n_rounds += 1
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "of_it_making_phones": making, "rounds": n_rounds}


def plot(drawing: Path) -> None:
    """Time of a round against the number of phones, from what was measured before."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = json.loads((RESULTS / "gpu-h200.json").read_text(encoding="utf-8"))
    busy = json.loads((RESULTS / "ray-two-workers.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    lines = {
        f"processor, {found['rounds']['cores']} cores": found["rounds"],
        found["card"].replace("NVIDIA ", "GPU: one "): found["sizes"],
    }
    for name, rows in lines.items():
        numbers = sorted(int(n) for n in rows if n.isdigit())
        axes.plot(numbers, [rows[str(n)]["harmony"] for n in numbers], marker="o", label=name)
    axes.plot(*TWO_CORES, marker="o", label="processor, 2 cores, another machine")
    numbers = sorted(map(int, busy["harmony"]))
    where = f"{busy['cores']} cores at load {busy['load']:.0f}"
    for name, who in (("ray", "Ray, 2 workers"), ("process", "one process")):
        times = [busy["harmony"][str(n)][name] for n in numbers]
        axes.plot(numbers, times, marker=".", linestyle="--", label=f"{who}, {where}")
    copying = [found["floor"]["copy_ms"]["16"]]
    axes.plot([found["phones"]], copying, "x", label="copying the bytes of a million")
    axes.set(xscale="log", yscale="log", xlabel="phones", ylabel="ms per round")
    axes.set_title("A round of harmony, d = 16, 2,000 apps", fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(drawing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=1_000_000)
    parser.add_argument("--many", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, metavar="DRAWING")
    given = parser.parse_args()
    if given.plot:
        plot(given.plot)
        return
    parts = given.only.split(",")
    start = time.perf_counter()
    fleet = synthetic_fleet(given.phones, given.seed)
    making = time.perf_counter() - start
    n_own, n_moves = len(fleet.columns.apps) / len(fleet), len(fleet.columns.times) / len(fleet)
    found: dict[str, Any] = {
        "card": first_card().xp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "phones": given.phones, "seed": given.seed, "apps_a_phone": n_own,
        "transitions_a_phone": n_moves, "making_phones_s": making,
    }  # fmt: skip
    print(found, flush=True)
    placed = ResidentFleet(fleet, first_card())
    measures: dict[str, Callable[[], Any]] = {
        "floor": lambda: floor(fleet, placed),
        "step": lambda: step(placed),
        "rounds": lambda: processor_rounds(fleet),
        "peers": lambda: peers(fleet),
        "errors": lambda: errors(fleet),
        "sizes": lambda: sizes(fleet, given.many),
        "training": lambda: training(fleet, given.many),
        "sweep": lambda: sweep(given.phones),
    }
    for part in PARTS:
        if part in parts:
            found[part] = measures[part]()
            print(part, json.dumps(found[part]), flush=True)
            if given.json:
                given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    worst = [
        f"d = {d}: {rows['h p F']['kernels_ms']:.2f} ms of {rows['wanted']} wanted"
        for d, rows in found.get("step", {}).items()
    ]
    print("\n".join(worst) or f"done in {math.ceil(time.perf_counter() - start)} s")


if __name__ == "__main__":
    main()
