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

from nextapp.cli import screen
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.cli.server_options import FederationOptions, ListenOptions

app = typer.Typer(
    help="Gateways in several regions, joined by Flower; docs/federation-flower.md.",
    no_args_is_help=True,
)

Superlink = Annotated[str, typer.Option(help="Address of the SuperLink, host:port.")]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="CA certificate that the SuperLink's certificate is checked with.",
        show_default=False,
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain HTTP, for loopback and tests only.")
]
OperatorHome = Annotated[Path, typer.Option(help="Folder for Flower's own settings.")]
Rounds = Annotated[
    int, typer.Option(help="Total number of rounds, from the federation's first; 0 for no end.")
]
SkipTo = Annotated[int, typer.Option(help="After a restore: skip the rounds before this one.")]


@app.command(
    epilog="Example: nextapp flower up --data regions --gateways 2 --apps 500 --mechanism "
    "codebook --epsilon 4 --clip 1 --goal 200 --deadline 600 --rounds 5"
)
@expand_options
def up(
    *,
    data: Annotated[Path, typer.Option(help="Folder for all files; created if it does not exist.")],
    gateways: Annotated[int, typer.Option(min=1, help="Number of gateways.")] = 2,
    tls: Annotated[
        bool, typer.Option("--tls", help="TLS and node authentication, with keys created here.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port of the first gateway, the others follow; 0 takes free ones.")
    ] = 8443,
    rounds: Rounds = 0,
    federation: FederationOptions,
    skip_to: SkipTo = 0,
) -> None:
    """Start a SuperLink, gateways and a run on this machine, over loopback, and tend them.

    The same command again continues from the last checkpoint. Stop it by Ctrl-C or SIGTERM.
    """
    with clear_errors("flower"), _stopping():
        from nextapp.server.flower.loopback import Loopback
        from nextapp.server.single_process import create_or_resume

        coordinator = data / "coordinator"
        _, made = create_or_resume(coordinator, *federation.resolve(coordinator))
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


@app.command()
def superlink(
    data: Annotated[Path, typer.Option(help="Folder for Flower's state.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9092,
    ca: Authority = None,
    cert: Annotated[
        Path | None, typer.Option(help="TLS certificate of the SuperLink, PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.")] = None,
    insecure: Insecure = False,
) -> None:
    """Run a SuperLink that calls nobody; with TLS, nodes must prove themselves by their keys.

    Keep its port private: whoever reaches it can start runs. docs/federation-flower.md has the
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


@app.command()
@expand_options
def gateway(
    *,
    data: Annotated[Path, typer.Option(help="Folder of this gateway's vault.")],
    superlink: Superlink,
    listen: ListenOptions,
    ca: Authority = None,
    node_key: Annotated[
        Path | None,
        typer.Option(help="Private key that authenticates this node.", show_default=False),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Run a gateway for phones and, beside it, the SuperNode that joins it to the federation."""
    with clear_errors("flower"):
        from nextapp.server import single_process
        from nextapp.server.flower.launching import Link, free_port
        from nextapp.server.flower.supernode import supernode
        from nextapp.server.gateway import Gateway
        from nextapp.server.vault import Vault

        if insecure == (ca is not None):
            raise ValueError("give either --ca for the SuperLink, or --insecure.")
        listening = single_process.open_socket(listen.host, listen.port)
        data.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        with single_process.lock_folder(data):
            vault = Vault(data / "vault.sqlite")
            bound = listening.getsockname()[1]
            _say(f"{listen.url(bound)}, joined to {superlink}")
            with supernode(data, Link(superlink, ca), free_port(), node_key):
                single_process.serve(None, Gateway(vault), listening, **listen.uvicorn())
            vault.close()


@app.command()
@expand_options
def run(
    *,
    data: Annotated[
        Path, typer.Option(help="Folder of the coordinator; created if it does not exist.")
    ],
    superlink: Superlink,
    ca: Authority = None,
    insecure: Insecure = False,
    gateways: Annotated[int, typer.Option(min=1, help="Gateways that a round needs to open.")] = 1,
    poll: Annotated[
        float, typer.Option(help="Seconds between two requests for a gateway's number of reports.")
    ] = 30.0,
    patience: Annotated[
        float,
        typer.Option(
            help="Seconds without an answer after which a round continues without a gateway."
        ),
    ] = 120.0,
    rounds: Rounds = 0,
    federation: FederationOptions,
    skip_to: SkipTo = 0,
) -> None:
    """Run the coordinator at a SuperLink on this machine; the same command again resumes it."""
    with clear_errors("flower"), _stopping():
        from nextapp.server.flower.launching import Link
        from nextapp.server.flower.processes import Processes, end_members
        from nextapp.server.flower.round_driver import Pace
        from nextapp.server.flower.running import Run
        from nextapp.server.single_process import create_or_resume

        if insecure == (ca is not None):
            raise ValueError("give either --ca for the SuperLink, or --insecure.")
        create_or_resume(data, *federation.resolve(data))
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


@app.command(name="node-key")
def node_key_files(
    path: Annotated[Path, typer.Argument(help="The private key file to write.")],
) -> None:
    """Make the key by which a node proves itself; register the .pub beside it."""
    with clear_errors("flower"):
        from nextapp.server.flower.identity import node_key

        private, public = node_key(path)
        _say(f"{private} stays on the node; register {public}")


@app.command()
def register(
    public_key: Annotated[Path, typer.Argument(help="A node's .pub file.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name of the node.", show_default=False)],
    superlink: Superlink,
    ca: Authority = None,
    data: OperatorHome = Path("operator"),
) -> None:
    """Make a node's key known at a SuperLink, over its control API."""
    with clear_errors("flower"):
        from nextapp.server.flower import launching

        launching.connect(data, launching.Link(superlink, ca))
        command = launching.register(public_key, name)
        environment = launching.environment(data)
    os.execve(command[0], command, environment)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example: nextapp flower flwr --superlink 127.0.0.1:9092 --ca ca.pem supernode list",
)
def flwr(
    context: typer.Context,
    superlink: Superlink,
    ca: Authority = None,
    data: OperatorHome = Path("operator"),
) -> None:
    """Run Flower's own command line against a SuperLink, in the environment that calls nobody."""
    with clear_errors("flower"):
        from nextapp.server.flower import launching

        launching.connect(data, launching.Link(superlink, ca))
        command = launching.control(*context.args)
        environment = launching.environment(data)
    os.execve(command[0], command, environment)


@app.command()
def certificate(
    data: Annotated[Path, typer.Argument(help="Folder to write to.", show_default=False)],
    names: Annotated[
        list[str],
        typer.Argument(help="Host names and addresses that the certificate is valid for."),
    ],
) -> None:
    """Make a certificate of an authority of its own: ca.pem, cert.pem, key.pem."""
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
