"""Flower's processes: their command lines, started with a log each, watched, found again, stopped.

Flower as it ships reports telemetry, asks for updates and installs what an app names. Nothing here
starts a process of Flower but with `environment`, in which all of that is off.

Flower's processes start others in sessions of their own, some of which outlive a kill. So each
carries the federation's folder in its environment, which all that it starts inherit, and `members`
finds them by that, also those that a killed supervisor has left behind.

Flower does not notice that a coordinator was killed: its run stays as it was. And where the
SuperLink was killed, whoever follows a run is cut off, while the coordinator itself may continue
with the next SuperLink. So the lock on the coordinator's folder is watched, which ends with its
process; only then is the run started again, from the last checkpoint. What the coordinator says is
appended to a file in its folder.

A whole federation on one machine has a folder like this:

    data/coordinator      settings, checkpoints            data/logs     what every process says
    data/gateway-1, -2 …  a vault each, and its SuperNode   data/tls      certificate, node keys
    data/superlink        Flower's own state
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
from dataclasses import asdict
from pathlib import Path

from nextapp import __version__
from nextapp.randomness import SystemBits, below
from nextapp.server import certificates
from nextapp.server.federation import checkpoints, round_of
from nextapp.server.flower.gateway_rounds import Link, Pace
from nextapp.server.folders import lock_folder

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
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 2.0
_START_SECONDS = 60.0
_UNHELD_SECONDS = 3.0
SAID = "rounds.log"
HOST = "127.0.0.1"


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


def superlink(host: str, port: int, database: Path, files: tuple[Path, Path, Path]) -> list[str]:
    """The command of a SuperLink, which demands that nodes prove themselves.

    Files: the CA that vouches for it, its certificate, its key.
    """
    authority, certificate, key = files
    return [
        _tool("flower-superlink"),
        *("--host", host, "--port", str(port), "--database", str(database)),
        "--disable-runtime-dependency-installation",
        *("--ssl-ca-certfile", str(authority)),
        *("--ssl-certfile", str(certificate)),
        *("--ssl-keyfile", str(key)),
        "--enable-supernode-auth",
    ]


def supernode_command(link: Link, runtime_port: int, data: Path, key: Path) -> list[str]:
    """The command of the SuperNode beside the gateway that keeps its vault in `data`."""
    return [
        _tool("flower-supernode"),
        *("--superlink", link.superlink, "--host", "127.0.0.1", "--port", str(runtime_port)),
        *("--node-config", f"data={json.dumps(str(data.resolve()))}"),
        *("--root-certificates", str(link.ca), "--auth-supernode-private-key", str(key)),
    ]


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
    (home / "config.toml").write_text(
        f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n\n[superlink.{CONNECTION}]\n"
        f"address = {json.dumps(link.superlink)}\n"
        f"root-certificates = {json.dumps(str(link.ca.resolve()))}\n",
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
serverapp = "nextapp.server.flower.apps:coordinator"
clientapp = "nextapp.server.flower.apps:gateway"

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
            f"{name} is not installed beside {sys.executable}: install nextapp[flower] "
            f"(docs/install.md)",
            name="flwr",
        )
    return str(path)


class Processes:
    """What runs for the federation in `folder`; leaving the ``with`` block stops all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._started: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._due: dict[str, float] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process; what it says is appended to logs/NAME.log."""
        self._started[name] = command, environment
        with (self.logs / f"{name}.log").open("ab") as log:
            self._children[name] = subprocess.Popen(
                command,
                env={**environment, _MARK: str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops the rest
            )

    def restart_ended(self, name: str, say: Callable[[str], None]) -> bool:
        """Start what has ended again, some seconds later; call this now and then."""
        code, now = self.exit_code(name), time.monotonic()
        if code is None:
            return False
        if name not in self._due:
            say(f"{name} has ended (code {code}), see {self.logs / name}.log; starting it again.")
            self._due[name] = now + _AGAIN_SECONDS
        if now < self._due[name]:
            return False
        del self._due[name]
        self.start(name, *self._started[name])
        return True

    def pid(self, name: str) -> int:
        return self._children[name].pid

    def exit_code(self, name: str) -> int | None:
        """None while it runs."""
        return self._children[name].poll()

    def said(self, name: str, n_lines: int = 15) -> str:
        text = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-n_lines:])

    def kill(self, name: str) -> None:
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
    while left := members(folder):  # they may start others, and take a moment to end
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(left)
        time.sleep(0.01)
    return len(ended)


@contextmanager
def supernode(data: Path, link: Link, runtime_port: int, key: Path) -> Iterator[Processes]:
    """The SuperNode of the gateway in `data`, for as long as the block lasts.

    After a kill the SuperLink refuses the same key for up to a minute: it is started until it is
    taken.
    """
    end_members(data)  # the SuperNode of a gateway that was killed
    command = supernode_command(link, runtime_port, data, key)
    over = threading.Event()
    with Processes(data) as processes:
        processes.start("supernode", command, environment(data / "flower"))

        def keep() -> None:  # phones are served meanwhile
            while not over.wait(_LOOK_SECONDS):
                processes.restart_ended("supernode", LOG.warning)

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield processes
        finally:
            over.set()
            keeper.join()


class Run:
    """A run of the coordinator in `data`; `tend` it now and then. `home` is Flower's folder."""

    def __init__(
        self,
        processes: Processes,
        data: Path,
        home: Path,
        link: Link,
        *,
        rounds: int,
        skip_to: int,
        pace: Pace,
        say: Callable[[str], None],
    ) -> None:
        self._processes = processes
        self._data = data
        self._home = home
        self._say = say
        self._settings: dict[str, str | int | float] = {
            "data": str(data.resolve()),
            "rounds": rounds,
            "skip-to": skip_to,
            **asdict(pace),
        }
        self._rounds = rounds
        connect(home, link)
        said = data / SAID
        self._n_said = said.stat().st_size if said.exists() else 0
        self._was_held = False
        self._unheld_since: float | None = None

    @property
    def round(self) -> int:
        newest = checkpoints(self._data / "checkpoints")
        return round_of(newest[0]) if newest else 0

    def start(self) -> None:
        command = run(write_bundle(self._home / "bundle"), self._settings)
        self._processes.start("run", command, environment(self._home))

    def tend(self) -> bool:
        """Pass on what the coordinator says; start it again if it was lost. True when done."""
        self._pass_on()
        now, ended = time.monotonic(), self._processes.exit_code("run") is not None
        if is_locked(self._data):
            self._was_held, self._unheld_since = True, None
            return False
        self._unheld_since = self._unheld_since or now
        lost = self._was_held and now - self._unheld_since > _UNHELD_SECONDS
        if not (ended or lost):
            return False
        if self._rounds and self.round >= self._rounds:
            self._pass_on()
            return True
        if not ended:
            self._processes.kill("run")
        if self._processes.restart_ended("run", self._say):
            self._was_held, self._unheld_since = False, None
        return False

    def _pass_on(self) -> None:
        with (self._data / SAID).open("a+b") as file:
            file.seek(self._n_said)
            whole = (text := file.read())[: text.rfind(b"\n") + 1]
        self._n_said += len(whole)
        for line in whole.decode("utf-8").splitlines():
            self._say(line)


def is_locked(folder: Path) -> bool:
    try:
        with lock_folder(folder):
            return False
    except ValueError:
        return True


class Loopback:
    """The federation in `data`, whose coordinator was made before; a context that stops it all.

    Arguments are the options of `nextapp flower up`; ``gateway_options`` those of all gateways.
    """

    def __init__(
        self,
        data: Path,
        *,
        n_gateways: int = 2,
        port: int = 0,
        rounds: int = 0,
        skip_to: int = 0,
        pace: Pace | None = None,
        gateway_options: Sequence[str] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        self.data = data.resolve()
        self._say = say
        self._gateway_options = tuple(gateway_options)
        self._files = certificates.development(self.data / "tls")
        self.link = Link(f"{HOST}:{free_port()}", self._files[0])
        names = [f"gateway-{number}" for number in range(1, n_gateways + 1)]
        self.ports = {
            name: port + place if port else free_port() for place, name in enumerate(names)
        }
        self.processes = Processes(self.data)
        self.run = Run(
            self.processes,
            self.data / "coordinator",
            self._operator,
            self.link,
            rounds=rounds,
            skip_to=skip_to,
            pace=pace or Pace(gateways=n_gateways, poll=2.0),
            say=say,
        )

    @property
    def urls(self) -> list[str]:
        return [f"http://{HOST}:{port}" for port in self.ports.values()]

    def __enter__(self) -> Loopback:
        n_left = end_members(self.data)
        if n_left:
            self._say(f"ended {n_left} processes that were left from before.")
        try:
            home, link_port = self.data / "superlink", int(self.link.superlink.rpartition(":")[2])
            command = superlink(HOST, link_port, home / "state.db", self._files)
            self._start("superlink", command, home, link_port)
            for name, port in self.ports.items():
                self._register(name)
                self._start(name, self._gateway(name), self.data / name / "flower", port)
            self.run.start()
        except BaseException:
            self.processes.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.processes.stop()

    def tend(self) -> bool:
        """Start again what has ended; True once all rounds are over."""
        for name in ("superlink", *self.ports):
            self.processes.restart_ended(name, self._say)
        return self.run.tend()

    def wait(self, seconds: float | None = None) -> bool:
        """Tend until all rounds are over, for `seconds` at most; whether they have."""
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            if self.tend():
                return True
            time.sleep(0.2)
        return False

    def _gateway(self, name: str) -> list[str]:
        return [
            *(sys.executable, "-m", "nextapp", "flower", "gateway"),
            *("--data", str(self.data / name), "--superlink", self.link.superlink),
            *("--host", HOST, "--port", str(self.ports[name]), "--operator", f"{HOST}:0"),
            *self._gateway_options,
            *("--ca", str(self.link.ca)),
            *("--node-key", str(certificates.node_key(self.data / "tls" / name)[0])),
        ]

    def _register(self, name: str) -> None:
        """Make a gateway's key known, once in the life of the SuperLink's database."""
        done = self.data / "superlink" / f"registered-{name}"
        if done.exists():
            return
        public = certificates.node_key(self.data / "tls" / name)[1]
        subprocess.run(
            register(public, name),
            env=environment(self._operator),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        done.touch()

    @property
    def _operator(self) -> Path:
        return self.data / "superlink" / "operator"

    def _start(self, name: str, command: Sequence[str], home: Path, port: int) -> None:
        """Start it, and wait until it listens on its port."""
        self.processes.start(name, command, environment(home))
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up and self.processes.exit_code(name) is None:
            try:
                socket.create_connection((HOST, port), timeout=5).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(
            f"{name} did not start; the end of {self.processes.logs / name}.log:\n"
            f"{self.processes.said(name)}"
        )
