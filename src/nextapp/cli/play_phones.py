"""`nextapp play-phones`: real phones, each with its own store, against a server over HTTP."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from nextapp.cli import options, screen
from nextapp.cli.errors import clear_errors
from nextapp.table import Column, Table, measured_from


def play_phones(
    server: Annotated[str, typer.Option(metavar="URL", help="The server, https://host:port.")],
    phones: Annotated[int, typer.Option(min=1, help="Number of phones.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 5,
    new_phones: Annotated[
        int,
        typer.Option(
            min=0,
            help="Phones that join after the rounds, to measure what they gain; 0 for none.",
        ),
    ] = 100,
    apps: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Number of apps, if the server has no list. Default: 200.",
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="The only CA certificate to trust, PEM.", show_default=False)
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(help="Enrolment code for so many phones.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the server, if it is on this machine: codes are issued and rounds "
            "closed there.",
            show_default=False,
        ),
    ] = None,
    stores: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the files of the phones here.",
            show_default=False,
            callback=options.check_output,
        ),
    ] = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Play synthetic phones against a server; show what they gain.

    They enrol, fetch, learn and report, each with a file of its own. Then new phones join and
    predict their launches 10 to 50 with what was learnt, and without. With --data a round that
    would go on for more than ten minutes is closed when all of them have reported.
    """
    with clear_errors(), ExitStack() as stack:
        from nextapp.phone import ServerError
        from nextapp.server import administration
        from nextapp.server.http_phones import PlayedFleet, PlayedRound
        from nextapp.server.vault import Vault

        if code is None:
            if data is None:
                raise ValueError(
                    "phones need a code: --code from nextapp enrol-code, or --data with the "
                    "server's folder."
                )
            vault = Vault(data / "vault.sqlite", busy_seconds=10.0)
            code = vault.issue_code(uses=phones + new_phones, expires=time.time() + 3600)
            vault.close()
        folder = stores or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rows: list[list[str]] = []
        try:
            with screen.progress() as report:
                report("phones enrol", 0, phones)
                played = PlayedFleet(
                    server, folder, phones=phones, seed=seed, code=code, ca=ca, n_apps=apps
                )
                stack.callback(played.close)

                def heard(one: PlayedRound) -> None:
                    told = ", ".join(f"{n:,} {word}" for word, n in sorted(one.outcomes.items()))
                    rows.append([str(one.round), told, f"{one.seconds:.1f}"])
                    report(f"round {one.round}: {told}", len(rows), rounds)

                def close() -> None:
                    if data is not None and not administration.is_gateway(data):
                        administration.close_round(data, time.time())

                results = played.play(rounds, heard, None if data is None else close)
                found = None
                if new_phones:
                    found = played.measure_new_phones(
                        new_phones, code, lambda done: report("new phones", done, new_phones)
                    ).summary(seed)
        except ServerError as error:
            raise ValueError(str(error)) from error
        headings = ["round", "reports", "seconds"]
        screen.out.print(Table.of_text(headings, rows).terminal(left=True))
        if found is not None:
            _show(found)
            if found["silent"]:
                screen.out.print(
                    "The server has told nothing yet: the reports so far do not show which apps "
                    "are in use. That takes more phones, a larger ε, or a list of apps (serve "
                    "--apps).",
                    highlight=False,
                )
        screen.write_json(
            json,
            {"rounds": [vars(one) for one in results], "new_phones": found, "seed": seed},
        )


def _show(found: Mapping[str, Any]) -> None:
    """What new phones gain, with 95 % intervals over them."""
    first, last = found["launches"]
    columns = [
        Column("", "name"),
        Column(f"with {found['without_means']}", "interval"),
        Column("with what was learnt", "interval"),
        Column("gain", "interval", form="signed"),
    ]
    rows = [
        [rate, *(measured_from(found[name][rate]) for name in ("without", "with", "gain"))]
        for rate in found["gain"]
    ]
    title = f"{found['n_phones']} new phones, launches {first} to {last}"
    screen.out.print()
    screen.out.print(Table(columns, rows, title).terminal())
    screen.out.print(
        "Hit rates of the first 1, 3 and 5 apps that a phone names. Intervals: 95 % over new "
        "phones, gains paired. Synthetic launches, not data of people.",
        style="dim",
        highlight=False,
    )
