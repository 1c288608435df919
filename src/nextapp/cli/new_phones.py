"""`nextapp new-phones`: what new phones gain from the crowd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextapp import plots
from nextapp.cli import commands, screen
from nextapp.cli.commands import command, options_and_file
from nextapp.settings import settings_from
from nextapp.studies import new_phones as experiment
from nextapp.studies.new_phones import NewPhoneStudy
from nextapp.table import Column, Table, measured_from


@command("nextapp new-phones synthetic:fleet,phones=100000 --epsilon 1,4.5", "new-phones")
@commands.source
@options_and_file(
    NewPhoneStudy,
    "given",
    *("new", "draws", "launches", "at_most", "seed", "epsilons", "copies"),
)
@commands.plot_file("Plot HR@5 against launches seen")
@commands.json_file
@commands.log_options
def new_phones(
    source: str,
    given: dict[str, Any],
    plot: Path | None,
    json: Path | None,
    log_options: commands.LogOptions,
) -> None:
    """Measure new phones with and without what the crowd knows.

    New phones are held out from a log, or are further phones of a synthetic fleet; each is measured
    from its first launch on.
    """
    settings = settings_from(NewPhoneStudy, {**given, "data": source})
    for epsilon in settings.epsilons:
        commands.epsilon_in_range(epsilon)
    with screen.progress("new phones") as report:
        log = None
        if not settings.synthetic:
            log = log_options.read(source, settings.seed)
        result = experiment.run(settings, log, report)
    show(result)
    if plot is not None:
        screen.write_plot(plot, plots.new_phones(result))
    screen.write_json(json, result)
    screen.say_next("nextapp serve --data federation --dev-tls   (a server that learns a crowd)")


def show(result: Mapping[str, Any]) -> None:
    about = result["data"]
    screen.out.print(
        f"[bold]{escape(about['source'])}[/] ({about['kind']}): "
        f"{result['n_new'][0]:,} new phones, a crowd of {result['n_crowd'][0]:,}, "
        f"{len(result['n_new'])} draw{'s'[: len(result['n_new']) > 1]}"
    )
    first, last = result["headline"]
    screen.out.print(_headline(result, f"launches {first} to {last}").terminal())
    screen.out.print()
    screen.out.print(_by_launches(result).terminal())
    screen.out.print(
        "Intervals: 95 % over new phones, paired. kept: share of the non-private gain in HR@5.",
        style="dim",
    )


def _headline(result: Mapping[str, Any], title: str) -> Table:
    rows = []
    for name, figures in result["priors"].items():
        line = figures["headline"]
        if line["HR@5"] is None:
            continue
        gain = "" if name == experiment.WITHOUT else measured_from(line["gain@5"])
        kept = measured_from((figures.get("kept") or {}).get("HR@5")) or ""
        rates = (line[f"HR@{n}"]["mean"] for n in experiment.CUTOFFS)
        rows.append([name, *rates, gain, kept])
    columns = [
        Column("prior", "name"),
        *(Column(f"HR@{n}", form="plain") for n in experiment.CUTOFFS),
        Column("gain in HR@5", "interval", form="signed"),
        Column("kept", "interval", digits=0, form="percent"),
    ]
    return Table(columns, rows, title)


def _by_launches(result: Mapping[str, Any]) -> Table:
    names = list(result["priors"])
    rows = []
    for place, line in enumerate(result["priors"][names[0]]["bins"]):
        cells = [result["priors"][name]["bins"][place]["HR@5"] for name in names]
        if cells[0] is None:
            continue
        rows.append([f"{line['from']}–{line['to']}", *(cell["mean"] for cell in cells)])
    columns = [Column("launches", "name"), *(Column(name, form="plain") for name in names)]
    return Table(columns, rows, "HR@5 by launches seen")
