"""The privacy budget of a phone: every cost is on disk before a report leaves.

Every report costs the ε of its mechanism, and costs add up: 33 reports at 4.5 are 148.5. A `Ledger`
limits a phone to a budget for its lifetime and a budget per UTC day::

    ledger = Ledger("phone.db", lifetime=20.0, per_day=2.0)
    ledger.charge(m.guarantee.epsilon, now, round=7, mechanism=m.name)   # raises if it does not fit
    send(report)                                                        # only after that

The rule for its user: if `charge` raises anything, nothing may be sent. docs/privacy/ledger.md says
what is guaranteed, and why. The ledger is one append-only table in an SQLite file, its own or the
phone's; each line has the totals after it, and a hash (seal) of itself and of the line before.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from nextapp.settings import count
from nextapp.storage import create_atomically

LEAP_DAYS = 31
"""A clock that is further ahead of the last charge is not trusted: see `Ledger.trust_clock`."""

Where = str | os.PathLike[str] | sqlite3.Connection

_DAY = 86_400
_NANO = 10**9  # costs are integers, in billionths of ε
_LARGEST = 10**9  # largest budget, so that every sum fits SQLite's 63 bits
_LAST_SECOND = 253_402_300_799  # of the year 9999

_SCHEMA = (
    """CREATE TABLE main.privacy_ledger (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        clock REAL NOT NULL,
        round TEXT NOT NULL,
        mechanism TEXT NOT NULL,
        key TEXT UNIQUE,
        report BLOB,
        cost INTEGER,
        day INTEGER NOT NULL,
        today INTEGER NOT NULL,
        life INTEGER NOT NULL,
        unprotected_today INTEGER NOT NULL,
        unprotected INTEGER NOT NULL,
        per_day INTEGER NOT NULL,
        lifetime INTEGER NOT NULL,
        seal BLOB NOT NULL
    )""",
    """CREATE TRIGGER main.privacy_ledger_is_never_changed BEFORE UPDATE ON privacy_ledger
        BEGIN SELECT RAISE(ABORT, 'the privacy ledger is append-only'); END""",
    """CREATE TRIGGER main.privacy_ledger_never_forgets BEFORE DELETE ON privacy_ledger
        BEGIN SELECT RAISE(ABORT, 'the privacy ledger is append-only'); END""",
)

_DAMAGE = {
    sqlite3.SQLITE_ERROR,  # no such column, and the like
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}


class LedgerError(RuntimeError):
    """Base class: no report may be sent."""


class BudgetSpent(LedgerError):
    """The charge does not fit. ``again``: when it may fit (seconds since 1970); None: never."""

    def __init__(self, epsilon: float, left: Amounts, again: float | None) -> None:
        when = "never" if again is None else f"from {_utc(again)} UTC on"
        super().__init__(
            f"a report of epsilon {epsilon:.10g} does not fit the privacy budget: "
            f"{left.today:.10g} is left today, {left.lifetime:.10g} for life. "
            f"It may be sent {when}."
        )
        self.left = left
        self.again = again


class ClockError(LedgerError):
    """The clock is too far ahead to be trusted: see `Ledger.trust_clock`."""


class StorageError(LedgerError):
    """The file cannot be used now (locked, full, read-only), but perhaps later."""


class DamagedError(LedgerError):
    """The file is damaged or was changed. It is never replaced by a fresh budget."""


@dataclass(frozen=True)
class Amounts:
    """An ε for the current day and one for the lifetime."""

    today: float
    lifetime: float


@dataclass(frozen=True)
class Entry:
    """One charge. ``when`` is the clock's time, ``day`` the day whose budget it used."""

    number: int
    epsilon: float
    when: float
    day: date
    round: int
    mechanism: str
    key: str | None


@dataclass(frozen=True)
class Receipt:
    """The charge is on disk and its report may be sent. ``resent``: it was charged before."""

    entry: Entry
    left: Amounts
    resent: bool


class _Line(NamedTuple):
    """A row of the table: an event, and the totals after it, in billionths of ε.

    With the values given here, and budgets, it is the line before the first one.
    """

    number: int = 0
    kind: str = "budget"  # or "charge", "clock", "restored"
    clock: float = 0.0
    round: str = ""  # as text: a round has 64 bits, a positive SQLite integer 63
    mechanism: str = ""
    key: str | None = None
    report: bytes | None = None  # SHA-256
    cost: int | None = 0  # None: infinite
    day: int = -1  # since 1970; -1 before the first charge
    today: int = 0
    life: int = 0
    unprotected_today: int = 0
    unprotected: int = 0
    per_day: int = 0
    lifetime: int = 0
    seal: bytes = b""

    def follows(self, before: bytes) -> bool:
        return self.seal == _seal(before, self[:-1])

    def left(self) -> Amounts:
        life = max(0, self.lifetime - self.life)
        today = min(life, max(0, self.per_day - self.today))
        return Amounts(today / _NANO, life / _NANO)

    def spent(self) -> Amounts:
        return Amounts(
            math.inf if self.unprotected_today else self.today / _NANO,
            math.inf if self.unprotected else self.life / _NANO,
        )

    def event(self, kind: str, clock: float = 0.0) -> _Line:
        """A line that charges nothing."""
        return self._replace(
            kind=kind, clock=clock, round="", mechanism="", key=None, report=None, cost=0
        )


_READ = f"SELECT {', '.join(_Line._fields)} FROM main.privacy_ledger"
_WRITE = f"INSERT INTO main.privacy_ledger VALUES ({', '.join('?' * len(_Line._fields))})"


class Ledger:
    """The privacy budget of one phone.

    Parameters
    ----------
    where
        A path, where the file is created if it does not exist, or an open connection to the phone's
        own file, which must have no open transaction when the ledger is used.
    lifetime, per_day
        Budgets in ε, rounded down to billionths, and stored in the file. Smaller budgets replace
        the stored ones; larger ones need `raise_budget`.
    raise_budget
        Allows budgets larger than the stored ones, which changes a promise to the phone's owner.
    """

    def __init__(
        self, where: Where, *, lifetime: float, per_day: float, raise_budget: bool = False
    ) -> None:
        first = _Line(per_day=_budget("per_day", per_day), lifetime=_budget("lifetime", lifetime))
        if not isinstance(where, sqlite3.Connection) and not _path(where).exists():
            _create(_path(where), first)
        self._attach(where)
        try:
            with self._transaction() as cursor:
                if _exists(cursor):
                    _agree(cursor, first, raise_budget)
                else:
                    _check_file(cursor)
                    _write_first_line(cursor, first)
        except BaseException:
            self.close()
            raise

    @classmethod
    def reopen(cls, where: Where) -> Self:
        """An existing ledger, with its stored budgets; never creates a new one."""
        ledger = cls.__new__(cls)
        ledger._attach(where)
        try:
            ledger._lines()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def charge(
        self,
        epsilon: float,
        when: float,
        *,
        round: int,
        mechanism: str,
        key: str | None = None,
        report: bytes | None = None,
        allow_unsafe: bool = False,
        along: Callable[[sqlite3.Cursor], None] | None = None,
    ) -> Receipt:
        """Record a cost durably. The report may be sent once this returns, but not if it raises.

        Parameters
        ----------
        epsilon
            The cost of the whole report, rounded up to billionths. An infinite cost (the mechanism
            'identity') needs `allow_unsafe`; it uses no budget, but `spent` is infinite from then
            on.
        when
            The clock's time, in seconds since 1970. The ledger's day never goes back by itself: if
            the clock is set back, the budget of the latest day so far is used.
        key, report
            A unique name of one report, and the report's bytes. Charging the same bytes again under
            the same key costs nothing: this is a resend after a crash. Other bytes under the same
            key are refused, since a new random report leaks again.
        along
            Callback that writes more in the same transaction, such as the report's bytes: both are
            on disk or neither. If it raises, both are rolled back.
        """
        cost = _cost(epsilon, allow_unsafe)
        day = _day(when)
        _check_words(round, mechanism, key, report)
        digest = None if report is None else hashlib.sha256(report).digest()
        with self._transaction() as cursor:
            last = _last(cursor)
            if key is not None and (known := _line_with_key(cursor, key)) is not None:
                if known[3:8] != (str(round), mechanism, key, digest, cost):
                    raise ValueError(
                        f"the key {key!r} belongs to another report (round {known.round}, "
                        f"{known.mechanism}). A new random report needs its own key and is "
                        f"charged, since it leaks as much again."
                    )
                return Receipt(_entry(known), _on(cursor, last, day).left(), resent=True)
            state = _state_to_charge(cursor, last, day, cost)
            if along is not None:
                along(cursor)
            line = _append(
                cursor,
                state._replace(
                    kind="charge",
                    clock=abs(float(when)),  # SQLite has no -0.0
                    round=str(round),
                    mechanism=mechanism,
                    key=key,
                    report=digest,
                    cost=cost,
                    today=state.today + (cost or 0),
                    life=state.life + (cost or 0),
                    unprotected_today=state.unprotected_today + (cost is None),
                    unprotected=state.unprotected + (cost is None),
                ),
            )
            return Receipt(_entry(line), line.left(), resent=False)

    def check(self, epsilon: float, when: float) -> None:
        """Raise what `charge` would raise for a new report of this cost. Nothing is charged."""
        cost, day = _cost(epsilon, allow_unsafe=False), _day(when)
        with self._cursor() as cursor:
            _state_to_charge(cursor, _last(cursor), day, cost)

    def trust_clock(self, when: float) -> None:
        """Move the ledger to the day of `when`, a time that the caller trusts, such as a server's.

        Needed after a gap of more than `LEAP_DAYS` (the phone was not in use), and useful if the
        ledger's day is wrong (the clock was ahead at a charge). When it moves back, all charges of
        that day and of later days count for that day.
        """
        day = _day(when)
        with self._transaction() as cursor:
            last = _last(cursor)
            state = _on(cursor, last, day)
            if day < last.day:
                state = _counting(cursor, last, day, "day >= ?")
            if last.day >= 0 and state.day != last.day:
                _append(cursor, state.event("clock", abs(float(when))))

    def restore_spent(self, spent: float, when: float) -> float:
        """Catch up with another record: a total of ε = `spent` was charged, last at `when`.

        The missing amount is charged, even beyond the budgets, and returned. If it is not 0, this
        ledger was restored from an older copy.
        """
        if spent <= self._state(0.0).life / _NANO:
            return 0.0
        with self._transaction() as cursor:
            last = _last(cursor)
            missing = math.ceil(_nano(min(spent, _LARGEST))) - last.life
            if missing <= 0:
                return 0.0
            state = _on(cursor, last, _day(when)).event("restored", abs(float(when)))
            today, life = state.today + missing, state.life + missing
            _append(cursor, state._replace(cost=missing, today=today, life=life))
            return missing / _NANO

    def spent(self, when: float) -> Amounts:
        """ε charged on the day of `when`, and in total; infinite after an unprotected report."""
        return self._state(when).spent()

    def left(self, when: float) -> Amounts:
        """ε that may still be charged on the day of `when`, and in total."""
        return self._state(when).left()

    def budgets(self) -> tuple[float, float]:
        """The budgets per day and for the phone's lifetime."""
        last = self._state(0.0)
        return last.per_day / _NANO, last.lifetime / _NANO

    def entries(self) -> list[Entry]:
        """Every charge, oldest first."""
        return [_entry(line) for line in self._lines() if line.kind == "charge"]

    def statement(self, when: float) -> str:
        """The state of the budget as text for the phone's owner."""
        lines = self._lines()
        charges = [line for line in lines if line.kind == "charge"]
        state = self._state(when)
        left = state.left()
        since = f" since {_date(charges[0].day)}" if charges else ""
        n_protected = count(len(charges) - state.unprotected, "report")
        words = [
            f"This phone has sent {n_protected} with privacy protection{since}.",
            f"Together that cost epsilon {_text(state.life)} of the {_text(state.lifetime)} it may "
            f"spend in its life; {left.lifetime:.10g} is left.",
            f"On {_date(state.day)} (UTC) it cost {_text(state.today)} of the "
            f"{_text(state.per_day)} of a day; {left.today:.10g} is left.",
        ]
        if state.unprotected:
            words.append(
                f"{count(state.unprotected, 'report')} left without any protection, as was "
                f"explicitly allowed; no budget covers them."
            )
        if restored := [line.cost or 0 for line in lines if line.kind == "restored"]:
            words.append(
                f"This ledger was restored from an older copy {count(len(restored), 'time')}; the "
                f"epsilon {_text(sum(restored))} spent after that copy was made is counted above."
            )
        if raised := sum(
            new.lifetime > old.lifetime or new.per_day > old.per_day for old, new in pairwise(lines)
        ):
            words.append(f"The budget has been raised {count(raised, 'time')}.")
        return "\n".join(words)

    def close(self) -> None:
        """Close the file, if this ledger opened it."""
        if self._own:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attach(self, where: Where) -> None:
        self._lock = threading.Lock()
        self._own = not isinstance(where, sqlite3.Connection)
        if isinstance(where, sqlite3.Connection):
            self._name = "the connection's database"
            self._connection = where
            if where.text_factory is not str:
                raise ValueError("the connection's text_factory must be str.")
        else:
            self._name = os.fspath(where)
            path = _path(where)
            if not path.exists() or path.stat().st_size == 0:
                raise DamagedError(
                    f"{path} is missing or empty: if there was a ledger, it is lost, so nothing "
                    f"may be sent. Create a phone's first ledger with Ledger(...)."
                )
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._cursor() as cursor:
                self._make_durable(cursor)
        except BaseException:
            self.close()
            raise

    def _make_durable(self, cursor: sqlite3.Cursor) -> None:
        if self._own:
            cursor.execute("PRAGMA main.journal_mode = WAL")
        files = {name: file for _, name, file in cursor.execute("PRAGMA database_list")}
        (mode,) = cursor.execute("PRAGMA main.journal_mode").fetchone()
        if not files["main"] or mode in ("off", "memory"):
            raise ValueError(
                f"a ledger must be kept in a file with a journal on disk, got the file "
                f"{files['main']!r} and journal_mode {mode!r}: a crash would undo charges. Set "
                f"journal_mode to 'wal' before the ledger is opened."
            )
        cursor.execute("PRAGMA fullfsync = 1")  # Apple's fsync does not reach the disk without it
        cursor.execute("PRAGMA checkpoint_fullfsync = 1")

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Cursor]:
        """A cursor for one thread at a time; SQLite errors are raised as ledger errors."""
        with self._lock:
            try:
                cursor = self._connection.cursor()
                cursor.row_factory = None
                yield cursor
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
                if code in _DAMAGE and not isinstance(error, sqlite3.ProgrammingError):
                    raise DamagedError(
                        f"{self._name} is damaged ({error}): what was spent is unknown, so nothing "
                        f"may be sent."
                    ) from error
                raise StorageError(
                    f"{self._name} cannot be used now ({error}): nothing may be sent."
                ) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """A write transaction that is durable on disk when it ends, and rolled back on an error.

        EXTRA is FULL that also syncs the folder if there is a rollback journal: otherwise a power
        cut after a commit could restore the journal and undo the charge. The connection's setting
        is restored afterwards. The checkpoint moves the line to the main file, since a WAL file
        that is damaged or deleted later would lose it silently; if it fails, the line stays in the
        WAL.
        """
        with self._cursor() as cursor:
            if self._connection.in_transaction:
                raise StorageError(
                    "a transaction is open on the ledger's connection, and a charge must be final "
                    "when it returns: commit or roll back first."
                )
            (before,) = cursor.execute("PRAGMA main.synchronous").fetchone()
            cursor.execute("PRAGMA main.synchronous = EXTRA")
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
                with suppress(sqlite3.OperationalError):
                    cursor.execute("PRAGMA main.wal_checkpoint(PASSIVE)").fetchall()
            finally:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                cursor.execute(f"PRAGMA main.synchronous = {before}")

    def _state(self, when: float) -> _Line:
        day = _day(when)
        with self._cursor() as cursor:
            return _on(cursor, _last(cursor), day)

    def _lines(self) -> list[_Line]:
        with self._cursor() as cursor:
            return _read_all_lines(cursor)


def _path(where: str | os.PathLike[str]) -> Path:
    if os.fspath(where) in ("", ":memory:"):
        raise ValueError(f"a ledger must be kept in a file, got {os.fspath(where)!r}.")
    return Path(where)


def _create(path: Path, first: _Line) -> None:
    """Create the file atomically, so that an empty file always means a lost ledger."""
    try:
        with (
            create_atomically(path) as draft,
            closing(sqlite3.connect(draft, isolation_level=None)) as connection,
        ):
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            _write_first_line(connection.cursor(), first)
            connection.execute("COMMIT")
    except FileExistsError:
        return  # another process has created a ledger
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"{path} cannot be created ({error}): nothing may be sent.") from error


def _write_first_line(cursor: sqlite3.Cursor, first: _Line) -> None:
    for statement in _SCHEMA:
        cursor.execute(statement)
    _append(cursor, first)


def _agree(cursor: sqlite3.Cursor, wanted: _Line, raise_budget: bool) -> None:
    """Change the stored budgets to the wanted ones."""
    last = _read_all_lines(cursor)[-1]
    for name in ("lifetime", "per_day"):
        if getattr(wanted, name) > getattr(last, name) and not raise_budget:
            raise ValueError(
                f"{name} must be at most the {_text(getattr(last, name))} stored in the ledger, "
                f"got {_text(getattr(wanted, name))}. To raise what was promised to the phone's "
                f"owner, pass raise_budget=True."
            )
    if (wanted.per_day, wanted.lifetime) != (last.per_day, last.lifetime):
        change = last.event("budget")
        _append(cursor, change._replace(per_day=wanted.per_day, lifetime=wanted.lifetime))


def _exists(cursor: sqlite3.Cursor) -> bool:
    found = "SELECT COUNT(*) FROM main.sqlite_master WHERE name = 'privacy_ledger'"
    return bool(cursor.execute(found).fetchone()[0])


def _check_file(cursor: sqlite3.Cursor, table: str = "") -> None:
    (verdict,) = cursor.execute(f"PRAGMA main.integrity_check{table}").fetchone()
    if verdict != "ok":
        raise DamagedError(f"the ledger's file is damaged ({verdict}): nothing may be sent.")


def _read_all_lines(cursor: sqlite3.Cursor) -> list[_Line]:
    """All lines, after a check of the table and of every seal."""
    _check_file(cursor, "(privacy_ledger)")
    lines = [_Line(*row) for row in cursor.execute(f"{_READ} ORDER BY number")]
    before = b""
    for expected, line in enumerate(lines, start=1):
        if line.number != expected or not line.follows(before):
            raise DamagedError(f"line {expected} of the ledger is damaged: nothing may be sent.")
        before = line.seal
    if not lines:
        raise DamagedError("the ledger has lost all its lines: nothing may be sent.")
    return lines


def _last(cursor: sqlite3.Cursor) -> _Line:
    """The last line, after a check of its seal."""
    rows = cursor.execute(f"{_READ} ORDER BY number DESC LIMIT 2").fetchall()
    lines = [_Line(*row) for row in rows]
    if not lines or not lines[0].follows(lines[1].seal if len(lines) == 2 else b""):
        raise DamagedError("the last line of the ledger is damaged: nothing may be sent.")
    return lines[0]


def _on(cursor: sqlite3.Cursor, last: _Line, day: int) -> _Line:
    """The state on a day, or on the ledger's day if that is later.

    A new day starts with its full budget, unless it had charges before the clock was set back.
    """
    if day <= last.day:
        return last
    return _counting(cursor, last, day, "day = ?")


def _counting(cursor: sqlite3.Cursor, last: _Line, day: int, days: str) -> _Line:
    """The state on a day, if all charges of the days selected by `days` count for it."""
    today, unprotected = cursor.execute(
        "SELECT COALESCE(SUM(cost), 0), COUNT(*) - COUNT(cost)"
        f" FROM main.privacy_ledger WHERE kind IN ('charge', 'restored') AND {days}",
        (day,),
    ).fetchone()
    return last._replace(day=day, today=today, unprotected_today=unprotected)


def _line_with_key(cursor: sqlite3.Cursor, key: str) -> _Line | None:
    row = cursor.execute(f"{_READ} WHERE key = ?", (key,)).fetchone()
    return None if row is None else _Line(*row)


def _append(cursor: sqlite3.Cursor, line: _Line) -> _Line:
    """Write a line with the next number and its seal."""
    line = line._replace(number=line.number + 1)
    line = line._replace(seal=_seal(line.seal, line[:-1]))
    cursor.execute(_WRITE, line)
    return line


def _seal(before: bytes, values: tuple[object, ...]) -> bytes:
    """SHA-256 over the line and the seal of the line before."""
    words = [value.hex() if isinstance(value, bytes) else value for value in values]
    return hashlib.sha256(before + json.dumps(words).encode()).digest()


def _state_to_charge(cursor: sqlite3.Cursor, last: _Line, day: int, cost: int | None) -> _Line:
    """The state on a day, if the clock can be believed and the cost fits."""
    if last.day >= 0 and day > last.day + LEAP_DAYS:
        raise ClockError(
            f"the clock says {_date(day)}, more than {LEAP_DAYS} days after the last charge, on "
            f"{_date(last.day)}. If a trusted source confirms it, call trust_clock(when) once; "
            f"until then nothing may be sent."
        )
    state = _on(cursor, last, day)
    if cost is None:
        return state
    if cost > state.lifetime - state.life or cost > state.per_day:
        raise BudgetSpent(cost / _NANO, state.left(), None)
    if cost > state.per_day - state.today:
        raise BudgetSpent(cost / _NANO, state.left(), float((state.day + 1) * _DAY))
    return state


def _entry(line: _Line) -> Entry:
    return Entry(
        number=line.number,
        epsilon=math.inf if line.cost is None else line.cost / _NANO,
        when=line.clock,
        day=_date(line.day),
        round=int(line.round),
        mechanism=line.mechanism,
        key=line.key,
    )


def _budget(name: str, epsilon: float) -> int:
    if not 0 < epsilon <= _LARGEST:
        raise ValueError(
            f"{name} must be an epsilon > 0 and at most {_LARGEST:,}, got {epsilon!r}. There is no "
            f"default: it is a promise to the phone's owner."
        )
    return math.floor(_nano(epsilon))


def _cost(epsilon: float, allow_unsafe: bool) -> int | None:
    """The cost in billionths, rounded up; None if infinite."""
    if not epsilon > 0:
        raise ValueError(f"epsilon must be a number > 0, got {epsilon!r}.")
    if math.isfinite(epsilon):
        return math.ceil(_nano(epsilon))
    if allow_unsafe:
        return None
    raise ValueError(
        "epsilon must be finite: a report without protection fits no budget. To send one anyway, "
        "pass allow_unsafe=True; the ledger will always show it."
    )


def _nano(epsilon: float) -> Fraction:
    """Billionths of `epsilon` as printed: 0.1 is exactly a tenth, not the float nearest to it."""
    return Fraction(repr(float(epsilon))) * _NANO


def _day(when: float) -> int:
    if not 0 <= when <= _LAST_SECOND:
        raise ValueError(
            f"when must be in seconds since 1970, from 0 to {_LAST_SECOND}, got {when!r}."
        )
    return int(when // _DAY)


def _check_words(round_: int, mechanism: str, key: str | None, report: bytes | None) -> None:
    if not 0 <= round_ < 1 << 64:
        raise ValueError(f"round must be from 0 to 2^64 - 1, got {round_!r}.")
    for name, word in (("mechanism", mechanism), ("key", key)):
        if word is not None and not (word.isascii() and word.isprintable() and 0 < len(word) <= 64):
            raise ValueError(f"{name} must have 1 to 64 plain characters, got {word!r}.")
    if (key is None) != (report is None):
        raise ValueError(
            "key and report must be given together: the key names the report, and on a resend its "
            "bytes show that it is the same one."
        )


def _date(day: int) -> date:
    return datetime.fromtimestamp(day * _DAY, UTC).date()


def _utc(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M")


def _text(nano: int) -> str:
    return f"{nano / _NANO:.10g}"
