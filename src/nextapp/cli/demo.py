"""`nextapp demo`: train and measure on synthetic phones, and leave a folder with the results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.errors import clear_errors
from nextapp.studies import demo as demonstration


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the table, the plots and the settings.")
    ] = Path("demo"),
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Train SeqMF on synthetic phones by federated rounds and measure all models.

    Writes a folder with the table, the plots and the settings.
    """
    with clear_errors():
        start = time.perf_counter()
        with screen.progress() as report:
            result = demonstration.run(out, seed, report)
        tables.show_result(result)
        screen.out.print(
            f"\nTable, plots and settings are in [bold]{out}[/] "
            f"({time.perf_counter() - start:.0f} s)."
        )
        screen.write_json(json, result)
