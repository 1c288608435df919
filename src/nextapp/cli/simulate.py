"""`nextapp simulate`: a federation of synthetic phones on this machine, or on Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from nextapp.cli import commands, screen, when_stopped_say
from nextapp.cli.commands import OUTPUT_FOLDER, command, option, options_and_file, output
from nextapp.fleet.rounds import check_device
from nextapp.settings import count, settings_from
from nextapp.studies import simulation
from nextapp.table import Column, Measured, Table


@command("nextapp simulate --phones 100000 --mechanism walsh --epsilon 1 --rounds 5")
@options_and_file(
    simulation.SimulationSettings,
    "given",
    *("phones", "mechanism", "epsilon", "apps", "days", "sample", "dim", "rounds", "clip"),
    *("exact", "shards", "seed"),
)
@option("--rate", type=float, default=0.01, help="Learning rate of Adam.")
@option("--stream", is_flag=True, help="Make shards again in every round, to save memory.")
@option("--ray-workers", type=click.IntRange(min=0), default=0, help="Ray workers; 0 for none.")
@commands.device
@output("--out", OUTPUT_FOLDER, "Checkpoints; the same command continues from them.")
@commands.json_file
def simulate(
    given: dict[str, Any],
    rate: float,
    stream: bool,
    ray_workers: int,
    device: str,
    out: Path | None,
    json: Path | None,
) -> None:
    """Train app vectors on many synthetic phones, with privacy."""
    settings = settings_from(simulation.SimulationSettings, given)
    settings = replace(
        settings,
        shards=max(settings.shards, ray_workers),
        keep_shards=not stream,
        training=replace(settings.training, rate=rate),
    )
    if out is not None:
        when_stopped_say(f"Finished rounds are in {out}: the same command continues from there.")
    check_device(device)
    with screen.progress("round") as report:
        report("making phones", 0, 0)

        def show_round(record: dict[str, Any]) -> None:
            speed = f"{record['phones_per_second']:,.0f} phones/s"
            report(f"rounds, {speed}", record["round"] + 1, settings.rounds)

        world = _world(settings, ray_workers, device)
        result = simulation.run(settings, world, out, show_round)
    screen.out.print(
        f"[bold]{count(settings.phones, 'synthetic phone')}[/], {count(settings.apps, 'app')}, d = "
        f"{settings.dim}, {settings.mechanism}"
        + (f" with ε = {settings.epsilon:g} a report" if settings.epsilon else "")
        + f", clip {result['clip']:.4g}, seed {settings.seed}"
    )
    screen.out.print(_rounds_table(result["rounds"]).terminal())
    frozen = result["frozen"]
    screen.out.print(
        f"frozen Q: HR@5 {frozen['hr5']:.3f} on {count(settings.sample, 'phone')} outside "
        f"the federation"
    )
    screen.write_json(json, result)


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
            Measured(record["hr5_gain"], *record["hr5_gain_ci95"]),
            record["epsilon_spent"],
        ]
        for record in records
    ]
    return Table(columns, rows)


def _world(
    settings: simulation.SimulationSettings, ray_workers: int, device: str
) -> simulation.World:
    if not ray_workers:
        return simulation.LocalWorld(settings, device=device)
    if device != "cpu":
        raise ValueError("Ray workers run on processors: give --ray-workers or --device, not both.")
    import ray

    from nextapp.studies.on_ray import RayWorld

    if not ray.is_initialized():
        cluster = os.environ.get("RAY_ADDRESS")  # its machines say what they have
        alone = {"num_cpus": ray_workers, "include_dashboard": False}
        own: dict[str, Any] = {} if cluster else alone
        ray.init(log_to_driver=False, **own)
    return RayWorld(settings, ray_workers)
