"""`nextapp serve`: a gateway and a coordinator in one process; `play-phones`: phones to try it.

`nextapp flower` shares the options of servers.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from nextapp.cli import commands, end_by_itself, screen
from nextapp.cli.commands import FOLDER, F, command, option, options_and_file, options_of
from nextapp.server.folders import CONTINUE, VaultOptions
from nextapp.server.settings import FederationSettings
from nextapp.settings import count, setting
from nextapp.table import Table

if TYPE_CHECKING:
    from nextapp.phone.core import Limits
    from nextapp.server.certificates import ServedCertificate
    from nextapp.server.federation import Federation
    from nextapp.server.gateway import Gateway
    from nextapp.server.vault import Round

Form = Literal["plain", "json"]
LOG = logging.getLogger("nextapp.server")


federation_options = options_and_file(
    FederationSettings,
    "given",
    *("learn", "mechanism", "epsilon", "clip", "slots", "goal", "minimum", "deadline", "grace"),
    *("dim", "rate", "seed"),
    apps=option(
        "--apps",
        help="File of app names, one per line, or a number of apps. Default: none; apps are known "
        "by a hash of their names.",
        heading=FederationSettings.HEADING,
    ),
)


def resolve(
    given: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """The settings that were given, and the catalogue if any.

    ``folder`` is that of the federation: a new one has by default half its goal as minimum.
    """
    values = dict(given)
    catalogue = _catalogue(values.pop("apps", None))
    if "goal" in values and "minimum" not in values and not (folder / "settings.json").exists():
        values["minimum"] = max(1, values["goal"] // 2)
    return values, catalogue


@dataclass(frozen=True)
class ListenOptions:
    HEADING: ClassVar[str] = "Listening"
    host: str = setting("127.0.0.1", "Address to listen on for phones.")
    port: int = setting(8443, "Port for phones; 0 takes a free one.")
    cert: Path | None = setting(None, "TLS certificate chain, PEM.")
    key: Path | None = setting(None, "Private key of the certificate, PEM.")
    trust_proxy: str = setting("", "Proxies whose X-Forwarded-For is trusted.")
    operator: str = setting("127.0.0.1:9464", "Metrics and health, or off.", metavar="HOST:PORT")
    log: Form = setting("plain", "Form of the log: plain or json.")

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS needs both --cert and --key.")
        for host in self.proxies:
            try:
                ipaddress.ip_address(host)
            except ValueError as error:
                raise ValueError(
                    f"--trust-proxy takes addresses, such as 127.0.0.1,10.0.0.2, got {host!r}."
                ) from error

    @property
    def proxies(self) -> list[str]:
        return [host.strip() for host in self.trust_proxy.split(",") if host]

    def url(self, port: int) -> str:
        """The address with the port that is bound, which differs from the option for port 0."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.cert else ''}://{host}:{port}"

    def say(self, words: str) -> None:
        """Tell a person at a terminal; or the log, where programs read both streams."""
        if self.log == "plain":
            screen.out.print(words, markup=False, soft_wrap=True)
            return
        for line in words.splitlines():
            LOG.info("%s", line.strip())

    def sockets(self) -> tuple[socket.socket, socket.socket | None]:
        """That for phones, and the operator's if any: open before anything else is started."""
        from nextapp.server.listening import inherited_socket, open_socket

        opened = inherited_socket() or open_socket(self.host, self.port)
        if self.operator == "off":
            return opened, None
        host, _, port = self.operator.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(
                f"--operator takes HOST:PORT, for example 127.0.0.1:9464, or 'off', got "
                f"{self.operator!r}."
            )
        try:
            return opened, open_socket(host.strip("[]"), int(port))
        except ValueError as error:
            opened.close()
            raise ValueError(f"{error} Name another by --operator HOST:PORT, or off.") from error

    def serve(
        self,
        gateway: Gateway,
        sockets: tuple[socket.socket, socket.socket | None],
        words: Callable[[str], str],
        federation: Federation | None = None,
        copies: Path | None = None,
    ) -> None:
        """Serve phones until a signal; first these words about the address are said."""
        from nextapp.server import listening
        from nextapp.server.operator import Operator

        opened, operator = sockets
        listening.start_log(self.log)
        certificate = self.certificate()
        self.say(words(self.url(opened.getsockname()[1])))
        named: dict[str, Any] = {}
        if operator is not None:
            LOG.info("metrics and health at http://%s:%d", *operator.getsockname()[:2])
            named["operator"] = Operator(gateway, certificate), operator
        listening.serve(
            federation,
            gateway,
            opened,
            certificate=certificate,
            trusted=self.proxies,
            copies=copies,
            **named,
        )

    def certificate(self) -> ServedCertificate | None:
        """That of the files given, if any; raises `ValueError` where they cannot be used."""
        if self.cert is None or self.key is None:
            return None
        from nextapp.server.certificates import ServedCertificate

        try:
            return ServedCertificate(self.cert, self.key)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{self.cert} and {self.key} cannot be used for TLS: {error}. --cert takes a "
                f"certificate with those that signed it, --key its private key, both as PEM."
            ) from error


def refusals_in_log(action: F) -> F:
    """The command with refusals in the form of its log."""

    @wraps(action)
    def act(*, listen: ListenOptions, **given: Any) -> None:
        from nextapp.server.listening import start_log

        try:
            action(listen=listen, **given)
        except (ValueError, OSError) as error:
            if listen.log == "plain":
                raise
            start_log(listen.log)
            LOG.log(logging.ERROR, "%s", error)
            raise click.exceptions.Exit(1) from error

    return act  # type: ignore[return-value]


def _catalogue(apps: Any) -> tuple[str, ...] | None:
    """The apps of a file, of a list, or by number; None where nothing was given."""
    if apps is None:
        return None
    if isinstance(apps, list):
        names = [str(name) for name in apps]
    elif str(apps).isascii() and str(apps).isdigit():
        names = [f"app-{number:04d}" for number in range(int(apps))]
    else:
        if not Path(str(apps)).is_file():
            raise ValueError(
                f"apps must name a file with one app name per line, or be a number of apps; there "
                f"is no file {str(apps)!r}."
            )
        lines = Path(str(apps)).read_text(encoding="utf-8").splitlines()
        names = [line.strip() for line in lines if line.strip()]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"a catalogue names one app or more, each once; got {len(names)} names, "
            f"{len(set(names))} of them different."
        )
    return tuple(names)


@command("nextapp serve --data federation --dev-tls")
@option(
    "--data",
    type=commands.OUTPUT_FOLDER,
    required=True,
    help="Folder of the server; created if missing.",
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
@option("--copies", type=FOLDER, help="Folder that gets every checkpoint, too.")
@options_of(VaultOptions, "vault")
@refusals_in_log
def serve(
    data: Path,
    listen: ListenOptions,
    dev_tls: bool,
    given: dict[str, Any],
    skip_to: int | None,
    copies: Path | None,
    vault: VaultOptions,
) -> None:
    """Run a server that learns from the reports of phones.

    The first start makes the folder; the next ones continue. Ctrl-C stops it.
    """
    from nextapp.phone.core import Limits
    from nextapp.server.certificates import development
    from nextapp.server.federation import check_copies
    from nextapp.server.folders import CHECKPOINTS, lock_folder, open_federation, settings_for
    from nextapp.server.gateway import Gateway

    end_by_itself()
    # All that can be refused is checked before a folder is made.
    listen.certificate()
    values, catalogue = resolve(given, data)
    settings_for(data, values, catalogue)
    if copies is not None and skip_to is None:
        check_copies(data / CHECKPOINTS, copies)
    sockets = listen.sockets()
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock_folder(data):
        federation, made = open_federation(
            data,
            values,
            catalogue,
            now=time.time(),
            skip_to=skip_to,
            options=vault,
        )
        authority = None
        if dev_tls:
            authority, cert, key = development(data / "tls")
            listen = replace(listen, cert=cert, key=key)
        gateway = Gateway(federation.vault, vault.limits())

        round = federation.coordinator.round
        trust = f" --ca {authority}" if authority else ""

        def welcome(url: str) -> str:
            return (
                f"{url}  round {round}, {_what_is_learnt(federation, made)}\n"
                f"{what_phones_are_asked(made, Limits())}\n"
                f"{when_rounds_end(federation.vault.round() or made.rules.open_round(0, 0.0))}\n"
                f"  a code for phones:  nextapp enrol-code {data} --uses 10\n"
                f"  phones to try:      nextapp play-phones --server {url}{trust} --phones 200 "
                f"--rounds {federation.coordinator.keys[-1].tokens} --data {data}"
            )

        listen.serve(gateway, sockets, welcome, federation, copies)
        listen.say(f"stopped at round {federation.coordinator.round}; start again to continue.")


@command("nextapp issue --data federation --port 8444 --operator 127.0.0.1:9465")
@option("--data", type=FOLDER, required=True, help="Folder of a server that runs.")
@option("--enrolled-days", type=float, default=365.0, help="Days that a phone stays enrolled.")
@options_of(ListenOptions, "listen")
@refusals_in_log
def issue(data: Path, enrolled_days: float, listen: ListenOptions) -> None:
    """Enrol phones and sign tokens in a process of its own, beside a server."""
    from nextapp.server.folders import open_vault
    from nextapp.server.gateway import Gateway

    end_by_itself()
    with closing(open_vault(data)) as opened:
        limits = VaultOptions(enrolled_days=enrolled_days).limits()
        gateway = Gateway(opened, limits, issues_only=True)
        listen.serve(gateway, listen.sockets(), lambda url: f"{url}  issues tokens of {data}")


def when_rounds_end(round: Round) -> str:
    return (
        f"a round ends at {round.goal:,} reports, or after {round.seconds:g} s with "
        f"{round.rules.minimum:,} or more, and closes {round.rules.grace:g} s later"
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
    n_for_life = limits.reports_for_life(made.epsilon)
    return (
        f"{cost}\nfor life: a phone as it ships sends at most {count(n_for_life, 'report')}, "
        f"ε = {n_for_life * made.epsilon:g} in all; then it only listens"
    )


@dataclass(frozen=True)
class PlayedPhones:
    """Synthetic phones, and the server that they play against."""

    server: str = setting(text="The server, https://host:port.", metavar="URL")
    phones: int = setting(200, "Number of phones.", least=1)
    rounds: int = setting(5, "Number of rounds.", least=1)
    apps: int | None = setting(
        None, "Number of apps, if the server has no list. Default: 200.", least=2
    )
    ca: Path | None = setting(None, "The only CA certificate to trust, PEM.")
    code: str | None = setting(None, "Enrolment code for at least as many phones.")
    data: Path | None = setting(
        None,
        "Folder of the server, if it is on this machine: codes are issued and rounds closed there.",
        metavar="FOLDER",
    )
    seed: int = setting(0, "Random seed.")


@command(
    "nextapp play-phones --server https://127.0.0.1:8443 --ca federation/tls/ca.pem "
    "--data federation --phones 200",
    "play-phones",
)
@options_of(PlayedPhones, "asked")
@commands.json_file
def play_phones(asked: PlayedPhones, json: Path | None) -> None:
    """Play synthetic phones against a server.

    They enrol, fetch, learn and report, each with a file of its own. With --data a round is closed
    as soon as all of them have reported. What new phones gain is measured by another command.
    """
    from nextapp.phone import ServerError
    from nextapp.server import folders
    from nextapp.server.simulated_phones import SimulatedPhones

    code, data = asked.code, asked.data
    if code is None:
        if data is None:
            raise ValueError(
                "phones need a code: --code from nextapp enrol-code, or --data with the server's "
                "folder."
            )
        with closing(folders.open_vault(data)) as vault:
            code = vault.devices.issue_code(uses=asked.phones, expires=time.time() + 3600)

    def close(number: int) -> None:
        if data is not None and not folders.is_gateway(data):
            folders.close_round(data, time.time(), number, grace=False)

    results, rows = [], []
    try:
        with tempfile.TemporaryDirectory() as folder, screen.progress("round") as report:
            report("phones enrol", 0, asked.phones)
            fleet = SimulatedPhones(
                asked.server, Path(folder), phones=asked.phones, seed=asked.seed, code=code,
                ca=asked.ca, n_apps=asked.apps,
            )  # fmt: skip
            with closing(fleet):
                for one in fleet.run(asked.rounds, close):
                    counts = ", ".join(
                        f"{n:,} {what}" for what, n in sorted(one["outcomes"].items())
                    )
                    results.append(one)
                    rows.append([str(one["round"]), counts, f"{one['seconds']:.1f}"])
                    report(f"round {one['round']}: {counts}", len(rows), asked.rounds)
    except ServerError as error:
        raise ValueError(str(error)) from error
    headings = ["round", "reports", "seconds"]
    screen.out.print(Table.of_text(headings, rows).terminal(left=True))
    screen.write_json(json, {"rounds": results, "seed": asked.seed})
