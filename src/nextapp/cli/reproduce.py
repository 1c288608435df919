"""`nextapp reproduce`: every table and figure of the paper, its claims judged, one report."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from nextapp.cli import commands, screen, when_stopped_say
from nextapp.cli.commands import FILE, FOLDER, OUTPUT_FOLDER, command, option, output
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
    with _OneLine(wanted, n_jobs) as show:
        running.run_missing(wanted, out, n_jobs, show)
    found = {part.name: running.finished_record(out, part) for part in every}
    records = {name: record for name, record in found.items() if record is not None}
    path = report.write(out, records)
    judged = report.verdicts(records)
    screen.out.print(_verdicts(judged).terminal(left=True))
    screen.out.print(
        f"\nWrote [bold]{path}[/] ({time.perf_counter() - start:.0f} s): open it in a browser."
    )


_QUIET = 60.0  # seconds


class _OneLine:
    """One line for all parts: how much is done, what is running, and about how long it will take.

    A part weighs the seconds that its settings say, which are of an idle core; how much slower this
    machine is shows in the parts that are done or overdue. Where nobody watches, a line for every
    part that begins or ends, and one after every quiet minute.
    """

    def __init__(self, parts: Sequence[plan.Part], jobs: int) -> None:
        self.weight = {part.name: part.seconds for part in parts}
        self.jobs = min(jobs, max(len(parts), 1))
        self.began: dict[str, float] = {}
        self.doing: dict[str, str] = {}
        self.took: dict[str, float] = {}
        self.shown_at = -math.inf
        self.todo = set(self.weight)

    def __enter__(self) -> running.PartProgress:
        self.bar = Progress(
            BarColumn(20),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn(
                "{task.fields[left]}  {task.description}", table_column=Column(no_wrap=True)
            ),
            console=screen.err,
        )
        self.task = self.bar.add_task("", total=1.0, left="")
        self.bar.start()
        return self.show

    def __exit__(self, *raised: object) -> None:
        self.bar.stop()

    def show(self, part: str, what: str, done: int, total: int) -> None:
        """How far a part is, as `running.run_missing` tells it."""
        now = time.monotonic()
        if what in ("done", "finished before"):
            self.todo.discard(part)
            self.doing.pop(part, None)
            if what == "done":
                self.took[part] = now - self.began[part]
        else:
            self.began.setdefault(part, now)
            self.doing[part] = f"{part} {what} {done}/{total}" if total else f"{part} {what}"
        share, left = self.estimate(now)
        self.bar.update(
            self.task, completed=share, description=" · ".join(self.doing.values()), left=left
        )
        if screen.err.is_terminal:
            return
        if what in ("starting", "done") or now - self.shown_at > _QUIET:
            self.shown_at = now
            doing = self.doing.get(part, f"{part} {what}")
            screen.err.print(f"{doing}; {share:.0%}, {left}")

    def estimate(self, now: float) -> tuple[float, str]:
        """The share of the work that is done, and in words how long the rest will take."""
        took = self.took | {
            name: now - began
            for name, began in self.began.items()
            if name in self.todo and now - began > self.weight[name]
        }
        expected = sum(self.weight[name] for name in took)
        slowness = max(1.0, sum(took.values()) / expected) if expected else 1.0
        left = {
            name: max(0.05 * self.weight[name],
                      self.weight[name] - (now - self.began.get(name, now)) / slowness)
            for name in self.todo
        }  # fmt: skip
        total = sum(self.weight.values())
        rest = sum(left.values())
        seconds = max(rest / self.jobs, max(left.values(), default=0.0)) * slowness
        words = f"about {max(1, round(seconds / 60))} min left" if left else "done"
        return (1.0 - rest / total if total else 1.0), words


def _verdicts(rows: list[dict[str, object]]) -> Table:
    marks: dict[str, Mark] = {CONFIRMED: "good", NOT_CONFIRMED: "bad"}
    cells = []
    for row in rows:
        mark, evidence = marks.get(str(row["verdict"]), "unsure"), row["evidence"]
        if row["opposed"]:
            mark, evidence = "unsure", f"{evidence}. But {row['opposed']}"
        verdict = Marked(f"{verdict_words(row)}, {row['on']}", mark)
        cells.append([row["claim"], verdict, evidence])
    return Table.of_text(["claim", "verdict", "what the numbers say"], cells)
