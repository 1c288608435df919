"""The coordinator's run at a SuperLink on the same machine, kept going until its rounds are played.

Flower does not notice that a coordinator was killed: its run stays as it was. So the lock on the
coordinator's folder is watched, which ends with its process; then the run is started again and goes
on from the last checkpoint.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nextapp.federation.coordinator import checkpoints
from nextapp.federation.flower import launching
from nextapp.federation.flower.driving import Pace
from nextapp.federation.flower.processes import Processes

SAID = "coordinator: "
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
        for line in self._processes.news("run"):
            if line.startswith(SAID):
                self._say(line.removeprefix(SAID))
        code = self._processes.exit_code("run")
        done = bool(self._rounds) and self.round >= self._rounds
        if done and (code is not None or self._is_lost()):
            return True
        if self._due is None and (code is not None or self._is_lost()):
            self._say(
                f"the run has ended at round {self.round}, see {self._processes.logs / 'run.log'}; "
                f"starting it again."
            )
            self._due = time.monotonic() + _AGAIN_SECONDS
        elif self._due is not None and time.monotonic() >= self._due:
            if code is None:
                self._processes.kill("run")
            self.start()
        return False

    def _is_lost(self) -> bool:
        """Whether a coordinator that was there is there no more."""
        if is_held(self._data):
            self._was_held, self._unheld_since = True, None
            return False
        if not self._was_held:
            return False
        self._unheld_since = self._unheld_since or time.monotonic()
        return time.monotonic() - self._unheld_since > _UNHELD_SECONDS


def is_held(folder: Path) -> bool:
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
