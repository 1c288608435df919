"""Several experiments in one server: each has a share of the phones and a federation of its own.

An experiment is a folder like that of any other federation: settings, vault, checkpoints. Which one
a phone belongs to is decided once, when it enrols, by a public hash of its token and the shares at
that time, and kept by which vault knows the device; other shares move no phone.

The folder of them all has `experiments.json`, a vault with the enrolment codes, and `experiments/`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nextapp.server.settings import FederationSettings
from nextapp.server.single_process import SingleProcess, open_federation, settings_for
from nextapp.storage import write_atomically

LOG = logging.getLogger("nextapp.coordinator")

MOST_EXPERIMENTS = 16
"""Phones name theirs when they fetch a broadcast; so few numbers hardly tell one from another."""

_PLAN, _FOLDER = "experiments.json", "experiments"
_NAME = "[a-z0-9][a-z0-9-]{0,31}"


@dataclass(frozen=True)
class Experiment:
    """A name for the operator, a number for phones, and the share of phones that enrol for it."""

    name: str
    number: int
    share: float

    def folder(self, data: Path) -> Path:
        return data / _FOLDER / self.name


@dataclass(frozen=True)
class Wanted:
    """What is asked of one experiment at this start; see `open_federation`."""

    settings: Mapping[str, Any]
    apps: tuple[str, ...] | None = None
    catalogue: Callable[[], tuple[str, ...]] | None = None
    categories: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Opened:
    """An experiment that runs; or, where its folder is damaged, why not."""

    experiment: Experiment
    federation: SingleProcess | None
    settings: FederationSettings | None
    why_not: str = ""


def has_experiments(data: Path) -> bool:
    return (data / _PLAN).exists()


def experiments_of(data: Path) -> tuple[Experiment, ...]:
    """Those of a folder, by their numbers; none where it holds none."""
    if not has_experiments(data):
        return ()
    try:
        found = json.loads((data / _PLAN).read_text(encoding="utf-8"))["experiments"]
        return _check_plan([Experiment(**each) for each in found])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{data / _PLAN} cannot be read: {error}") from error


def plan_experiments(data: Path, shares: Mapping[str, float]) -> tuple[Experiment, ...]:
    """The experiments of a folder with these shares from now on; nothing is written.

    Those that are there keep their numbers, new ones get the next.
    """
    if (data / "settings.json").exists():
        raise ValueError(
            f"{data} holds a single federation: give experiments a folder of their own."
        )
    known = {each.name: each.number for each in experiments_of(data)}
    gone = [name for name in known if name not in shares]
    if gone:
        raise ValueError(
            f"the experiments file does not name {', '.join(gone)}, whose phones are enrolled: "
            f"keep it with share = 0, then it gets no new ones."
        )
    numbers = {**known}
    for name in shares:
        numbers.setdefault(name, len(numbers) + 1)
    return _check_plan([Experiment(name, numbers[name], share) for name, share in shares.items()])


def _check_plan(found: Sequence[Experiment]) -> tuple[Experiment, ...]:
    if not 1 <= len(found) <= MOST_EXPERIMENTS:
        raise ValueError(f"there may be 1 to {MOST_EXPERIMENTS} experiments, got {len(found)}.")
    for each in found:
        if re.fullmatch(_NAME, each.name) is None:
            raise ValueError(
                f"the name of an experiment has up to 32 of a-z, 0-9 and -, got {each.name!r}."
            )
        if isinstance(each.share, bool) or not isinstance(each.share, int | float):
            raise ValueError(f"the share of {each.name} must be a number, got {each.share!r}.")
        if not 0 <= each.share <= 1:
            raise ValueError(f"the share of {each.name} must lie in 0 to 1, got {each.share!r}.")
    total = math.fsum(each.share for each in found)
    if abs(total - 1) > 1e-9:
        raise ValueError(f"the shares of all experiments must sum to 1, got {total:g}.")
    ordered = tuple(sorted(found, key=lambda each: each.number))
    if [each.number for each in ordered] != list(range(1, len(ordered) + 1)):
        raise ValueError("experiments must have the numbers 1, 2, …, each once.")
    return ordered


def keep_plan(data: Path, experiments: Sequence[Experiment]) -> None:
    written = {"experiments": [asdict(each) for each in experiments]}
    write_atomically(data / _PLAN, (json.dumps(written, indent=2) + "\n").encode())


def assign_experiment(token: bytes, experiments: Sequence[Experiment]) -> Experiment:
    """Which experiment the phone with this new token is for, by a hash that anyone can compute."""
    digest = hashlib.sha256(b"nextapp experiment" + token).digest()
    place = int.from_bytes(digest[:8], "little") / 2**64
    open_ones = [each for each in experiments if each.share > 0]
    reached = 0.0
    for each in open_ones:
        reached += each.share
        if place < reached:
            return each
    return open_ones[-1]


def open_experiments(
    data: Path,
    experiments: Sequence[Experiment],
    wanted: Mapping[str, Wanted],
    *,
    now: float,
    new_vault: bool = False,
    leave_damaged: bool = False,
) -> list[Opened]:
    """Every experiment of a folder, as `open_federation` opens one.

    Settings that are wrong are refused before anything is written. One whose folder is damaged is
    left out, and said; `ValueError` where no other is left.
    """
    for each in experiments:
        asked = wanted[each.name]
        settings_for(each.folder(data), asked.settings, asked.apps, None)
    found = []
    for each in experiments:
        asked = wanted[each.name]
        try:
            federation, settings = open_federation(
                each.folder(data),
                asked.settings,
                asked.apps,
                now=now,
                new_vault=new_vault,
                leave_damaged=leave_damaged,
                catalogue=asked.catalogue,
                categories=asked.categories,
            )
            found.append(Opened(each, federation, settings))
        except (OSError, ValueError) as error:
            LOG.critical("experiment %s does not run, the others do: %s", each.name, error)
            found.append(Opened(each, None, None, str(error)))
    keep_plan(data, experiments)
    if not any(each.federation for each in found):
        raise ValueError("; ".join(f"{each.experiment.name}: {each.why_not}" for each in found))
    return found
