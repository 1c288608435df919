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
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Folder for tables, plots and settings.",
            callback=options.check_output,
            rich_help_panel=options.OUTPUT,
        ),
    ] = Path("demo"),
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Measure all models on synthetic phones; write tables and plots.

    SeqMF is trained by 20 federated rounds on the synthetic twin of LSApp.
    """
    with clear_errors():
        start = time.perf_counter()
        screen.say_how_long(20)
        with screen.progress() as report:
            result = demonstration.run(out, seed, report)
        tables.show_result(result)
        screen.out.print(
            f"\nWrote table.csv, hit-rates.svg, activity.svg, result.json and settings.toml to "
            f"[bold]{out}[/] ({time.perf_counter() - start:.0f} s).",
            highlight=False,
        )
        screen.write_json(json, result)
        screen.say_next(
            "nextapp open                    (a phone that guesses, in a browser)",
            "nextapp evaluate YOUR-LOG.csv   (the same table for your own log)",
        )
