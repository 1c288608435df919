"""Flower's processes: their command lines, started with a log each, found again, stopped.

Flower as it ships reports telemetry, asks for updates and installs what an app names. Nothing here
starts a process of Flower but with `environment`, in which all of that is off.

Flower's processes start others in sessions of their own, some of which outlive a kill. So each
carries the federation's folder in its environment, which all that it starts inherit, and `members`
finds them by that, also those that a killed supervisor has left behind.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from nextapp import __version__
from nextapp.randomness import SystemBits, below

LOG = logging.getLogger("nextapp.supernode")

SWITCHES: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
}
CONNECTION = "federation"
_PORTS, _N_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range"), 4000
_MARK = "NEXTAPP_FEDERATION"
_PROC = Path("/proc")
_NUMBER = "node-number"
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 2.0
_DEACTIVATE_SECONDS = 10.0


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


def supernode_command(
    link: Link, runtime_port: int, data: Path, key: Path | None = None
) -> list[str]:
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


def register(public_key: Path, name: str) -> list[str]:
    """The command that makes a node's key known at the SuperLink of `connect`."""
    return [_tool("flwr"), "supernode", "register", str(public_key), CONNECTION, "--name", name]


def run(bundle: Path, settings: Mapping[str, str | int | float]) -> list[str]:
    """The command that starts a run at the SuperLink of `connect` and follows its log."""
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    return [_tool("flwr"), "run", str(bundle), CONNECTION, "--stream", "--run-config", words]


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


class Processes:
    """What runs for the federation in `folder`; leaving the ``with`` block stops all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._due: dict[str, float] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process; what it says is appended to logs/NAME.log."""
        if name in self._children and self._children[name].poll() is None:
            raise ValueError(f"{name} is running already, as process {self._children[name].pid}.")
        with (self.logs / f"{name}.log").open("ab") as log:
            self._children[name] = subprocess.Popen(
                command,
                env={**environment, _MARK: str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops the rest
            )

    def restart_ended(
        self, name: str, start: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        """Start what has ended again, some seconds later; call this now and then."""
        code, now = self.exit_code(name), time.monotonic()
        if code is None:
            return
        if name not in self._due:
            say(f"{name} has ended (code {code}), see {self.logs / name}.log; starting it again.")
            self._due[name] = now + _AGAIN_SECONDS
        elif now >= self._due[name]:
            del self._due[name]
            start()

    def pid(self, name: str) -> int:
        return self._children[name].pid

    def exit_code(self, name: str) -> int | None:
        """None while it runs."""
        return self._children[name].poll()

    def said(self, name: str, n_lines: int = 15) -> str:
        """The end of a log."""
        text = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-n_lines:])

    def kill(self, name: str) -> None:
        """End one process at once, as a crash would."""
        self._children[name].kill()
        self._children[name].wait()

    def stop(self, patience: float = 10.0) -> None:
        """Ask all to end; after `patience` seconds end those that are left, by process id."""
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()
        give_up = time.monotonic() + patience
        while time.monotonic() < give_up and self._alive():
            time.sleep(0.1)
        end_members(self.folder)
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
            child.wait()

    def _alive(self) -> bool:
        running = any(child.poll() is None for child in self._children.values())
        return running or bool(members(self.folder))


def members(folder: Path) -> list[int]:
    """The ids of all processes of the federation in `folder`, or of a part of it in a folder below.

    Found by /proc, so on Linux only; elsewhere none.
    """
    mark = f"{_MARK}={folder.resolve()}".encode()
    found = []
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended, or belongs to someone else
                continue
            if any(word == mark or word.startswith(mark + b"/") for word in words):
                found.append(int(entry.name))
    return found


def end_members(folder: Path) -> int:
    """End all processes of the federation in `folder` at once; how many there were."""
    ended: set[int] = set()
    while left := [pid for pid in members(folder) if pid not in ended]:  # they may start others
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        ended.update(left)
    return len(ended)


def note_node_number(data: Path, number: int) -> None:
    """Keep the number by which Flower knows the node of a gateway, in the gateway's folder."""
    if node_number(data) != number:
        (data / _NUMBER).write_text(f"{number}\n", encoding="ascii")


def node_number(data: Path) -> int | None:
    """What was noted last; None where the node has had no message yet."""
    try:
        return int((data / _NUMBER).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


@contextmanager
def supernode(data: Path, link: Link, runtime_port: int, key: Path | None) -> Iterator[Processes]:
    """The SuperNode of the gateway in `data`, for as long as the block lasts."""
    end_members(data)  # the SuperNode of a gateway that was killed
    command = supernode_command(link, runtime_port, data, key)
    variables = environment(data / "flower")
    over = threading.Event()
    with Processes(data) as processes:

        def start() -> None:
            _deactivate(data, link, key)
            processes.start("supernode", command, variables)

        def keep() -> None:  # phones are served meanwhile
            start()
            while not over.wait(_LOOK_SECONDS):
                processes.restart_ended("supernode", start, LOG.warning)

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield processes
        finally:
            over.set()
            keeper.join()


def _deactivate(data: Path, link: Link, key: Path | None) -> None:
    """Let the SuperLink know that the node before has ended, which a killed one could not tell.

    Where it did tell, or cannot be reached, this is refused, and nothing is lost.
    """
    number = node_number(data)
    if number is None or key is None or link.authority is None:
        return
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            deactivation(link, key, number),
            env=environment(data / "flower"),
            check=False,
            capture_output=True,
            timeout=_DEACTIVATE_SECONDS,
        )
