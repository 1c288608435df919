"""`nextapp coldstart`: what new phones gain from the crowd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from nextapp.cli import options, screen
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.studies import coldstart as experiment
from nextapp.studies import plots

DEFAULT = experiment.ColdStart("")
EPSILONS = ",".join(format(epsilon, "g") for epsilon in DEFAULT.epsilons)


@expand_options
def coldstart(
    source: options.Source,
    *,
    new: Annotated[
        float, typer.Option(help="Share of the users held out as new phones.")
    ] = DEFAULT.new,
    draws: Annotated[
        int, typer.Option(help="Random draws of new phones from a log.")
    ] = DEFAULT.draws,
    epsilon: Annotated[
        str, typer.Option(help="Total ε of a phone for private priors, separated by commas.")
    ] = EPSILONS,
    way: Annotated[
        str,
        typer.Option(
            help="How the prior is learnt: by reports of shares (subset, hadamard) or of gradients "
            "(seqmf, directed)."
        ),
    ] = DEFAULT.way,
    candidates: Annotated[
        str,
        typer.Option(
            help="Which apps compete: own (all of the phone's whole history, as the preset paper "
            "counts) or catalogue."
        ),
    ] = DEFAULT.candidates,
    launches: Annotated[
        int, typer.Option(help="Launches of a new phone that are evaluated.")
    ] = DEFAULT.launches,
    at_most: Annotated[
        int, typer.Option(help="Maximum number of new phones in a draw.")
    ] = DEFAULT.at_most,
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot HR@5 against launches seen, as FILE.svg and FILE.png."),
    ] = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Measure new phones from their first launch on, with and without what the crowd knows.

    Of a log a part of the users is held out as new phones. Of synthetic phones all are the crowd,
    and the new phones are those with the next numbers.
    """
    with clear_errors():
        settings = experiment.ColdStart(
            source, new, draws, _numbers(epsilon), way, candidates, launches, at_most, seed
        )
        with screen.progress() as report:
            log = None
            if not settings.synthetic:
                report("reading", 0, 0)
                log = log_options.read(source, seed)
            result = experiment.run(settings, log, report)
        show(result)
        if plot is not None:
            plot.parent.mkdir(parents=True, exist_ok=True)
            plots.save(plots.cold_start(result), plot)
            screen.out.print(
                f"Plot: [bold]{plot.with_suffix('.svg')}[/], {plot.with_suffix('.png')}"
            )
        screen.write_json(json, result)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(
            f"--epsilon takes numbers separated by commas, such as 1,4.5; got {text!r}."
        ) from None


def show(result: Mapping[str, Any]) -> None:
    """The headline with intervals, HR@5 by launches seen, and how much privacy leaves."""
    about = result["data"]
    screen.out.print(
        f"[bold]{about['source'].replace('[', chr(92) + '[')}[/] ({about['kind']}): "
        f"{result['n_new'][0]:,} new phones, a crowd of {result['n_crowd'][0]:,}, "
        f"{len(result['n_new'])} draw{'s'[: len(result['n_new']) > 1]}; candidates: "
        f"{result['candidates']}",
        highlight=False,
    )
    first, last = result["headline"]
    screen.out.print(_headline(result, f"launches {first} to {last}"))
    screen.out.print()
    screen.out.print(_by_launches(result))
    screen.out.print(
        "Intervals: 95 % over new phones, paired. kept: share of the non-private gain in HR@5.",
        style="dim",
        highlight=False,
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _headline(result: Mapping[str, Any], title: str) -> Table:
    table = _table(title, "prior", "HR@1", "HR@3", "HR@5", "gain in HR@5", "kept")
    for name, figures in result["priors"].items():
        line = figures["headline"]
        if line["HR@5"] is None:
            continue
        gain, kept = line["gain@5"], (figures.get("kept") or {}).get("HR@5")
        table.add_row(
            name,
            *(f"{line[f'HR@{n}']['mean']:.3f}" for n in experiment.CUTOFFS),
            "" if name == experiment.WITHOUT else _difference(gain),
            "" if kept is None else f"{kept['mean']:.0%} ({kept['low']:.0%} to {kept['high']:.0%})",
        )
    return table


def _by_launches(result: Mapping[str, Any]) -> Table:
    names = list(result["priors"])
    table = _table("HR@5 by launches seen", "launches", *names, "")
    for place, line in enumerate(result["priors"][names[0]]["bins"]):
        cells = [result["priors"][name]["bins"][place]["HR@5"] for name in names]
        if cells[0] is None:
            continue
        low, high = cells[0]["mean"], cells[1]["mean"]
        width = 30
        bar = ["·"] * width
        bar[round(low * (width - 1))] = "○"
        bar[round(high * (width - 1))] = "●"
        table.add_row(
            f"{line['from']}–{line['to']}", *(f"{cell['mean']:.3f}" for cell in cells), "".join(bar)
        )
    table.caption = f"○ {names[0]}  ● {names[1]}"
    table.caption_justify = "right"
    return table


def _difference(figure: Mapping[str, float]) -> str:
    return f"{figure['mean']:+.3f} ({figure['low']:+.3f} to {figure['high']:+.3f})"
