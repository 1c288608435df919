"""`nextapp evaluate` and `nextapp tune`: measure models on a launch log; choose their settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nextapp.cli import options, screen, tables, when_stopped_say
from nextapp.cli.commands import command, option
from nextapp.cli.options import OUTPUT_FILE, output, settings_of
from nextapp.settings import as_toml
from nextapp.storage import write_atomically
from nextapp.studies import static
from nextapp.studies.settings import Experiment, experiment_from, versions
from nextapp.table import Marked, Table

if TYPE_CHECKING:
    from nextapp.studies.tuning import Chosen, Tuning

_SHOWN = 6  # trials of each model


@command(
    "nextapp evaluate synthetic:lsapp --preset authors --models mru,sr-od,nextapp\n"
    "nextapp evaluate launches.csv --json result.json"
)
@options.source
@settings_of(Experiment, "given", "models", "split", "preset", "tune", "window", "seed")
@options.plot_file("Plot calibration and prewarming")
@options.json_file
@options.log_options
def evaluate(
    source: str,
    given: dict[str, Any],
    plot: Path | None,
    json: Path | None,
    log_options: options.LogOptions,
) -> None:
    """Measure models on a launch log: HR, MRR and NDCG @1, 3, 5.

    Models that give probabilities are also measured by calibration and by prewarming: how many
    launches are hit by starting the apps above a threshold.
    """
    experiment = experiment_from({**given, "data": source})
    with screen.progress() as report:
        report("reading", 0, 0)
        log = log_options.read(source, experiment.seed)
        result = static.run(experiment, log, report).as_json()
    tables.show_result(result)
    if plot is not None:
        from nextapp.studies import plots

        screen.write_plot(plot, plots.calibration(result))
    screen.write_json(json, result)
    screen.say_next(f"nextapp explain {source}", f"nextapp new-phones {source}")


@command("nextapp tune synthetic:lsapp --trials 60 --out tuned.toml")
@options.source
@output(
    "--out",
    OUTPUT_FILE,
    "TOML file for the best settings; evaluate and train take it by --settings.",
    default="tuned.toml",
)
@option(
    "--trials",
    type=click.IntRange(min=1),
    help="Trials for each model. Default: 100; for --grid paper all of its points.",
)
@option(
    "--grid",
    default="wide",
    metavar="NAME",
    help="wide (all settings) or paper (the grid of its authors).",
)
@option("--models", type=options.NAMES, default="mf,seqmf", help="Models to tune.")
@output(
    "--storage",
    OUTPUT_FILE,
    "SQLite file that keeps all trials; the same command continues from it. Default: beside --out.",
)
@settings_of(Experiment, "given", "split", "preset", "seed")
@options.json_file
@options.log_options
def tune(
    source: str,
    out: Path,
    trials: int | None,
    grid: str,
    models: list[str],
    storage: Path | None,
    given: dict[str, Any],
    json: Path | None,
    log_options: options.LogOptions,
) -> None:
    """Choose the settings of mf and seqmf on launches before the test.

    Dimension, rates, λ, α, γ, optimiser and inference are chosen by HR@5 on the validation part, or
    without one on the last eighth of each user's training launches. The test part is never used.
    """
    from nextapp.studies.tuning import Tuning, choose_settings

    default = 0 if grid == "paper" else Tuning().trials
    tuning = Tuning(default if trials is None else trials, grid)
    experiment = experiment_from({**given, "data": source, "tune": 0})
    out.parent.mkdir(parents=True, exist_ok=True)
    file = storage or out.with_suffix(".db")
    when_stopped_say(f"Finished trials are in {file}: the same command continues from there.")
    with screen.progress() as report:
        report("reading", 0, 0)
        log = log_options.read(source, experiment.seed)
        best, found = choose_settings(
            log, experiment, report, tuning=tuning, storage=file, models=tuple(models)
        )
    for model, chosen in found.items():
        screen.out.print(_table(model, chosen).terminal())
        screen.out.print()
    write_atomically(out, as_toml(best.as_plain_values()).encode())
    screen.out.print(f"Wrote the best settings to [bold]{out}[/], all trials to [bold]{file}[/].")
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
