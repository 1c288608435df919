"""The peak memory of a sync, by the process itself, for phones with different histories.

    python benchmarks/phone_memory.py [--check]

Each phone is opened in a process of its own, which then counts its highest memory anew (Linux
only), and answers the largest questions of `tests/phone/test_memory.py`. What is shown is above the
idle phone. --check fails where a peak is over 64 MiB, or where two histories differ by more than
2 MiB.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import multiprocessing
import re
import sys
import tempfile
from pathlib import Path

from nextapp.phone import Phone

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
questions = importlib.import_module("phone.test_memory")

LARGEST, FURTHEST = 64.0, 2.0  # MiB


def mebibytes(name: str) -> float:
    """A value of this process's status: VmRSS, or VmHWM, its highest so far."""
    (kib,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) / 1024


def peaks(path: Path, n_launches: int, n_apps: int, predictor: str) -> list[tuple[str, float]]:
    """How much each sync took at most, above the phone before it."""
    found = []
    with questions.store_of(path, n_launches, n_apps, predictor) as store:
        phone = Phone(store, clock=lambda: questions.NOON)
        for number, (name, data) in enumerate([*questions.questions(predictor)]):
            client = questions.Served(data)
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # what is free already is no part of the idle phone
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
            idle = mebibytes("VmRSS")
            synced = phone.sync(client, now=True)
            if synced.report != "accepted":
                raise SystemExit(f"no report: {synced.message}")
            found.append((f"{number + 1}. {name}", mebibytes("VmHWM") - idle))
    return found


def measure(predictor: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    context = multiprocessing.get_context("spawn")
    for n_launches, n_apps in questions.HISTORIES:
        with tempfile.TemporaryDirectory() as folder, context.Pool(1) as pool:
            path = Path(folder) / "phone.db"
            for name, peak in pool.apply(peaks, (path, n_launches, n_apps, predictor)):
                found.setdefault(name, []).append(peak)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    print("MiB above the idle phone, at", *(f"{n:,}/{apps}" for n, apps in questions.HISTORIES))
    too_much = []
    for predictor in ("seqmf", "nextapp"):
        for name, found in measure(predictor).items():
            print(f"{name:40}", *(f"{peak:7.1f}" for peak in found), flush=True)
            if max(found) > LARGEST or max(found) - min(found) > FURTHEST:
                too_much.append(name)
    if given.check and too_much:
        sys.exit(f"over {LARGEST:g} MiB, or {FURTHEST:g} apart: {', '.join(too_much)}")


if __name__ == "__main__":
    main()
