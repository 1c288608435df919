"""`nextapp demo`: train and measure on synthetic phones, and leave a folder with the results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nextapp.cli import options, screen, tables
from nextapp.cli.forms import command, option
from nextapp.studies import demo as demonstration


@command("nextapp demo --out demo")
@option(
    "--out",
    type=options.OUTPUT_FOLDER,
    default=Path("demo"),
    metavar="FOLDER",
    help="Folder for tables, plots and settings.",
    heading=options.OUTPUT,
)
@options.seed
@options.json_file
def demo(out: Path, seed: int, json: Path | None) -> None:
    """Measure all models on synthetic phones; write tables and plots.

    SeqMF is trained by 20 federated rounds on the synthetic twin of LSApp.
    """
    start = time.perf_counter()
    with screen.progress() as report:
        result = demonstration.run(out, seed, report)
    tables.show_result(result)
    screen.out.print(f"\n{in_short(result)}", highlight=False)
    screen.out.print(
        f"\nWrote table.csv, hit-rates.svg, activity.svg, result.json and settings.toml to "
        f"[bold]{out}[/] ({time.perf_counter() - start:.0f} s).",
        highlight=False,
    )
    screen.write_json(json, result)
    screen.say_next(
        "nextapp open                    (a phone that predicts, in a browser)",
        "nextapp evaluate YOUR-LOG.csv   (the same table for your own log)",
    )


def in_short(result: Mapping[str, Any]) -> str:
    """The main result in a line: HR@5 of nextapp and of the best other model.

    >>> figures = {"nextapp": {"HR@5": 0.953}, "mru": {"HR@5": 0.849}, "sr-od": {"HR@5": 0.9}}
    >>> in_short({"models": figures})
    'The launched app is among the first five suggestions: nextapp 95.3 %, next best sr-od 90.0 %.'
    """
    rates = {name: 100 * row["HR@5"] for name, row in result["models"].items()}
    ours = rates.pop("nextapp")
    other = max(rates, key=rates.__getitem__)
    return (
        "The launched app is among the first five suggestions: "
        f"nextapp {ours:.1f} %, next best {other} {rates[other]:.1f} %."
    )
