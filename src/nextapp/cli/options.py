"""Options that several commands share.

The phone's commands import this module too: what reads logs is imported when a log is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextapp.settings import read_toml

if TYPE_CHECKING:
    from nextapp.data import LaunchLog
    from nextapp.studies.settings import Experiment

Source = Annotated[
    str,
    typer.Argument(
        help="A log file (LSApp, App Usage, CSV, Parquet), or synthetic:lsapp, "
        "synthetic:app-usage, synthetic:phones=500,apps=100,days=30.",
        show_default=False,
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the result to this file.", show_default=False)
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
OverridingSeed = Annotated[
    int | None, typer.Option(help="Random seed. Default: 0.", show_default=False)
]  # where a settings file may name one
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="TOML settings file; options override it.", show_default=False),
]


@dataclass(frozen=True)
class LogOptions:
    """How a log file is read."""

    user_column: Annotated[str | None, "Name of the user column."] = None
    time_column: Annotated[str | None, "Name of the time column."] = None
    app_column: Annotated[str | None, "Name of the app column."] = None
    time_unit: Annotated[str, "Unit of numeric times: s or ms."] = "s"
    skip_bad_rows: Annotated[bool, "Skip bad rows and report how many there were."] = False

    def __post_init__(self) -> None:
        if self.time_unit not in ("s", "ms"):
            raise ValueError(f"--time-unit must be s or ms, got {self.time_unit!r}.")

    def read(self, source: str, seed: int) -> LaunchLog:
        """The log of a file or of synthetic phones; the seed is for the latter."""
        from nextapp.data import Columns, read

        return read(
            source,
            seed=seed,
            columns=Columns(self.user_column, self.time_column, self.app_column),
            time_unit="ms" if self.time_unit == "ms" else "s",
            skip_bad_rows=self.skip_bad_rows,
        )


@dataclass(frozen=True)
class ExperimentOptions:
    """Settings of an experiment that stand in a file or are given one by one."""

    split: Annotated[
        str | None,
        "days:TRAIN,VALIDATION,TEST or fraction:TRAIN,VALIDATION,TEST. Default: the paper's days "
        "for the synthetic twins, else fraction:0.8,0,0.2.",
    ] = None
    preset: Annotated[
        str | None,
        "How to count: authors (to compare with the paper's tables), paper (its text), honest "
        "(what a phone would see; the default).",
    ] = None
    settings: Annotated[Path | None, "TOML settings file; options override it."] = None
    seed: Annotated[int | None, "Random seed. Default: 0."] = None

    def experiment(self, **given: Any) -> Experiment:
        given = {"split": self.split, "preset": self.preset, "seed": self.seed, **given}
        return experiment(self.settings, **given)


def experiment(settings: Path | None, **given: Any) -> Experiment:
    """The settings of the file, overridden by the options that were given."""
    from nextapp.studies.settings import experiment_from

    return experiment_from(overridden(settings, given))


def overridden(settings: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a TOML file, overridden by those options that are not None."""
    values = read_toml(settings) if settings else {}
    return values | {key: value for key, value in given.items() if value is not None}
