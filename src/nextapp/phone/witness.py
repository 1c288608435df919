"""A second record of what a phone has spent, outside its store: an old copy put back is seen.

Whoever restores an old copy of the phone's file restores an old privacy ledger with it, and would
spend the same ε twice. Software alone cannot prevent that. This record makes it visible, unless it
is restored together with the file: keep it where no backup goes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

from nextapp.storage import write_atomically

_LATEST = 253_402_214_400.0  # the last midnight of the year 9999, UTC: no clock says more


class Spending(NamedTuple):
    """ε in all, and the latest report: when it was drawn, for which server and round."""

    spent: float
    drawn: float = 0.0
    server: str = ""
    round: int = 0


class Witness:
    """A small file that holds the largest ε that the store of this name was seen to have spent."""

    def __init__(self, path: Path, store: str) -> None:
        self.path = path
        self._store = store

    def record(self) -> Spending:
        """What is on record; nothing spent where there is no record of this store."""
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            if record.pop("store") != self._store:
                return Spending(0.0)
            found = Spending(**record)
            whole = (
                math.isfinite(found.spent)
                and found.spent >= 0
                and 0 <= found.drawn <= _LATEST
                and isinstance(found.server, str)
                and found.round >= 0
            )
            return found if whole else Spending(0.0)
        except FileNotFoundError:
            return Spending(0.0)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
            return Spending(0.0)  # damaged: no record

    def note(self, spending: Spending) -> None:
        """Put a larger ε on record; on the disk itself when this returns."""
        if spending.spent <= self.record().spent:
            return
        record = {"store": self._store, **spending._asdict()}
        write_atomically(self.path, json.dumps(record).encode())
