"""`nextapp dynamic`: predict a cycle, learn from it, go on to the next."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.evaluation import METRICS
from nextapp.evaluation.dynamic import REGIMES
from nextapp.studies import dynamic as experiments
from nextapp.studies.settings import MODELS
from nextapp.table import Column, Measured, Table, measured_from


@expand_options
def dynamic(
    source: options.Source,
    *,
    cycles: Annotated[
        str | None,
        typer.Option(
            help="A number of cycles of almost equal activity, switches:9000 for a cycle "
            "every 9,000 session switches, or days. Default: days for App Usage, else 33.",
            show_default=False,
        ),
    ] = None,
    q_every: Annotated[
        int | None,
        typer.Option(
            help="Cycles between two updates of Q. Default: 2 for days, else 10.",
            show_default=False,
        ),
    ] = None,
    q_rounds: Annotated[
        int | None, typer.Option(help="Rounds in an update of Q. Default: 1.", show_default=False)
    ] = None,
    regimes: Annotated[
        str | None,
        typer.Option(
            help="Update regimes among full, rare and global; '' for none. Default: all.",
            show_default=False,
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help=f"Models fitted again in each cycle, among {', '.join(MODELS)}, "
            "and ceiling on synthetic data. Default: sr-od.",
            show_default=False,
        ),
    ] = None,
    mechanisms: Annotated[
        str | None,
        typer.Option(
            help="Mechanisms to compare with the controls none, frozen and zero: "
            f"{', '.join(experiments.PRIVATE)}, or all. Default: no mechanism.",
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        bool,
        typer.Option("--noise", help="Also run each mechanism on zero gradients: its noise alone."),
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget ε of one report. Default: 1.1 for App Usage, else 4.5.",
            show_default=False,
        ),
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(
            help="public (from synthetic stand-ins), quantile:EPSILON or a number. "
            "Default: public.",
            show_default=False,
        ),
    ] = None,
    pretraining: Annotated[
        str | None,
        typer.Option(
            help="Q before the stream is trained on the first cycle, on all data (leaks the "
            "future, as the authors did) or not at all: first, all, none.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="User vectors before anything is learnt: random or zero. Default: random.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds, counted from --seed. Default: 1.", show_default=False),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics, such as HR@1,NDCG@5, or all. Default: HR@5.", show_default=False
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="How to count: authors, paper or honest. Default: honest.", show_default=False
        ),
    ] = None,
    settings: options.SettingsFile = None,
    seed: options.OverridingSeed = None,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Cut a log in cycles; predict each one, then update from it: regimes, models, mechanisms."""
    with clear_errors():
        given = {
            "data": source,
            "cycles": f"cycles:{cycles}" if cycles is not None and cycles.isdigit() else cycles,
            "q_every": q_every,
            "q_rounds": q_rounds,
            "regimes": _names(regimes, REGIMES),
            "models": _names(models, MODELS),
            "mechanisms": _names(mechanisms, experiments.PRIVATE),
            "noise": noise or None,
            "epsilon": epsilon,
            "clip": clip,
            "pretraining": pretraining,
            "start": start,
            "seeds": seeds,
            "metrics": _names(metrics, METRICS),
            "preset": preset,
            "seed": seed,
        }
        experiment = experiments.experiment_from(options.overridden(settings, given))
        began = time.perf_counter()
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, experiment.seed)
            result = experiments.run(experiment, log, report).as_json()
        show(result)
        screen.out.print(f"{time.perf_counter() - began:.1f} s", style="dim")
        screen.write_json(json, result)


def _names(text: str | None, known: tuple[str, ...]) -> list[str] | None:
    if text is None:
        return None
    if text == "all":
        return list(known)
    return [name.strip() for name in text.split(",") if name.strip()]


def show(result: Mapping[str, Any]) -> None:
    """A dynamic experiment: the cycles, and a row for each series."""
    about, parts, settings = result["data"], result["cycles"], result["settings"]
    screen.out.print(
        f"[bold]{screen.escaped(about['source'])}[/]  {about['n_users']:,} users, "
        f"{about['n_apps']:,} apps, {about['n_launches']:,} launches; {len(parts)} cycles "
        f"({settings['cycles']}), preset [bold]{settings['preset']}[/], seeds "
        f"{settings['seed']} to {settings['seed'] + settings['seeds'] - 1}",
        highlight=False,
    )
    for key in ("n_users", "n_sessions", "n_launches"):
        counts = [part[key] for part in parts]
        screen.out.print(
            f"  {key.removeprefix('n_'):9} |{tables.sparkline(counts)}| {min(counts):,} to "
            f"{max(counts):,}",
            style="dim",
            highlight=False,
        )
    moves = ", ".join(map(str, result["q_moves_after"])) or "never"
    screen.out.print(
        f"Q is pre-trained on {_PRETRAINED[settings['pretraining']]} and moves after cycles "
        f"{moves}. Cycles {result['evaluated'][0]} to {result['evaluated'][-1]} are predicted.\n",
        highlight=False,
    )
    screen.out.print("[bold]HR@5[/], and how far it is from the reference, summed over the cycles")
    screen.out.print(_series_table(result).terminal())
    for metric in settings["metrics"]:
        if metric != "HR@5":
            figures = ", ".join(
                f"{name} {series['over_cycles'][metric]['mean']:.3f}"
                for name, series in result["series"].items()
            )
            screen.out.print(f"{metric}: {figures}", highlight=False)
    if settings["mechanisms"]:
        screen.out.print(
            f"ε: all that the phone with most reports gave, {settings['epsilon']:g} each. "
            f"{'; '.join(_not_private(result))}.",
            style="dim",
            highlight=False,
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
    return Table(columns, rows)


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
