"""`nextapp serve`: a gateway and a coordinator in one process; `nextapp enrol-code`: its codes."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from nextapp.cli import screen
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.cli.server_options import ListenOptions, ServerOptions


@expand_options
def serve(
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder of the federation; created if it does not exist.", show_default=False
        ),
    ],
    listen: ListenOptions,
    dev_tls: Annotated[
        bool,
        typer.Option("--dev-tls", help="TLS with a certificate created here, valid for loopback."),
    ] = False,
    server: ServerOptions,
    skip_to: Annotated[
        int | None,
        typer.Option(help="After a restore: skip the rounds before this one.", show_default=False),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Folder of another federation, stopped, to continue with other settings: its "
            "catalogue (--apps may add to it), app vectors, crowd, devices and round number.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Take reports from phones over HTTP and train the common model, all in one process.

    The first start creates the folder from the settings; the next ones continue where it stopped.
    Stop it by SIGTERM or Ctrl-C; a kill loses nothing that was acknowledged.
    """
    with clear_errors():
        from nextapp.server import certificates, single_process
        from nextapp.server.gateway import Gateway

        given, catalogue = server.resolve(data)
        single_process.settings_for(
            data, given, catalogue, start
        )  # refused: no folder is left behind
        data.mkdir(parents=True, exist_ok=True)
        with single_process.lock_folder(data):
            federation, made = single_process.open_federation(
                data, given, catalogue, now=time.time(), skip_to=skip_to, start=start
            )
            authority = None
            if dev_tls:
                authority, cert, key = certificates.development(data / "tls")
                listen = replace(listen, cert=cert, key=key)
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
            listening = single_process.open_socket(listen.host, listen.port)
            address = listen.url(listening.getsockname()[1])
            _welcome(address, data, federation, made, authority)
            single_process.serve(
                federation, Gateway(federation.vault), listening, **listen.uvicorn()
            )
            screen.out.print(
                f"stopped at round {federation.coordinator.round}; start again to continue."
            )


def enrol_code(
    data: Annotated[Path, typer.Argument(help="Folder of the federation.", show_default=False)],
    uses: Annotated[int, typer.Option(min=1, help="Phones that may enrol with the code.")] = 1,
    hours: Annotated[float, typer.Option(help="Hours for which the code is valid.")] = 72.0,
) -> None:
    """Issue an enrolment code; the server keeps only its hash. Works while the server runs."""
    with clear_errors():
        from nextapp.server.vault import Vault

        path = data / "vault.sqlite"
        if not path.exists():
            raise ValueError(f"{data} holds no federation yet: start it by nextapp serve --data.")
        if not hours > 0:
            raise ValueError(f"--hours must be a number > 0, got {hours!r}.")
        vault = Vault(path, busy_seconds=10.0)
        code = vault.issue_code(uses=uses, expires=time.time() + 3600 * hours)
        vault.close()
        screen.out.print(code, markup=False, highlight=False)
        screen.err.print(f"for {uses} phone{'s' * (uses > 1)}, valid for {hours:g} hours")


def _welcome(address: str, data: Path, federation: Any, made: Any, authority: Path | None) -> None:
    broadcast = federation.coordinator.learner.broadcast
    trust = f" --ca {authority}" if authority else ""
    screen.out.print(
        f"[bold]{address}[/]  round {broadcast.round}, {broadcast.n_apps:,} apps, d = "
        f"{broadcast.dim}\n"
        f"phones report by {made.mechanism} with ε = {made.epsilon:g} a round; a round closes at "
        f"{made.goal:,} reports, or after {made.deadline:g} s with {made.minimum:,} or more\n"
        f"  a code for phones:  nextapp enrol-code {data} --uses 10\n"
        f"  phones to try:      nextapp play-phones --server {address}{trust} --phones 200 "
        f"--rounds 5 --data {data}",
        highlight=False,
        soft_wrap=True,
    )
