"""`nextapp data`: look at a log, convert one, or make one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.data.describing import description

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the file if it is there already.")
]

app = typer.Typer(
    epilog="nextapp data make synthetic:lsapp --out lsapp.csv",
    help="Describe a launch log, convert one, or make a synthetic one.",
    no_args_is_help=True,
)


@app.command(epilog="nextapp data describe synthetic:lsapp")
@expand_options
def describe(
    source: options.Source,
    *,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Describe a log: users, apps, launches, sessions, repeats, activity over time."""
    with clear_errors():
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, seed)
            found = description(log)
        tables.show_description(source, found)
        screen.write_json(json, {"source": source, "seed": seed, **found})


@app.command(epilog="nextapp data make synthetic:app-usage --out week.parquet")
def make(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="synthetic:lsapp, synthetic:app-usage, synthetic:phones=500,apps=100,days=30.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="A .csv or .parquet file.",
            show_default=False,
            callback=options.check_output_file,
        ),
    ],
    overwrite: Overwrite = False,
    seed: options.Seed = 0,
) -> None:
    """Write synthetic phones as a log file that every other command reads."""
    with clear_errors():
        if not source.startswith("synthetic:"):
            raise ValueError(
                f"make writes synthetic phones: 'synthetic:lsapp', 'synthetic:app-usage' or "
                f"'synthetic:phones=500,apps=100,days=30'; got {source!r}."
            )
        _check_written(out, "--out", overwrite)
        log = options.LogOptions().read(source, seed)
        out.parent.mkdir(parents=True, exist_ok=True)
        log.write(out)
        screen.out.print(
            f"{len(log):,} launches of {log.n_users:,} phones: [bold]{out}[/]. "
            f"Synthetic phones, not data of people.\n"
            f"Next: nextapp data describe {out}, nextapp evaluate {out}",
            highlight=False,
        )


@app.command(epilog="nextapp data convert usagestats.txt launches.csv")
@expand_options
def convert(
    source: options.Source,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="A .csv or .parquet file.",
            show_default=False,
            callback=options.check_output_file,
        ),
    ],
    *,
    overwrite: Overwrite = False,
    log_options: options.LogOptions,
) -> None:
    """Write any log as the three columns user_id, timestamp (UTC), app_name."""
    with clear_errors():
        _check_written(out, "OUT", overwrite)
        log = log_options.read(source, seed=0)
        out.parent.mkdir(parents=True, exist_ok=True)
        log.write(out)
        for note in log.notes:
            screen.out.print(f"  {note}", highlight=False, markup=False)
        screen.out.print(
            f"{len(log):,} launches of {log.n_apps:,} apps: [bold]{out}[/].\n"
            f"Next: nextapp data describe {out}, nextapp open --data {out}",
            highlight=False,
        )


@app.command("left-out", epilog="nextapp data left-out > mine.txt")
def left_out() -> None:
    """Print the list of what an import leaves out; give a changed copy to --leave-out."""
    from nextapp.data.importers import left_out_text

    typer.echo(left_out_text(), nl=False)


def _check_written(out: Path, name: str, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ValueError(f"{out} is there already: give another name, or --overwrite.")
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{name} must end in .csv or .parquet, got {str(out)!r}.")
