"""`nextapp tune`: choose the settings of mf and seqmf on launches before the test part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from nextapp.cli import options, screen
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.settings import as_toml
from nextapp.storage import write_atomically
from nextapp.studies.settings import versions
from nextapp.studies.tuning import (
    GRID_SIZE,
    TUNED,
    Chosen,
    Tuning,
    chosen_settings,
)

_SHOWN = 6


@expand_options
def tune(
    source: options.Source,
    *,
    out: Annotated[
        Path, typer.Option(help="The best settings, as a TOML file that evaluate and train take.")
    ] = Path("tuned.toml"),
    trials: Annotated[
        int | None,
        typer.Option(
            help=f"Trials for each model. Default: 100; all {GRID_SIZE:,} points of the paper's "
            f"grid.",
            show_default=False,
        ),
    ] = None,
    grid: Annotated[
        str,
        typer.Option(
            help="wide (random draws of all settings) or paper (the grid of the paper's authors)."
        ),
    ] = "wide",
    models: Annotated[str, typer.Option(help="Which models to tune.")] = ",".join(TUNED),
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes. With 1, the same seed gives the same result; with more, what a trial "
            "knows of the others depends on their speed. Default: the number of processor cores.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        Path | None,
        typer.Option(
            help="SQLite file that keeps every finished trial; a killed run continues from it. "
            "Default: beside --out.",
            show_default=False,
        ),
    ] = None,
    experiment_options: options.ExperimentOptions,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Choose dimension, rates, λ, α, γ, optimiser and inference by HR@5 before the test part.

    Where the split has a validation part that is what is predicted, else the last eighth of each
    user's training launches. The test part is never looked at. Trials that lag behind the median of
    the others are given up early.
    """
    with clear_errors():
        wanted = tuple(name.strip() for name in models.split(","))
        default = 0 if grid == "paper" else Tuning().trials
        tuning = Tuning(default if trials is None else trials, grid, jobs or os.cpu_count() or 1)
        experiment = experiment_options.experiment(data=source, tune=0)
        out.parent.mkdir(parents=True, exist_ok=True)
        file = storage or out.with_suffix(".db")
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, experiment.seed)
            best, found = chosen_settings(
                log, experiment, report, tuning=tuning, storage=file, models=wanted
            )
        for model, chosen in found.items():
            screen.out.print(_table(model, chosen))
            screen.out.print()
        write_atomically(out, as_toml(best.resolved()).encode())
        screen.out.print(
            f"Best settings: [bold]{out}[/]; all trials: [bold]{file}[/]. Next: "
            f"nextapp evaluate {source} --settings {out}",
            highlight=False,
        )
        screen.write_json(json, _result(best.resolved(), tuning, found))


def _result(resolved: dict[str, Any], tuning: Tuning, found: dict[str, Chosen]) -> dict[str, Any]:
    return {
        "settings": resolved,
        "grid": tuning.grid,
        "trials": tuning.n_slots,
        "jobs": tuning.jobs,
        "models": {
            model: {"HR@5": chosen.hit_rate, "trials": chosen.trials}
            for model, chosen in found.items()
        },
        "versions": versions(),
    }


def _table(model: str, chosen: Chosen) -> Table:
    given_up = sum(row["HR@5"] is None for row in chosen.trials)
    table = Table(
        title=f"{model}: best of {len(chosen.trials)} trials, {given_up} given up early",
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    best = [row for row in chosen.trials if row["HR@5"] is not None][:_SHOWN]
    table.add_column("trial")
    for row in best:
        table.add_column(str(row["slot"]), justify="right")
    for name in best[0]:
        if name not in ("slot", "given_up_after"):
            style = "bold" if name == "HR@5" else ""
            table.add_row(name, *(_cell(row[name]) for row in best), style=style)
    return table


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
