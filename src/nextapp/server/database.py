"""One SQLite file: private, all or nothing, on disk when a transaction returns.

A file or log that was deleted or replaced while it is open is no longer written to.

Every row is under a checksum: a column ``row_sum`` of its table, or, for the few rows of a table
that is named as ``sealed``, the one of the table ``seal``. That also counts the commits, and so
does a small file beside (`CommitCount`): where it has counted more, commits are lost. SQLite
silently drops everything behind a damaged place of its log.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from nextapp.storage import sync_folder

REMEDY = "Restore it from a backup, or start with --leave-damaged to continue with what is there."
_UNSEALED = "the round, the keys or what was asked are not what was written"
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
    sealed
        Tables of a few rows that change often; see above.
    leave_damaged
        Open it also where commits are lost.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        version: int,
        sealed: Sequence[str],
        *,
        busy_seconds: float,
        leave_damaged: bool,
    ) -> None:
        self.path = path
        self._statements = [part.strip() for part in [*schema.split(";")[:-1], *_OWN_TABLES]]
        self._busy_seconds = busy_seconds
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._log_has_deleted = True
        self._files: list[tuple[Path, tuple[int, int]]] = []
        with _storage_errors():
            create_private(path)
            _check_unopened(path, version, leave_damaged)
            self._writer = self._connect()
            self._reader = self._connect()
            self._count = CommitCount(path.with_suffix(".count"))
            with self.transaction() as write:
                if write.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in self._statements:
                        write.execute(statement)
                    write.execute(f"PRAGMA user_version = {version}")
                    self._count.begin(0)
                    write.execute("INSERT INTO seal VALUES (0, 0)")
                self._sealed = [_content(write, table) for table in ("wishes", *sealed)]
            if not (leave_damaged or self._read_seal()[1]):  # or the next commit would seal it anew
                self.close()
                raise VaultDamaged(f"{path} is damaged: {_UNSEALED}. {REMEDY}")

    def close(self) -> None:
        with self._writing, self._reading:
            self._writer.close()
            self._reader.close()
            self._count.close()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with _storage_errors(), self._reading:
            return self._reader.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        with _storage_errors(), self._reading:
            return self._reader.execute(sql, values).fetchone()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, on disk at the end."""
        with self._writing, _storage_errors():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                self._check_files()
                before = self._writer.total_changes
                yield self._writer
                n_commits = self._seal() if self._writer.total_changes > before else 0
                self._writer.execute("COMMIT")
                self._count.raise_to(n_commits)
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def _seal(self) -> int:
        """Count the commit that is under way, and write the checksum of the sealed tables anew."""
        set_ = f"commits = commits + 1, row_sum = {_sum_of(['(commits + 1)', *self._sealed])}"
        rows = self._writer.execute(f"UPDATE seal SET {set_} RETURNING commits").fetchall()
        return int(rows[0][0])

    def _read_seal(self) -> tuple[int, bool]:
        """How many commits there were, and whether the sealed tables are as the last one left."""
        intact = f"row_sum = {_sum_of(['commits', *self._sealed])}"
        return self.row(f"SELECT commits, {intact} FROM seal") or (0, False)

    def wishes(self) -> dict[str, float]:
        """What an operator asks of all who have this file open; see `wish`."""
        return dict(self.rows("SELECT name, value FROM wishes"))

    def wish(self, **values: float) -> None:
        with self.transaction() as write:
            write.executemany("INSERT OR REPLACE INTO wishes VALUES (?, ?)", values.items())

    def damage(self) -> list[str]:
        """A sentence for each damaged part; `VaultDamaged` where the file cannot be read."""
        words = [row[0] for row in self.rows("PRAGMA integrity_check(10)")]
        tables = self.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        if sorted(row[0] for row in tables) != sorted(self._statements):
            words = ["its tables are not those that this version makes"]
        if words != ["ok"]:
            raise VaultDamaged(
                f"{self.path} is damaged: {'; '.join(words)}. Restore it from a backup."
            )
        found = []
        for table, intact in self._row_sums().items():
            (n,) = self.row(f"SELECT count(*) FROM {table} WHERE NOT {intact}")
            if n:
                found.append(f"{n:,} rows of the table {table} are not what was written")
        n_counted = self._count.read()
        n_commits, is_intact = self._read_seal()
        if not is_intact:
            found.append(_UNSEALED)
        if n_counted is None:
            found.append(f"{self._count.path}, which counts commits, is missing or damaged")
        elif n_counted > n_commits:
            found.append(f"{n_counted - n_commits:,} commits are lost")
        return found

    def leave_out_damage(self) -> None:
        """Continue with the rows that are as they were written."""
        with self.transaction() as write:
            for table, intact in self._row_sums().items():
                write.execute(f"DELETE FROM {table} WHERE NOT {intact}")
            n = write.execute("UPDATE seal SET commits = commits RETURNING commits").fetchall()
        self._count.begin(n[0][0] + 1)

    def _row_sums(self) -> dict[str, str]:
        """By table: that the checksum of a row is right."""
        tables = [
            row[0] for row in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        columns = {table: _columns(self._reader, table) for table in tables if table != "seal"}
        return {
            table: f"row_sum = {_sum_of(names[:-1])}"
            for table, names in columns.items()
            if names[-1] == "row_sum"
        }

    def copy_to(self, path: Path) -> None:
        """A consistent copy, also while the file is in use; without the order of arrival."""
        with _storage_errors(), closing(sqlite3.connect(self.path)) as source:
            create_private(path)
            with closing(sqlite3.connect(path)) as copy:
                source.backup(copy)
                copy.execute("VACUUM")
                (n_commits,) = copy.execute("SELECT commits FROM seal").fetchone()
        with closing(CommitCount(path.with_suffix(".count"))) as count:
            count.begin(n_commits)

    def rewrite(self, table: str, which: str, values: Sequence[Any]) -> None:
        """Rewrite the rows of a table for which a condition holds, in the order of their keys.

        Within a page SQLite leaves rows where they were written, in the order in which they came.
        """
        rows = f"{table} WHERE {which}"
        with self.transaction() as write:
            write.execute(f"CREATE TEMP TABLE rewritten AS SELECT * FROM {rows}", values)
            write.execute(f"DELETE FROM {rows}", values)
            write.execute(f"INSERT INTO {table} SELECT * FROM rewritten")
            write.execute("DROP TABLE rewritten")

    def tidy(self) -> None:
        """Bring a long write-ahead log into the file, in the background of those who write.

        Two passes without a lock leave little to do for the third, after which the log starts
        anew. Left to SQLite, a writer would stop for the whole of it.
        """
        self._count.flush()
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
        """Empty the write-ahead log, so that it keeps neither deleted rows nor the order of rows.
        If a reader blocks this, `tidy` does it later."""
        with self._writing, _storage_errors():
            self._log_has_deleted = not _empty_log(self._writer)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",  # one that was deleted is not made anew
            timeout=self._busy_seconds, isolation_level=None, check_same_thread=False, uri=True,
        )  # fmt: skip
        connection.create_function("crc32", 1, zlib.crc32, deterministic=True)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA wal_autocheckpoint = 50000")  # `tidy` comes long before
        connection.execute("PRAGMA cache_size = -49152")
        return connection

    def _check_files(self) -> None:
        """Refuse to write where the folder no longer has the files that are open.

        What is written to a file that was deleted or replaced is gone with this process.
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


def row_sum(*values: bytes | str | int) -> int:
    """The checksum of the values of a row."""
    return zlib.crc32(b",".join(v if isinstance(v, bytes) else str(v).encode() for v in values))


def _sum_of(columns: Sequence[str]) -> str:
    """`row_sum` in SQL: all rows of a large table are checked in a second.

    Tables are STRICT, so that `PRAGMA integrity_check` sees a value of another type.
    """
    values = " || ',' || ".join(columns)
    return f"crc32(CAST({values} AS BLOB))"


_OWN_TABLES = (
    "CREATE TABLE seal (commits INTEGER NOT NULL, row_sum INTEGER NOT NULL) STRICT",
    "CREATE TABLE wishes (name TEXT PRIMARY KEY, value REAL NOT NULL) STRICT, WITHOUT ROWID",
)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _content(connection: sqlite3.Connection, table: str) -> str:
    """An expression for all rows of a table as one text."""
    row = " || ',' || ".join(f"quote({name})" for name in _columns(connection, table))
    return f"(SELECT coalesce(group_concat({row}), '') FROM (SELECT * FROM {table} ORDER BY 1))"


class CommitCount:
    """How many commits a database has had, in a small file beside it.

    It is written after a commit, so after a power cut it may be behind, but never ahead.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._written = 0

    def begin(self, n: int) -> None:
        os.pwrite(self._file, _count_text(n), 0)
        os.ftruncate(self._file, len(_count_text(n)))
        os.fsync(self._file)
        sync_folder(self.path.parent)

    def read(self) -> int | None:
        return _count_in(os.pread(self._file, 64, 0))

    def raise_to(self, n: int) -> None:
        """Raise the count to n; a damaged count is left, so that the next start reports it."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            before = self.read()
            if before is not None and n > before:
                os.pwrite(self._file, _count_text(n), 0)
                self._written = n
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def flush(self) -> None:
        if self._written:
            self._written = 0
            os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _count_text(n: int) -> bytes:
    digits = b"%020d" % n
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def _count_in(text: bytes) -> int | None:
    """None where it is not what was written."""
    digits = text[:20]
    return int(digits) if digits.isdigit() and text == _count_text(int(digits)) else None


def _check_unopened(path: Path, version: int, leave_damaged: bool) -> None:
    """Refuse a file of another version, or one that has lost commits.

    It and its log stay as they are: whoever closes one that was opened to write deletes its log.
    """
    count = path.with_suffix(".count")
    n_counted = (_count_in(count.read_bytes()) if count.exists() else None) or 0
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as read:
        found = read.execute("PRAGMA user_version").fetchone()[0]
        if found == version and not leave_damaged:
            (n_commits,) = read.execute("SELECT commits FROM seal").fetchone()
            if n_counted > n_commits:
                raise VaultDamaged(
                    f"{n_counted - n_commits:,} of {n_counted:,} commits to {path} are lost, with "
                    f"reports that were acknowledged: its log {path.name}-wal is missing, cut or "
                    f"damaged, or it is an older copy. {REMEDY}"
                )
    if found not in (0, version):
        writer = "a newer nextapp; install that one"
        if found < version:
            writer = "an earlier nextapp; install that one, or begin anew in another folder"
        raise ValueError(
            f"{path} has the schema {found}, this version knows {version}: it was written by "
            f"{writer}."
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
