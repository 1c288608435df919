"""One SQLite file: private, all or nothing, on disk when a transaction returns.

Its write-ahead log is read before SQLite does, and a file or log that was deleted or replaced while
it is open is no longer written to.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from nextapp.server.write_ahead_log import lost_commits

_LONG_LOG = 8 << 20  # bytes


class VaultError(OSError):
    """The storage does not take it now: a full disk, a lock held by another. Nothing was stored."""


class VaultDamaged(ValueError):
    """What is on disk is not what was written."""


class Database:
    """The file, with one connection that writes and one that reads. See `Vault` for its errors.

    Parameters
    ----------
    schema, version
        The statements that make its tables, and the number kept in the file. A file of another
        version is refused.
    leave_damaged
        Continue with a write-ahead log that has lost commits.
    """

    def __init__(
        self, path: Path, schema: str, version: int, *, busy_seconds: float, leave_damaged: bool
    ) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._log_has_deleted = True
        self._files: list[tuple[Path, tuple[int, int]]] = []
        with _storage_errors():
            create_private(path)
            if not leave_damaged:
                self._check_log()
            self._writer = self._connect()
            self._reader = self._connect()
            with self.transaction() as write:
                found = write.execute("PRAGMA user_version").fetchone()[0]
                if found == 0:
                    for statement in schema.split(";"):
                        write.execute(statement)
                    write.execute(f"PRAGMA user_version = {version}")
        if found not in (0, version):
            writer = "a newer nextapp; install that one"
            if found < version:
                writer = "an earlier nextapp; begin anew in another folder"
            raise ValueError(
                f"{path} has the schema {found}, this version knows {version}: it was written by "
                f"{writer}."
            )

    def _check_log(self) -> None:
        n_lost = lost_commits(self.path)
        if n_lost:
            raise VaultDamaged(
                f"the log {self.path}-wal is not what was written there: {n_lost:,} commits behind "
                f"the damage cannot be read, and reports that were acknowledged are among them. "
                f"Restore the vault from a backup, or start with --leave-damaged to continue "
                f"without them."
            )

    def close(self) -> None:
        with self._writing, self._reading:
            self._writer.close()
            self._reader.close()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""
        with _storage_errors(), self._reading:
            return self._reader.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a query, or None."""
        with _storage_errors(), self._reading:
            return self._reader.execute(sql, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, on disk at the end."""
        with self._writing, _storage_errors():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                self._check_files()
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def copy_to(self, path: Path) -> None:
        """A consistent copy of the file, also while it is in use."""
        with _storage_errors(), closing(sqlite3.connect(self.path)) as source:
            create_private(path)
            with closing(sqlite3.connect(path)) as copy:
                source.backup(copy)

    def tidy(self) -> None:
        """Bring a long write-ahead log into the file, in the background of those who write.

        Two passes without a lock leave little to do for the third, after which the log starts
        anew. Left to SQLite, a writer would stop for the whole of it.
        """
        log = self.path.with_name(self.path.name + "-wal")
        if not log.exists() or (log.stat().st_size < _LONG_LOG and not self._log_has_deleted):
            return
        self._check_files()  # another connection would make a log that was deleted anew
        with _storage_errors(), closing(self._connect()) as other:
            for _ in range(2):
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            with self._writing:
                self._log_has_deleted = not _empty_log(other)

    def truncate_log(self) -> None:
        """What was deleted shall not live on in the write-ahead log; else `tidy` sees to it."""
        with self._writing, _storage_errors():
            self._log_has_deleted = not _empty_log(self._writer)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",  # one that was deleted is not made anew
            timeout=self._busy_seconds, isolation_level=None, check_same_thread=False, uri=True,
        )  # fmt: skip
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 50000")  # `tidy` comes long before
        connection.execute("PRAGMA cache_size = -65536")
        return connection

    def _check_files(self) -> None:
        """Refuse to write where the folder no longer has the files that are open.

        Whatever is written to a file that was deleted or replaced is gone with this process.
        """
        if not self._files:
            log = self.path.with_name(self.path.name + "-wal")
            self._files = [(path, _identity(path)) for path in (self.path, log)]
        for path, opened in self._files:
            try:
                there = _identity(path) == opened
            except FileNotFoundError:
                there = False
            if not there:
                raise VaultError(
                    f"{path} was deleted or replaced while it was in use. Put it back if it was "
                    f"moved; else stop the server, restore a backup and start it again."
                )


def create_private(path: Path) -> None:
    """An empty file that only its owner may read; one that is there stays as it is."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise VaultError(f"the vault cannot be used: {error}.") from error


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log into the file; False where a reader was in the way."""
    return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
