"""Options that several commands share.

The phone's commands import this module too: what reads logs is imported when a log is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextapp.toml import read_toml

if TYPE_CHECKING:
    from nextapp.data import LaunchLog
    from nextapp.experiments.settings import Experiment

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
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.")]
OverridingSeed = Annotated[
    int | None, typer.Option(help="Of everything that is drawn. Default: 0.", show_default=False)
]  # where a settings file may name one
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="A TOML file; options override it.", show_default=False),
]
SplitText = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="days:TRAIN,VALIDATION,TEST or fraction:TRAIN,VALIDATION,TEST. Default: the "
        "paper's days for the synthetic twins, else fraction:0.8,0,0.2.",
        show_default=False,
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="How to count: authors (to compare with the paper's tables), paper (its text), "
        "honest (what a phone would see; the default).",
        show_default=False,
    ),
]
UserColumn = Annotated[
    str | None, typer.Option(help="Name of the user column.", show_default=False)
]
TimeColumn = Annotated[
    str | None, typer.Option(help="Name of the time column.", show_default=False)
]
AppColumn = Annotated[str | None, typer.Option(help="Name of the app column.", show_default=False)]
TimeUnit = Annotated[str, typer.Option(help="Unit of times that are numbers: s or ms.")]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, count them and say so.")
]


def read_log(
    source: str,
    seed: int,
    user_column: str | None = None,
    time_column: str | None = None,
    app_column: str | None = None,
    time_unit: str = "s",
    skip_bad_rows: bool = False,
) -> LaunchLog:
    if time_unit not in ("s", "ms"):
        raise ValueError(f"--time-unit must be s or ms, got {time_unit!r}.")
    from nextapp.data import Columns, read

    return read(
        source,
        seed=seed,
        columns=Columns(user_column, time_column, app_column),
        time_unit="ms" if time_unit == "ms" else "s",
        skip_bad_rows=skip_bad_rows,
    )


def experiment(settings: Path | None, **given: Any) -> Experiment:
    """The settings of the file, overridden by the options that were given."""
    from nextapp.experiments.settings import experiment_from

    values = read_toml(settings) if settings else {}
    values |= {key: value for key, value in given.items() if value is not None}
    return experiment_from(values)
