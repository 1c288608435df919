"""A second record of what a phone has spent, outside its store: an old copy put back is seen.

Whoever restores an old copy of the phone's file restores an old privacy ledger with it, and would
spend the same ε twice. Software alone cannot prevent that. This record makes it visible, unless it
is restored together with the file: keep it where no backup goes.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path


class Witness:
    """A small file that holds the largest ε that the store of this name was seen to have spent."""

    def __init__(self, path: Path, store: str) -> None:
        self.path = path
        self._store = store

    def spent(self) -> float:
        """The ε on record; 0 where there is no record of this store."""
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            return float(record["spent"]) if record["store"] == self._store else 0.0
        except FileNotFoundError:
            return 0.0
        except (ValueError, TypeError, KeyError, OverflowError):
            return 0.0  # damaged: no record

    def note(self, spent: float) -> None:
        """Put a larger ε on record; on the disk itself when this returns."""
        if spent <= self.spent():
            return
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"store": self._store, "spent": spent}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
