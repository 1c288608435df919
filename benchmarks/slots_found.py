"""Which apps get slots where no list is given: what phones are best asked, and how much is found.

    python benchmarks/slots_found.py --phones 3000

Each of n phones answers once about its launches by bucket, in one of three forms. The estimate is
the mean of synthetic phones' answers plus the mechanism's noise, drawn as normal. The buckets that
stand highest get slots; printed is how much of all transitions lies between apps that have one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nextapp.crowd import entry_variance
from nextapp.data import synthetic
from nextapp.privacy import mechanism
from nextapp.wire import Buckets

SLOTS = (200, 400, 1023)
PHONES = (10_000, 100_000, 1_000_000)
EPSILONS = (1.0, 4.5)


def answers(share: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """Forms of the answer with the clip of each, from shares of launches (n_phones, n_apps)."""
    norm = np.linalg.norm(share, axis=1, keepdims=True)
    for clip in (0.2, 0.3, 0.4, 0.6):
        yield f"share, clip {clip}", share * np.minimum(1.0, clip / norm), clip
    yield "root of the share", np.sqrt(share), 1.0
    there = share > 0
    yield "in use or not", there / np.sqrt(there.sum(axis=1, keepdims=True)), 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--phones", type=int, default=3000)
    parser.add_argument("--apps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    log = synthetic.make(synthetic.fleet_parameters(given.phones, given.apps, 7), given.seed)
    catalogue = Buckets(1 << 16, "", np.zeros(0, np.int64))
    bucket = np.array([catalogue.bucket(f"com.app.x{i}") for i in range(given.apps)])
    share = np.zeros((given.phones, given.apps))
    moves = np.zeros((given.apps, given.apps))
    for phone in range(given.phones):
        apps = log.app[log.starts[phone] : log.starts[phone + 1]]
        share[phone] = np.bincount(apps, minlength=given.apps) / max(1, len(apps))
        if len(apps) > 1:
            np.add.at(moves, (apps[:-1], apps[1:]), 1.0 / ((len(apps) - 1) * given.phones))

    def covered(standing: np.ndarray) -> list[float]:
        order = np.argsort(-standing, kind="stable")
        found = []
        for n_slots in SLOTS:
            has = np.isin(bucket, order[:n_slots]).astype(float)
            found.append(round(float(has @ moves @ has), 3))
        return found

    def by_bucket(mean: np.ndarray) -> np.ndarray:
        return np.bincount(bucket, mean, catalogue.n_buckets)

    result: dict = {"slots": SLOTS, "by a ranked list": covered(by_bucket(share.mean(axis=0)))}
    print(json.dumps(result), flush=True)
    rng = np.random.default_rng(0)
    for name, answer, clip in answers(share):
        mean, rows = by_bucket(answer.mean(axis=0)), {}
        for epsilon in EPSILONS:
            asked = mechanism("walsh", epsilon=epsilon, clip=clip, n_apps=catalogue.n_buckets, d=1)
            for n in PHONES:
                noise = rng.normal(0.0, np.sqrt(entry_variance(asked) / n), len(mean))
                rows[f"ε {epsilon:g}, {n:,} phones"] = covered(mean + noise)
        result[name] = rows
        print(name, json.dumps(rows, ensure_ascii=False), flush=True)
    if given.json:
        given.json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
