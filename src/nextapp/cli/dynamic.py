"""`nextapp dynamic`: predict a cycle, learn from it, go on to the next."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.evaluation import METRICS
from nextapp.evaluation.dynamic import REGIMES
from nextapp.predictors.registry import MODELS
from nextapp.studies import dynamic as experiments
from nextapp.table import Column, Measured, Table, measured_from


@dataclass(frozen=True)
class CycleOptions:
    cycles: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="N cycles of equally many users, cycles:N of equally many sessions, switches:N or "
            "days. Default: 34; 8 for App Usage.",
        ),
    ] = None
    pretraining: Annotated[
        str | None,
        typer.Option(
            metavar="ON",
            help="Q is trained before on first (cycle), all (as the authors did) or none.",
        ),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="First user vectors: random or zero. Default: random."),
    ] = None
    window: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="Learn from the last DAYS of a phone. Default: all."),
    ] = None
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds, from --seed on. Default: 1.")
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="How to count: authors, paper or honest. Default: honest."
        ),
    ] = None


@dataclass(frozen=True)
class ComparedOptions:
    HEADING: ClassVar[str] = "What is compared"

    regimes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Of full, rare and global; '' for none. Default: all."),
    ] = None
    models: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Models, as in evaluate. Default: sr-od."),
    ] = None
    mechanisms: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Such as harmony,codebook,walsh, or all. Default: none."
        ),
    ] = None
    metrics: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Such as HR@1,NDCG@5, or all. Default: HR@5."),
    ] = None


@dataclass(frozen=True)
class UpdateOptions:
    HEADING: ClassVar[str] = "Updates of the app vectors Q"

    q_every: Annotated[
        int | None,
        typer.Option(min=1, help="Cycles between updates. Default: 10; 2 for App Usage and days."),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="ε of one report. Default: 4.5; 1.1 for App Usage.",
            callback=options.check_epsilon,
        ),
    ] = None
    clip: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="public (the default) or a number."),
    ] = None
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="RATES", help="Several: each mechanism takes its best. Default: 0.003."
        ),
    ] = None


@expand_options
def dynamic(
    source: options.Source,
    *,
    cycle_options: CycleOptions,
    compared: ComparedOptions,
    updates: UpdateOptions,
    settings: options.SettingsFile = None,
    seed: options.OverridingSeed = None,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Predict a log cycle by cycle, and learn after each cycle."""
    with clear_errors():
        cycles = cycle_options.cycles
        given = {
            **asdict(cycle_options),
            **asdict(updates),
            "data": source,
            "cycles": f"users:{cycles}" if cycles is not None and cycles.isdigit() else cycles,
            "regimes": _names(compared.regimes, REGIMES),
            "models": _names(compared.models, MODELS),
            "mechanisms": _names(compared.mechanisms, experiments.PRIVATE),
            "rates": _numbers(updates.rates),
            "metrics": _names(compared.metrics, METRICS),
            "seed": seed,
        }
        experiment = experiments.experiment_from(options.overridden(settings, given))
        began = time.perf_counter()
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, experiment.seed)
            series = len(experiment.regimes) + len(experiment.models)
            series += (3 + len(experiment.mechanisms)) * bool(experiment.mechanisms)
            screen.say_how_long(10 + 4 * series * experiment.seeds * len(log) / 370_000)
            result = experiments.run(experiment, log, report).as_json()
        show(result)
        screen.err.print(f"{time.perf_counter() - began:.1f} s", style="dim")
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
        f"[bold]{screen.escape_markup(about['source'])}[/]  {about['n_users']:,} users, "
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


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ValueError(f"--rates takes numbers separated by commas, got {text!r}.") from None


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
