"""Options of servers: what `nextapp serve` and `nextapp flower` share."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nextapp.cli.forms import option
from nextapp.cli.options import settings_of
from nextapp.server.settings import FederationSettings
from nextapp.settings import setting

if TYPE_CHECKING:
    from nextapp.server.certificates import ServedCertificate
    from nextapp.server.gateway import Gateway
    from nextapp.server.operator import Operator

Form = Literal["plain", "json"]
CONTINUE = "Continuing"
token_days = option(
    "--token-days",
    type=float,
    metavar="DAYS",
    help="Days for which a device token is valid. Default: all.",
)
new_vault = option(
    "--new-vault",
    is_flag=True,
    help="The vault is lost: begin one without devices.",
    heading=CONTINUE,
)
leave_damaged = option(
    "--leave-damaged",
    is_flag=True,
    help="Go on without reports damaged on disk.",
    heading=CONTINUE,
)
_OPERATOR_AT = "127.0.0.1:9464"


def token_seconds(days: float | None) -> float:
    """How long a device token is valid."""
    return math.inf if days is None else 86_400 * days


federation_options = settings_of(
    FederationSettings,
    "given",
    *("learn", "mechanism", "epsilon", "clip", "slots", "goal", "minimum", "deadline"),
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
    """Where phones reach a server."""

    HEADING: ClassVar[str] = "Listening"
    host: str = setting("127.0.0.1", "Address to listen on for phones.")
    port: int = setting(8443, "Port for phones; 0 takes a free one.")
    cert: Path | None = setting(None, "TLS certificate chain, PEM.")
    key: Path | None = setting(None, "Private key of the certificate, PEM.")
    trust_proxy: str | None = setting(None, "Proxies whose X-Forwarded-For is trusted.")
    operator_at: str | None = setting(
        None, "HOST:PORT for metrics and health, or off. Default: 127.0.0.1:9464."
    )
    log: Form = setting("plain", "Form of the log: plain or json.")

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
