"""`nextapp privacy phones-needed`: from how many phones on a mechanism beats all controls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from nextapp.cli import options, screen
from nextapp.cli.errors import clear_errors
from nextapp.fleet.devices import check_device
from nextapp.studies.phones_needed import MECHANISMS, PhonesNeeded, run
from nextapp.table import Table


def phones_needed(
    epsilon: Annotated[
        float,
        typer.Option(
            help="Privacy budget ε of one report.",
            show_default=False,
            callback=options.check_epsilon,
        ),
    ],
    phones: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Phones that train, in increasing order.")
    ] = "300,1000,3000,10000,100000",
    mechanisms: Annotated[
        str, typer.Option(metavar="NAMES", help="Mechanisms; none is always included.")
    ] = ",".join(MECHANISMS),
    apps: Annotated[int, typer.Option(help="Apps in the catalogue.")] = 87,
    dim: Annotated[int, typer.Option(help="Length of an app vector.")] = 16,
    rounds: Annotated[
        int, typer.Option(help="Steps on Q, each with a report of every phone.")
    ] = 10,
    rates: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS",
            help="Learning rates of Adam; the best is chosen on another population.",
        ),
    ] = "0.003,0.01,0.03",
    seeds: Annotated[int, typer.Option(help="Synthetic populations to measure on.")] = 5,
    sample: Annotated[
        int, typer.Option(help="Phones in each that do not train and are measured.")
    ] = 500,
    tune_up_to: Annotated[
        int, typer.Option(help="Most phones to tune at; larger fleets take that rate.")
    ] = 10_000,
    exact_up_to: Annotated[
        int,
        typer.Option(help="Most phones for mechanisms simulated phone by phone."),
    ] = 3_000,
    device: options.Device = "cpu",
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Find from how many phones on a mechanism beats a frozen Q and zero gradients.

    Synthetic phones train Q from a random start; further phones predict with it.
    """
    with clear_errors():
        study = PhonesNeeded(
            epsilon=epsilon,
            phones=tuple(_numbers(phones, int, "--phones")),
            mechanisms=tuple(name.strip() for name in mechanisms.split(",") if name.strip()),
            apps=apps,
            rounds=rounds,
            rates=tuple(_numbers(rates, float, "--rates")),
            seeds=seeds,
            sample=sample,
            seed=seed,
            tune_up_to=tune_up_to,
            exact_up_to=exact_up_to,
        )
        study = replace(study, training=replace(study.training, dim=dim))
        check_device(device)
        began = time.perf_counter()
        work = sum(study.phones) * seeds * rounds * len(study.mechanisms)
        screen.say_how_long(20 + work / 300_000)
        with screen.progress() as report:
            result = run(study, report, device).as_json()
        show(result)
        screen.err.print(f"{time.perf_counter() - began:.0f} s", style="dim")
        screen.write_json(json, result)


def _numbers(text: str, kind: type, option: str) -> list[Any]:
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes numbers separated by commas, got {text!r}.") from None


def show(result: Mapping[str, Any]) -> None:
    """Gains in HR@5, each with the lower end of its interval, and the answer."""
    settings, controls = result["settings"], result["controls"]
    screen.out.print(
        f"{settings['apps']:,} apps, d = {settings['training']['dim']}, {settings['rounds']} "
        f"rounds of ε = {settings['epsilon']:g}; {settings['seeds']} worlds with "
        f"{settings['sample']:,} synthetic phones outside the fleet each. HR@5 with Q frozen "
        f"{controls['frozen']['HR@5']['mean']:.3f}, with zero gradients "
        f"{controls['zero']['HR@5']['mean']:.3f}.\n",
        highlight=False,
    )
    gains = ("gain_over_frozen", "gain_over_zero", "gain_over_noise")
    rows = [
        [
            "" if place else name,
            f"{n:,}",
            f"{row['HR@5']['mean'][place]:.3f}",
            *(f"{row[key]['mean'][place]:+.3f}≥{row[key]['low'][place]:+.3f}" for key in gains),
        ]
        for name, row in result["mechanisms"].items()
        for place, n in enumerate(row["phones"])
    ]
    headings = ["", "phones", "HR@5", "over frozen", "over zero", "over noise"]
    screen.out.print(Table.of_text(headings, rows).terminal())
    screen.out.print("≥: lower end of the 95 % interval over worlds\n", style="dim")
    for name, n in result["answer"].items():
        found = f"from {n:,} phones on" if n else "at no number tried"
        most = result["largest_tried"][name]
        screen.out.print(
            f"{name} beats all controls [bold]{found}[/] (largest tried {most:,})",
            highlight=False,
        )
