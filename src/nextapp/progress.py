"""Progress callbacks of long computations: what is being done, steps done, total steps."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """The callback that does nothing."""


def named(name: str, report: Progress) -> Progress:
    """The same report, with a name before what is being done."""
    return lambda what, done, total: report(f"{name}: {what}", done, total)
