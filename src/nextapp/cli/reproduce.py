"""`nextapp reproduce`: every table and figure of the paper, its claims judged, one report."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nextapp.cli import options, screen
from nextapp.cli.errors import clear_errors
from nextapp.studies.reproduce import plan, running, writing
from nextapp.studies.reproduce.claims import CONFIRMED, NOT_CONFIRMED


def reproduce(
    parts: Annotated[
        list[str] | None,
        typer.Argument(help=f"all, or some of {', '.join(plan.PARTS)}.", show_default="all"),
    ] = None,
    lsapp: Annotated[
        Path | None,
        typer.Option(
            help="lsapp.tsv, or the archive as published. Without it, a synthetic twin.",
            show_default=False,
        ),
    ] = None,
    app_usage: Annotated[
        Path | None,
        typer.Option(
            help="App_usage_trace.txt as published. Without it, a synthetic twin.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few trials and seeds: a quick check, not figures to quote."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the report and all numbers.")] = Path(
        "reproduction"
    ),
    seed: options.Seed = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Parts that run at the same time; the numbers do not depend on it. Default: the "
            "number of processor cores.",
            show_default=False,
            min=1,
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            help="Folder with a settings file for each part, instead of the built-in ones.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Play the tables and figures of the paper anew, judge its claims, write one HTML report.

    A killed run continues where it stopped: what is finished with the same settings, data
    and code is not run again. The report holds all finished parts of its folder.
    """
    with clear_errors():
        start = time.perf_counter()
        files = {"lsapp": lsapp, "app-usage": app_usage}
        every = {
            name: plan.part(name, quick=quick, seed=seed, files=files, folder=settings)
            for name in plan.PARTS
        }
        wanted = [every[name] for name in plan.wanted(tuple(parts or ["all"]))]
        for said in dict.fromkeys(part.source.said for part in wanted):
            screen.err.print(said, highlight=False, markup=False, soft_wrap=True)
        with _progress() as heard:
            running.play_missing(wanted, out, jobs or os.cpu_count() or 1, heard)
        found = {name: running.finished(out, part) for name, part in every.items()}
        records = {name: record for name, record in found.items() if record is not None}
        path = writing.write(out, records)
        screen.out.print(_verdicts(writing.verdicts(records)))
        screen.out.print(
            f"\nThe report is [bold]{path}[/] ({time.perf_counter() - start:.0f} s).",
            highlight=False,
        )


class _progress:  # noqa: N801
    """A line for every part that is being played."""

    def __enter__(self) -> running.Heard:
        self.bar = Progress(
            TextColumn("[bold]{task.fields[part]}[/] {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=screen.err,
        )
        self.bar.start()
        tasks = {}

        def heard(part: str, what: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = self.bar.add_task("", part=part, total=None)
            self.bar.update(tasks[part], description=what, completed=done, total=total or None)

        return heard

    def __exit__(self, *raised: object) -> None:
        self.bar.stop()


def _verdicts(rows: list[dict[str, object]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("claim", "verdict", "what the numbers say"):
        table.add_column(column, overflow="fold")
    for row in rows:
        verdict = str(row["verdict"])
        style = {CONFIRMED: "green", NOT_CONFIRMED: "red"}.get(verdict, "yellow")
        table.add_row(str(row["claim"]), f"[{style}]{verdict}[/]", str(row["evidence"]))
    return table
