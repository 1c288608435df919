"""`nextapp serve`: a gateway and a coordinator in one process; `nextapp enrol-code`: its codes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from nextapp.cli import screen
from nextapp.cli.errors import clear_errors
from nextapp.toml import read_toml

Data = Annotated[Path, typer.Option(help="Folder of the federation; made if it is not there.")]


def serve(
    data: Data,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8443,
    cert: Annotated[
        Path | None, typer.Option(help="TLS certificate chain, PEM.", show_default=False)
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its key, PEM.", show_default=False)] = None,
    dev_tls: Annotated[
        bool, typer.Option("--dev-tls", help="TLS with a certificate made here, for loopback.")
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(help="A TOML file; options override it.", show_default=False),
    ] = None,
    apps: Annotated[
        str | None,
        typer.Option(
            help="The catalogue of a new federation: a file with one app name a line, or a number "
            "N for app-0000 to app-N.",
            show_default=False,
        ),
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="codebook, harmony, …: how phones report.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget of one report; there is no default.")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Public bound on a gradient.")] = None,
    goal: Annotated[int | None, typer.Option(help="Reports at which a round closes.")] = None,
    minimum: Annotated[
        int | None, typer.Option(help="Reports below which a round changes nothing.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds a round is open at the most.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Length of an app vector.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd, momentum or adam.")] = None,
    rate: Annotated[float | None, typer.Option(help="Its learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the app vectors' random start.")] = None,
    trust_proxy: Annotated[
        str | None,
        typer.Option(
            help="Address of a proxy whose X-Forwarded-For is believed (enrolment limits).",
            show_default=False,
        ),
    ] = None,
    skip_to: Annotated[
        int | None,
        typer.Option(help="After a restore: pass over rounds until this.", show_default=False),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Folder of another federation, stopped, to go on from with other settings: its "
            "catalogue (--apps may add to it), app vectors, crowd, devices and round number.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Take reports from phones over HTTP and train the common model, all in one process.

    The first start makes the folder from the settings; the next ones go on where it stopped. Stop
    it by SIGTERM or Ctrl-C; a kill loses nothing that was acknowledged.
    """
    with clear_errors():
        from nextapp.federation import certificates, embedded
        from nextapp.federation.gateway import Gateway

        given: dict[str, Any] = read_toml(settings) if settings else {}
        chosen = {
            "mechanism": mechanism, "epsilon": epsilon, "clip": clip, "goal": goal,
            "minimum": minimum, "deadline": deadline, "dim": dim, "optimiser": optimiser,
            "rate": rate, "seed": seed,
        }  # fmt: skip
        given |= {name: value for name, value in chosen.items() if value is not None}
        if "goal" in given and "minimum" not in given and not (data / "settings.json").exists():
            given["minimum"] = max(1, given["goal"] // 2)
        catalogue = catalogue_of(apps if apps is not None else given.pop("apps", None))
        if (cert is None) != (key is None):
            raise ValueError("TLS needs both --cert and --key.")
        embedded.settings_for(data, given, catalogue, start)  # refused: no folder is left behind
        data.mkdir(parents=True, exist_ok=True)
        with embedded.held(data):
            federation, made = embedded.made(
                data, given, catalogue, now=time.time(), skip_to=skip_to, start=start
            )
            authority = None
            if dev_tls:
                authority, cert, key = certificates.development(data / "tls")
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
            listening = embedded.listening(host, port)
            address = f"http{'s' if cert else ''}://{in_url(host)}:{listening.getsockname()[1]}"
            _welcome(address, data, federation, made, authority)
            options: dict[str, Any] = {}
            if cert is not None:
                options |= {"ssl_certfile": cert, "ssl_keyfile": key}
            if trust_proxy is not None:
                options |= {"proxy_headers": True, "forwarded_allow_ips": trust_proxy}
            embedded.serve(federation, Gateway(federation.vault), listening, **options)
            screen.out.print(
                f"stopped at round {federation.coordinator.round}; start again to go on."
            )


def enrol_code(
    data: Annotated[Path, typer.Argument(help="Folder of the federation.", show_default=False)],
    uses: Annotated[int, typer.Option(min=1, help="Phones that may enrol with it.")] = 1,
    hours: Annotated[float, typer.Option(help="How long it is valid.")] = 72.0,
) -> None:
    """Issue an enrolment code; the server keeps only its hash. Works while the server runs."""
    with clear_errors():
        from nextapp.federation.vault import Vault

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


def catalogue_of(apps: Any) -> tuple[str, ...] | None:
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
                f"apps must name a file with one app name a line, or be a number of apps; there "
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


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _welcome(address: str, data: Path, federation: Any, made: Any, authority: Path | None) -> None:
    broadcast = federation.coordinator.learner.broadcast
    trust = f" --ca {authority}" if authority else ""
    screen.out.print(
        f"[bold]{address}[/]  round {broadcast.round}, {broadcast.n_apps:,} apps, d = "
        f"{broadcast.dim}\n"
        f"phones report by {made.mechanism} with ε = {made.epsilon:g} a round; a round closes at "
        f"{made.goal:,} reports, or after {made.deadline:g} s with {made.minimum:,} or more\n"
        f"  a code for phones:  nextapp enrol-code {data} --uses 10\n"
        f"  phones to try:      nextapp fleet --server {address}{trust} --phones 200 --rounds 5 "
        f"--data {data}",
        highlight=False,
        soft_wrap=True,
    )
