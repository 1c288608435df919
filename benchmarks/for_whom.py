"""For whom the predictor is worse: HR@1 by number of launches, number of apps, share of repeats.

    python benchmarks/for_whom.py FOLDER            # ubiqlog-a, epm, reality-a, schonlau .csv.gz
    python benchmarks/for_whom.py my-log.csv --groups 2

Users of a log are cut into groups of equal size by a number of the part that is learnt from:
launches, apps, or the share of launches that repeat the one before. For every group: HR@1 of
nextapp and of the best simple rival of the whole log, and how far nextapp is ahead, means over
users with 95 % intervals over users, in groups of ten or more. Preset honest, split
fraction:0.8,0,0.2.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.studies.experiment import Experiment
from nextapp.table import FEWEST, bootstrap_means, interval

RIVALS = ("mru", "mfu", "sr", "sr-od")
SPLIT = "fraction:0.8,0,0.2"


def traits(history: LaunchLog, users: np.ndarray) -> dict[str, np.ndarray]:
    """What the groups are cut by, one value per test user."""
    launches: list[float] = []
    apps: list[float] = []
    again: list[float] = []
    starts = history.starts
    for user in users.tolist():
        own = history.app[starts[user] : starts[user + 1]]
        launches.append(len(own))
        apps.append(len(np.unique(own)))
        again.append(float((own[1:] == own[:-1]).mean()) if len(own) > 1 else 0.0)
    return {
        "launches learnt from": np.array(launches),
        "apps": np.array(apps),
        "share of repeats": np.array(again),
    }


def measured(values: np.ndarray, seed: int) -> list[float]:
    """The mean of a group, with its interval if that is of enough people."""
    low, high = interval(bootstrap_means(values[:, None], seed))
    ends = [float(low[0]), float(high[0])] if len(values) >= FEWEST else []
    return [float(values.mean()), *ends]


def last_less_first(
    values: np.ndarray, first: np.ndarray, last: np.ndarray, seed: int
) -> list[float]:
    """The mean of the last group less that of the first; the groups are drawn independently.

    The interval is left out if a group has too few people for one.
    """
    drawn = [
        bootstrap_means(values[part][:, None], seed + number)[:, 0]
        for number, part in enumerate((first, last))
    ]
    low, high = interval(drawn[1] - drawn[0])
    ends = [float(low), float(high)] if min(len(first), len(last)) >= FEWEST else []
    return [float(values[last].mean() - values[first].mean()), *ends]


def words(found: list[float], form: str = ".3f") -> str:
    mean, *ends = (format(value, form) for value in found)
    return f"{mean} ({' to '.join(ends)})" if ends else mean


def groups(source: str, n_groups: int, seed: int) -> dict[str, Any]:
    log = read_log(source, seed=seed)
    asked = exam(log, Split.parse(SPLIT), find_preset("honest"))
    names = (*RIVALS, "nextapp", "nextapp-alone")
    found = evaluate(asked, Experiment(source, models=names).predictors(), seed=seed)
    hits = {mark.name: mark.tables["all"][:, 0] for mark in found.marks}  # HR@1
    rival = max(RIVALS, key=lambda name: hits[name].mean())
    rows = []
    gaps = {}
    for trait, values in traits(asked.history, asked.users).items():
        order = np.argsort(values, kind="stable")
        parts = np.array_split(order, n_groups)
        gaps[trait] = last_less_first(hits["nextapp"], parts[0], parts[-1], seed)
        for number, part in enumerate(parts):
            rows.append(
                {
                    "trait": trait,
                    "group": number + 1,
                    "from": float(values[part].min()),
                    "to": float(values[part].max()),
                    "n_users": len(part),
                    "nextapp": measured(hits["nextapp"][part], seed),
                    "alone": measured(hits["nextapp-alone"][part], seed),
                    "rival": measured(hits[rival][part], seed),
                    "ahead": measured((hits["nextapp"] - hits[rival])[part], seed),
                }
            )
    worse = {
        name: float((hits["nextapp"] < hits[name]).mean()) for name in (rival, "nextapp-alone")
    }
    spread = np.quantile(hits["nextapp"], [0.0, 0.1, 0.5, 0.9, 1.0]).tolist()
    return {"n_users": len(asked.users), "rival": rival, "rows": rows,
            "last_less_first": gaps, "worse_than": worse,
            "quantiles": spread}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    files = sorted(given.data.glob("*.csv*")) if given.data.is_dir() else [given.data]
    everything = {}
    for file in files:
        name = file.name.split(".")[0]
        result = groups(str(file), given.groups, given.seed)
        everything[name] = result
        print(f"\n{name}: {result['n_users']} users; best simple rival in HR@1: {result['rival']}")
        print(f"users for whom nextapp is below: {result['worse_than']}")
        print(f"HR@1 of single users, quantiles 0 .1 .5 .9 1: {result['quantiles']}")
        for trait, gap in result["last_less_first"].items():
            print(f"{trait}, last group less first: {words(gap, '+.3f')}")
        for row in result["rows"]:
            cells = " ".join(
                f"{key} {words(row[key])}" for key in ("nextapp", "alone", "rival", "ahead")
            )
            print(f"{row['trait']} {row['from']:g}-{row['to']:g} ({row['n_users']}) {cells}")
    if given.json:
        given.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
