"""The processes of a federation on one machine: started with a log each, found again, stopped.

Flower's processes start others in sessions of their own, some of which outlive a kill. So each
carries the federation's folder in its environment, which all that it starts inherit, and `members`
finds them by that, also those that a killed supervisor has left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_MARK = "NEXTAPP_FEDERATION"
_PROC = Path("/proc")


class Processes:
    """What runs for the federation in `folder`; leaving the ``with`` block stops all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

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
        """Ask all to end; after `patience` seconds end whatever is left, by process id."""
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
