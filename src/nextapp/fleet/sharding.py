"""Fleets larger than memory, or than one machine: shards made from a recipe, one after the other.

A `Recipe` says where a shard's phones come from: synthetic parameters, or files written by
`write_shard`. A shard can be made again at any time and is the same each time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nextapp.data import synthetic
from nextapp.fleet.columns import Fleet


@dataclass(frozen=True)
class Recipe:
    """Phones first to last − 1 of a world: synthetic with `seed`, or from a `folder` of shards."""

    first: int
    last: int
    parameters: synthetic.Parameters | None = None
    seed: int = 0
    folder: Path | None = None

    def build(self) -> Fleet:
        if self.folder is not None:
            return read_shard(self.folder, self.first)
        if self.parameters is None:
            raise ValueError("a recipe names synthetic parameters or a folder.")
        return Fleet.of_synthetic(self.parameters, self.seed, self.first, self.last)


def recipes(
    n_phones: int, n_shards: int, parameters: synthetic.Parameters, seed: int
) -> list[Recipe]:
    """A world of synthetic phones in shards of almost equal size."""
    if not 1 <= n_shards <= n_phones:
        raise ValueError(
            f"{n_phones:,} phones can be cut in 1 to {n_phones:,} shards, got {n_shards}."
        )
    cuts = np.linspace(0, n_phones, n_shards + 1).astype(int).tolist()
    return [Recipe(first, last, parameters, seed) for first, last in pairwise(cuts)]


def write_shard(fleet: Fleet, folder: Path) -> Recipe:
    """Write a shard as Parquet, three tables: phones, apps, transitions."""
    folder.mkdir(parents=True, exist_ok=True)
    name = _name(fleet.first_phone)
    tables: dict[str, dict[str, Any]] = {
        "phones": {
            "n_apps": np.diff(fleet.app_starts).astype(np.int32),
            "n_transitions": np.diff(fleet.transition_starts).astype(np.int32),
        },
        "apps": {"app": fleet.apps, "count": fleet.counts},
        "transitions": {
            "previous": fleet.previous,
            "following": fleet.following,
            "times": fleet.times,
        },
    }
    for table, columns in tables.items():
        pl.DataFrame(columns).write_parquet(folder / f"{name}.{table}.parquet")
    about = {
        "n_apps": fleet.n_apps,
        "first": fleet.first_phone,
        "last": fleet.first_phone + len(fleet),
    }
    (folder / f"{name}.json").write_text(
        json.dumps(about) + "\n", encoding="utf-8"
    )  # last: a shard without it is not whole
    return Recipe(about["first"], about["last"], folder=folder)


def read_shard(folder: Path, first: int) -> Fleet:
    name = _name(first)
    about_file = folder / f"{name}.json"
    if not about_file.exists():
        raise ValueError(
            f"{folder} holds no whole shard that begins with phone {first}: write it again."
        )
    about = json.loads(about_file.read_text(encoding="utf-8"))
    phones, apps, transitions = (
        pl.read_parquet(folder / f"{name}.{table}.parquet")
        for table in ("phones", "apps", "transitions")
    )
    return Fleet(
        about["n_apps"],
        np.concatenate([[0], phones["n_apps"].to_numpy().cumsum(dtype=np.int64)]),
        apps["app"].to_numpy(writable=True),
        apps["count"].to_numpy(writable=True),
        np.concatenate([[0], phones["n_transitions"].to_numpy().cumsum(dtype=np.int64)]),
        transitions["previous"].to_numpy(writable=True),
        transitions["following"].to_numpy(writable=True),
        transitions["times"].to_numpy(writable=True),
        about["first"],
    )


def recipes_in(folder: Path) -> list[Recipe]:
    """The shards of a folder, in order, without gaps."""
    abouts = sorted(
        (json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("shard-*.json")),
        key=lambda about: int(about["first"]),
    )
    if not abouts:
        raise ValueError(f"{folder} holds no shards; `write_shard` makes them.")
    for before, after in pairwise(abouts):
        if after["first"] != before["last"]:
            raise ValueError(
                f"{folder}: after phone {before['last'] - 1} a shard is missing; the next begins "
                f"with phone {after['first']}."
            )
    return [Recipe(about["first"], about["last"], folder=folder) for about in abouts]


def _name(first_phone: int) -> str:
    return f"shard-{first_phone:010d}"
