"""Watches what Flower does not: a run whose coordinator was killed, and all of one machine.

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

import fcntl
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from nextapp.server import certificates
from nextapp.server.coordinator import checkpoints
from nextapp.server.flower import launching
from nextapp.server.flower.gateway_rounds import Pace
from nextapp.server.flower.launching import Processes, end_members

SAID = "rounds.log"
HOST = "127.0.0.1"
_START_SECONDS = 60.0
_UNHELD_SECONDS = 3.0


class Run:
    """A run of the coordinator in `data`; `tend` it now and then.

    Parameters
    ----------
    home
        Flower's folder for whoever starts the run.
    rounds
        Rounds in all, counted from the federation's beginning; 0 for no end.
    """

    def __init__(
        self,
        processes: Processes,
        data: Path,
        home: Path,
        link: launching.Link,
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
        launching.connect(home, link)
        said = data / SAID
        self._n_said = said.stat().st_size if said.exists() else 0
        self._was_held = False
        self._unheld_since: float | None = None

    @property
    def round(self) -> int:
        """The round of the newest checkpoint."""
        newest = checkpoints(self._data / "checkpoints")
        return int(newest[0].stem.removeprefix("round-")) if newest else 0

    def start(self) -> None:
        bundle = launching.write_bundle(self._home / "bundle")
        command = launching.run(bundle, self._settings)
        self._processes.start("run", command, launching.environment(self._home))
        self._was_held, self._unheld_since = False, None

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
        self._processes.restart_ended("run", self.start, self._say)
        return False

    def _pass_on(self) -> None:
        with (self._data / SAID).open("a+b") as file:
            file.seek(self._n_said)
            whole = (text := file.read())[: text.rfind(b"\n") + 1]
        self._n_said += len(whole)
        for line in whole.decode("utf-8").splitlines():
            self._say(line)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder as its own."""
    path = folder / "lock"
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


class Loopback:
    """The federation in `data`, whose coordinator was made before; a context that stops it all.

    Parameters
    ----------
    port
        Of the first gateway; the others follow. 0 takes free ones.
    rounds
        Rounds in all, counted from the federation's beginning; 0 for no end.
    gateway_options
        Further options of `nextapp flower gateway`, for all of them.
    """

    def __init__(
        self,
        data: Path,
        *,
        n_gateways: int = 2,
        tls: bool = False,
        port: int = 0,
        rounds: int = 0,
        skip_to: int = 0,
        pace: Pace | None = None,
        gateway_options: Sequence[str] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        if n_gateways < 1:
            raise ValueError(f"a federation needs 1 gateway or more, got {n_gateways!r}.")
        self.data = data.resolve()
        self._say = say
        self._gateway_options = tuple(gateway_options)
        self._files: launching.ServerFiles | None = None
        if tls:
            self._files = launching.ServerFiles(*certificates.development(self.data / "tls"))
        authority = self._files and self._files.authority
        self.link = launching.Link(f"{HOST}:{launching.free_port()}", authority)
        names = [f"gateway-{number}" for number in range(1, n_gateways + 1)]
        self.ports = {
            name: port + place if port else launching.free_port()
            for place, name in enumerate(names)
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
    def authority(self) -> Path | None:
        """What phones must trust; None without TLS."""
        return self.link.authority

    @property
    def urls(self) -> list[str]:
        """Where phones find the gateways."""
        scheme = "http" if self.authority is None else "https"
        return [f"{scheme}://{HOST}:{port}" for port in self.ports.values()]

    def __enter__(self) -> Loopback:
        n_left = end_members(self.data)
        if n_left:
            self._say(f"ended {n_left} processes that were left from before.")
        try:
            self._start_superlink()
            for name in self.ports:
                self._register(name)
                self._start_gateway(name)
            self.run.start()
        except BaseException:
            self.processes.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.processes.stop()

    def tend(self) -> bool:
        """Start again what has ended; True once all rounds are over."""
        self.processes.restart_ended("superlink", self._start_superlink, self._say)
        for name in self.ports:
            start = partial(self._start_gateway, name)
            self.processes.restart_ended(name, start, self._say)
        return self.run.tend()

    def wait(self, seconds: float | None = None) -> bool:
        """Tend until all rounds are over, for `seconds` at most; whether they have."""
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            if self.tend():
                return True
            time.sleep(0.2)
        return False

    def _start_superlink(self) -> None:
        home = self.data / "superlink"
        host, _, port = self.link.address.rpartition(":")
        self.processes.start(
            "superlink",
            launching.superlink(host, int(port), home / "state.db", self._files),
            launching.environment(home),
        )
        self._await("superlink", int(port))

    def _start_gateway(self, name: str) -> None:
        port = self.ports[name]
        command = [
            *(sys.executable, "-m", "nextapp", "flower", "gateway"),
            *("--data", str(self.data / name), "--superlink", self.link.address),
            *("--host", HOST, "--port", str(port), "--operator", f"{HOST}:0"),
            *self._gateway_options,
        ]
        if self._files is None:
            command += ["--insecure"]
        else:
            command += ["--ca", str(self._files.authority)]
            command += ["--node-key", str(certificates.node_key(self.data / "tls" / name)[0])]
            command += ["--cert", str(self._files.certificate), "--key", str(self._files.key)]
        self.processes.start(name, command, launching.environment(self.data / name / "flower"))
        self._await(name, port)

    def _register(self, name: str) -> None:
        """Make a gateway's key known, once in the life of the SuperLink's database."""
        done = self.data / "superlink" / f"registered-{name}"
        if self._files is None or done.exists():
            return
        public = certificates.node_key(self.data / "tls" / name)[1]
        subprocess.run(
            launching.register(public, name),
            env=launching.environment(self._operator),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        done.touch()

    @property
    def _operator(self) -> Path:
        return self.data / "superlink" / "operator"

    def _await(self, name: str, port: int) -> None:
        """Wait until it listens on its port."""
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
