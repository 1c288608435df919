"""`nextapp tune`: choose the settings of mf and seqmf on launches before the test part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextapp.cli import options, screen, stopping
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
    choose_settings,
)
from nextapp.table import Marked, Table

_SHOWN = 6


@expand_options
def tune(
    source: options.Source,
    *,
    out: Annotated[
        Path,
        typer.Option(
            help="TOML file for the best settings; evaluate and train take it by --settings.",
            callback=options.check_output_file,
            rich_help_panel=options.OUTPUT,
        ),
    ] = Path("tuned.toml"),
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Trials for each model. Default: 100; {GRID_SIZE:,} for --grid paper.",
            show_default=False,
        ),
    ] = None,
    grid: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="wide (all settings) or paper (the grid of its authors)."
        ),
    ] = "wide",
    models: Annotated[str, typer.Option(metavar="NAMES", help="Models to tune.")] = ",".join(TUNED),
    storage: Annotated[
        Path | None,
        typer.Option(
            help="SQLite file that keeps all trials; the same command continues from it. Default: "
            "beside --out.",
            show_default=False,
            callback=options.check_output_file,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    experiment_options: options.ExperimentOptions,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Choose the settings of mf and seqmf on launches before the test.

    Dimension, rates, λ, α, γ, optimiser and inference are chosen by HR@5 on the validation part, or
    without one on the last eighth of each user's training launches. The test part is never used.
    """
    with clear_errors():
        wanted = tuple(name.strip() for name in models.split(","))
        default = 0 if grid == "paper" else Tuning().trials
        tuning = Tuning(default if trials is None else trials, grid)
        experiment = experiment_options.experiment(data=source, tune=0)
        out.parent.mkdir(parents=True, exist_ok=True)
        file = storage or out.with_suffix(".db")
        stopping.go_on_by(f"Finished trials are in {file}: the same command goes on from there.")
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, experiment.seed)
            trials = len(wanted) * tuning.n_slots
            screen.say_how_long(10 + trials * 0.6 * len(log) / 370_000)
            best, found = choose_settings(
                log, experiment, report, tuning=tuning, storage=file, models=wanted
            )
        for model, chosen in found.items():
            screen.out.print(_table(model, chosen).terminal())
            screen.out.print()
        write_atomically(out, as_toml(best.as_plain_values()).encode())
        screen.out.print(
            f"Wrote the best settings to [bold]{out}[/], all trials to [bold]{file}[/].",
            highlight=False,
        )
        screen.write_json(json, _result(best.as_plain_values(), tuning, found))
        screen.say_next(f"nextapp evaluate {source} --settings {out}")


def _result(resolved: dict[str, Any], tuning: Tuning, found: dict[str, Chosen]) -> dict[str, Any]:
    return {
        "settings": resolved,
        "grid": tuning.grid,
        "trials": tuning.n_slots,
        "models": {
            model: {"HR@5": chosen.hit_rate, "trials": chosen.trials}
            for model, chosen in found.items()
        },
        "versions": versions(),
    }


def _table(model: str, chosen: Chosen) -> Table:
    given_up = sum(row["HR@5"] is None for row in chosen.trials)
    best = [row for row in chosen.trials if row["HR@5"] is not None][:_SHOWN]
    rows = [
        [name, *(Marked(_cell(row[name]), "best" if name == "HR@5" else "") for row in best)]
        for name in best[0]
        if name not in ("slot", "given_up_after")
    ]
    title = f"{model}: best of {len(chosen.trials)} trials, {given_up} given up early"
    return Table.of_text(["trial", *(str(row["slot"]) for row in best)], rows, title)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
