"""`nextapp simulate`: a federation of synthetic phones on this machine, or on Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from nextapp.cli import options, screen
from nextapp.cli.errors import clear_errors
from nextapp.fleet.participation import NIGHT_OWLS, Participation
from nextapp.fleet.sharding import Recipe, recipes, recipes_in, write_shard
from nextapp.predictors import Training
from nextapp.studies import plots, simulation
from nextapp.studies.drawing import save
from nextapp.wire import ModelSettings


def simulate(
    phones: Annotated[int, typer.Option(help="Phones in the federation.", show_default=False)],
    mechanism: Annotated[
        str, typer.Option(help="identity, harmony, codebook, …; several with --curve.")
    ] = "identity",
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget ε of one report.", show_default=False)
    ] = None,
    apps: Annotated[int, typer.Option(help="Apps in the catalogue.")] = 2_000,
    dim: Annotated[int, typer.Option(help="Length of an app vector.")] = 16,
    rounds: Annotated[int, typer.Option(help="Steps on the app vectors.")] = 10,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Bound on a gradient. Default: the median norm over 400 public synthetic phones.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="exact simulates every phone's random bits; law draws the sum from its "
            "distribution; auto uses law where there is one."
        ),
    ] = "auto",
    cohort: Annotated[int, typer.Option(help="Phones invited to a round; 0 for all.")] = 0,
    real_world: Annotated[
        bool,
        typer.Option(
            "--real-world",
            help="Phones are available by time of day, drop out, come late and rest a day.",
        ),
    ] = False,
    lifetime_reports: Annotated[int, typer.Option(help="Reports a phone's ledger allows.")] = 0,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 0.01,
    lam: Annotated[float, typer.Option(help="λ, the regularisation of user vectors.")] = 0.3,
    alpha: Annotated[
        float, typer.Option(help="α, added to every app's weight in the confidence.")
    ] = 0.0,
    gamma: Annotated[
        float, typer.Option(help="γ, the power of launch counts in the confidence.")
    ] = 1.0,
    days: Annotated[int, typer.Option(help="Days of history on a phone.")] = 3,
    sample: Annotated[int, typer.Option(help="Phones that do not train and measure HR@5.")] = 1_000,
    shards: Annotated[int, typer.Option(help="Parts in which the fleet is created.")] = 1,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Create shards again in every round: uses little memory."),
    ] = False,
    fleet: Annotated[
        Path | None,
        typer.Option(
            help="Folder of Parquet shards to stream the phones from; written if it has none.",
            show_default=False,
        ),
    ] = None,
    ray_workers: Annotated[
        int, typer.Option(help="Distribute the shards over this many Ray workers; 0 for none.")
    ] = 0,
    curve: Annotated[
        str | None,
        typer.Option(
            help="Numbers of phones, 1000,10000,100000: draw what each mechanism gains over a "
            "frozen Q, beside zero gradients.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints; a killed run continues from it."),
    ] = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Train a common Q on a fleet of synthetic phones and see what a mechanism leaves of it."""
    with clear_errors():
        world = Participation(cohort=cohort, lifetime_reports=lifetime_reports)
        if real_world:
            world = replace(
                world,
                availability=NIGHT_OWLS,
                drop_out=0.06,
                deadline_seconds=120.0,
                minimum_gap=1,
                hours_per_round=6.0,
            )
        names = mechanism.split(",")
        if len(names) > 1 and curve is None:
            raise ValueError("several mechanisms are compared by --curve; else name one.")
        settings = simulation.Settings(
            phones=phones,
            apps=apps,
            dim=dim,
            rounds=rounds,
            mechanism=names[0],
            seed=seed,
            epsilon=None if curve is not None and names[0] == "identity" else epsilon,
            clip=clip,
            mode=mode,
            days=days,
            sample=sample,
            shards=max(shards, ray_workers),
            keep_shards=not stream,
            training=Training(
                ModelSettings(lam=lam, alpha=alpha, gamma=gamma), dim=dim, rate=rate, rounds=rounds
            ),
            participation=world,
        )
        if curve is not None:
            result = _curve(settings, names, epsilon, curve, out or Path("curve"))
        else:
            result = _run(settings, out, fleet, ray_workers)
        screen.write_json(json, result)


def _run(
    settings: simulation.Settings, out: Path | None, fleet: Path | None, ray_workers: int
) -> dict[str, Any]:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "round",
        "phones",
        "phones/s",
        "loss",
        "cosine",
        "HR@5",
        "gain over frozen Q",
        "ε",
    ):
        table.add_column(name, justify="right")
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
        world = _world(settings, shards, ray_workers)
        result = simulation.run(settings, world, out, heard)
    for record in result["rounds"]:
        low, high = record["hr5_gain_ci95"]
        similarity = record["cosine"]
        table.add_row(
            str(record["round"] + 1),
            f"{record['phones']:,}",
            f"{record['phones_per_second']:,.0f}",
            f"{record['loss']:.4f}",
            "–" if similarity is None else f"{similarity:.3f}",
            f"{record['hr5']:.3f}",
            f"{record['hr5_gain']:+.4f} ({low:+.4f} to {high:+.4f})",
            str(record["epsilon_spent"]),
        )
    screen.out.print(
        f"[bold]{settings.phones:,} synthetic phones[/], {settings.apps:,} apps, d = "
        f"{settings.dim}, {settings.mechanism}"
        + (f" with ε = {settings.epsilon:g} a report" if settings.epsilon else "")
        + f", clip {result['clip']:.4g}, seed {settings.seed}",
        highlight=False,
    )
    screen.out.print(table)
    frozen = result["frozen"]
    screen.out.print(
        f"frozen Q: HR@5 {frozen['hr5']:.3f} on {settings.sample:,} phones outside the federation",
        highlight=False,
    )
    return result


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
    settings: simulation.Settings, shards: list[Recipe], ray_workers: int
) -> simulation.World:
    kept = {"keep": settings.keep_shards, "empty": settings.zero_gradients}
    if not ray_workers:
        return simulation.LocalWorld(shards, settings.phones, **kept)
    try:
        import ray

        from nextapp.studies.on_ray import RayWorld
    except ModuleNotFoundError as error:
        raise ValueError("--ray-workers needs Ray: pip install 'nextapp[ray]'") from error
    if not ray.is_initialized():
        ray.init(num_cpus=ray_workers, include_dashboard=False, log_to_driver=False)
    return RayWorld(shards, settings.phones, workers=ray_workers, **kept)


def _curve(
    settings: simulation.Settings,
    mechanisms: list[str],
    epsilon: float | None,
    curve: str,
    out: Path,
) -> dict[str, Any]:
    try:
        sizes = [int(word) for word in curve.split(",")]
    except ValueError:
        raise ValueError(
            f"--curve takes numbers of phones, for example 1000,10000, got {curve!r}."
        ) from None
    points = []
    with screen.progress() as report:
        for name in mechanisms:
            for zero in (False, True):
                for size in sizes:
                    report(f"{name}{', zero gradients' * zero}, {size:,} phones", 0, 0)
                    one = replace(
                        settings,
                        mechanism=name,
                        epsilon=None if name == "identity" else epsilon,
                        phones=size,
                        zero_gradients=zero,
                    )
                    last = simulation.run(one)["rounds"][-1]
                    points.append(
                        {
                            "mechanism": name,
                            "zero_gradients": zero,
                            "phones": size,
                            "hr5_gain": last["hr5_gain"],
                            "hr5_gain_ci95": last["hr5_gain_ci95"],
                            "cosine": last["cosine"],
                        }
                    )
        out.mkdir(parents=True, exist_ok=True)
        save(plots.gains(points, epsilon), out / "gains")
    table = Table("mechanism", "phones", "gain in HR@5 over frozen Q", box=None, pad_edge=False)
    for point in points:
        low, high = point["hr5_gain_ci95"]
        name = point["mechanism"] + (", zero gradients" if point["zero_gradients"] else "")
        table.add_row(
            name, f"{point['phones']:,}", f"{point['hr5_gain']:+.4f} ({low:+.4f} to {high:+.4f})"
        )
    screen.out.print(table)
    screen.out.print(f"drawn in {out}")
    return {"points": points, "epsilon": epsilon, "settings": simulation.as_values(settings)}
