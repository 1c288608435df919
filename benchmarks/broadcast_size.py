"""What a phone downloads, what leaving cells out costs, and what collisions of names cost.

    python benchmarks/broadcast_size.py --phones 20000 --new 300

The crowd is that of synthetic phones without any noise, which has the most to tell. HR@5 of new
phones over their launches 10 to 50 goes with it: with the whole crowd, with the cells that are met
most, rounded as they travel; and with apps known by the bucket of their names only.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nextapp.crowd import crowd_without_noise
from nextapp.data import synthetic
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import mean_shares
from nextapp.learners import CELLS_PER_APP, keep_largest_cells
from nextapp.studies.new_phones import HEADLINE, NewPhone, hit_rates, synthetic_phones
from nextapp.wire import Broadcast, Buckets, Crowd, History, ModelSettings, ReportRequest

PARTS = ("com", "org", "android", "mobile", "music", "chat", "photo", "bank", "news", "games",
         "player", "camera", "mail", "maps", "free", "pro", "lite", "app", "video",
         "shop")  # fmt: skip


def package_names(n: int, seed: int = 0) -> tuple[str, ...]:
    """Names as long and as alike as those of packages: 24 characters on average."""
    rng, found = np.random.default_rng(seed), {}
    while len(found) < n:
        some = [PARTS[i] for i in rng.integers(0, len(PARTS), 3)]
        letters = "".join(chr(97 + i) for i in rng.integers(0, 26, 7))
        found[f"{some[0]}.{letters}.{some[1]}.{some[2]}"] = None
    return tuple(found)


def download(crowd: Crowd, names: tuple[str, ...], *, hashed: bool) -> int:
    """Bytes of a broadcast of this crowd with a full history, compressed as phones ask for it."""
    history = History()
    for round in range(64):
        history = history.after(round, b"%d" % round)
    request = ReportRequest("walsh", 1.0, 1.0, question="transitions")
    vectors = np.zeros((crowd.n_apps, 0))
    buckets = None
    if hashed:
        slots = np.random.default_rng(0).permutation(1 << 16)[: crowd.n_apps]
        buckets = Buckets(1 << 16, "", slots)
    data = Broadcast(
        64, vectors, ModelSettings(), () if hashed else names, request, crowd, history, buckets
    ).to_bytes()
    return len(gzip.compress(data, 6, mtime=0))


def whole_crowd(parameters, seed: int) -> Crowd:
    return crowd_without_noise(mean_shares(fleet_of(parameters, seed)))


def fleet_of(parameters, seed: int) -> Fleet:
    log = synthetic.make(parameters, seed)
    return Fleet.of_log(log)


@dataclass(frozen=True)
class Hashed:
    """A crowd by bucket, as a phone asks it of its own apps: those of one bucket share evenly."""

    crowd: Crowd
    row_of: np.ndarray

    def shares(self, apps, last, before=None):
        rows = self.row_of[apps]
        _, place, n = np.unique(rows, return_inverse=True, return_counts=True)
        shares, known = self.crowd.shares(rows, None if last is None else int(self.row_of[last]))
        return shares / n[place], known


def merged(estimate: np.ndarray, row_of: np.ndarray) -> np.ndarray:
    """π by bucket from π by app."""
    n = int(row_of.max()) + 1
    found = np.zeros((n, n + 1))
    np.add.at(found, (row_of[:, None], row_of[None, :]), estimate[:, :-1])
    np.add.at(found[:, -1], row_of, estimate[:, -1])
    return found


def hit_rate(phones: list[NewPhone], crowd) -> np.ndarray:
    """HR@5 of each phone over the headline's launches."""
    return np.array([hit_rates(one, crowd)[-1] for one in phones])


def difference(one: np.ndarray, other: np.ndarray, seed: int = 0) -> list[float]:
    """Mean difference over phones, and its 95 % interval by the bootstrap."""
    each = one - other
    drawn = np.random.default_rng(seed).integers(0, len(each), (2000, len(each)))
    low, high = np.quantile(each[drawn].mean(axis=1), [0.025, 0.975])
    return [round(float(x), 4) for x in (each.mean(), low, high)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--phones", type=int, default=20_000)
    parser.add_argument("--new", type=int, default=300)
    parser.add_argument("--apps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    parameters = synthetic.fleet_parameters(given.phones, given.apps, 3)
    estimate = mean_shares(fleet_of(parameters, given.seed))
    whole = crowd_without_noise(estimate)
    phones = synthetic_phones(parameters, given.seed, given.phones, given.new)
    names = package_names(given.apps)
    without, with_all = hit_rate(phones, None), hit_rate(phones, whole)
    result: dict = {
        "synthetic phones": given.phones, "new phones": len(phones), "launches": list(HEADLINE),
        "HR@5 without": round(float(without.mean()), 4),
        "gain of the whole crowd": difference(with_all, without),
        "cells": len(whole.share),
    }  # fmt: skip
    print(json.dumps(result, indent=1), flush=True)
    result["cells published"] = {}
    for per_app in (2, 4, 8, CELLS_PER_APP, 24, 64):
        published = keep_largest_cells(whole, per_app).rounded()
        row = {
            "gain": difference(hit_rate(phones, published), without),
            "kB, names": round(download(published, names, hashed=False) / 1000, 1),
            "kB, buckets": round(download(published, names, hashed=True) / 1000, 1),
        }
        result["cells published"][per_app] = row
        print(per_app, row, flush=True)
    result["buckets"] = {}
    for bits in (12, 14, 16, 18):
        buckets = Buckets(1 << bits, "", np.zeros(0, np.int64))
        found = np.array([buckets.bucket(name) for name in names])
        _, row_of = np.unique(found, return_inverse=True)
        published = keep_largest_cells(
            crowd_without_noise(merged(estimate, row_of)), CELLS_PER_APP
        ).rounded()
        own = [len(np.unique(row_of[one.candidates])) < len(one.candidates) for one in phones]
        row = {
            "apps that share a bucket": int(given.apps - np.sum(np.bincount(row_of) == 1)),
            "phones with two apps in one": round(float(np.mean(own)), 4),
            "gain": difference(hit_rate(phones, Hashed(published, row_of)), without),
        }
        result["buckets"][1 << bits] = row
        print(1 << bits, row, flush=True)
    result["download, kB"] = {}
    for n_apps in (1023, 2000, 10_000):
        full = most_cells(n_apps)
        row = {
            "names": round(download(full, package_names(n_apps), hashed=False) / 1000, 1),
            "buckets": round(download(full, (), hashed=True) / 1000, 1),
        }
        result["download, kB"][n_apps] = row
        print(n_apps, row, flush=True)
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


def most_cells(n_apps: int, seed: int = 0) -> Crowd:
    """A crowd with as many cells as are ever published, followers and shares at random."""
    rng = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, n_apps + 1)
    counts = np.full(n_apps, CELLS_PER_APP)
    following = np.concatenate(
        [np.sort(rng.choice(n_apps, CELLS_PER_APP, replace=False)) for _ in range(n_apps)]
    )
    share = rng.dirichlet(np.full(CELLS_PER_APP, 0.5), n_apps) * 0.9
    share = np.maximum(share, 1e-3)
    share /= np.maximum(1.0, share.sum(axis=1, keepdims=True))
    crowd = Crowd(
        popularity / popularity.sum(), np.append(0, np.cumsum(counts)), following, share.ravel()
    )
    return replace(crowd).rounded()


if __name__ == "__main__":
    main()
