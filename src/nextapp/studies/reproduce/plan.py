"""The parts of the report: which there are, their settings files, and how a result is recognised.

A part is one table, figure or study. To add one: a settings file in ``experiments/``, a line in
`PARTS`, its player in `players`, and how it is shown in `showing`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nextapp
from nextapp.names import unknown
from nextapp.settings import read_toml
from nextapp.studies.reproduce.sources import NAMES, Source, source
from nextapp.studies.settings import versions

PARTS: Mapping[str, str] = {
    "table1": "static",
    "table2": "static",
    "fig2": "activity",
    "fig3": "dynamic",
    "fig3-honest": "dynamic",
    "fig4": "dynamic",
    "fig4-honest": "dynamic",
    "fig5": "dynamic",
    "fig6": "dynamic",
    "phones": "phones",
    "coldstart": "coldstart",
}
# The long ones first, so that two at a time end together.
ORDER = (
    "phones",
    "fig6",
    "fig5",
    "table2",
    "coldstart",
    "fig4",
    "fig4-honest",
    "table1",
    "fig3",
    "fig3-honest",
    "fig2",
)
_ABOUT_A_PART = ("title", "data", "twin", "quick")


@dataclass(frozen=True)
class Part:
    """One part with its settings as they will be played."""

    name: str
    title: str
    source: Source
    settings: Mapping[str, Any]
    seed: int
    quick: bool

    @property
    def kind(self) -> str:
        return PARTS[self.name]

    @property
    def fingerprint(self) -> str:
        """Of all that decides the result: settings, data, seed, code and libraries."""
        said = {
            "part": self.name,
            "settings": self.settings,
            "where": self.source.sha256 or self.source.where,
            "seed": self.seed,
            "code": code_digest(),
            "versions": versions(),
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def settings_folder() -> Path:
    """Where the settings files are: in the package as installed, else in the checkout."""
    packaged = Path(__file__).parent / "settings"
    return packaged if packaged.is_dir() else Path(nextapp.__file__).parents[2] / "experiments"


def part(
    name: str, *, quick: bool, seed: int, files: Mapping[str, Path | None], folder: Path | None
) -> Part:
    """A part from its settings file; `files` has the authors' files by name of the data."""
    path = (folder or settings_folder()) / f"{name}.toml"
    values = read_toml(path)
    for key in ("title", "data", "twin"):
        if not isinstance(values.get(key), str):
            raise ValueError(f"{path}: {key} must be given as a text.")
    if values["data"] not in NAMES:
        raise ValueError(f"{path}: {unknown('data', values['data'], NAMES)}")
    if quick:
        values |= values.get("quick", {})
    return Part(
        name,
        values["title"],
        source(values["data"], values["twin"], files.get(values["data"])),
        {key: value for key, value in values.items() if key not in _ABOUT_A_PART},
        seed,
        quick,
    )


def wanted(names: tuple[str, ...]) -> tuple[str, ...]:
    """The parts named, in the order of the report; 'all' is all."""
    for name in names:
        if name not in (*PARTS, "all"):
            raise ValueError(unknown("part", name, ("all", *PARTS)))
    return tuple(PARTS) if "all" in names else tuple(name for name in PARTS if name in names)


@cache
def code_digest() -> str:
    """Of the package's source, without the commands and the report itself."""
    root = Path(nextapp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root).as_posix()
        if inner.startswith(("cli/", "studies/reproduce/")) and inner != _PLAYERS:
            continue
        digest.update(inner.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_PLAYERS = "studies/reproduce/players.py"
