"""`nextapp simulate`: a federation of synthetic phones on this machine, or on Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from nextapp.cli import options, screen, stopping
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.fleet.devices import check_device
from nextapp.fleet.participation import NIGHT_OWLS, Participation
from nextapp.fleet.sharding import Recipe, recipes, recipes_in, write_shard
from nextapp.predictors.training import Training
from nextapp.studies import simulation
from nextapp.table import Column, Measured, Table
from nextapp.wire import ModelSettings


@dataclass(frozen=True)
class TrainingOptions:
    HEADING: ClassVar[str] = "Training"

    dim: Annotated[int, typer.Option(min=1, help="Length of an app vector.")] = 16
    rounds: Annotated[int, typer.Option(min=1, help="Steps on the app vectors.")] = 10
    clip: Annotated[float | None, "Bound on a gradient. Default: from public synthetic phones."] = (
        None
    )
    rate: Annotated[float, "Learning rate of Adam."] = 0.01
    lam: Annotated[float, "λ, the regularisation of user vectors."] = 0.3
    alpha: Annotated[float, "α, added to every app's confidence."] = 0.0
    gamma: Annotated[float, "γ, power of counts in the confidence."] = 1.0

    @property
    def training(self) -> Training:
        model = ModelSettings(lam=self.lam, alpha=self.alpha, gamma=self.gamma)
        return Training(model, dim=self.dim, rate=self.rate, rounds=self.rounds)


@dataclass(frozen=True)
class ParticipationOptions:
    HEADING: ClassVar[str] = "Participation"

    cohort: Annotated[int, typer.Option(min=0, help="Phones invited to a round; 0 for all.")] = 0
    real_world: Annotated[bool, "Phones sleep, drop out, come late and rest a day."] = False
    lifetime_reports: Annotated[
        int, typer.Option(min=0, help="Reports of a phone at most; 0: any.")
    ] = 0

    @property
    def participation(self) -> Participation:
        always = Participation(cohort=self.cohort, lifetime_reports=self.lifetime_reports)
        if not self.real_world:
            return always
        return replace(
            always,
            availability=NIGHT_OWLS,
            drop_out=0.06,
            deadline_seconds=120.0,
            minimum_gap=1,
            hours_per_round=6.0,
        )


@dataclass(frozen=True)
class RunningOptions:
    HEADING: ClassVar[str] = "Running"

    mode: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="exact (every phone's bits), law (draws the sum) or auto."
        ),
    ] = "auto"
    shards: Annotated[int, typer.Option(min=1, help="Parts in which the fleet is made.")] = 1
    stream: Annotated[bool, "Make shards again in every round, to save memory."] = False
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Parquet shards of the phones; written if there are none.",
            callback=options.check_output,
        ),
    ] = None
    ray_workers: Annotated[int, typer.Option(min=0, help="Ray workers; 0 for none.")] = 0


@expand_options
def simulate(
    *,
    phones: Annotated[int, typer.Option(min=1, help="Number of phones.", show_default=False)],
    mechanism: Annotated[
        str,
        typer.Option(metavar="NAME", help="identity, harmony, codebook, …"),
    ] = "identity",
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget ε of one report.",
            show_default=False,
            callback=options.check_epsilon,
        ),
    ] = None,
    apps: Annotated[int, typer.Option(min=2, help="Apps in the catalogue.")] = 2_000,
    days: Annotated[int, typer.Option(min=1, help="Days of history on a phone.")] = 3,
    sample: Annotated[
        int, typer.Option(min=2, help="Further phones, on which HR@5 is measured.")
    ] = 1_000,
    device: options.Device = "cpu",
    training: TrainingOptions,
    taking_part: ParticipationOptions,
    running: RunningOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Checkpoints; the same command continues from them.",
            callback=options.check_output,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Train app vectors on many synthetic phones, with privacy."""
    with clear_errors():
        settings = simulation.Settings(
            phones=phones,
            apps=apps,
            dim=training.dim,
            rounds=training.rounds,
            mechanism=mechanism,
            seed=seed,
            epsilon=epsilon,
            clip=training.clip,
            mode=running.mode,
            days=days,
            sample=sample,
            shards=max(running.shards, running.ray_workers),
            keep_shards=not running.stream,
            training=training.training,
            participation=taking_part.participation,
        )
        if out is not None:
            stopping.go_on_by(f"Finished rounds are in {out}: the same command goes on from there.")
        check_device(device)
        # On a card most of the time goes into making the phones.
        work = training.rounds if device == "cpu" else 2
        screen.say_how_long(10 + work * phones / 200_000)
        result = _run(settings, out, running.fleet, running.ray_workers, device)
        screen.write_json(json, result)


def _run(
    settings: simulation.Settings,
    out: Path | None,
    fleet: Path | None,
    ray_workers: int,
    device: str,
) -> dict[str, Any]:
    with screen.progress() as report:
        report("making phones", 0, 0)
        done = [0]

        def heard(record: dict[str, Any]) -> None:
            done[0] = record["round"] + 1
            left = (settings.rounds - done[0]) * record["seconds"]
            report(
                f"round {done[0]}: {record['phones_per_second']:,.0f} phones/s, {left:.0f} s left",
                done[0],
                settings.rounds,
            )

        shards = recipes(settings.phones, settings.shards, settings.parameters, settings.seed)
        if fleet is not None:
            shards = _in_files(settings, shards, fleet, report)
        world = _world(settings, shards, ray_workers, device)
        result = simulation.run(settings, world, out, heard)
    screen.out.print(
        f"[bold]{settings.phones:,} synthetic phones[/], {settings.apps:,} apps, d = "
        f"{settings.dim}, {settings.mechanism}"
        + (f" with ε = {settings.epsilon:g} a report" if settings.epsilon else "")
        + f", clip {result['clip']:.4g}, seed {settings.seed}",
        highlight=False,
    )
    screen.out.print(_rounds_table(result["rounds"]).terminal())
    frozen = result["frozen"]
    screen.out.print(
        f"frozen Q: HR@5 {frozen['hr5']:.3f} on {settings.sample:,} phones outside the federation",
        highlight=False,
    )
    return result


def _rounds_table(records: Sequence[Mapping[str, Any]]) -> Table:
    columns = [
        Column("round", "name"),
        Column("phones", form="count"),
        Column("phones/s", form="count"),
        Column("loss", digits=4, form="plain"),
        Column("cosine", form="plain"),
        Column("HR@5", form="plain"),
        Column("gain over frozen Q", "interval", digits=4, form="signed"),
        Column("ε", "text"),
    ]
    keys = ("phones", "phones_per_second", "loss", "cosine", "hr5")
    rows = [
        [
            record["round"] + 1,
            *(record[key] for key in keys),
            _gain(record),
            record["epsilon_spent"],
        ]
        for record in records
    ]
    return Table(columns, rows)


def _gain(record: Mapping[str, Any]) -> Measured:
    return Measured(record["hr5_gain"], *record["hr5_gain_ci95"])


def _in_files(
    settings: simulation.Settings, shards: list[Recipe], folder: Path, report: Any
) -> list[Recipe]:
    """The shards of the folder, written first if there are none."""
    if not folder.exists() or not any(folder.iterdir()):
        for number, recipe in enumerate(shards):
            report("writing shards", number, len(shards))
            write_shard(recipe.build(), folder)
    found = recipes_in(folder)
    n_apps = found[0].build().n_apps
    if (found[0].first, found[-1].last, n_apps) != (0, settings.phones, settings.apps):
        raise ValueError(
            f"{folder} holds phones {found[0].first:,} to {found[-1].last - 1:,} with {n_apps:,} "
            f"apps, not {settings.phones:,} phones with {settings.apps:,}: give other numbers, or "
            f"another folder."
        )
    return found


def _world(
    settings: simulation.Settings, shards: list[Recipe], ray_workers: int, device: str
) -> simulation.World:
    kept = {"keep": settings.keep_shards, "empty": settings.zero_gradients}
    if not ray_workers:
        return simulation.LocalWorld(shards, settings.phones, device=device, **kept)
    if device != "cpu":
        raise ValueError(
            "Ray workers play on processors: give --ray-workers or --device, not both."
        )
    try:
        import ray

        from nextapp.studies.on_ray import RayWorld
    except ModuleNotFoundError as error:
        raise ValueError("--ray-workers needs Ray: pip install 'nextapp[ray]'") from error
    if not ray.is_initialized():
        ray.init(num_cpus=ray_workers, include_dashboard=False, log_to_driver=False)
    return RayWorld(shards, settings.phones, workers=ray_workers, **kept)
