"""The terminal: standard output, standard error, progress, bars; results as files."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nextapp.storage import write_public

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nextapp.table import Table

_COLORS: Any = None if os.environ.get("NO_COLOR") else "auto"  # None: no bold either
out = Console(highlight=False, color_system=_COLORS)
err = Console(stderr=True, highlight=False, color_system=_COLORS)
_BARS = " ▁▂▃▄▅▆▇█"
_FEW = 10.0  # seconds: what a command still does after its last part counts
_LEAST_SHARE = 0.05  # of a command that is done before its end is estimated
_FEW_STEPS = 3  # with no more steps than these the longest counts, too


@contextmanager
def progress(most: str = "") -> Iterator[Any]:
    """A line that shows what is being done, gone at the end. Yields report(what, done, total).

    The clock is that of the whole command. The remaining time is shown only during steps whose name
    starts with ``most``: equal parts that are nearly all of the remaining work. A line says so if
    code is compiled. Where standard error is no terminal only that line is written. Until the first
    report the line says that a log is read.
    """
    if "nextapp.compiled" in sys.modules:  # without it nothing is compiled
        _announce_compiling()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=err,
        transient=True,
        disable=err.quiet or not err.is_terminal,
    ) as bar:
        task = bar.add_task("reading", total=None, left="")
        time_left = TimeLeft(time.monotonic)

        def report(what: str, done: int, total: int) -> None:
            left = time_left.words(done, total) if most and what.startswith(most) else ""
            bar.update(task, description=what, completed=done, total=total or None, left=left)

        yield report


class TimeLeft:
    """How long equal parts will still take, by the time of the later half of those done.

    In the earlier half, or in the longest part of the later one, code may have been compiled.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[int, float] = {}

    def words(self, done: int, total: int) -> str:
        """After `done` of `total` parts; "" while too few are done to tell, and at the end."""
        if done < 1 or done == total:
            return ""
        self._seen.setdefault(done, self._clock())
        if done - min(self._seen) < _LEAST_SHARE * total:
            return ""
        before = max((n for n in self._seen if n <= done / 2), default=0)
        later = pairwise((n, when) for n, when in self._seen.items() if n >= before)
        steps = sorted((then - start, n - m) for (m, start), (n, then) in later)
        kept = steps[:-1] if len(steps) > _FEW_STEPS else steps
        seconds = sum(took for took, _ in kept) / sum(n for _, n in kept) * (total - done)
        return f"about {duration(seconds)} left" if seconds > _FEW else "a few seconds left"


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(200), duration(7500)
    ('42 s', '3 min', '2.1 h')
    """
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@cache
def _announce_compiling() -> None:
    """Once in a process."""
    from nextapp.compiled import at_next_compilation

    words = "Compiling first, a minute or two; the machine code is kept for the next run."
    at_next_compilation.append(lambda: err.print(words, style="dim"))


def silence(console: Console) -> Callable[[], None]:
    """Print nothing on it until what this returns is called."""
    console.quiet = True
    return partial(setattr, console, "quiet", False)


def sparkline(values: Sequence[float]) -> str:
    """Numbers as one line of bars.

    >>> sparkline([0, 1, 2, 4, 8])
    ' ▁▂▄█'
    """
    most = max(values, default=0.0)
    if most <= 0:
        return " " * len(values)
    return "".join(_BARS[math.ceil(value / most * (len(_BARS) - 1))] for value in values)


def show(table: Table) -> None:
    """A table; where the terminal is narrow, without its last columns of numbers."""
    out.print(table.fitting(out.width).terminal())


def say_next(*commands: str) -> None:
    """What to try after a command; nothing if output is JSON or input is standard input."""
    again = [command for command in commands if not f"{command} ".count(" - ")]
    if again and not out.quiet:
        err.print("Next: " + "\n      ".join(again), markup=False, soft_wrap=True)


def write_plot(path: Path, figure: Figure) -> None:
    from nextapp import plots

    path.parent.mkdir(exist_ok=True)
    plots.save(figure, path)
    err.print(f"Wrote {path.with_suffix('.svg')} and .png", markup=False)


def write_json(path: Path | None, result: Mapping[str, Any]) -> None:
    if path == Path("-"):
        print(json.dumps(result, indent=2))
    elif path is not None:
        path.parent.mkdir(exist_ok=True)
        write_public(path, (json.dumps(result, indent=2) + "\n").encode())
        err.print(f"Wrote {path}", markup=False)
