"""Time of a round against the number of phones, from what gpu_speed.py and fleet_speed.py measured.

cd benchmarks/results
python ../gpu_plot.py gpu-h200.json ray-two-workers.json ../../docs/images/fleet-devices.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

TWO_CORES = ([10_000, 100_000, 1_000_000], [23.6, 198.0, 2070.0])  # benchmarks/README.md, Rounds


def main(measured: Path, ray_measured: Path, drawing: Path) -> None:
    found = json.loads(measured.read_text(encoding="utf-8"))
    busy = json.loads(ray_measured.read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    lines = {
        f"processor, {found['rounds']['cores']} cores": found["rounds"],
        found["card"].replace("NVIDIA ", "GPU: one "): found["sizes"],
    }
    for name, rows in lines.items():
        sizes = sorted(int(n) for n in rows if n.isdigit())
        axes.plot(sizes, [rows[str(n)]["harmony"] for n in sizes], marker="o", label=name)
    axes.plot(*TWO_CORES, marker="o", label="processor, 2 cores, another machine")
    sizes = sorted(map(int, busy["harmony"]))
    there = f"{busy['cores']} cores at load {busy['load']:.0f}"
    for name, who in (("ray", "Ray, 2 workers"), ("process", "one process")):
        times = [busy["harmony"][str(n)][name] for n in sizes]
        axes.plot(sizes, times, marker=".", linestyle="--", label=f"{who}, {there}")
    n = found["phones"]
    axes.plot([n], [found["floor"]["copy_ms"]["16"]], "x", label="copying the bytes of a million")
    axes.set(xscale="log", yscale="log", xlabel="phones", ylabel="ms a round")
    axes.set_title("A round of harmony, d = 16, 2,000 apps", fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(drawing)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
