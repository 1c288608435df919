"""A whole federation on one machine: a SuperLink, gateways with their SuperNodes, and a run.

    data/coordinator      settings, checkpoints            data/logs     what every process says
    data/gateway-1, -2 …  a vault each, and its SuperNode   data/tls      certificate, node keys
    data/superlink        Flower's own state

What ends by itself is started again; a run that ends early goes on from its last checkpoint.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from ssl import create_default_context

from nextapp.server import certificates
from nextapp.server.devices import TOKEN_LETTERS
from nextapp.server.flower import launching
from nextapp.server.flower.identity import node_key
from nextapp.server.flower.processes import Processes, end_members
from nextapp.server.flower.round_driver import Pace
from nextapp.server.flower.running import Run

_START_SECONDS = 60.0
_AGAIN_SECONDS = 2.0
HOST = "127.0.0.1"


class Loopback:
    """The federation in `data`, whose coordinator was made before; a context that stops it all.

    Parameters
    ----------
    port
        Of the first gateway; the others follow. 0 takes free ones.
    rounds
        To play in all, counted from the federation's beginning; 0 for no end.
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
        self._due: dict[str, float] = {}

    @property
    def authority(self) -> Path | None:
        """What phones must trust; None without TLS."""
        return self.link.authority

    @property
    def urls(self) -> list[str]:
        """Where phones find the gateways."""
        scheme = "http" if self.authority is None else "https"
        return [f"{scheme}://{HOST}:{port}" for port in self.ports.values()]

    def token_letter(self, name: str) -> str:
        """What the tokens of a gateway begin with: A for the first, and so on."""
        return TOKEN_LETTERS[list(self.ports).index(name) % len(TOKEN_LETTERS)]

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
        """Start again what has ended; True once all rounds have been played."""
        starts = {"superlink": self._start_superlink}
        starts |= {name: partial(self._start_gateway, name) for name in self.ports}
        for name, start in starts.items():
            code = self.processes.exit_code(name)
            if code is None:
                continue
            if name not in self._due:
                self._say(
                    f"{name} has ended (code {code}), see logs/{name}.log; starting it again."
                )
                self._due[name] = time.monotonic() + _AGAIN_SECONDS
            elif time.monotonic() >= self._due[name]:
                del self._due[name]
                start()
        return self.run.tend()

    def wait(self, seconds: float | None = None) -> bool:
        """Tend until all rounds have been played, or for so many seconds; whether they have."""
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
        self._await("superlink", self.link.address, "/health")

    def _start_gateway(self, name: str) -> None:
        port = self.ports[name]
        command = [
            *(sys.executable, "-m", "nextapp", "flower", "gateway"),
            *("--data", str(self.data / name), "--superlink", self.link.address),
            *("--host", HOST, "--port", str(port)),
            *("--token-letter", self.token_letter(name)),
            *self._gateway_options,
        ]
        if self._files is None:
            command += ["--insecure"]
        else:
            command += ["--ca", str(self._files.authority)]
            command += ["--node-key", str(node_key(self.data / "tls" / name)[0])]
            command += ["--cert", str(self._files.certificate), "--key", str(self._files.key)]
        self.processes.start(name, command, launching.environment(self.data / name / "flower"))
        self._await(name, f"{HOST}:{port}", "/v1/digest")

    def _register(self, name: str) -> None:
        """Make a gateway's key known, once in the life of the SuperLink's database."""
        done = self.data / "superlink" / f"registered-{name}"
        if self._files is None or done.exists():
            return
        public = node_key(self.data / "tls" / name)[1]
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

    def _await(self, name: str, address: str, path: str) -> None:
        """Until it answers over HTTP, whatever it answers."""
        scheme = "http" if self.authority is None else "https"
        trust = create_default_context(cafile=self.authority) if self.authority else None
        open_url = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        ).open
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up and self.processes.exit_code(name) is None:
            try:
                open_url(f"{scheme}://{address}{path}", timeout=5).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(
            f"{name} did not start; the end of {self.processes.logs / name}.log:\n"
            f"{self.processes.said(name)}"
        )
