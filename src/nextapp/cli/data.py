"""`nextapp data`, `demo` and `open`: launch logs, a first measurement, the page in a browser."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from nextapp.cli import commands, end_by_itself, screen
from nextapp.cli.commands import FILE, OUTPUT_FOLDER, Group, command, option, output
from nextapp.settings import count

if TYPE_CHECKING:
    from nextapp.data.importers.content import DateOrder

overwrite = option("--overwrite", is_flag=True, help="Replace the file if it is there already.")

app = Group(
    "data",
    epilog="nextapp data make synthetic:lsapp --out lsapp.csv",
    help="Describe a launch log, convert one, or make a synthetic one.",
)


@app.command(epilog="nextapp data describe synthetic:lsapp")
@commands.source
@commands.seed
@commands.json_file
@commands.log_options
def describe(source: str, seed: int, json: Path | None, log_options: commands.LogOptions) -> None:
    """Describe a log: users, apps, launches, sessions, repeats, activity over time."""
    from nextapp.data.cutting import description

    with screen.progress():
        log = log_options.read(source, seed)
        found = description(log)
    _show_description(source, found)
    screen.write_json(json, {"source": source, "seed": seed, **found})


def _show_description(source: str, found: Mapping[str, Any]) -> None:
    import numpy as np

    from nextapp.table import Table

    apps = ", ".join(f"{app} {n:,}" for app, n in found["commonest_apps"].items())
    n_repeats = found["n_launches"] - found["n_launches_collapsed"]
    left_out = f"; {n_repeats:,} repeat the app within 3 s and are left out below"
    rows = [
        ["users", f"{found['n_users']:,}"],
        ["apps", f"{found['n_apps']:,}"],
        ["launches", f"{found['n_launches']:,}{left_out if n_repeats else ''}"],
        ["commonest apps", apps],
        ["time", f"{found['from']} to {found['to']}, {count(found['n_days'], 'day')}"],
        ["sessions", f"{found['n_sessions']:,} (15-minute gap)"],
        ["exact repeats", f"{found['repeat_share']:.1%} of launches within sessions"],
    ]
    for key in ("sessions_per_user", "launches_per_session", "apps_per_user", "launches_per_user"):
        spread = found[key]
        words = (
            f"mean {spread['mean']:,.1f}, median {spread['median']:,.0f}, "
            f"largest {spread['largest']:,.0f}"
        )
        rows.append([key.replace("_", " "), words])
    for key in ("launches_by_day", "users_by_day", "launches_by_hour"):
        counts = np.asarray(found[key])
        pieces = np.array_split(counts, min(72, len(counts)))
        line = screen.sparkline([piece.mean() for piece in pieces])
        rows.append([key.replace("_", " "), f"|{line}| at most {counts.max():,}"])
    rows[-1][0] += ", local" if found["hours_are_local"] else ", UTC"
    screen.out.print(f"[bold]{escape(source)}[/]")
    screen.out.print(Table.of_text(["", ""], rows).terminal(header=False))
    for note in found["notes"]:
        screen.out.print(f"  {note}", style="dim", markup=False)


@app.command(epilog="nextapp data make synthetic:app-usage --out week.parquet")
@click.argument(
    "source",
    metavar="DATA",
    help="synthetic:lsapp, synthetic:app-usage, synthetic:phones=500,apps=100,days=30.",
)
@option("--out", type=commands.OUTPUT_FILE, required=True, help="A .csv or .parquet file.")
@overwrite
@commands.seed
def make(source: str, out: Path, overwrite: bool, seed: int) -> None:
    """Write synthetic phones as a log file that every other command reads."""
    if not source.startswith("synthetic:"):
        raise ValueError(
            f"make writes synthetic phones: 'synthetic:lsapp', 'synthetic:app-usage' or "
            f"'synthetic:phones=500,apps=100,days=30'; got {source!r}."
        )
    _check_written(out, "--out", overwrite)
    log = commands.LogOptions().read(source, seed)
    out.parent.mkdir(exist_ok=True)
    log.write(out)
    screen.out.print(
        f"{count(len(log), 'launch', 'launches')} of {count(log.n_users, 'phone')}: "
        f"[bold]{out}[/]. Synthetic phones, not data of people.\n"
        f"Next: nextapp data describe {out}, nextapp evaluate {out}"
    )


@app.command(epilog="nextapp data convert usagestats.txt launches.csv")
@commands.source
@click.argument("out", type=commands.OUTPUT_FILE, metavar="OUT", help="A .csv or .parquet file.")
@overwrite
@commands.log_options
def convert(source: str, out: Path, overwrite: bool, log_options: commands.LogOptions) -> None:
    """Write any log as the three columns user_id, timestamp (UTC), app_name."""
    _check_written(out, "OUT", overwrite)
    log = log_options.read(source)
    out.parent.mkdir(exist_ok=True)
    log.write(out)
    for note in log.notes:
        screen.out.print(f"  {note}", markup=False)
    screen.out.print(
        f"{count(len(log), 'launch', 'launches')} of {count(log.n_apps, 'app')}: [bold]{out}[/].\n"
        f"Next: nextapp data describe {out}, nextapp open --data {out}"
    )


@app.command("not-apps", epilog="nextapp data not-apps > mine.txt")
def not_apps() -> None:
    """Print the list of what an import leaves out; give a changed copy to --leave-out."""
    from nextapp.data.importers.events import not_apps_text

    click.echo(not_apps_text(), nl=False)


def _check_written(out: Path, name: str, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        raise ValueError(f"{out} is there already: give another name, or --overwrite.")
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{name} must end in .csv or .parquet, got {str(out)!r}.")


@command("nextapp demo --out demo")
@output("--out", OUTPUT_FOLDER, "Folder for tables, plots and settings.", default="demo")
@commands.seed
@commands.json_file
def demo(out: Path, seed: int, json: Path | None) -> None:
    """Measure all models on synthetic phones; write a table and a plot.

    SeqMF is trained by 20 federated rounds on the synthetic twin of LSApp.
    """
    from nextapp.cli.evaluate import show_result
    from nextapp.studies import experiment

    start = time.perf_counter()
    with screen.progress() as report:
        result = experiment.demo(out, seed, report)
    show_result(result)
    screen.out.print(
        f"\nWrote table.csv, hit-rates.svg, result.json and settings.toml to "
        f"[bold]{out}[/] ({time.perf_counter() - start:.0f} s)."
    )
    screen.write_json(json, result)
    screen.say_next(
        "nextapp open                    (a phone that predicts, in a browser)",
        "nextapp evaluate YOUR-LOG.csv   (the same table for your own log)",
    )


@command("nextapp open --data usagestats.txt", "open", extra="lab,serve")
@option("--data", type=FILE, help="A log to begin with, such as an export of your phone.")
@option("--user", metavar="NAME", help="Person whose launches to use, if the log has several.")
@option("--zone", metavar="NAME", help=commands.ZONE_HELP)
@option(
    "--dates",
    type=click.Choice(("day/month", "month/day")),
    metavar="ORDER",
    help="Order of dates such as 3/4/2024: day/month or month/day.",
)
@option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=0,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@option("--browser/--no-browser", default=True, help="Open the browser, or only print the address.")
def open_page(
    data: Path | None,
    user: str | None,
    zone: str | None,
    dates: DateOrder | None,
    port: int,
    browser: bool,
) -> None:
    """Show a phone, a crowd and your own log in a browser.

    Only this machine can reach the page, and it loads nothing from elsewhere. Stop it with Ctrl-C.
    """
    from nextapp.data.importers.content import Content
    from nextapp.page import application, log_room
    from nextapp.page.security import TICKET_SECONDS

    log = None
    if data is not None:
        log = log_room.read_log(Content.of_file(data, dates), zone, user)
    end_by_itself()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as by Ctrl-C
    with suppress(KeyboardInterrupt), application.open_page(port, application.Page(log)) as page:
        screen.out.print(
            f"[bold]{page.file.as_uri()}[/]\n"
            f"Only this machine can reach the page, and only you can read this file. For a browser "
            f"that cannot,\nthis address works once, within {TICKET_SECONDS:.0f} seconds: "
            f"{page.address}\nStop the page with Ctrl-C.",
            soft_wrap=True,
        )
        if browser:
            page.show()
        page.run()
    screen.out.print("stopped.")
