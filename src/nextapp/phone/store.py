"""All that a phone keeps, in one SQLite file: launches, model, reports, privacy ledger.

What "kept" means, and why it holds, stands in docs/phone.md. In short: once `Store.add` returns, a
launch survives the death of the process; once `Store.flush` returns, and at most `flush_after`
seconds later in any case, it survives a power cut. What costs privacy, `Store.charge_report`, is on
the disk itself before it returns.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from nextapp.phone.core import LONGEST_NAME, PREDICTORS, Closing, Limits
from nextapp.phone.ledger import (
    DAY,
    LATEST,
    Ledger,
    StoreBusy,
    StoreError,
    StoreFull,
    check_clock,
    file_errors,
)
from nextapp.privacy.tokens import Blinding, Token
from nextapp.settings import unknown
from nextapp.storage import create_atomically, write_atomically
from nextapp.wire import Report

WINDOW = 90 * DAY

_APPLICATION = int.from_bytes(b"nxap")
_PAGE = 4096
_DIGITS = 6  # of a clock: what a written time holds

VERSION = 7
"""Of the file. There are no migrations before the first release."""

_SCHEMA = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    """CREATE TABLE apps (
        number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given to another app
        name TEXT NOT NULL UNIQUE
    )""",
    """CREATE TABLE launches (
        number INTEGER PRIMARY KEY,  -- in the order they came, not by their clocks
        app INTEGER NOT NULL,
        clock REAL NOT NULL,         -- seconds since 1970, UTC
        zone INTEGER NOT NULL        -- seconds by which local time was ahead of UTC
    )""",
    """CREATE TABLE marks (             -- what the owner said of apps; never reported
        app INTEGER NOT NULL,
        mark TEXT NOT NULL,          -- hidden, dismissed, installed or removed
        clock REAL NOT NULL,         -- since when; of dismissed: until when
        PRIMARY KEY (app, mark)
    ) WITHOUT ROWID""",
    """CREATE TABLE broadcast (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        round INTEGER NOT NULL,
        digest TEXT NOT NULL,        -- SHA-256 of the bytes, computed here
        chain TEXT NOT NULL,         -- of the broadcasts before it
        fetched REAL NOT NULL,
        data BLOB NOT NULL
    )""",
    """CREATE TABLE reports (
        server TEXT NOT NULL,
        round INTEGER NOT NULL,
        drawn REAL NOT NULL,
        mechanism TEXT NOT NULL,
        epsilon REAL NOT NULL,
        n_bytes INTEGER NOT NULL,
        data BLOB,                   -- until the server has it or no longer wants it
        token TEXT,                  -- that goes with these bytes and no others; as long as they
        attempts INTEGER NOT NULL,
        state TEXT NOT NULL,
        message TEXT NOT NULL,
        settled REAL,
        PRIMARY KEY (server, round)
    )""",
    """CREATE TABLE tokens (
        key TEXT NOT NULL,           -- that signs it, by its id
        number INTEGER NOT NULL,
        blinding BLOB,               -- kept before the server is asked, until it has answered
        token TEXT,                  -- signed; both are NULL once it is spent
        ready REAL,                  -- from when on it may be spent
        PRIMARY KEY (key, number)
    )""",
    """CREATE TABLE predictor (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        upto INTEGER NOT NULL,       -- the last launch it has learnt
        data BLOB NOT NULL
    )""",
    "INSERT INTO settings VALUES ('identity', lower(hex(randomblob(16))))",
    f"PRAGMA user_version = {VERSION}",
)


class OtherVersion(StoreError):
    """Another version of this program made the file."""


class AlreadyDrawn(StoreError):
    """There is a report for this round already; a second one would leak anew."""


class TooSoon(StoreError):
    """The hours that the owner wants between two reports are not over; ``again`` is when they are.

    A clock that says less than it said at the last report is not believed either.
    """

    def __init__(self, last: float, when: float, hours: float) -> None:
        super().__init__(
            f"the last report was drawn {(when - last) / 3600:.1f} hours ago, and this phone's "
            f"limit is one every {hours:g} hours."
        )
        self.again = last + 3600 * hours


class Launch(NamedTuple):
    number: int
    app: int
    clock: float
    zone: int
    name: str


class Mark(NamedTuple):
    """What the owner said of an app, such as hidden; `clock` is since when, of dismissed until."""

    app: int
    mark: str
    clock: float
    name: str


class StoredBroadcast(NamedTuple):
    """The current broadcast: its bytes, their digest, and the chain of those before it."""

    round: int
    digest: str
    chain: str
    fetched: float
    data: bytes


class DrawnReport(NamedTuple):
    """A report that was drawn and charged. Its bytes are kept while it may still be sent.

    ``state`` is drawn, accepted, closed (the round ended first), refused, or withdrawn (by the
    person, before the server acknowledged it).
    """

    server: str
    round: int
    drawn: float
    mechanism: str
    epsilon: float
    n_bytes: int
    data: bytes | None
    token: str | None = None
    attempts: int = 0
    state: str = "drawn"
    message: str = ""
    settled: float | None = None


_INTO_REPORTS = f"INTO reports VALUES ({', '.join('?' * len(DrawnReport._fields))})"


class Store(Closing):
    """The file of one phone. One thread at a time; any number of processes.

    Parameters
    ----------
    path
        A file made by `Store.create`. A missing or foreign one is refused, and one of another
        version.
    patience
        Seconds to wait for another process that is writing.
    flush_after
        Seconds after which launches are on the disk itself, by a thread of their own; None leaves
        that to `flush` and `close`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        patience: float = 5.0,
        flush_after: float | None = 1.0,
    ) -> None:
        self.path = _file_named(path)
        if not self.path.exists() or self.path.stat().st_size == 0:
            raise StoreError(
                f"{self.path} is missing or empty. A phone is set up once, by Store.create or "
                f"'nextapp phone init'; if it was, its history and its ledger are lost."
            )
        self._ledger: Ledger | None = None
        self._flush_after = flush_after
        self._timer: threading.Timer | None = None
        self._is_due = False  # a flush, by the timer
        self._failed: OSError | None = None  # the last one
        self._connection = sqlite3.connect(
            self.path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            with file_errors(self.path):
                self._open()
            self._wal = os.open(f"{self.path}-wal", os.O_RDONLY)
        except OSError as error:
            self._connection.close()
            raise StoreFull(f"{self.path} cannot be used: {error}.") from error
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        lifetime: float = Limits.lifetime,
        per_day: float = Limits.per_day,
        per_report: float = Limits.per_report,
        hours: float = Limits.hours,
        mechanisms: Iterable[str] = Limits.mechanisms,
        predictor: str = "nextapp",
        window: float = WINDOW,
        witness: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """A new phone with the limits of its owner (see `Limits`) and its seconds of history.

        ``predictor`` is how it predicts, one of `PREDICTORS`; it answers no other questions than
        those that this needs. The file appears whole or not at all, and never in the place of
        another. ``witness`` is a file outside of it that shows if an old copy is put back; by
        default it lies beside it.
        """
        limits = Limits(per_report, per_day, lifetime, hours, tuple(mechanisms))
        if not (math.isfinite(window) and window > 0):
            raise ValueError(f"window must be a finite number of seconds > 0, got {window!r}.")
        if predictor not in PREDICTORS:
            raise ValueError(unknown("predictor", predictor, PREDICTORS))
        path = _file_named(path)
        if path.exists():
            raise StoreError(
                f"{path} is there already; a new phone in its place would have its whole privacy "
                f"budget again. Give another name, or delete it by hand."
            )
        try:
            with (
                create_atomically(path) as draft,
                closing(sqlite3.connect(draft, isolation_level=None)) as connection,
            ):
                connection.execute(f"PRAGMA page_size = {_PAGE}")
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("BEGIN")
                for statement in _SCHEMA:
                    connection.execute(statement)
                Ledger.create(connection, lifetime=lifetime, per_day=per_day)
                connection.execute("COMMIT")
                values = _limits_beside_ledger(limits)
                values |= {"window": float(window), "predictor": predictor}
                if witness is not None:
                    values["witness"] = str(Path(witness).resolve())
                connection.executemany("INSERT INTO settings VALUES (?, ?)", values.items())
        except (OSError, sqlite3.Error) as error:
            raise StoreFull(f"{path} cannot be made: {error}.") from error
        return cls(path, **options)

    @classmethod
    def open_or_create(cls, path: str | os.PathLike[str], **settings: Any) -> Self:
        """The phone in this file; if there is no file a new one, by `create` with these settings.

        Where a lost file must be noticed, since its ledger is lost too, create a phone once.
        """
        return cls(path) if _file_named(path).exists() else cls.create(path, **settings)

    def _open(self) -> None:
        run = self._connection.execute
        if run("PRAGMA application_id").fetchone() != (_APPLICATION,):
            raise StoreError(f"{self.path} is a database of something else, not a phone's store.")
        (version,) = run("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise OtherVersion(
                f"{self.path} has version {version}, but this program reads version {VERSION}. Use "
                f"the program that made it; or export its launches with that (nextapp phone export "
                f"--format csv), set up a new phone (init) and import them. Nothing was changed."
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA secure_delete = ON")
        run(f"PRAGMA journal_size_limit = {1 << 20}")
        run("PRAGMA fullfsync = 1")  # Apple's fsync does not reach the disk without it
        run("PRAGMA checkpoint_fullfsync = 1")
        run("SELECT COUNT(*) FROM settings").fetchone()  # the first read makes the WAL

    # --- settings ------------------------------------------------------------------------------

    def setting(self, name: str) -> Any:
        """A value by its name; None where there is none."""
        row = self._one("SELECT value FROM settings WHERE name = ?", name)
        return None if row is None else row[0]

    def set(self, **values: str | float | None) -> None:
        """Keep values by name; None removes one. On the disk itself when this returns."""
        with self._transaction():
            self._set(**values)
        self.flush()

    def _set(self, **values: str | float | None) -> None:
        for name, value in values.items():
            if value is None:
                self._run("DELETE FROM settings WHERE name = ?", name)
            else:
                self._run("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)

    @property
    def window(self) -> float:
        return float(self.setting("window"))

    @property
    def predictor(self) -> str:
        """How this phone predicts, one of `PREDICTORS`."""
        return str(self.setting("predictor"))

    @property
    def history_gaps(self) -> int:
        """How often a server was believed whose history did not continue the known one."""
        return int(self.setting("history_gaps") or 0)

    # --- what other processes did --------------------------------------------------------------

    @property
    def foreign_changes(self) -> int:
        """A number that changes when another process has written."""
        with file_errors(self.path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    @property
    def epoch(self) -> int:
        """A number that changes when launches were taken away or put between others."""
        return int(self.setting("epoch") or 0)

    # --- launches ------------------------------------------------------------------------------

    def add(self, name: str, clock: float, zone: int = 0) -> Launch:
        """A launch, kept when this returns: it survives a kill at once, a power cut by `flush`."""
        check_launch(name, clock, zone)
        clock = round(clock, _DIGITS)
        with file_errors(self.path):
            row = self._connection.execute(_ADD, (clock, zone, name)).fetchone()
        if row is None:
            with self._transaction():
                self._number_of(name)
                row = self._connection.execute(_ADD, (clock, zone, name)).fetchone()
        self._flush_soon()
        number, app = row
        return Launch(number, app, clock, zone, name)

    def merge(self, launches: Iterable[tuple[str, float, int]]) -> int:
        """Put launches (name, clock, zone) where their clocks say; those held already count once.

        Returns how many were new. All or none are kept, on the disk itself.
        """
        given = []
        for name, clock, zone in launches:
            check_launch(name, clock, zone)
            given.append((name, round(clock, _DIGITS), zone))
        with self._transaction():
            names = {
                name: self._number_of(name) for name in dict.fromkeys(name for name, *_ in given)
            }
            held = self.launches()
            known = {(launch.app, launch.clock) for launch in held}
            rows = [launch[1:4] for launch in held]
            for name, clock, zone in given:
                if (names[name], clock) not in known:
                    known.add((names[name], clock))
                    rows.append((names[name], clock, zone))
            n_new = len(rows) - len(held)
            first = held[-1].number + 1 if held else 1
            rows.sort(key=lambda row: row[1])
            self._run("DELETE FROM launches")
            self._connection.executemany(
                "INSERT INTO launches VALUES (?, ?, ?, ?)",
                ((number, *row) for number, row in enumerate(rows, first)),
            )
            self._run("DELETE FROM predictor")
            self._set(epoch=self.epoch + 1)
        self.flush()
        return n_new

    def launches(self, after: int = 0) -> list[Launch]:
        """The launches with a number above `after`, in order."""
        rows = self._all(
            "SELECT launches.number, app, clock, zone, name FROM launches"
            " JOIN apps ON apps.number = app WHERE launches.number > ? ORDER BY launches.number",
            after,
        )
        return [Launch(*row) for row in rows]

    def n_launches(self, since: float = 0.0) -> int:
        """How many launches have been kept since this time."""
        row = self._one("SELECT COUNT(*) FROM launches WHERE clock >= ?", since)
        return int(row[0]) if row else 0

    def first_number(self) -> int:
        """The number of the oldest launch; 1 where there is none."""
        row = self._one("SELECT MIN(number) FROM launches")
        return 1 if row is None or row[0] is None else int(row[0])

    @property
    def names(self) -> dict[str, int]:
        """The number of every app of the history, and of those with marks, by name."""
        return dict(self._all("SELECT name, number FROM apps"))

    def drop_before(self, number: int) -> None:
        """Forget launches that left the window, names without launches, and give the room back."""
        with self._transaction():
            self._run("DELETE FROM launches WHERE number < ?", number)
            self._drop_unused_names()
        with file_errors(self.path):
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute does one page

    def drop_app(self, name: str) -> int:
        """Forget an app, its launches and its marks; the number of launches that went."""
        with self._transaction():
            row = self._one("SELECT number FROM apps WHERE name = ?", name)
            if row is None:
                return 0
            gone = self._run("DELETE FROM launches WHERE app = ?", row[0])
            self._run("DELETE FROM marks WHERE app = ?", row[0])
            self._run("DELETE FROM apps WHERE number = ?", row[0])
            self._run("DELETE FROM predictor")
            self._set(epoch=self.epoch + 1)
        self._overwrite()
        return gone

    def _drop_unused_names(self) -> None:
        self._run(
            "DELETE FROM apps WHERE number NOT IN"
            " (SELECT app FROM launches UNION SELECT app FROM marks)"
        )

    def _number_of(self, name: str) -> int:
        """The number of an app; a new one if its name is new."""
        row = self._one("SELECT number FROM apps WHERE name = ?", name)
        if row is None:
            self._run("INSERT INTO apps (name) VALUES (?)", name)
            row = self._one("SELECT last_insert_rowid()")
        return int(row[0]) if row else 0

    # --- what the owner says of apps -----------------------------------------------------------

    def marks(self) -> list[Mark]:
        rows = self._all(
            "SELECT app, mark, clock, name FROM marks JOIN apps ON apps.number = app"
            " ORDER BY name, mark"
        )
        return [Mark(*row) for row in rows]

    def mark(self, names: Iterable[str], mark: str, clock: float, off: Iterable[str] = ()) -> None:
        """Give apps a mark, and take others off; on the disk itself when this returns."""
        names = list(names)
        check_clock(clock)
        for name in names:
            check_name(name)
        with self._transaction():
            for name in names:
                app = self._number_of(name)
                self._unmark(app, off)
                self._run("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", app, mark, clock)
        self.flush()

    def unmark(self, name: str, marks: Iterable[str]) -> None:
        check_name(name)
        with self._transaction():
            self._unmark(self.names.get(name, 0), marks)
            self._drop_unused_names()
        self.flush()

    def _unmark(self, app: int, marks: Iterable[str]) -> None:
        for mark in marks:
            self._run("DELETE FROM marks WHERE app = ? AND mark = ?", app, mark)

    # --- model ---------------------------------------------------------------------------------

    def broadcast(self) -> StoredBroadcast | None:
        row = self._one("SELECT round, digest, chain, fetched, data FROM broadcast")
        return None if row is None else StoredBroadcast(*row)

    def broadcast_digest(self) -> str | None:
        """The digest of the current broadcast; cheaper than reading its bytes."""
        row = self._one("SELECT digest FROM broadcast")
        return None if row is None else str(row[0])

    def keep_broadcast(self, held: StoredBroadcast) -> None:
        self._run("INSERT OR REPLACE INTO broadcast VALUES (1, ?, ?, ?, ?, ?)", *held)

    def drop_broadcast(self) -> None:
        """Delete the current broadcast, if the phone leaves the server that it came from."""
        self._run("DELETE FROM broadcast")

    def snapshot(self) -> tuple[int, bytes] | None:
        """The saved predictor, behind the number of the last launch that it had learnt."""
        row = self._one("SELECT upto, data FROM predictor")
        return None if row is None else (row[0], row[1])

    def keep_snapshot(self, upto: int, data: bytes) -> None:
        """Save the predictor; when it is loaded, it learns from the launches since."""
        self._run("INSERT OR REPLACE INTO predictor VALUES (1, ?, ?)", upto, data)

    def drop_snapshot(self) -> None:
        """Delete the saved predictor; it is learnt again from the launches."""
        self._run("DELETE FROM predictor")

    # --- tokens --------------------------------------------------------------------------------

    def blindings(self, key: str, fresh: Callable[[], list[Blinding]]) -> list[Blinding] | None:
        """What to ask the server for: as it was asked before, or else `fresh` ones.

        On the disk itself when this returns, so that a lost answer or a crash loses no token and
        asks for no second one. None where this key's tokens were asked for and answered.
        """
        with self._transaction():
            if self._one("SELECT 1 FROM tokens WHERE key = ?", key) is None:
                self._connection.executemany(
                    "INSERT INTO tokens VALUES (?, ?, ?, NULL, NULL)",
                    [(key, n, each.to_bytes()) for n, each in enumerate(fresh())],
                )
            where = "key = ? AND blinding IS NOT NULL ORDER BY number"
            rows = self._all(f"SELECT blinding FROM tokens WHERE {where}", key)
        self.flush()
        return [Blinding.from_bytes(row[0]) for row in rows] or None

    def keep_tokens(self, key: str, tokens: Iterable[Token], ready: float) -> None:
        """Keep what the server has signed, in the order in which it was asked; on the disk."""
        with self._transaction():
            for number, token in enumerate(tokens):
                self._run(
                    "UPDATE tokens SET blinding = NULL, token = ?, ready = ?"
                    " WHERE key = ? AND number = ? AND blinding IS NOT NULL",
                    token.text, ready, key, number,
                )  # fmt: skip
        self.flush()

    def drop_tokens(self) -> None:
        """Forget all tokens: the phone leaves the server they are for, or may have spent them."""
        self._run("DELETE FROM tokens")

    def give_up_tokens(self, key: str) -> None:
        """Never use tokens of a key, and ask for none of it again."""
        self._run("UPDATE tokens SET blinding = NULL, token = NULL WHERE key = ?", key)

    def unspent(self, keys: Iterable[str]) -> list[tuple[Token, float]]:
        """Tokens of these keys, and when each may be spent; the earliest first."""
        rows = self._all("SELECT token, ready FROM tokens WHERE token IS NOT NULL ORDER BY ready")
        found = [(Token.from_text(text), float(ready)) for text, ready in rows]
        return [each for each in found if each[0].key in set(keys)]

    # --- reports -------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The privacy ledger, in the same file. Raises where it is damaged or gone."""
        if self._ledger is None:
            ledger = Ledger(self._connection, self.path)
            try:
                record = self._witness.record()
            except OSError as error:
                raise StoreFull(f"{self._witness.path} cannot be read ({error}).") from error
            if missing := ledger.restore_spent(record.spent, record.drawn):
                self._note_lost(record, missing)
                self.drop_tokens()  # they may have been spent since
            self._ledger = ledger
            self._note_spent()
        return self._ledger

    def _note_lost(self, record: Spending, epsilon: float) -> None:
        """Note the latest report of a file in whose place an older copy was put, with the ε of
        all that are missing."""
        lost = DrawnReport(
            server=record.server,
            round=record.round,
            drawn=record.drawn,
            mechanism="unknown",
            epsilon=epsilon,
            n_bytes=0,
            data=None,
            attempts=1,
            state="lost",
            message="an older copy of this file was put back; this was charged since",
            settled=record.drawn,
        )
        self._run(f"INSERT OR IGNORE {_INTO_REPORTS}", *lost)

    @property
    def _witness(self) -> Witness:
        beside = self.path.with_name(f"{self.path.name}.witness")
        return Witness(Path(self.setting("witness") or beside), str(self.setting("identity")))

    def _note_spent(self) -> None:
        """Put what was spent on record outside this file."""
        last = self._one("SELECT drawn, server, round FROM reports ORDER BY rowid DESC LIMIT 1")
        drawn, server, round_ = last or (0.0, "", 0)
        spent = self.ledger.spent(0.0).lifetime
        try:
            self._witness.note(Spending(spent, float(drawn), str(server), int(round_)))
        except OSError as error:
            raise StoreFull(
                f"{self._witness.path} cannot be written ({error}); it must be, as it shows if an "
                f"old copy of {self.path} is put back. Nothing was sent."
            ) from error

    @property
    def limits(self) -> Limits:
        """What the owner of this phone allows."""
        budgets = self.ledger.budgets()
        return Limits(
            float(self.setting("per_report")),
            budgets.today,
            budgets.lifetime,
            float(self.setting("hours")),
            tuple(str(self.setting("mechanisms")).split()),
        )

    def limit(self, limits: Limits, *, loosen: bool = False) -> None:
        """Set the owner's limits anew; looser ones only if it is meant. The ledger tells of it."""
        looser = limits.looser_than(self.limits)
        if looser and not loosen:
            raise ValueError(
                f"{', '.join(looser)} would allow more than the owner was promised; if that is "
                f"meant, give --raise (loosen=True)."
            )
        self.ledger.set_budgets(lifetime=limits.lifetime, per_day=limits.per_day)
        self.set(**_limits_beside_ledger(limits))

    def trust_clock(self, when: float, ready: float) -> None:
        """Believe a clock. Reports dated in the future by a wrong one are dated now, from which the
        hours to the next report count; tokens are ready by `ready`."""
        self.ledger.trust_clock(when)
        self._run("UPDATE reports SET drawn = ?1 WHERE drawn > ?1", when)
        self._run("UPDATE tokens SET ready = ?1 WHERE ready > ?1", ready)

    def check_charge(self, epsilon: float, when: float, *, hours: float | None = 0.0) -> None:
        """Raise what `charge_report` would raise for a report of another round; charge nothing."""
        self.ledger.check(epsilon, when)
        with file_errors(self.path):
            _check_pause(self._connection.cursor(), when, hours)

    def charge_report(
        self,
        server: str,
        report: Report,
        epsilon: float,
        when: float,
        token: Token | None = None,
        *,
        hours: float | None = 0.0,
    ) -> DrawnReport:
        """Charge a drawn report, spend its token, keep its bytes: all on the disk itself, or none.

        There is one report for a server and round, one for a token, and one in `hours`. A budget
        that is spent raises the ledger's `BudgetSpent`, a clock that is not believed `ClockError`,
        one that comes too early `TooSoon`; then nothing may be sent. Without a token no server
        takes it: it is for practice.
        """
        data = report.to_bytes()
        drawn = DrawnReport(
            server=server,
            round=report.round,
            drawn=when,
            mechanism=report.mechanism,
            epsilon=epsilon,
            n_bytes=len(data),
            data=data,
            token=None if token is None else token.text,
        )

        def keep(cursor: sqlite3.Cursor) -> None:
            there = cursor.execute(
                "SELECT 1 FROM reports WHERE server = ? AND round = ?", (server, report.round)
            ).fetchone()
            if there is not None:
                raise AlreadyDrawn(f"a report for round {report.round} was drawn already.")
            _check_pause(cursor, when, hours)
            spend = "UPDATE tokens SET token = NULL WHERE token = ?"
            if token is not None and cursor.execute(spend, (token.text,)).rowcount != 1:
                raise AlreadyDrawn("the token went with another report.")
            cursor.execute(f"INSERT {_INTO_REPORTS}", drawn)

        self.ledger.charge(
            epsilon, when, round=report.round, mechanism=report.mechanism, along=keep
        )
        self._note_spent()
        return drawn

    def reports(self, server: str | None = None, state: str | None = None) -> list[DrawnReport]:
        """Every report that was drawn, oldest first; of one server or in one state if named."""
        rows = self._all(
            f"SELECT {', '.join(DrawnReport._fields)} FROM reports"
            " WHERE (?1 IS NULL OR server = ?1) AND (?2 IS NULL OR state = ?2)"
            " ORDER BY rowid",
            server,
            state,
        )
        return [DrawnReport(*row) for row in rows]

    def begin_sending(self, report: DrawnReport) -> tuple[bytes, str] | None:
        """Note that a report is about to be sent: from now on it may have left.

        Its bytes and token; None where it was withdrawn or settled meanwhile, and must not be sent.
        """
        row = self._one(
            "UPDATE reports SET attempts = attempts + 1"
            " WHERE server = ? AND round = ? AND state = 'drawn' RETURNING data, token",
            report.server,
            report.round,
        )
        self.flush()
        return None if row is None else (bytes(row[0]), str(row[1]))

    def settle(self, report: DrawnReport, state: str, message: str, when: float) -> None:
        """Note what became of a report; its bytes are no longer needed."""
        self._run(
            "UPDATE reports SET data = NULL, token = NULL, state = ?, message = ?, settled = ?"
            " WHERE server = ? AND round = ? AND state = 'drawn'",
            state, message, float(when), report.server, report.round,
        )  # fmt: skip
        self.flush()

    # --- keeping and erasing -------------------------------------------------------------------

    def flush(self) -> None:
        """All that was kept so far is on the disk itself when this returns."""
        self._raise_failed()
        try:
            self._sync_wal()
        except OSError as error:
            raise StoreFull(f"{self.path} cannot be flushed to the disk: {error}.") from error

    def checkpoint(self) -> None:
        """Flush, and empty the WAL unless another process reads it: no later write has to."""
        self.flush()
        self._run("PRAGMA wal_checkpoint(PASSIVE)")

    def erase(self, when: float) -> None:
        """Erase launches, names, marks, predictor, broadcast and reports not yet settled.

        Settings, the ledger and the list of what has left stay. The bytes are overwritten in the
        file and its WAL; raises `StoreBusy` where another process keeps that from being done, and
        is then to be called again.
        """
        with self._transaction():
            for table in ("launches", "marks", "apps", "predictor", "broadcast"):
                self._run(f"DELETE FROM {table}")
            self._run("DELETE FROM sqlite_sequence WHERE name = 'apps'")
            self._run(
                "UPDATE reports SET data = NULL, token = NULL, state = 'withdrawn', settled = ?,"
                " message = 'the history was erased' WHERE state = 'drawn'",
                float(when),
            )
            self._set(epoch=self.epoch + 1)
        self._overwrite()

    def _overwrite(self) -> None:
        """Leave no trace of deleted rows in the file or in its WAL."""
        with file_errors(self.path):
            self._connection.execute("VACUUM")
            busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreBusy(
                f"the rows are deleted, but another process reads {self.path} and keeps its old "
                f"pages in the WAL: close it and do the same again."
            )

    @property
    def n_bytes(self) -> int:
        wal = Path(f"{self.path}-wal")
        return self.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)

    def close(self) -> None:
        """Flush and close. Closing twice is no error."""
        if self._wal < 0:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        try:
            with suppress(OSError):
                self._sync_wal()
            self._connection.close()
        finally:
            os.close(self._wal)
            self._wal = -1

    def _flush_soon(self) -> None:
        """Flush once in a while, by a thread of its own, however many launches come meanwhile."""
        if self._flush_after is None or self._is_due:
            return
        self._raise_failed()
        self._is_due = True
        self._timer = threading.Timer(self._flush_after, self._flush_now)
        self._timer.daemon = True
        self._timer.start()

    def _flush_now(self) -> None:
        self._is_due = False
        try:
            self._sync_wal()
        except OSError as error:
            self._failed = error

    def _raise_failed(self) -> None:
        """Raise what went wrong in the thread, once."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise StoreFull(f"launches could not be flushed to the disk: {failed}.") from failed

    def _sync_wal(self) -> None:
        """Push the WAL to the disk. Its frames are in order, so the disk holds a prefix of them.

        A checkpoint syncs the WAL itself before it starts it anew. There are no locks on this file,
        so that holding it open takes none away.
        """
        os.fsync(self._wal)

    # --- SQLite --------------------------------------------------------------------------------

    def _run(self, statement: str, *values: Any) -> int:
        with file_errors(self.path):
            return self._connection.execute(statement, values).rowcount

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        with file_errors(self.path):
            row: tuple[Any, ...] | None = self._connection.execute(statement, values).fetchone()
            return row

    def _all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with file_errors(self.path):
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with file_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


_ADD = """INSERT INTO launches (app, clock, zone) SELECT number, ?, ? FROM apps WHERE name = ?
    RETURNING number, app"""


def _check_pause(cursor: sqlite3.Cursor, when: float, hours: float | None) -> None:
    """Raise `TooSoon` if the last report was drawn less than `hours` ago; None asks for no pause.

    A clock that was set back to before the last report has not waited.
    """
    if hours is None:
        return
    latest = "SELECT drawn FROM reports ORDER BY rowid DESC LIMIT 1"
    (last,) = cursor.execute(latest).fetchone() or (None,)
    if last is not None and when - last < 3600 * hours:
        raise TooSoon(last, when, hours)


def _limits_beside_ledger(limits: Limits) -> dict[str, str | float]:
    """The limits that the ledger does not keep."""
    return {
        "per_report": float(limits.per_report),
        "hours": float(limits.hours),
        "mechanisms": " ".join(limits.mechanisms),
    }


def check_launch(name: str, clock: float, zone: int) -> None:
    """Raise where a launch is not one."""
    check_name(name)
    check_clock(clock)
    if not abs(zone) <= DAY:
        raise ValueError(f"zone must be within a day of UTC, in seconds, got {zone!r}.")


def _file_named(path: str | os.PathLike[str]) -> Path:
    """The path of a store, which is no folder and lies in one that is there."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a store is named by the path of its file, got {path!r}.")
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir():
        wrong = "is a folder" if file.is_dir() else f"lies in no folder: make {file.parent} first"
        raise StoreError(f"a phone's store is one file, such as phone.db; {file} {wrong}.")
    return file


def check_name(name: str) -> None:
    """Refuse a name that is empty, unprintable or very long."""
    if not (
        isinstance(name, str)
        and name.isprintable()
        and name == name.strip()
        and 0 < len(name) <= LONGEST_NAME
    ):
        raise ValueError(
            f"an app's name must have 1 to {LONGEST_NAME} printable characters, the first and the "
            f"last no blank, got {name!r:.80}."
        )


class Spending(NamedTuple):
    """ε in all, and the latest report: when it was drawn, for which server and round."""

    spent: float
    drawn: float = 0.0
    server: str = ""
    round: int = 0


class Witness:
    """A second record of what a phone has spent, in a small file outside its store.

    Whoever restores an old copy of the phone's file restores an old privacy ledger with it, and
    would spend the same ε twice. Software alone cannot prevent that. This record makes it visible,
    unless it is restored together with the file: keep it where no backup goes. It holds the largest
    ε that the store of this name was seen to have spent.
    """

    def __init__(self, path: Path, store: str) -> None:
        self.path = path
        self._store = store

    def record(self) -> Spending:
        """What is on record; nothing spent where there is no record of this store."""
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            is_of_store = record.pop("store") == self._store
            found = Spending(**record) if is_of_store else Spending(0.0)
            whole = (
                math.isfinite(found.spent)
                and found.spent >= 0
                and 0 <= found.drawn <= LATEST
                and isinstance(found.server, str)
                and found.round >= 0
            )
        except FileNotFoundError:
            return Spending(0.0)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
            return Spending(0.0)  # damaged: no record
        return found if whole else Spending(0.0)

    def note(self, spending: Spending) -> None:
        """Put a larger ε on record; on the disk itself when this returns."""
        if spending.spent <= self.record().spent:
            return
        record = {"store": self._store, **spending._asdict()}
        write_atomically(self.path, json.dumps(record).encode())
