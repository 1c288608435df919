"""`nextapp reproduce`: every table and figure of the paper, its claims judged, one report."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import click

from nextapp.cli import commands, screen, when_stopped_say
from nextapp.cli.commands import FILE, FOLDER, OUTPUT_FOLDER, command, option, output
from nextapp.progress import Progress
from nextapp.studies.reproduce import plan, report, running
from nextapp.studies.reproduce.claims import CONFIRMED, NOT_CONFIRMED, verdict_words
from nextapp.table import Mark, Marked, Table


@command("nextapp reproduce table2 --quick --out reproduction")
@click.argument(
    "parts", nargs=-1, required=False, metavar="PARTS", help=f"all, or of {', '.join(plan.PARTS)}."
)
@option("--lsapp", type=FILE, help="LSApp as published. Without it: a synthetic twin.")
@option("--app-usage", type=FILE, help="App_usage_trace.txt. Without it: a synthetic twin.")
@option(
    "--log",
    type=FILE,
    multiple=True,
    help="Another launch log to run all parts on; may be given several times.",
)
@option("--quick", is_flag=True, help="Few trials and seeds: a first look, not figures to quote.")
@output("--out", OUTPUT_FOLDER, "Folder for the report and all numbers.", default="reproduction")
@commands.quiet
@commands.seed
@option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Parts that run at the same time. Default: one per processor core.",
)
@option(
    "--settings", type=FOLDER, help="A settings file for each part, instead of the built-in ones."
)
def reproduce(
    parts: tuple[str, ...],
    lsapp: Path | None,
    app_usage: Path | None,
    log: tuple[Path, ...],
    quick: bool,
    out: Path,
    seed: int,
    jobs: int | None,
    settings: Path | None,
) -> None:
    """Reproduce the paper: tables, figures, a verdict on each claim.

    Writes one HTML report of all finished parts. A stopped run continues where it was: a part that
    is finished with the same settings, data and code is not run again.
    """
    start = time.perf_counter()
    files = {"lsapp": lsapp, "app-usage": app_usage}
    every = plan.parts_of(
        quick=quick, seed=seed, files=files, folder=settings, logs=tuple(log or ())
    )
    names = plan.parts_named(tuple(parts or ["all"]))
    wanted = [part for part in every if part.base in names]
    for notice in dict.fromkeys(part.source.said for part in wanted):
        screen.err.print(notice, markup=False, soft_wrap=True)
    plan.code_digest()  # of the code that runs, before anybody changes the files under it
    n_jobs = jobs or os.cpu_count() or 1
    when_stopped_say(f"Finished parts are in {out}: the same command continues from there.")
    missing = [part for part in wanted if running.finished_record(out, part) is None]
    for source in dict.fromkeys(part.source for part in missing if part.source.real):
        source.check()
    with screen.progress("parts") as bar:
        running.run_missing(wanted, out, n_jobs, _one_line(wanted, bar))
    found = {part.name: running.finished_record(out, part) for part in every}
    records = {name: record for name, record in found.items() if record is not None}
    path = report.write(out, records)
    judged = report.verdicts(records)
    screen.out.print(_verdicts(judged).terminal(left=True))
    screen.out.print(
        f"\nWrote [bold]{path}[/] ({time.perf_counter() - start:.0f} s): open it in a browser."
    )


def _one_line(parts: Sequence[plan.Part], bar: Progress) -> running.PartProgress:
    """One line for all parts: what is running, and how much is done, by the seconds that the
    settings of a part say. Where nobody watches, a line for every part that begins or ends."""
    left = {part.name: round(part.seconds) for part in parts}
    total = sum(left.values())
    doing: dict[str, str] = {}

    def show(part: str, what: str, done: int, total_of_part: int) -> None:
        if what in ("done", "finished before"):
            left.pop(part, None)
            doing.pop(part, None)
        else:
            share = f" {done}/{total_of_part}" if total_of_part else ""
            doing[part] = f"{part} {what}{share}"
        bar(f"parts: {' · '.join(doing.values())}", total - sum(left.values()), total)
        if what in ("starting", "done") and not screen.err.is_terminal:
            screen.err.print(f"{part} {what}", markup=False)

    return show


def _verdicts(rows: list[dict[str, object]]) -> Table:
    marks: dict[str, Mark] = {CONFIRMED: "good", NOT_CONFIRMED: "bad"}
    cells = []
    for row in rows:
        mark, decides = marks.get(str(row["verdict"]), "unsure"), row["decides"]
        if row["spent"]:
            decides = f"{decides}; ε {row['spent']}"
        if row["opposed"]:
            mark, decides = "unsure", f"{decides}. But {row['opposed']}"
        verdict = Marked(f"{verdict_words(row)}: {row['data']}, {row['people']}", mark)
        cells.append([row["claim"], verdict, decides])
    return Table.of_text(["claim", "verdict", "the difference that decides"], cells)
