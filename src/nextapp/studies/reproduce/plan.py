"""The parts of the report, their settings files, and the fingerprint of a finished result.

A part is one table, figure or study. To add one, write a settings file in ``experiments/``, add a
line to `PARTS`, and add functions to `running` (run it) and `rows` (its figures). A settings file
with a table ``[log]`` is also run on logs given by ``--log``, with the changes of that table; such
a part is called for example table1@NAME.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import nextapp
from nextapp.settings import read_toml, unknown
from nextapp.studies.experiment import versions
from nextapp.studies.reproduce.sources import NAMES, Source, log_source, source

PARTS: Mapping[str, str] = {
    "fig1": "round",
    "table1": "static",
    "table2": "static",
    "fig2": "activity",
    "fig3": "dynamic",
    "fig3-honest": "dynamic",
    "fig4": "dynamic",
    "fig4-honest": "dynamic",
    "fig5": "dynamic",
    "fig6": "dynamic",
    "cost": "cost",
    "window": "windows",
    "readings": "readings",
    "phones": "phones",
    "new-phones": "new-phones",
}
HONEST = "-honest"
"""Ends the name of a part that is counted as a phone would see it, with preset honest."""
_ABOUT_A_PART = ("title", "about", "data", "twin", "quick", "log", "seconds")


@dataclass(frozen=True)
class Part:
    """One part with its final settings.

    ``base`` is its name without that of a log, ``about`` says in a sentence what is measured,
    ``quick`` whether it is made smaller by a quick run, and ``seconds`` is the approximate time on
    an idle core.
    """

    base: str
    title: str
    about: str
    source: Source
    settings: Mapping[str, Any]
    seed: int
    quick: bool
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.base}@{self.source.name}" if self.source.kind == "log" else self.base

    @property
    def kind(self) -> str:
        return PARTS[self.base]

    @property
    def fingerprint(self) -> str:
        """Hash of everything that determines the result: settings, data, seed, code, libraries."""
        inputs = {
            "part": self.name,
            "settings": self.settings,
            "where": self.source.sha256 or self.source.where,
            "seed": self.seed,
            "code": code_digest(),
            "versions": versions(),
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def settings_folder() -> Path:
    """The folder of the settings files: in the installed package, else in the checkout."""
    packaged = Path(__file__).parent / "settings"
    return packaged if packaged.is_dir() else Path(nextapp.__file__).parents[2] / "experiments"


def part(
    name: str,
    *,
    quick: bool,
    seed: int,
    files: Mapping[str, Path | None],
    folder: Path | None,
    log: Source | None = None,
) -> Part:
    """A part from its settings file, on a `log` or on the data that the settings name.

    `files` has the authors' files by data set name.
    """
    values = _values(name, folder)
    title = values["title"]
    if log is not None:
        values |= values["log"]
        title = f"{values['title']}, {log.name}"
    if quick:
        values |= values.get("quick", {})
    data = values["data"]
    if name.endswith(HONEST):
        title += ", counted as a phone would see it"
    return Part(
        name,
        title,
        values.get("about", ""),
        log or source(data, values["twin"], files.get(data)),
        {key: value for key, value in values.items() if key not in _ABOUT_A_PART},
        seed,
        quick and "quick" in values,
        float(values.get("seconds", 60)),
    )


def _values(name: str, folder: Path | None) -> dict[str, Any]:
    path = (folder or settings_folder()) / f"{name.removesuffix(HONEST)}.toml"
    values = read_toml(path)
    for key in ("title", "data", "twin"):
        if not isinstance(values.get(key), str):
            raise ValueError(f"{path}: {key} must be given as a string.")
    if values["data"] not in NAMES:
        raise ValueError(f"{path}: {unknown('data', values['data'], NAMES)}")
    return values | {"preset": "honest"} if name.endswith(HONEST) else values


def parts_of(
    *,
    quick: bool,
    seed: int,
    files: Mapping[str, Path | None],
    folder: Path | None,
    logs: Sequence[Path] = (),
) -> list[Part]:
    """Every part, followed by the same part on each of the logs, in the order of the report."""
    sources = [log_source(path) for path in logs]
    names = [each.name for each in sources]
    if len(set(names)) < len(names):
        raise ValueError(
            f"logs must have different file names, got {', '.join(names)}: rename one."
        )
    found: list[Part] = []
    for name in PARTS:
        ready = partial(part, name, quick=quick, seed=seed, files=files, folder=folder)
        found.append(ready())
        if "log" in _values(name, folder):
            found += [ready(log=log) for log in sources]
    return found


def parts_named(names: tuple[str, ...]) -> tuple[str, ...]:
    """The parts with these names, in the order of the report; 'all' means every part."""
    for name in names:
        if name not in (*PARTS, "all"):
            raise ValueError(unknown("part", name, ("all", *PARTS)))
    return tuple(PARTS) if "all" in names else tuple(name for name in PARTS if name in names)


_NOT_OF_RESULTS = ("cli/", "studies/reproduce/", "server/", "audit/")
_OF_RESULTS = ("studies/reproduce/running.py", "studies/reproduce/studies.py")


@cache
def code_digest() -> str:
    """Hash of the package's source, without commands, servers, audits and the report itself."""
    root = Path(nextapp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root).as_posix()
        if inner.startswith(_NOT_OF_RESULTS) and inner not in _OF_RESULTS:
            continue
        digest.update(inner.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
