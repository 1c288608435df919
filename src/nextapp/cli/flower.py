"""`nextapp flower`: gateways in several regions, joined by Flower."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import screen, stopping
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.cli.server_options import (
    FederationOptions,
    LeaveDamaged,
    ListenOptions,
    NewVault,
    TokenDays,
    token_seconds,
)

app = typer.Typer(
    epilog="nextapp flower up --data regions --gateways 2 --goal 200",
    help="Run gateways in several regions, joined by Flower.",
    no_args_is_help=True,
)

Superlink = Annotated[str, typer.Option(metavar="HOST:PORT", help="The SuperLink.")]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="CA certificate of the SuperLink, PEM.",
        show_default=False,
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain HTTP, for loopback and tests only.")
]
OperatorHome = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder for Flower's own settings.")
]
Rounds = Annotated[
    int, typer.Option(min=0, help="Rounds in all, from the very first; 0 for no end.")
]
SkipTo = Annotated[int, typer.Option(help="After a restore: skip the rounds before N.")]


@app.command(
    epilog="nextapp flower up --data regions --gateways 2 --goal 200 --deadline 600 --rounds 5"
)
@expand_options
def up(
    *,
    data: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder for all files; created if it is not there."),
    ],
    gateways: Annotated[int, typer.Option(min=1, help="Number of gateways.")] = 2,
    tls: Annotated[
        bool, typer.Option("--tls", help="TLS and node authentication, with keys made here.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port of the first gateway; the others follow. 0: free ones.")
    ] = 8443,
    rounds: Rounds = 0,
    federation: FederationOptions,
    skip_to: SkipTo = 0,
) -> None:
    """Start a SuperLink, gateways and a run on this machine, over loopback.

    The same command again continues from the last checkpoint. Stop it with Ctrl-C or SIGTERM.
    """
    stopping.end_by_itself()
    with clear_errors("flower"), _stopping():
        from nextapp.server.federation import create_or_resume
        from nextapp.server.flower.watching import Loopback

        coordinator = data / "coordinator"
        _, made = create_or_resume(
            coordinator,
            *federation.resolve(coordinator),
            categories=federation.read_categories(),
        )
        loopback = Loopback(
            data, n_gateways=gateways, tls=tls, port=port, rounds=rounds, skip_to=skip_to, say=_say
        )
        trust = f" --ca {loopback.authority}" if loopback.authority else ""
        with loopback:
            _say(
                f"phones report by {made.mechanism} with ε = {made.epsilon:g} a round; a round "
                f"closes at {made.goal:,} reports at all gateways together, or after "
                f"{made.deadline:g} s with {made.minimum:,} or more"
            )
            for name, url in zip(loopback.ports, loopback.urls, strict=True):
                _say(
                    f"  {url}  codes for its phones: nextapp enrol-code {data / name} --uses 10\n"
                    f"      phones to try: nextapp play-phones --server {url}{trust} --phones 100 "
                    f"--rounds 5 --data {data / name}"
                )
            _say(f"  what every process says is in {loopback.processes.logs}")
            loopback.wait()
        _say(f"{loopback.run.round} rounds have been played.")


@app.command(epilog="nextapp flower superlink --data link --insecure")
def superlink(
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for Flower's state.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9092,
    ca: Authority = None,
    cert: Annotated[
        Path | None, typer.Option(help="TLS certificate of the SuperLink, PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.")] = None,
    insecure: Insecure = False,
) -> None:
    """Run a SuperLink that connects to nobody; with TLS, nodes authenticate by their keys.

    Keep its port private: whoever reaches it can start runs. docs/federation-flower.md shows a
    proxy that lets nodes through and nothing else.
    """
    with clear_errors("flower"):
        from nextapp.server.flower import launching

        files = None
        if not insecure:
            if ca is None or cert is None or key is None:
                raise ValueError("a SuperLink needs --ca, --cert and --key, or --insecure.")
            files = launching.ServerFiles(ca, cert, key)
        environment = launching.environment(data)
        command = launching.superlink(host, port, data / "state.db", files)
    os.execve(command[0], command, environment)


@app.command(epilog="nextapp flower gateway --data gateway-1 --superlink 127.0.0.1:9092 --insecure")
@expand_options
def gateway(
    *,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of this gateway's vault.")],
    superlink: Superlink,
    listen: ListenOptions,
    ca: Authority = None,
    node_key: Annotated[
        Path | None,
        typer.Option(help="Private key that authenticates this node.", show_default=False),
    ] = None,
    token_letter: Annotated[
        str,
        typer.Option(
            help="First letter of the tokens given out here, by which a proxy in front of several "
            "gateways finds the one of a phone; docs/operate.md."
        ),
    ] = "",
    token_days: TokenDays = None,
    new_vault: NewVault = False,
    leave_damaged: LeaveDamaged = False,
    insecure: Insecure = False,
) -> None:
    """Run a gateway for phones, and the SuperNode that joins it to the others."""
    stopping.end_by_itself()
    with clear_errors("flower"):
        from nextapp.server import listening
        from nextapp.server.federation import lock_folder
        from nextapp.server.flower.launching import Link, free_port, supernode
        from nextapp.server.flower.messages import keep_letter, open_gateway_vault
        from nextapp.server.gateway import Gateway
        from nextapp.server.limits import ServerLimits
        from nextapp.server.operator import start_log

        limits = ServerLimits(token_valid_seconds=token_seconds(token_days))
        listen.certificate()  # refused: no folder is left behind
        if insecure == (ca is not None):
            raise ValueError("give either --ca for the SuperLink, or --insecure.")
        opened = listening.inherited_socket()
        opened = opened or listening.open_socket(listen.host, listen.port)
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        start_log(listen.log)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        with lock_folder(data):
            vault = open_gateway_vault(
                data,
                keep_letter(data, token_letter),
                new_vault=new_vault,
                leave_damaged=leave_damaged,
            )
            bound = opened.getsockname()[1]
            _say(f"{listen.url(bound)}, joined to {superlink}")
            with supernode(data, Link(superlink, ca), free_port(), node_key):
                gateway = Gateway(vault, limits, one_of_many=True)
                listening.serve(None, gateway, opened, **listen.server(gateway))
            vault.close()


@app.command(epilog="nextapp flower run --data coordinator --superlink 127.0.0.1:9092 --insecure")
@expand_options
def run(
    *,
    data: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="The coordinator; created if it is not there."),
    ],
    superlink: Superlink,
    ca: Authority = None,
    insecure: Insecure = False,
    gateways: Annotated[int, typer.Option(min=1, help="Gateways that a round needs.")] = 1,
    poll: Annotated[float, typer.Option(help="Seconds between two questions to a gateway.")] = 30.0,
    patience: Annotated[
        float,
        typer.Option(help="Seconds after which a round goes on without a silent gateway."),
    ] = 120.0,
    rounds: Rounds = 0,
    federation: FederationOptions,
    skip_to: SkipTo = 0,
) -> None:
    """Run the coordinator at a SuperLink on this machine; the same command resumes it."""
    stopping.end_by_itself()
    with clear_errors("flower"), _stopping():
        from nextapp.server.federation import create_or_resume
        from nextapp.server.flower.gateway_rounds import Pace
        from nextapp.server.flower.launching import Link, Processes, end_members
        from nextapp.server.flower.watching import Run

        if insecure == (ca is not None):
            raise ValueError("give either --ca for the SuperLink, or --insecure.")
        create_or_resume(data, *federation.resolve(data), categories=federation.read_categories())
        end_members(data)  # what a supervisor that was killed has left
        with Processes(data) as processes:
            coordinator = Run(
                processes, data, data / "flower", Link(superlink, ca), rounds=rounds,
                skip_to=skip_to, pace=Pace(gateways, poll, patience), say=_say,
            )  # fmt: skip
            coordinator.start()
            while not coordinator.tend():
                time.sleep(0.5)
        _say(f"{coordinator.round} rounds have been played.")


@app.command(name="node-key", epilog="nextapp flower node-key node")
def node_key_files(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key file to write.")],
) -> None:
    """Make the key pair of a node; register the .pub file."""
    with clear_errors("flower"):
        from nextapp.server.flower.messages import node_key

        private, public = node_key(path)
        _say(f"{private} stays on the node; register {public}")


@app.command(
    epilog="nextapp flower register node.pub gateway-1 --superlink 127.0.0.1:9092 --ca ca.pem"
)
def register(
    public_key: Annotated[
        Path, typer.Argument(metavar="PUB", help="A node's .pub file.", show_default=False)
    ],
    name: Annotated[str, typer.Argument(help="Name of the node.", show_default=False)],
    superlink: Superlink,
    ca: Authority = None,
    data: OperatorHome = Path("operator"),
) -> None:
    """Register a node's public key at a SuperLink."""
    with clear_errors("flower"):
        from nextapp.server.flower import launching

        launching.connect(data, launching.Link(superlink, ca))
        command = launching.register(public_key, name)
        environment = launching.environment(data)
    os.execve(command[0], command, environment)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="nextapp flower flwr --superlink 127.0.0.1:9092 --ca ca.pem supernode list",
)
def flwr(
    context: typer.Context,
    superlink: Superlink,
    ca: Authority = None,
    data: OperatorHome = Path("operator"),
) -> None:
    """Run Flower's own command line against a SuperLink, without telemetry."""
    with clear_errors("flower"):
        from nextapp.server.flower import launching

        launching.connect(data, launching.Link(superlink, ca))
        command = launching.control(*context.args)
        environment = launching.environment(data)
    os.execve(command[0], command, environment)


@app.command(epilog="nextapp flower certificate tls example.org")
def certificate(
    data: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write to.", show_default=False)
    ],
    names: Annotated[
        list[str],
        typer.Argument(help="Host names and addresses that the certificate is valid for."),
    ],
) -> None:
    """Make a certificate and its own authority: ca.pem, cert.pem, key.pem."""
    with clear_errors("flower"):
        from nextapp.server.certificates import development

        local = ("localhost", "127.0.0.1")  # the SuperLink's own processes reach it there
        authority, _, _ = development(data, [*names, *(n for n in local if n not in names)])
        _say(f"{authority} goes to all who connect; cert.pem and key.pem stay on the server")


@contextmanager
def _stopping() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        _say("stopped; start again to continue.")
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(words: str) -> None:
    screen.out.print(words, highlight=False, markup=False, soft_wrap=True)
