"""`nextapp data`: look at a log, convert one, or make one."""

from __future__ import annotations

from pathlib import Path

import click

from nextapp.cli import options, screen, tables
from nextapp.cli.forms import Group, option
from nextapp.data.describing import description

overwrite = option("--overwrite", is_flag=True, help="Replace the file if it is there already.")

app = Group(
    "data",
    epilog="nextapp data make synthetic:lsapp --out lsapp.csv",
    help="Describe a launch log, convert one, or make a synthetic one.",
)


@app.command(epilog="nextapp data describe synthetic:lsapp")
@options.source
@options.seed
@options.json_file
@options.log_options
def describe(source: str, seed: int, json: Path | None, log_options: options.LogOptions) -> None:
    """Describe a log: users, apps, launches, sessions, repeats, activity over time."""
    with screen.progress() as report:
        report("reading", 0, 0)
        log = log_options.read(source, seed)
        found = description(log)
    tables.show_description(source, found)
    screen.write_json(json, {"source": source, "seed": seed, **found})


@app.command(epilog="nextapp data make synthetic:app-usage --out week.parquet")
@click.argument(
    "source",
    metavar="DATA",
    help="synthetic:lsapp, synthetic:app-usage, synthetic:phones=500,apps=100,days=30.",
)
@option(
    "--out",
    type=options.OUTPUT_FILE,
    required=True,
    help="A .csv or .parquet file.",
)
@overwrite
@options.seed
def make(source: str, out: Path, overwrite: bool, seed: int) -> None:
    """Write synthetic phones as a log file that every other command reads."""
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
@options.source
@click.argument(
    "out",
    type=options.OUTPUT_FILE,
    metavar="OUT",
    help="A .csv or .parquet file.",
)
@overwrite
@options.log_options
def convert(source: str, out: Path, overwrite: bool, log_options: options.LogOptions) -> None:
    """Write any log as the three columns user_id, timestamp (UTC), app_name."""
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

    click.echo(left_out_text(), nl=False)


def _check_written(out: Path, name: str, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ValueError(f"{out} is there already: give another name, or --overwrite.")
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{name} must end in .csv or .parquet, got {str(out)!r}.")
