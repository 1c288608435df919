"""`nextapp evaluate` and `nextapp tune`: measure models on a launch log; choose their settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from nextapp.cli import commands, screen, when_stopped_say
from nextapp.cli.commands import OUTPUT_FILE, command, option, options_and_file, output
from nextapp.evaluation.metrics import TABLES
from nextapp.evaluation.static import (
    NOT_RANKED,
    calibration_table,
    figures_table,
    leads_table,
    steadiness_table,
    summary_table,
)
from nextapp.settings import as_toml, count
from nextapp.storage import write_atomically
from nextapp.studies.experiment import Experiment, plain_values, run, settings_on_data, versions
from nextapp.table import Mark, Marked, Table

if TYPE_CHECKING:
    from nextapp.studies.tuning import Chosen

_SHOWN = 6  # trials of each model


@command(
    "nextapp evaluate synthetic:lsapp --preset authors --models mru,sr-od,nextapp\n"
    "nextapp evaluate launches.csv --json result.json"
)
@commands.source
@options_and_file(Experiment, "given", "models", "split", "preset", "tune", "seed")
@commands.plot_file("Plot calibration and steadiness")
@commands.json_file
@option("--more", is_flag=True, help="All tables, intervals, differences and calibration.")
@commands.log_options
def evaluate(
    source: str,
    given: dict[str, Any],
    plot: Path | None,
    json: Path | None,
    more: bool,
    log_options: commands.LogOptions,
) -> None:
    """Measure models on a launch log: HR, MRR and NDCG @1, 3, 5.

    Of all launches in sessions, of the next different app and of openings.
    """
    experiment = settings_on_data(Experiment, {**given, "data": source})
    with screen.progress() as report:
        log = log_options.read(source, experiment.seed)
        _, result = run(experiment, log, report)
    show_result(result, more=more)
    if plot is not None:
        from nextapp import plots

        screen.write_plot(plot, plots.calibration(result))
    screen.write_json(json, result)
    others = [f"nextapp new-phones {source}"] if log.n_users > 1 else []
    screen.say_next(f"nextapp explain {source}", *others)


def show_result(result: Mapping[str, Any], *, more: bool = False) -> None:
    about = result["data"]
    screen.out.print(
        f"[bold]{escape(about['source'])}[/]  {count(about['n_users'], 'user')}, "
        f"{count(about['n_apps'], 'app')}, {count(about['n_launches'], 'launch', 'launches')}; "
        f"preset [bold]{result['preset']}[/], split "
        f"{result['split']}, seed {result['seed']}"
    )
    for note in about["notes"]:
        screen.out.print(f"  {note}", style="dim", markup=False)
    for warning in result["warnings"]:
        screen.out.print(warning, style="yellow", markup=False)
    screen.out.print(
        f"{count(result['n_predictions'], 'prediction')} in "
        f"{count(result['n_sessions'], 'session')} of "
        f"{count(result['n_users'], 'test user')}; {result['repeat_share']:.1%} of the targets "
        f"repeat the launch before; "
        f"{count(result['n_openings'], 'launch opens', 'launches open')} a session.\n"
    )
    screen.show(summary_table(result["models"]))
    screen.out.print(f"\n{in_short(result)}")
    if not more:
        return
    models, width = result["models"], screen.out.width
    chances = {name: row for name, row in models.items() if row["calibration"] is not None}
    for table in (
        *(figures_table(models, table=each).fitting(width) for each in TABLES),
        leads_table(result["leads"], "nextapp") if result.get("leads") else None,
        steadiness_table(models),
        standing_table(result),
        calibration_table(chances) if chances else None,
    ):
        if table is not None:
            screen.out.print()
            screen.out.print(table.terminal())


def in_short(result: Mapping[str, Any]) -> str:
    """The main result in a line: HR@5 of the best two models.

    >>> figures = {"HR@5": 0.853, "ci95": {"HR@5": [0.824, 0.881]}}
    >>> in_short({"models": {"nextapp": figures}, "intervals": "95 %, by user"})
    'The launched app is among the first five: nextapp 85.3% (82.4–88.1). Intervals: 95 %, by user.'
    """
    rows = {name: row for name, row in result["models"].items() if name not in NOT_RANKED}
    best = sorted(rows, key=lambda name: rows[name]["HR@5"], reverse=True)[:2]
    rates = [f"{rows[name]['HR@5']:.1%}" for name in best]
    found = []
    for name, rate in zip(best, rates, strict=True):
        low, high = rows[name]["ci95"]["HR@5"]
        found.append(f"{name} {rate} ({100 * low:.1f}–{100 * high:.1f})")
    words = (" and " if len(set(rates)) < len(rates) else ", then ").join(found)
    return f"The launched app is among the first five: {words}. Intervals: {result['intervals']}."


def standing_table(result: Mapping[str, Any]) -> Table | None:
    """nextapp and SeqMF minus every other model; level where the interval contains 0."""
    columns = {
        model: result[f"{model}_minus"]
        for model in ("nextapp", "seqmf")
        if result.get(f"{model}_minus")
    }
    others = [name for name in result["models"] if any(name in found for found in columns.values())]
    if not others:
        return None
    rows = [
        [name, *(_standing(found.get(name, {}).get("HR@5")) for found in columns.values())]
        for name in others
    ]
    headings = ["model", *(f"{model} minus it" for model in columns)]
    title = f"difference in HR@5; intervals: {result['intervals']}"
    return Table.of_text(headings, rows, title)


def _standing(gap: Mapping[str, float] | None) -> str | Marked:
    if gap is None:
        return ""
    verdict = "ahead" if gap["low"] > 0 else "behind" if gap["high"] < 0 else "level"
    marks: dict[str, Mark] = {"ahead": "good", "behind": "bad", "level": ""}
    words = f"{verdict} {gap['difference']:+.3f} ({gap['low']:+.3f} to {gap['high']:+.3f})"
    return Marked(words, marks[verdict])


@command("nextapp tune synthetic:lsapp --trials 60 --out tuned.toml")
@commands.source
@output(
    "--out",
    OUTPUT_FILE,
    "TOML file for the best settings; evaluate and train take it by --settings.",
    default="tuned.toml",
)
@option("--trials", type=click.IntRange(min=1), default=100, help="Trials for each model.")
@option("--models", type=commands.NAMES, default="mf,seqmf", help="Models to tune.")
@options_and_file(Experiment, "given", "split", "preset", "seed")
@commands.json_file
@commands.log_options
def tune(
    source: str,
    out: Path,
    trials: int,
    models: list[str],
    given: dict[str, Any],
    json: Path | None,
    log_options: commands.LogOptions,
) -> None:
    """Choose the settings of mf and seqmf on launches before the test.

    Dimension, rates, λ, α, γ, optimiser and inference are chosen by HR@5 on the validation part, or
    without one on the last eighth of each user's training launches. The test part is never used.
    """
    from nextapp.studies.tuning import choose_settings

    experiment = settings_on_data(Experiment, {**given, "data": source, "tune": 0})
    out.parent.mkdir(exist_ok=True)
    file = out.with_suffix(".db")
    when_stopped_say(f"Finished trials are in {file}: the same command continues from there.")
    with screen.progress("tuning") as report:
        log = log_options.read(source, experiment.seed)
        best, found = choose_settings(
            log, experiment, report, trials=trials, storage=file, models=tuple(models)
        )
    for model, chosen in found.items():
        screen.out.print(_table(model, chosen).terminal())
        screen.out.print()
    write_atomically(out, as_toml(plain_values(best)).encode())
    screen.out.print(f"Wrote the best settings to [bold]{out}[/], all trials to [bold]{file}[/].")
    models_found = {
        model: {"HR@5": chosen.hit_rate, "trials": chosen.trials} for model, chosen in found.items()
    }
    screen.write_json(
        json,
        {
            "settings": plain_values(best),
            "trials": trials,
            "models": models_found,
            "versions": versions(),
        },
    )
    screen.say_next(f"nextapp evaluate {source} --settings {out}")


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
