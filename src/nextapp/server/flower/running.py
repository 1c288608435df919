"""The coordinator's run at a SuperLink on the same machine, kept going until its rounds are played.

Flower does not notice that a coordinator was killed: its run stays as it was. And where the
SuperLink was killed, whoever follows a run is cut off, while the coordinator itself may go on with
the next SuperLink. So the lock on the coordinator's folder is watched, which ends with its process;
only then is the run started again, and goes on from the last checkpoint. What the coordinator says
it appends to a file in its folder.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nextapp.server.coordinator import checkpoints
from nextapp.server.flower import launching
from nextapp.server.flower.processes import Processes
from nextapp.server.flower.round_driver import Pace

SAID = "rounds.log"
_AGAIN_SECONDS = 2.0
_UNHELD_SECONDS = 3.0


class Run:
    """A run of the coordinator in `data`; `tend` it now and then.

    Parameters
    ----------
    home
        Flower's folder for whoever starts the run.
    rounds
        To play in all, counted from the federation's beginning; 0 for no end.
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
        self._due: float | None = None

    @property
    def round(self) -> int:
        """The round of the newest checkpoint."""
        newest = checkpoints(self._data / "checkpoints")
        return int(newest[0].stem.removeprefix("round-")) if newest else 0

    def start(self) -> None:
        bundle = launching.write_bundle(self._home / "bundle")
        command = launching.run(bundle, self._settings)
        self._processes.start("run", command, launching.environment(self._home))
        self._was_held, self._unheld_since, self._due = False, None, None

    def tend(self) -> bool:
        """Pass on what the coordinator says; start it again if it was lost. True when done."""
        self._pass_on()
        now, ended = time.monotonic(), self._processes.exit_code("run") is not None
        if is_locked(self._data):
            self._was_held, self._unheld_since, self._due = True, None, None
            return False
        self._unheld_since = self._unheld_since or now
        lost = self._was_held and now - self._unheld_since > _UNHELD_SECONDS
        if not (ended or lost):
            return False
        if self._rounds and self.round >= self._rounds:
            self._pass_on()
            return True
        if self._due is None:
            self._say(
                f"the run has ended at round {self.round}, see {self._processes.logs / 'run.log'}; "
                f"starting it again."
            )
            self._due = now + _AGAIN_SECONDS
        elif now >= self._due:
            if not ended:
                self._processes.kill("run")
            self.start()
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
