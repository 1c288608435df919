"""The LSApp twin beside the real LSApp, of which only sums are public.

    python benchmarks/compare_lsapp.py FOLDER

FOLDER has lsapp-minutes.csv (user_id, app_name, minutes) and lsapp-transitions.csv (from_app,
to_app, count: between the 40 commonest apps, without repeats), packed or not. The twin is made with
1,700 phones, so that it has as many transitions: fewer would look less symmetric by chance. Writes
benchmarks/results/lsapp-people.json.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from nextapp.data.cutting import collapse_repeats, session_starts
from nextapp.data.log import LaunchLog
from nextapp.data.synthetic import LSAPP, make
from nextapp.wire import Floats

RESULT = Path(__file__).parent / "results" / "lsapp-people.json"
N_APPS, N_PHONES = 40, 1_700
SEEDS = range(3)


def of_transitions(counts: Floats) -> dict[str, float]:
    """Figures of (n, n) counts of changes from one app to another."""
    total, expected = counts.sum(), independent(counts)
    into = np.sort(counts.sum(axis=0))[::-1] / total
    there = counts > 0
    ratio = counts[there] / expected[there]
    return {
        "changes to the commonest app": into[0],
        "changes to the five commonest apps": into[:5].sum(),
        "changes to the ten commonest apps": into[:10].sum(),
        "bits that the last app says of the next": (counts[there] * np.log2(ratio)).sum() / total,
        "first guess by the last app is right": counts.max(axis=1).sum() / total,
        "first guess by popularity is right": expected.max(axis=1).sum() / total,
        "differs from its reverse": np.abs(counts - counts.T).sum() / total,
    }


def independent(counts: Floats) -> Floats:
    """The counts expected if only the popularity of both apps mattered, without a diagonal."""
    expected = 1.0 - np.eye(len(counts))
    for _ in range(500):
        expected *= (counts.sum(axis=1) / expected.sum(axis=1))[:, None]
        expected *= counts.sum(axis=0) / expected.sum(axis=0)
    return expected


def of_apps(n_own: Floats) -> dict[str, float]:
    low, middle, high = np.quantile(n_own, [0.25, 0.5, 0.75])
    return {"own apps, lower quarter": low, "own apps, median": middle,
            "own apps, upper quarter": high}  # fmt: skip


def of_people(folder: Path) -> dict[str, float]:
    minutes, changes = (
        pl.read_csv(next(iter(folder.glob(f"lsapp-{name}.csv*"))))
        for name in ("minutes", "transitions")
    )
    number = {name: place for place, name in enumerate(sorted(changes["from_app"].unique()))}
    counts = np.zeros((len(number), len(number)))
    for origin, target, count in changes.iter_rows():
        counts[number[origin], number[target]] += count
    return of_apps(minutes["user_id"].value_counts()["count"].to_numpy()) | of_transitions(counts)


def of_twin(log: LaunchLog) -> dict[str, float]:
    n_own = [len(np.unique(log.app[slice(*log.starts[u : u + 2])])) for u in range(log.n_users)]
    commonest = np.argsort(-np.bincount(log.app, minlength=log.n_apps))[:N_APPS]
    place = np.full(log.n_apps, -1)
    place[commonest] = np.arange(N_APPS)
    begins = np.zeros(len(log), bool)
    begins[session_starts(log)[:-1]] = True
    last, following = place[log.app[:-1]], place[log.app[1:]]
    counted = ~begins[1:] & (last >= 0) & (following >= 0) & (last != following)
    counts = np.zeros((N_APPS, N_APPS))
    np.add.at(counts, (last[counted], following[counted]), 1.0)
    return of_apps(np.array(n_own, float)) | of_transitions(counts)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    people = of_people(Path(sys.argv[1]))
    parameters = replace(LSAPP, phones=N_PHONES)
    twins = [of_twin(collapse_repeats(make(parameters, seed))) for seed in SEEDS]
    found = {
        figure: {"people": round(float(value), 4)}
        | {f"twin, seed {seed}": round(float(twin[figure]), 4)
           for seed, twin in zip(SEEDS, twins, strict=True)}
        for figure, value in people.items()
    }  # fmt: skip
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for figure, row in found.items():
        print(f"{figure:42}", *(f"{value:9.4g}" for value in row.values()))


if __name__ == "__main__":
    main()
