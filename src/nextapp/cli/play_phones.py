"""`nextapp play-phones`: real phones, each with its own store, against a server over HTTP."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from nextapp.cli import options, screen
from nextapp.cli.forms import command, option
from nextapp.cli.options import FILE
from nextapp.table import Table


@command(
    "nextapp play-phones --server https://127.0.0.1:8443 --ca federation/tls/ca.pem "
    "--data federation --phones 200",
    "play-phones",
)
@option("--server", required=True, metavar="URL", help="The server, https://host:port.")
@option("--phones", type=click.IntRange(min=1), default=200, help="Number of phones.")
@option("--rounds", type=click.IntRange(min=1), default=5, help="Number of rounds.")
@option(
    "--apps",
    type=click.IntRange(min=2),
    help="Number of apps, if the server has no list. Default: 200.",
)
@option("--ca", type=FILE, help="The only CA certificate to trust, PEM.")
@option("--code", help="Enrolment code for so many phones.")
@option(
    "--data",
    type=FILE,
    metavar="FOLDER",
    help="Folder of the server, if it is on this machine: codes are issued and rounds "
    "closed there.",
)
@option(
    "--stores",
    type=options.OUTPUT_FOLDER,
    metavar="FOLDER",
    help="Keep the files of the phones here.",
)
@options.seed
@options.json_file
def play_phones(
    server: str,
    phones: int,
    rounds: int,
    apps: int | None,
    ca: Path | None,
    code: str | None,
    data: Path | None,
    stores: Path | None,
    seed: int,
    json: Path | None,
) -> None:
    """Play synthetic phones against a server.

    They enrol, fetch, learn and report, each with a file of its own. With --data a round is closed
    as soon as all of them have reported. What new phones gain is measured by another command.
    """
    with ExitStack() as stack:
        from nextapp.phone import ServerError
        from nextapp.server import administration
        from nextapp.server.simulated_phones import PlayedFleet, PlayedRound
        from nextapp.server.vault import Vault

        if code is None:
            if data is None:
                raise ValueError(
                    "phones need a code: --code from nextapp enrol-code, or --data with the "
                    "server's folder."
                )
            vault = Vault(data / "vault.sqlite", busy_seconds=10.0)
            code = vault.devices.issue_code(uses=phones, expires=time.time() + 3600)
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

                def show(one: PlayedRound) -> None:
                    outcomes = sorted(one.outcomes.items())
                    counts = ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes)
                    rows.append([str(one.round), counts, f"{one.seconds:.1f}"])
                    report(f"round {one.round}: {counts}", len(rows), rounds)

                def close(number: int) -> None:
                    if data is not None and not administration.is_gateway(data):
                        administration.close_round(data, time.time(), number)

                results = played.play(rounds, show, close)
        except ServerError as error:
            raise ValueError(str(error)) from error
        headings = ["round", "reports", "seconds"]
        screen.out.print(Table.of_text(headings, rows).terminal(left=True))
        screen.write_json(json, {"rounds": [vars(one) for one in results], "seed": seed})
