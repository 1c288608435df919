"""`nextapp dynamic`: predict a cycle, learn from it, go on to the next."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextapp.cli import commands, screen
from nextapp.cli.commands import command, options_and_file
from nextapp.evaluation import METRICS
from nextapp.evaluation.dynamic_environment import REGIMES
from nextapp.predictors import MODELS
from nextapp.settings import count
from nextapp.studies import dynamic as experiments
from nextapp.studies.dynamic import PRIVATE, DynamicExperiment
from nextapp.studies.experiment import settings_on_data
from nextapp.table import Column, Measured, Table, measured_from

_ALL = {"regimes": REGIMES, "models": MODELS, "mechanisms": PRIVATE, "metrics": METRICS}


@command("nextapp dynamic synthetic:lsapp --models sr-od,mru --mechanisms harmony --seeds 2")
@commands.source
@options_and_file(
    DynamicExperiment,
    "given",
    *("cycles", "pretraining", "start", "window", "seeds", "seed", "preset"),
    *("regimes", "models", "mechanisms", "metrics"),
    *("q_every", "epsilon", "rates"),
)
@commands.json_file
@commands.log_options
def dynamic(
    source: str, given: dict[str, Any], json: Path | None, log_options: commands.LogOptions
) -> None:
    """Predict a log cycle by cycle, and learn after each cycle."""
    cycles = given.get("cycles", "")
    if cycles.isdigit():
        given["cycles"] = f"users:{cycles}"
    for name, known in _ALL.items():
        if list(given.get(name, ())) == ["all"]:
            given[name] = list(known)
    experiment = settings_on_data(DynamicExperiment, {**given, "data": source})
    began = time.perf_counter()
    with screen.progress() as report:
        log = log_options.read(source, experiment.seed)
        result = experiments.run(experiment, log, report).as_json()
    show(result)
    screen.err.print(f"{time.perf_counter() - began:.1f} s", style="dim")
    screen.write_json(json, result)


def show(result: Mapping[str, Any]) -> None:
    about, parts, settings = result["data"], result["cycles"], result["settings"]
    screen.out.print(
        f"[bold]{escape(about['source'])}[/]  {count(about['n_users'], 'user')}, "
        f"{count(about['n_apps'], 'app')}, {count(about['n_launches'], 'launch', 'launches')}; "
        f"{count(len(parts), 'cycle')} ({settings['cycles']}), "
        f"preset [bold]{settings['preset']}[/], "
        f"seeds {settings['seed']} to {settings['seed'] + settings['seeds'] - 1}"
    )
    moves = ", ".join(map(str, result["q_moves_after"])) or "never"
    screen.out.print(
        f"Q is pre-trained on {_PRETRAINED[settings['pretraining']]} and moves after cycles "
        f"{moves}. Cycles {result['evaluated'][0]} to {result['evaluated'][-1]} are predicted.\n"
    )
    screen.out.print("[bold]HR@5[/], and how far it is from the reference, summed over the cycles")
    screen.out.print(_series_table(result).terminal())
    for metric in settings["metrics"]:
        if metric != "HR@5":
            figures = ", ".join(
                f"{name} {series['over_cycles'][metric]['mean']:.3f}"
                for name, series in result["series"].items()
            )
            screen.out.print(f"{metric}: {figures}")
    if settings["mechanisms"]:
        screen.out.print(
            f"ε: all that the phone with most reports gave, {settings['epsilon']:g} each. "
            f"{'; '.join(_not_private(result))}.",
            style="dim",
        )


_PRETRAINED = {"first": "the first cycle", "all": "all data", "none": "nothing"}


def _series_table(result: Mapping[str, Any]) -> Table:
    rows = []
    for name, series in result["series"].items():
        curve, delta = series["HR@5"], series["delta"]
        ends = (delta[key][-1] for key in ("mean", "low", "high"))
        rows.append(
            [
                name,
                curve["mean"][0],
                measured_from(series["over_cycles"]["HR@5"]),
                curve["mean"][-1],
                "reference" if delta["reference"] == name else Measured(*ends),
                _epsilon(series),
            ]
        )
    columns = [
        Column("", "name"),
        Column("first"),
        Column("mean (95 %)", "interval", between="–"),
        Column("last"),
        Column("cumulative δ (95 %)", "interval", form="signed"),
        Column("ε", "text"),
    ]
    return Table(columns, rows, caption=f"intervals: {result['intervals']}")


def _epsilon(series: Mapping[str, Any]) -> str:
    if series["privacy"] is None:
        return ""
    return "∞" if series["epsilon_spent"] is None else f"{series['epsilon_spent']:g}"


def _not_private(result: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} is {series['privacy']['promise']}"
        for name, series in result["series"].items()
        if series["privacy"] is not None and series["epsilon_spent"] is None
    ]
