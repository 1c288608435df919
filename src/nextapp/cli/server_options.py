"""Options of servers: what `nextapp serve` and `nextapp flower` share."""

from __future__ import annotations

import logging
import math
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from nextapp.cli.options import check_epsilon, overridden

if TYPE_CHECKING:
    from nextapp.server.certificates import ServedCertificate
    from nextapp.server.gateway import Gateway
    from nextapp.server.operator import Operator

Form = Literal["plain", "json"]
CONTINUE = "Continuing"
TokenDays = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS",
        help="Days for which a device token is valid. Default: all.",
        show_default=False,
    ),
]
NewVault = Annotated[
    bool,
    typer.Option(
        "--new-vault",
        help="The vault is lost: begin one without devices.",
        rich_help_panel=CONTINUE,
    ),
]
LeaveDamaged = Annotated[
    bool,
    typer.Option(
        "--leave-damaged",
        help="Go on without reports damaged on disk.",
        rich_help_panel=CONTINUE,
    ),
]
_OPERATOR_AT = "127.0.0.1:9464"


def token_seconds(days: float | None) -> float:
    """How long a device token is valid."""
    return math.inf if days is None else 86_400 * days


@dataclass(frozen=True)
class FederationOptions:
    """Settings of a federation that stand in a file or are given one by one."""

    HEADING: ClassVar[str] = "What is learnt"
    settings: Annotated[Path | None, "TOML settings file; options override it."] = None
    apps: Annotated[
        str | None,
        "File of app names, one per line, or a number of apps. Default: none; apps are known by "
        "a hash of their names.",
    ] = None
    categories: Annotated[str | None, "CSV file of public categories of apps."] = None
    learn: Annotated[str | None, "crowd (default) or seqmf, the paper's app vectors."] = None
    mechanism: Annotated[str | None, "Privacy mechanism. Default: walsh; none for seqmf."] = None
    epsilon: Annotated[float | None, "ε of one report. Default: 1; none for seqmf."] = None
    clip: Annotated[float | None, "Bound on the norm of a gradient, for seqmf."] = None
    slots: Annotated[int | None, "Most apps that the crowd is asked about."] = None
    launches_every: Annotated[int | None, "Ask for the apps in use every N rounds."] = None
    goal: Annotated[int | None, "Reports at which a round closes."] = None
    minimum: Annotated[int | None, "Reports that a round needs to count."] = None
    deadline: Annotated[float | None, "Seconds after which a round closes."] = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def resolve(self, folder: Path) -> tuple[dict[str, Any], tuple[str, ...] | None]:
        """The settings that were given, those of the file among them, and the catalogue if any.

        ``folder`` is that of the federation: a new one has by default half its goal as minimum.
        """
        given = asdict(self)
        values = overridden(given.pop("settings"), given)
        catalogue = _catalogue(values.pop("apps", None))
        values.pop("categories", None)
        if "goal" in values and "minimum" not in values and not (folder / "settings.json").exists():
            values["minimum"] = max(1, values["goal"] // 2)
        return values, catalogue

    def read_categories(self) -> dict[str, str] | None:
        """The categories of the file that was given, by app; None: as they were before."""
        from nextapp.settings import read_categories

        path = overridden(self.settings, {"categories": self.categories}).get("categories")
        return None if path is None else read_categories(Path(str(path)))


@dataclass(frozen=True)
class ServerOptions(FederationOptions):
    """Those of a server in one process."""

    dim: Annotated[int | None, "Length of an app vector."] = None
    optimiser: Annotated[str | None, "sgd, momentum or adam."] = None
    rate: Annotated[float | None, "Learning rate of the optimiser."] = None
    seed: Annotated[int | None, "Random seed of the first app vectors."] = None


@dataclass(frozen=True)
class ListenOptions:
    """Where phones reach a server."""

    HEADING: ClassVar[str] = "Listening"
    host: Annotated[str, "Address to listen on for phones."] = "127.0.0.1"
    port: Annotated[int, "Port for phones; 0 takes a free one."] = 8443
    cert: Annotated[Path | None, "TLS certificate chain, PEM."] = None
    key: Annotated[Path | None, "Private key of the certificate, PEM."] = None
    trust_proxy: Annotated[str | None, "Proxies whose X-Forwarded-For is trusted."] = None
    operator_at: Annotated[
        str | None, "HOST:PORT for metrics and health, or off. Default: 127.0.0.1:9464."
    ] = None
    log: Annotated[Form, "Form of the log: plain or json."] = "plain"

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS needs both --cert and --key.")

    def url(self, port: int) -> str:
        """The address with the port that is bound, which differs from the option for port 0."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.cert else ''}://{host}:{port}"

    def server(self, served: Gateway) -> dict[str, Any]:
        """As `listening.serve` names them: the certificate, proxies and the operator's port."""
        certificate = self.certificate()
        named: dict[str, Any] = {"certificate": certificate}
        if self.trust_proxy is not None:
            named["trusted"] = [host.strip() for host in self.trust_proxy.split(",")]
        return {**named, "operator": self._operator(served, certificate)}

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

    def _operator(
        self, server: Gateway, certificate: ServedCertificate | None
    ) -> tuple[Operator, socket.socket] | None:
        """The operator's application and its socket; where that is, is logged."""
        if self.operator_at == "off":
            return None
        from nextapp.server.listening import open_socket
        from nextapp.server.operator import Operator

        host, _, port = (self.operator_at or _OPERATOR_AT).rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(
                f"--operator-at takes HOST:PORT, for example {_OPERATOR_AT}, or 'off', got "
                f"{self.operator_at!r}."
            )
        try:
            opened = open_socket(host.strip("[]"), int(port))
        except ValueError:
            if self.operator_at is not None:
                raise
            logging.getLogger("nextapp.operator").warning(
                "%s is taken, maybe by another server, whose metrics are there: name another by "
                "--operator-at; for now a free port is taken.", _OPERATOR_AT,
            )  # fmt: skip
            opened = open_socket(host, 0)
        logging.getLogger("nextapp.operator").info(
            "metrics and health at http://%s:%d", host, opened.getsockname()[1]
        )
        return Operator(server, certificate), opened


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
