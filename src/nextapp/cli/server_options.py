"""Options of servers: what `nextapp serve` and `nextapp federation` share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from nextapp.cli.options import overridden


@dataclass(frozen=True)
class FederationOptions:
    """Settings of a federation that stand in a file or are given one by one."""

    settings: Annotated[
        Path | None,
        "TOML file with the settings of a federation: apps, mechanism, epsilon, clip, goal, "
        "minimum, deadline, dim, optimiser, rate, seed. Options override it.",
    ] = None
    apps: Annotated[
        str | None,
        "Catalogue of a new federation: a file with one app name per line, or a number of apps, "
        "which are then named app-0000, app-0001, …",
    ] = None
    mechanism: Annotated[
        str | None, "Privacy mechanism of the reports: codebook, harmony, …; there is no default."
    ] = None
    epsilon: Annotated[
        float | None, "Privacy budget ε of one whole report; there is no default."
    ] = None
    clip: Annotated[float | None, "Public bound on the norm of a gradient."] = None
    goal: Annotated[int | None, "Reports at which a round closes, at all gateways together."] = None
    minimum: Annotated[int | None, "Reports below which a round changes nothing."] = None
    deadline: Annotated[float | None, "Seconds after which a round closes."] = None

    def resolve(self, folder: Path) -> tuple[dict[str, Any], tuple[str, ...] | None]:
        """The settings that were given, those of the file among them, and the catalogue if any.

        ``folder`` is that of the federation: a new one has by default half its goal as minimum.
        """
        given = asdict(self)
        values = overridden(given.pop("settings"), given)
        catalogue = _catalogue(values.pop("apps", None))
        if "goal" in values and "minimum" not in values and not (folder / "settings.json").exists():
            values["minimum"] = max(1, values["goal"] // 2)
        return values, catalogue


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

    host: Annotated[str, "Address to listen on for phones."] = "127.0.0.1"
    port: Annotated[int, "Port to listen on for phones; 0 takes a free one."] = 8443
    cert: Annotated[Path | None, "TLS certificate chain, PEM."] = None
    key: Annotated[Path | None, "Private key of the certificate, PEM."] = None
    trust_proxy: Annotated[
        str | None,
        "Address of a proxy whose X-Forwarded-For header is trusted (enrolment limits).",
    ] = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS needs both --cert and --key.")

    def url(self, port: int) -> str:
        """The address with the port that is bound, which differs from the option for port 0."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.cert else ''}://{host}:{port}"

    def uvicorn(self) -> dict[str, Any]:
        """As uvicorn names them."""
        named: dict[str, Any] = {}
        if self.cert is not None:
            named |= {"ssl_certfile": self.cert, "ssl_keyfile": self.key}
        if self.trust_proxy is not None:
            named |= {"proxy_headers": True, "forwarded_allow_ips": self.trust_proxy}
        return named


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
