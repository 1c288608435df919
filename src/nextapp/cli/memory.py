"""`nextapp memory`: cold starts of what is kept in memory, by several policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextapp.cli import commands, screen
from nextapp.cli.commands import command, options_and_file
from nextapp.settings import count, settings_from
from nextapp.studies import memory as study
from nextapp.studies.memory import MemoryStudy
from nextapp.table import Column, Table, measured_from


@command("nextapp memory launches.csv --sizes 5\nnextapp memory synthetic:lsapp --thetas 0.05,0.1")
@commands.source
@options_and_file(MemoryStudy, "given", "split", "sizes", "thetas", "cold", "warm", "seed")
@commands.plot_file("Plot cold starts avoided against loads wasted")
@commands.json_file
@commands.log_options
def memory(
    source: str,
    given: dict[str, Any],
    plot: Path | None,
    json: Path | None,
    log_options: commands.LogOptions,
) -> None:
    """Measure the cold starts of apps by what is kept in memory.

    Every phone's test part is played with K resident apps. keep is the order of
    Phone.keep_order(); min knows the future. Seconds per day are those saved against lru.
    """
    settings = settings_from(MemoryStudy, {**given, "data": source})
    with screen.progress() as report:
        result = study.run(settings, log_options.read(source, settings.seed), report)
    screen.out.print(
        f"[bold]{escape(source)}[/]  {result['n_predictions']:,} launches of the test parts of "
        f"{count(result['n_users'], 'user')}; a cold start takes {settings.cold:g} s, a warm one "
        f"{settings.warm:g} s\n"
    )
    for size, found in result["sizes"].items():
        screen.out.print(_table(size, found).terminal())
        screen.out.print()
    if plot is not None:
        from nextapp import plots

        screen.write_plot(plot, plots.memory(result))
    screen.write_json(json, result)
    screen.say_next(f"nextapp evaluate {source}")


def _table(size: str, found: Mapping[str, Any]) -> Table:
    columns = [
        Column("policy", "name"),
        Column("cold", form="plain", digits=1),
        Column("avoided", "interval", form="percent", digits=0),
        Column("loaded", form="plain", digits=1),
        Column("wasted", form="plain", digits=1),
        Column("s/day", "interval", form="plain", digits=1),
    ]
    rows = [
        [
            name,
            row["cold"]["mean"],
            "" if name == study.LRU else measured_from(row["avoided"]),
            row["prewarmed"]["mean"],
            row["wasted"]["mean"],
            "" if name == study.LRU else measured_from(row["seconds_per_day"]),
        ]
        for name, row in found.items()
    ]
    return Table(
        columns,
        rows,
        title=f"{size} resident apps: cold starts, loads in advance and those wasted, per 100",
        caption="avoided: share of the cold starts of lru; intervals: 95 %, over ten users or more",
    )
