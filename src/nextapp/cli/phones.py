"""`nextapp privacy phones-needed`: from how many phones on a mechanism beats all controls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextapp.cli import options, screen
from nextapp.cli.forms import command, option
from nextapp.cli.options import settings_of
from nextapp.fleet.devices import check_device
from nextapp.settings import settings_from
from nextapp.studies.phones_needed import PhonesNeeded, run
from nextapp.table import Table


@command("nextapp privacy phones-needed --epsilon 4.5 --phones 300,3000", "phones-needed")
@settings_of(
    PhonesNeeded,
    "given",
    *("epsilon", "phones", "mechanisms", "apps", "rounds", "rates", "seeds", "sample"),
    *("tune_up_to", "exact_up_to", "seed"),
)
@option("--dim", type=int, default=16, help="Length of an app vector.")
@options.device
@options.json_file
def phones_needed(
    given: dict[str, Any],
    dim: int,
    device: str,
    json: Path | None,
) -> None:
    """Find from how many phones on a mechanism beats a frozen Q and zero gradients.

    Synthetic phones train Q from a random start; further phones predict with it.
    """
    study = settings_from(PhonesNeeded, given)
    study = replace(study, training=replace(study.training, dim=dim))
    check_device(device)
    began = time.perf_counter()
    with screen.progress() as report:
        result = run(study, report, device).as_json()
    show(result)
    screen.err.print(f"{time.perf_counter() - began:.0f} s", style="dim")
    screen.write_json(json, result)


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
