"""`nextapp data`: look at a log, or make one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.data.describing import description

app = typer.Typer(help="Look at a launch log, or make a synthetic one.", no_args_is_help=True)


@app.command(epilog="Example: nextapp data describe synthetic:lsapp")
@expand_options
def describe(
    source: options.Source,
    *,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Users, apps, launches, sessions, repeats, and activity over time."""
    with clear_errors():
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, seed)
            found = description(log)
        tables.show_description(source, found)
        screen.write_json(json, {"source": source, "seed": seed, **found})


@app.command(epilog="Example: nextapp data make synthetic:app-usage --out week.parquet")
def make(
    source: Annotated[
        str,
        typer.Argument(help="synthetic:lsapp, synthetic:phones=500,apps=100,…", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="A .csv or .parquet file.", show_default=False)],
    seed: options.Seed = 0,
) -> None:
    """Write synthetic phones as a log file that every other command reads."""
    with clear_errors():
        if not source.startswith("synthetic:"):
            raise ValueError(
                f"make writes synthetic phones: 'synthetic:lsapp', 'synthetic:app-usage' or "
                f"'synthetic:phones=500,apps=100,days=30'; got {source!r}."
            )
        if out.suffix not in (".csv", ".parquet"):
            raise ValueError(f"--out must end in .csv or .parquet, got {str(out)!r}.")
        log = options.LogOptions().read(source, seed)
        out.parent.mkdir(parents=True, exist_ok=True)
        log.write(out)
        screen.out.print(
            f"{len(log):,} launches of {log.n_users:,} phones: [bold]{out}[/]. "
            f"Synthetic twins, not the data."
        )
