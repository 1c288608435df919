"""`read`: the log of a source, which is a file or synthetic phones."""

from __future__ import annotations

from pathlib import Path

from nextapp.data import synthetic
from nextapp.data.loading import Columns, Importing, TimeUnit, load
from nextapp.data.log import LaunchLog


def read(
    source: str,
    *,
    seed: int,
    columns: Columns | None = None,
    time_unit: TimeUnit = "s",
    skip_bad_rows: bool = False,
    importing: Importing | None = None,
) -> LaunchLog:
    """The log of a file, or the synthetic phones of ``synthetic:…`` generated with this seed."""
    if source.startswith("synthetic:"):
        return synthetic.make(synthetic.parse(source), seed)
    return load(
        Path(source),
        columns=columns,
        time_unit=time_unit,
        skip_bad_rows=skip_bad_rows,
        importing=importing,
    )
