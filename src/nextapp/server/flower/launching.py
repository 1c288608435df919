"""How Flower is started: its command lines, and an environment in which it calls nobody.

Flower as it ships reports telemetry, asks for updates and installs what an app names. Nothing here
starts a process of Flower but with `environment`, in which all of that is off.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from nextapp import __version__
from nextapp.randomness import SystemBits, below

SWITCHES: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
}
CONNECTION = "federation"
_PORTS, _N_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range"), 4000


class ServerFiles(NamedTuple):
    """What a TLS server is started with: the CA that vouches for it, its certificate, its key."""

    authority: Path
    certificate: Path
    key: Path


class Link(NamedTuple):
    """Where a SuperLink is, and the CA file that vouches for it; None for plain HTTP."""

    address: str
    authority: Path | None = None


def environment(home: Path) -> dict[str, str]:
    """The environment of a Flower process; `home` keeps what it stores, apart from all others.

    Flower's processes on one machine talk over loopback, which no proxy must see.
    """
    home.mkdir(parents=True, exist_ok=True)
    tools = str(Path(sys.executable).parent)
    direct = "127.0.0.1,localhost,::1"
    return {
        **os.environ,
        **SWITCHES,
        "FLWR_HOME": str(home.resolve()),
        "PATH": os.pathsep.join([tools, os.environ.get("PATH", os.defpath)]),
        **{name: f"{os.environ.get(name, '')},{direct}" for name in ("NO_PROXY", "no_proxy")},
    }


def superlink(host: str, port: int, database: Path, files: ServerFiles | None = None) -> list[str]:
    """The command of a SuperLink; with certificates it also demands that nodes prove themselves."""
    command = [
        _tool("flower-superlink"),
        *("--host", host, "--port", str(port), "--database", str(database)),
        "--disable-runtime-dependency-installation",
    ]
    if files is None:
        return [*command, "--insecure"]
    return [
        *command,
        *("--ssl-ca-certfile", str(files.authority)),
        *("--ssl-certfile", str(files.certificate)),
        *("--ssl-keyfile", str(files.key)),
        "--enable-supernode-auth",
    ]


def supernode(link: Link, runtime_port: int, data: Path, key: Path | None = None) -> list[str]:
    """The command of the SuperNode beside the gateway that keeps its vault in `data`."""
    command = [
        _tool("flower-supernode"),
        *("--superlink", link.address, "--host", "127.0.0.1", "--port", str(runtime_port)),
        *("--node-config", f"data={json.dumps(str(data.resolve()))}"),
    ]
    if link.authority is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(link.authority)]
    return command if key is None else [*command, "--auth-supernode-private-key", str(key)]


def deactivation(link: Link, key: Path, node: int) -> list[str]:
    """The command that tells a SuperLink with TLS that a node has ended."""
    module = "nextapp.server.flower.apps.deactivation"
    return [sys.executable, "-m", module, link.address, str(link.authority), str(key), str(node)]


def control(*words: str) -> list[str]:
    """A command of Flower's own command line, for the SuperLink of `connect`."""
    return [_tool("flwr"), *words]


def register(public_key: Path, name: str) -> list[str]:
    """The command that makes a node's key known at the SuperLink of `connect`."""
    return control("supernode", "register", str(public_key), CONNECTION, "--name", name)


def run(bundle: Path, settings: Mapping[str, str | int | float]) -> list[str]:
    """The command that starts a run at the SuperLink of `connect` and follows its log."""
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    return control("run", str(bundle), CONNECTION, "--stream", "--run-config", words)


def connect(home: Path, link: Link) -> None:
    """Name the SuperLink that `register` and `run` talk to, in the `home` they are started with."""
    home.mkdir(parents=True, exist_ok=True)
    how = (
        "insecure = true"
        if link.authority is None
        else f"root-certificates = {json.dumps(str(link.authority.resolve()))}"
    )
    (home / "config.toml").write_text(
        f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n\n[superlink.{CONNECTION}]\n"
        f"address = {json.dumps(link.address)}\n{how}\n",
        encoding="utf-8",
    )


def write_bundle(folder: Path) -> Path:
    """The app that Flower carries around: no code, only the names of what is installed already."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(
        f"""\
[project]
name = "nextapp-federation"
version = "{__version__}"
description = "Rounds over gateways; the code is that of the installed nextapp."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "nextapp"

[tool.flwr.app.components]
serverapp = "nextapp.server.flower.apps.coordinator:app"
clientapp = "nextapp.server.flower.apps.gateway:app"

[tool.flwr.app.config]
data = ""
rounds = 0
skip-to = 0
gateways = 1
poll = 10.0
patience = 120.0
""",
        encoding="utf-8",
    )
    return folder


def free_port() -> int:
    """A port of loopback that nobody listens on now.

    It is used seconds later, by another process. So it is drawn from those below the ports that the
    system gives to whoever asks for any: else another program might get it in between.
    """
    first_given = int(_PORTS.read_text().split()[0]) if _PORTS.exists() else 32_768
    while True:
        port = first_given - 1 - below(SystemBits(), _N_PORTS)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _tool(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise ModuleNotFoundError(
            f"{name} is not installed beside {sys.executable}: pip install 'nextapp[flower]'",
            name="flwr",
        )
    return str(path)
