"""`nextapp flower`: gateways in several regions, joined by Flower."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nextapp.cli import end_by_itself, screen
from nextapp.cli.commands import FILE, FOLDER, Group, option, options_of
from nextapp.cli.serve import (
    ListenOptions,
    federation_options,
    refusals_in_log,
    resolve,
    when_rounds_end,
)
from nextapp.server.flower.gateway_rounds import Link, Pace
from nextapp.server.folders import VaultOptions
from nextapp.server.issuing import KeyRules
from nextapp.settings import count, setting

app = Group(
    "flower",
    epilog="nextapp flower up --data regions --gateways 2 --goal 200",
    help="Run gateways in several regions, joined by Flower.",
)


@dataclass(frozen=True)
class Course:
    """Which rounds a coordinator runs."""

    rounds: int = setting(0, "Rounds in all, from the very first; 0 for no end.", least=0)
    skip_to: int = setting(0, "After a restore: skip the rounds before N.")


@app.command(
    extra="flower",
    epilog="nextapp flower up --data regions --goal 200 --rounds 5 --reports-per-period 5",
)
@option(
    "--data", type=FOLDER, required=True, help="Folder for all files; created if it is not there."
)
@option("--gateways", type=click.IntRange(min=1), default=2, help="Number of gateways.")
@option(
    "--port",
    type=int,
    default=8443,
    help="Port of the first gateway; the others follow. 0: free ones.",
)
@options_of(Course, "course")
@options_of(KeyRules, "keys")
@federation_options
def up(
    data: Path,
    gateways: int,
    port: int,
    course: Course,
    keys: KeyRules,
    given: dict[str, Any],
) -> None:
    """Start a SuperLink, gateways and a run on this machine, over loopback.

    The same command again continues from the last checkpoint. Stop it with Ctrl-C or SIGTERM.
    """
    end_by_itself()
    with _stopping():
        from nextapp.server.flower.launching import Loopback
        from nextapp.server.folders import create_or_resume

        coordinator = data / "coordinator"
        _, made = create_or_resume(coordinator, *resolve(given, coordinator))
        loopback = Loopback(
            data, n_gateways=gateways, port=port, **vars(course), say=_say,
            gateway_options=[f"--{n.replace('_', '-')}={v}" for n, v in vars(keys).items()],
        )  # fmt: skip
        with loopback:
            _say(
                f"phones report by {made.mechanism} with ε = {made.epsilon:g} a round; "
                f"{when_rounds_end(made.rules.open_round(0, 0.0))}, at all gateways together"
            )
            for name, url in zip(loopback.ports, loopback.urls, strict=True):
                _say(
                    f"  {url}  codes for its phones: nextapp enrol-code {data / name} --uses 10\n"
                    f"      phones to try: nextapp play-phones --server {url} --phones 100 "
                    f"--rounds {keys.reports_per_period} --data {data / name}"
                )
            _say(f"  what every process says is in {loopback.processes.logs}")
            loopback.wait()
        _say(f"{count(loopback.run.round, 'round')} over.")


@dataclass(frozen=True)
class SuperLinkOptions:
    """Where a SuperLink listens, and its certificate."""

    data: Path = setting(text="Folder for Flower's state.", metavar="FOLDER")
    ca: Path = setting(text="CA certificate of the SuperLink, PEM.")
    cert: Path = setting(text="TLS certificate of the SuperLink, PEM.")
    key: Path = setting(text="Private key of the certificate, PEM.")
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(9092, "Port to listen on.")


@app.command(
    extra="flower",
    epilog="nextapp flower superlink --data link --ca ca.pem --cert cert.pem --key key.pem",
)
@options_of(SuperLinkOptions, "asked")
def superlink(asked: SuperLinkOptions) -> None:
    """Run a SuperLink that connects to nobody; nodes authenticate by their keys.

    Keep its port private: whoever reaches it can start runs. docs/federation-flower.md shows a
    proxy that lets nodes through and nothing else.
    """
    from nextapp.server.flower import launching

    files = asked.ca, asked.cert, asked.key
    environment = launching.environment(asked.data)
    command = launching.superlink(asked.host, asked.port, asked.data / "state.db", files)
    os.execve(command[0], command, environment)


@app.command(
    extra="flower",
    epilog="nextapp flower gateway --data gateway-1 --superlink a.example:443 --ca ca.pem "
    "--node-key node",
)
@option("--data", type=FOLDER, required=True, help="Folder of this gateway's vault.")
@options_of(Link, "link")
@options_of(ListenOptions, "listen")
@option("--node-key", type=FILE, required=True, help="Private key that authenticates this node.")
@options_of(VaultOptions, "vault")
@refusals_in_log
def gateway(
    data: Path,
    link: Link,
    listen: ListenOptions,
    node_key: Path,
    vault: VaultOptions,
) -> None:
    """Run a gateway for phones, and the SuperNode that joins it to the others."""
    end_by_itself()
    from nextapp.server.flower.launching import free_port, supernode
    from nextapp.server.folders import lock_folder, open_gateway_vault
    from nextapp.server.gateway import Gateway

    listen.certificate()  # refused: no folder is left behind
    sockets = listen.sockets()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (
        lock_folder(data),
        closing(open_gateway_vault(data, vault)) as kept,
        supernode(data, link, free_port(), node_key),
    ):
        gateway = Gateway(kept, vault.limits(), one_of_many=True)
        listen.serve(gateway, sockets, lambda url: f"{url}, joined to {link.superlink}")


@app.command(
    extra="flower",
    epilog="nextapp flower run --data coordinator --superlink 127.0.0.1:9092 --ca ca.pem",
)
@option("--data", type=FOLDER, required=True, help="The coordinator; created if it is not there.")
@options_of(Link, "link")
@options_of(Pace, "pace")
@options_of(Course, "course")
@federation_options
def run(
    data: Path,
    link: Link,
    pace: Pace,
    course: Course,
    given: dict[str, Any],
) -> None:
    """Run the coordinator at a SuperLink on this machine; the same command resumes it."""
    end_by_itself()
    with _stopping():
        from nextapp.server.flower.launching import Processes, Run, end_members
        from nextapp.server.folders import create_or_resume

        create_or_resume(data, *resolve(given, data))
        end_members(data)  # what a supervisor that was killed has left
        with Processes(data) as processes:
            coordinator = Run(
                processes, data, data / "flower", link, **vars(course), pace=pace, say=_say
            )
            coordinator.start()
            while not coordinator.tend():
                time.sleep(0.5)
        _say(f"{count(coordinator.round, 'round')} over.")


@app.command(
    extra="flower",
    epilog="nextapp flower register node.pub gateway-1 --superlink 127.0.0.1:9092 --ca ca.pem",
)
@click.argument("public_key", type=FILE, metavar="PUB", help="A node's .pub file.")
@click.argument("name", help="Name of the node.")
@options_of(Link, "link")
@option("--data", type=FOLDER, default=Path("operator"), help="Folder for Flower's own settings.")
def register(public_key: Path, name: str, link: Link, data: Path) -> None:
    """Register a node's public key at a SuperLink."""
    from nextapp.server.flower import launching

    launching.connect(data, link)
    command = launching.register(public_key, name)
    environment = launching.environment(data)
    os.execve(command[0], command, environment)


@app.command(extra="flower", epilog="nextapp flower certificate tls example.org")
@click.argument("data", type=FOLDER, metavar="FOLDER", help="Folder to write to.")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    help="Host names and addresses that the certificate is valid for.",
)
def certificate(data: Path, names: tuple[str, ...]) -> None:
    """Make a certificate and its own authority: ca.pem, cert.pem, key.pem."""
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
    screen.out.print(words, markup=False, soft_wrap=True)
