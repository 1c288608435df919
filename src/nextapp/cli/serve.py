"""`nextapp serve`: a gateway and a coordinator in one process; `nextapp enrol-code`: its codes."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nextapp.cli import options, screen, stopping
from nextapp.cli.forms import command, option
from nextapp.cli.options import FILE, options_of
from nextapp.cli.server_options import (
    CONTINUE,
    ListenOptions,
    federation_options,
    leave_damaged,
    new_vault,
    resolve,
    token_days,
    token_seconds,
)

_FEW = 200  # phones that are soon played

if TYPE_CHECKING:
    from nextapp.phone.limits import Limits
    from nextapp.server.federation import Federation
    from nextapp.server.settings import FederationSettings


@command("nextapp serve --data federation --dev-tls")
@option(
    "--data",
    type=options.OUTPUT_FOLDER,
    required=True,
    metavar="FOLDER",
    help="Folder of the server; created if it is not there.",
)
@options_of(ListenOptions, "listen")
@option(
    "--dev-tls",
    is_flag=True,
    help="TLS with a certificate made here, for loopback.",
    heading=ListenOptions.HEADING,
)
@federation_options
@option("--skip-to", type=int, help="After a restore: skip the rounds before N.", heading=CONTINUE)
@token_days
@new_vault
@leave_damaged
def serve(
    data: Path,
    listen: ListenOptions,
    dev_tls: bool,
    given: dict[str, Any],
    skip_to: int | None,
    token_days: float | None,
    new_vault: bool,
    leave_damaged: bool,
) -> None:
    """Run a server that learns from the reports of phones.

    The first start makes the folder; the next ones continue. Ctrl-C stops it.
    """
    from nextapp.server import listening
    from nextapp.server.federation import lock_folder, open_federation, settings_for
    from nextapp.server.gateway import Gateway
    from nextapp.server.limits import ServerLimits
    from nextapp.server.operator import start_log

    stopping.end_by_itself()
    limits = ServerLimits(token_valid_seconds=token_seconds(token_days))
    # All that can be refused is checked before a folder is made.
    listen.certificate()
    values, catalogue = resolve(given, data)
    settings_for(data, values, catalogue)
    opened = listening.inherited_socket() or listening.open_socket(listen.host, listen.port)
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock_folder(data):
        federation, made = open_federation(
            data,
            values,
            catalogue,
            now=time.time(),
            skip_to=skip_to,
            new_vault=new_vault,
            leave_damaged=leave_damaged,
        )
        listen, authority = _with_tls(listen, data, dev_tls)
        start_log(listen.log)
        gateway = Gateway(federation.vault, limits)
        serving = listen.server(gateway)
        address = listen.url(opened.getsockname()[1])
        _welcome(address, data, federation, made, authority)
        listening.serve(federation, gateway, opened, **serving)
        screen.out.print(
            f"stopped at round {federation.coordinator.round}; start again to continue."
        )


def _with_tls(
    listen: ListenOptions, data: Path, dev_tls: bool
) -> tuple[ListenOptions, Path | None]:
    """The options with a certificate made here, and its authority, if that was asked for."""
    from nextapp.server import certificates

    if not dev_tls:
        return listen, None
    authority, cert, key = certificates.development(data / "tls")
    return replace(listen, cert=cert, key=key), authority


@command("nextapp enrol-code federation --uses 10", "enrol-code")
@click.argument("data", type=FILE, metavar="FOLDER", help="Folder of the server.")
@option("--uses", type=click.IntRange(min=1), default=1, help="Phones that may use it.")
@option("--hours", type=float, default=72.0, help="Hours for which it is valid.")
@option("--name", default="", metavar="NAME", help="Name of the code, to revoke its devices later.")
def enrol_code(data: Path, uses: int, hours: float, name: str) -> None:
    """Issue an enrolment code for phones.

    The server keeps only a hash of it. This works while the server runs.
    """
    from nextapp.server.vault import Vault

    path = data / "vault.sqlite"
    if not path.exists():
        raise ValueError(f"{data} holds no federation yet: start it by nextapp serve --data.")
    if not hours > 0:
        raise ValueError(f"--hours must be a number > 0, got {hours!r}.")
    vault = Vault(path, busy_seconds=10.0)
    code = vault.devices.issue_code(uses=uses, expires=time.time() + 3600 * hours, name=name)
    vault.close()
    screen.out.print(code, markup=False, highlight=False)
    screen.err.print(f"for {uses} phone{'s' * (uses > 1)}, valid for {hours:g} hours")


def _welcome(
    address: str,
    data: Path,
    federation: Federation,
    made: FederationSettings,
    authority: Path | None,
) -> None:
    from nextapp.phone.limits import Limits

    trust = f" --ca {authority}" if authority else ""
    screen.out.print(
        f"[bold]{address}[/]  round {federation.coordinator.round}, "
        f"{_what_is_learnt(federation, made)}\n"
        f"{what_phones_are_asked(made, Limits())}\n"
        f"a round closes at {made.goal:,} reports, or after {made.deadline:g} s with "
        f"{made.minimum:,} or more\n"
        f"  a code for phones:  nextapp enrol-code {data} --uses 10\n"
        f"  phones to try:      nextapp play-phones --server {address}{trust} --phones 200 "
        f"--rounds 5 --data {data}",
        highlight=False,
        soft_wrap=True,
    )


def _what_is_learnt(federation: Federation, made: FederationSettings) -> str:
    broadcast = federation.coordinator.learner.broadcast
    if made.learn == "seqmf":
        return f"app vectors of {broadcast.n_apps:,} apps, d = {broadcast.dim} (seqmf)"
    if broadcast.buckets is None:
        return f"the crowd of {broadcast.n_apps:,} apps"
    return (
        f"the crowd; apps are known by {broadcast.buckets.n_buckets:,} hashes of their names, "
        f"{broadcast.n_apps:,} of at most {made.slots:,} in the catalogue so far"
    )


def what_phones_are_asked(made: FederationSettings, limits: Limits) -> str:
    """What a report is, and what it costs a phone for life, by the limits phones ship with."""
    if made.learn == "seqmf":
        asked = "phones that joined for app vectors are asked for a gradient"
    else:
        asked = (
            f"phones are asked which app follows which on them (and, without a short list, which "
            f"apps they use, in one of {made.launches_every} rounds)"
        )
    cost = f"{asked}: one report by {made.mechanism} in a round, ε = {made.epsilon:g} each"
    if made.epsilon > limits.per_report:
        return (
            f"{cost}\nphones as they ship refuse that: their limit is ε = {limits.per_report:g} a "
            f"report. Their owners can raise it."
        )
    n_for_life = math.floor(limits.lifetime / made.epsilon + 1e-9)
    return (
        f"{cost}\nfor life: a phone as it ships sends at most {n_for_life:,} reports, one in "
        f"{limits.hours:g} hours, ε = {n_for_life * made.epsilon:g} in all; then it only listens"
    )
