"""Launch logs: loading, imports from people's devices, synthetic phones, splits, cycles.

Names are imported when they are first used, so that a phone can use `nextapp.data.importers` with
only the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextapp.data import synthetic as synthetic
    from nextapp.data.cutting import Cycle as Cycle
    from nextapp.data.cutting import Cycles as Cycles
    from nextapp.data.cutting import Cycling as Cycling
    from nextapp.data.cutting import Parts as Parts
    from nextapp.data.cutting import Split as Split
    from nextapp.data.cutting import collapse_repeats as collapse_repeats
    from nextapp.data.cutting import session_starts as session_starts
    from nextapp.data.importers import UnreadableLog as UnreadableLog
    from nextapp.data.loading import BadRow as BadRow
    from nextapp.data.loading import Columns as Columns
    from nextapp.data.loading import Importing as Importing
    from nextapp.data.loading import TimeUnit as TimeUnit
    from nextapp.data.loading import load as load
    from nextapp.data.loading import read as read
    from nextapp.data.log import LaunchLog as LaunchLog

_HOMES = {
    "BadRow": "loading",
    "Columns": "loading",
    "Cycle": "cutting",
    "Cycles": "cutting",
    "Cycling": "cutting",
    "Importing": "loading",
    "LaunchLog": "log",
    "Parts": "cutting",
    "Split": "cutting",
    "TimeUnit": "loading",
    "UnreadableLog": "importers",
    "collapse_repeats": "cutting",
    "load": "loading",
    "read": "loading",
    "session_starts": "cutting",
}
__all__ = [*_HOMES, "synthetic"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "synthetic":
        return import_module("nextapp.data.synthetic")
    if name not in _HOMES:
        raise AttributeError(f"module 'nextapp.data' has no attribute {name!r}.")
    return getattr(import_module(f"nextapp.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
