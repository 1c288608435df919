"""Launch logs: loading, synthetic phones, splits, cycles."""

from __future__ import annotations

from pathlib import Path

from nextapp.data import synthetic
from nextapp.data.cutting import Parts, Split, collapsed, session_starts
from nextapp.data.cycles import Cycle, Cycles, Cycling
from nextapp.data.loading import BadRow, Columns, TimeUnit, UnreadableLog, load
from nextapp.data.log import LaunchLog

__all__ = [
    "BadRow",
    "Columns",
    "Cycle",
    "Cycles",
    "Cycling",
    "LaunchLog",
    "Parts",
    "Split",
    "UnreadableLog",
    "collapsed",
    "load",
    "read",
    "session_starts",
    "synthetic",
]


def read(
    source: str,
    *,
    seed: int,
    columns: Columns | None = None,
    time_unit: TimeUnit = "s",
    skip_bad_rows: bool = False,
) -> LaunchLog:
    """The log of a file, or the synthetic phones of ``synthetic:…`` drawn with this seed."""
    if source.startswith("synthetic:"):
        return synthetic.make(synthetic.parse(source), seed)
    return load(Path(source), columns=columns, time_unit=time_unit, skip_bad_rows=skip_bad_rows)
