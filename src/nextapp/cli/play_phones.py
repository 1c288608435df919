"""`nextapp fleet`: real phones, each with its own store, played against a server over HTTP."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from nextapp.cli import options, screen
from nextapp.cli.errors import clear_errors


def play_phones(
    server: Annotated[str, typer.Option(help="Address of the server, https://host:port.")],
    phones: Annotated[int, typer.Option(min=1, help="Number of phones.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 5,
    ca: Annotated[
        Path | None, typer.Option(help="The only CA certificate to trust, PEM.", show_default=False)
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(help="Enrolment code, valid for at least as many phones.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the server, if it runs on this machine: a code is issued there.",
            show_default=False,
        ),
    ] = None,
    stores: Annotated[
        Path | None,
        typer.Option(help="Keep the phones' stores in this folder.", show_default=False),
    ] = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Play phones with synthetic launches against a server: enrol, fetch, learn, report."""
    with clear_errors(), ExitStack() as stack:
        from nextapp.phone import ServerError
        from nextapp.server.http_phones import PlayedFleet, PlayedRound
        from nextapp.server.vault import Vault

        if code is None:
            if data is None:
                raise ValueError(
                    "phones need a code: --code from nextapp enrol-code, or --data with the "
                    "server's folder."
                )
            vault = Vault(data / "vault.sqlite", busy_seconds=10.0)
            code = vault.issue_code(uses=phones, expires=time.time() + 3600)
            vault.close()
        folder = stores or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        table = Table("round", "reports", "seconds", box=None, pad_edge=False)
        try:
            with screen.progress() as report:
                report("phones enrol", 0, phones)
                played = PlayedFleet(server, folder, phones=phones, seed=seed, code=code, ca=ca)
                stack.callback(played.close)

                def heard(one: PlayedRound) -> None:
                    told = ", ".join(f"{n:,} {word}" for word, n in sorted(one.outcomes.items()))
                    table.add_row(str(one.round), told, f"{one.seconds:.1f}")
                    report(f"round {one.round}: {told}", table.row_count, rounds)

                results = played.play(rounds, heard)
        except ServerError as error:
            raise ValueError(str(error)) from error
        screen.out.print(table)
        screen.write_json(json, {"rounds": [vars(one) for one in results], "seed": seed})
