"""Options that several commands share.

The phone's commands import this module too: what reads logs is imported when a log is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from nextapp.cli.errors import clear_errors
from nextapp.settings import read_toml

if TYPE_CHECKING:
    from nextapp.data import LaunchLog
    from nextapp.studies.settings import Experiment

LARGEST_EPSILON = 100.0
"""Above this an ε is a typing error: it would promise nothing."""


def check_output(path: Path | None) -> Path | None:
    """Refuse a file or folder that cannot be written, before any work is done for it."""
    with clear_errors():
        if path is not None:
            _check_writable(path)
    return path


def check_output_file(path: Path | None) -> Path | None:
    """`check_output` of a file: a folder is refused too."""
    with clear_errors():
        if path is not None and path.is_dir():
            raise ValueError(f"cannot write {path}: it is a folder. Give the name of a file.")
    return check_output(path)


def _check_writable(path: Path) -> None:
    """By writing: what a folder allows is best known to the system."""
    try:
        if path.is_file():
            with path.open("ab"):
                return
        there = path
        while not there.exists():
            there = there.parent
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"cannot write {path}: {reason}. Give another path.") from None


def check_epsilon(epsilon: float | None) -> float | None:
    """Refuse what is no privacy budget."""
    with clear_errors():
        if epsilon is not None and not 0 < epsilon <= LARGEST_EPSILON:
            raise ValueError(
                f"--epsilon must be a number > 0 and at most {LARGEST_EPSILON:g}, got {epsilon:g}: "
                f"an ε above 10 or so protects nobody. For no privacy at all name the mechanism "
                f"identity, where a command takes it."
            )
    return epsilon


OUTPUT = "Output"  # a heading in the help of commands

Source = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A log file (CSV, Parquet, a phone's export), or synthetic:lsapp, "
        "synthetic:app-usage, synthetic:phones=500,apps=100,days=30.",
        show_default=False,
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Also write the result as JSON.",
        show_default=False,
        callback=check_output_file,
        rich_help_panel=OUTPUT,
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Device = Annotated[str, typer.Option(help="cpu, or gpu (needs pip install 'nextapp[gpu]').")]
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

    HEADING: ClassVar[str] = "Reading the log"
    user_column: Annotated[str | None, "Name of the column of users."] = None
    time_column: Annotated[str | None, "Name of the column of times."] = None
    app_column: Annotated[str | None, "Name of the column of apps."] = None
    time_unit: Annotated[str, "Unit of numeric times: s or ms."] = "s"
    skip_bad_rows: Annotated[bool, "Skip bad rows and say how many there were."] = False
    zone: Annotated[str | None, "Time zone of local times. Default: this machine's."] = None
    leave_out: Annotated[Path | None, "What is not an app; see nextapp data left-out."] = None

    def __post_init__(self) -> None:
        if self.time_unit not in ("s", "ms"):
            raise ValueError(f"--time-unit must be s or ms, got {self.time_unit!r}.")

    def read(self, source: str, seed: int) -> LaunchLog:
        """The log of a file or of synthetic phones; the seed is for the latter."""
        from nextapp.data import Columns, Importing, read

        return read(
            source,
            seed=seed,
            columns=Columns(self.user_column, self.time_column, self.app_column),
            time_unit="ms" if self.time_unit == "ms" else "s",
            skip_bad_rows=self.skip_bad_rows,
            importing=Importing(self.zone, self.leave_out),
        )


@dataclass(frozen=True)
class ExperimentOptions:
    """Settings of an experiment that stand in a file or are given one by one."""

    HEADING: ClassVar[str] = "Experiment"
    split: Annotated[
        str | None,
        "Train, validation and test part, as days:222,7,14 or fraction:0.8,0,0.2. Default: the "
        "first for synthetic:lsapp, the second for logs.",
    ] = None
    preset: Annotated[
        str | None,
        "How to count: honest (as a phone would see it; the default), paper (as its text says), "
        "authors (as its tables), neural (as papers on neural networks).",
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
