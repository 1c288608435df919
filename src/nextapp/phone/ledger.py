"""The privacy budget of a phone: every cost is on disk before a report leaves.

Every report costs the ε of its mechanism, and costs add up: 33 reports at 4.5 are 148.5. A `Ledger`
limits a phone to a budget for its lifetime and a budget per UTC day. It is one append-only table in
the phone's own file, written by the connection of its `Store`; each line has the totals after it,
and a hash (seal) of itself and of the line before.

The rule for its user: if `charge` raises anything, nothing may be sent. docs/privacy/ledger.md says
what is guaranteed, and why.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import NamedTuple

from nextapp.settings import count

DAY = 86_400.0
LATEST = 253_402_214_400.0  # the last midnight of the year 9999, UTC

LEAP_DAYS = 31
"""A clock that is further ahead of the last charge is not trusted: see `Ledger.trust_clock`."""

_NANO = 10**9  # costs are integers, in billionths of ε
_LARGEST = 10**9  # largest budget, so that every sum fits SQLite's 63 bits

_SCHEMA = (
    """CREATE TABLE privacy_ledger (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        clock REAL NOT NULL,
        round INTEGER NOT NULL,
        mechanism TEXT NOT NULL,
        cost INTEGER NOT NULL,
        day INTEGER NOT NULL,
        today INTEGER NOT NULL,
        life INTEGER NOT NULL,
        per_day INTEGER NOT NULL,
        lifetime INTEGER NOT NULL,
        seal BLOB NOT NULL
    )""",
    """CREATE TRIGGER privacy_ledger_is_never_changed BEFORE UPDATE ON privacy_ledger
        BEGIN SELECT RAISE(ABORT, 'the privacy ledger is append-only'); END""",
    """CREATE TRIGGER privacy_ledger_never_forgets BEFORE DELETE ON privacy_ledger
        BEGIN SELECT RAISE(ABORT, 'the privacy ledger is append-only'); END""",
)


# --- what may go wrong with a phone's file -------------------------------------------------------


class StoreError(RuntimeError):
    """The store cannot do what was asked; nothing of it was done, and nothing may be sent."""


class StoreBusy(StoreError):
    """Another process is writing, and took longer than this one was willing to wait."""


class StoreFull(StoreError):
    """The disk or the file is full, or cannot be written."""


class StoreDamaged(StoreError):
    """The file is not what was written. Its ledger is never replaced by a fresh budget."""


class ClockError(StoreError):
    """The clock is too far ahead to be trusted: see `Ledger.trust_clock`."""


class BudgetSpent(StoreError):
    """The charge does not fit. ``again``: when it may fit (seconds since 1970); None: never."""

    def __init__(self, epsilon: float, left: Amounts, again: float | None) -> None:
        moment = None if again is None else datetime.fromtimestamp(again, UTC)
        when = "never" if moment is None else f"from {moment:%Y-%m-%d %H:%M} UTC on"
        super().__init__(
            f"a report of epsilon {epsilon:.10g} does not fit the privacy budget: "
            f"{left.today:.10g} is left today, {left.lifetime:.10g} for life. "
            f"It may be sent {when}."
        )
        self.left = left
        self.again = again


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """SQLite's errors are raised as those of the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise _store_error(error, path) from error


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    kind = _kind(error)
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"another process is writing {path} ({error}): try again later.")
    if kind in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    ):
        return StoreFull(
            f"{path} cannot be written ({error}): make room or make it writable, and do it again. "
            f"What it held is untouched."
        )
    if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"{path} is damaged or not a phone's store ({error}).")
    return StoreError(f"{path}: {str(error).removesuffix('.')}.")


def _kind(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", -1) & 0xFF


def check_clock(clock: float) -> None:
    if not (isinstance(clock, Real) and 0 <= clock <= LATEST):
        raise ValueError(
            f"when must be in seconds since 1970, from 0 to {LATEST:.0f}, or a datetime, got "
            f"{clock!r}."
        )


# --- the ledger ----------------------------------------------------------------------------------


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


class _Line(NamedTuple):
    """A row of the table: an event, and the totals after it, in billionths of ε.

    With the values given here, and budgets, it is the line before the first one.
    """

    number: int = 0
    kind: str = "budget"  # or "charge", "clock", "restored"
    clock: float = 0.0
    round: int = 0
    mechanism: str = ""
    cost: int = 0
    day: int = -1  # since 1970; -1 before the first charge
    today: int = 0
    life: int = 0
    per_day: int = 0
    lifetime: int = 0
    seal: bytes = b""

    def follows(self, before: bytes) -> bool:
        return self.seal == _seal(before, self[:-1])

    def left(self) -> Amounts:
        life = max(0, self.lifetime - self.life)
        today = min(life, max(0, self.per_day - self.today))
        return Amounts(today / _NANO, life / _NANO)

    def event(self, kind: str, clock: float = 0.0) -> _Line:
        """A line that charges nothing."""
        return self._replace(kind=kind, clock=clock, round=0, mechanism="", cost=0)


_READ = f"SELECT {', '.join(_Line._fields)} FROM privacy_ledger"
_WRITE = f"INSERT INTO privacy_ledger VALUES ({', '.join('?' * len(_Line._fields))})"


class Ledger:
    """The privacy budget of the phone in this file, whose connection has no open transaction.

    All lines are checked when it is opened. `Ledger.create` makes the first line of a new file;
    nothing makes another one.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._lines()

    @staticmethod
    def create(connection: sqlite3.Connection, *, lifetime: float, per_day: float) -> None:
        """Put an empty ledger into a new file, as a part of the transaction that makes it."""
        for statement in _SCHEMA:
            connection.execute(statement)
        first = _Line(per_day=_budget(per_day), lifetime=_budget(lifetime))
        _append(connection.cursor(), first)

    def charge(
        self,
        epsilon: float,
        when: float,
        *,
        round: int,
        mechanism: str,
        along: Callable[[sqlite3.Cursor], None] = lambda cursor: None,
    ) -> None:
        """Record a cost durably. The report may be sent once this returns, but not if it raises.

        Parameters
        ----------
        epsilon
            The cost of the whole report, rounded up to billionths.
        when
            The clock's time, in seconds since 1970. The ledger's day never goes back by itself: if
            the clock is set back, the budget of the latest day so far is used.
        along
            Writes more in the same transaction, such as the report's bytes: both are on disk or
            neither. If it raises, both are rolled back.
        """
        cost, day = _cost(epsilon), _day(when)
        with self._transaction() as cursor:
            state = _state_to_charge(cursor, day, cost)
            along(cursor)
            _append(
                cursor,
                state._replace(
                    kind="charge",
                    clock=abs(float(when)),  # SQLite has no -0.0
                    round=round,
                    mechanism=mechanism,
                    cost=cost,
                    today=state.today + cost,
                    life=state.life + cost,
                ),
            )

    def check(self, epsilon: float, when: float) -> None:
        """Raise what `charge` would raise for a report of this cost. Nothing is charged."""
        cost, day = _cost(epsilon), _day(when)
        with self._cursor() as cursor:
            _state_to_charge(cursor, day, cost)

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
        if spent <= self.spent(0.0).lifetime:
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

    def set_budgets(self, *, lifetime: float, per_day: float) -> None:
        """Budgets from now on, rounded down to billionths. `statement` says if they were raised."""
        with self._transaction() as cursor:
            last = _last(cursor)
            new = last._replace(per_day=_budget(per_day), lifetime=_budget(lifetime))
            if new != last:
                _append(cursor, new.event("budget"))

    def spent(self, when: float) -> Amounts:
        """ε charged on the day of `when`, and in total."""
        state = self._state(when)
        return Amounts(state.today / _NANO, state.life / _NANO)

    def left(self, when: float) -> Amounts:
        """ε that may still be charged on the day of `when`, and in total."""
        return self._state(when).left()

    def budgets(self) -> Amounts:
        """The budgets of a day and of the phone's lifetime."""
        last = self._state(0.0)
        return Amounts(last.per_day / _NANO, last.lifetime / _NANO)

    def entries(self) -> list[Entry]:
        """Every charge, oldest first."""
        return [
            Entry(
                number=line.number,
                epsilon=line.cost / _NANO,
                when=line.clock,
                day=_date(line.day),
                round=line.round,
                mechanism=line.mechanism,
            )
            for line in self._lines()
            if line.kind == "charge"
        ]

    def statement(self, when: float) -> str:
        """The state of the budget as text for the phone's owner."""
        lines = self._lines()
        charges = [line for line in lines if line.kind == "charge"]
        state = self._state(when)
        left = state.left()
        since = f" since {_date(charges[0].day)}" if charges else ""
        words = [
            f"This phone has sent {count(len(charges), 'report')} with privacy protection{since}.",
            f"Together that cost epsilon {_text(state.life)} of the {_text(state.lifetime)} it may "
            f"spend in its life; {left.lifetime:.10g} is left.",
            f"On {_date(state.day)} (UTC) it cost {_text(state.today)} of the "
            f"{_text(state.per_day)} of a day; {left.today:.10g} is left.",
        ]
        if restored := [line.cost for line in lines if line.kind == "restored"]:
            words.append(
                f"This ledger was restored from an older copy {count(len(restored), 'time')}; the "
                f"epsilon {_text(sum(restored))} spent after that copy was made is counted above."
            )
        if raised := sum(
            new.lifetime > old.lifetime or new.per_day > old.per_day for old, new in pairwise(lines)
        ):
            words.append(f"The budget has been raised {count(raised, 'time')}.")
        return "\n".join(words)

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Cursor]:
        """A cursor; a table that SQLite does not find as it was made is a damaged ledger."""
        with file_errors(self._path):
            try:
                yield self._connection.cursor()
            except sqlite3.Error as error:
                if _kind(error) in _NOT_AS_MADE:
                    raise StoreDamaged(
                        f"the privacy ledger of {self._path} is damaged ({error}): what was spent "
                        f"is unknown, so nothing may be sent."
                    ) from error
                raise

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """A write transaction that is durable on disk when it ends, and rolled back on an error.

        FULL would do for a WAL; EXTRA also syncs the folder of a rollback journal, should the file
        have one. The connection's setting is restored afterwards. The checkpoint moves the line to
        the main file, since a WAL file that is damaged or deleted later would lose it silently; if
        it fails, the line stays in the WAL.
        """
        with self._cursor() as cursor:
            (before,) = cursor.execute("PRAGMA synchronous").fetchone()
            cursor.execute("PRAGMA synchronous = EXTRA")
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
                with suppress(sqlite3.OperationalError):
                    cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            finally:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                cursor.execute(f"PRAGMA synchronous = {before}")

    def _state(self, when: float) -> _Line:
        day = _day(when)
        with self._cursor() as cursor:
            return _on(cursor, _last(cursor), day)

    def _lines(self) -> list[_Line]:
        """All lines, after a check of the table and of every seal."""
        with self._cursor() as cursor:
            (verdict,) = cursor.execute("PRAGMA integrity_check(privacy_ledger)").fetchone()
            if verdict != "ok":
                raise StoreDamaged(f"the ledger's file is damaged ({verdict}): {_NOTHING}")
            lines = [_Line(*row) for row in cursor.execute(f"{_READ} ORDER BY number")]
        before = b""
        for expected, line in enumerate(lines, start=1):
            if line.number != expected or not line.follows(before):
                raise StoreDamaged(f"line {expected} of the ledger is damaged: {_NOTHING}")
            before = line.seal
        if not lines:
            raise StoreDamaged(f"the ledger has lost all its lines: {_NOTHING}")
        return lines


_NOTHING = "nothing may be sent."
_NOT_AS_MADE = {
    sqlite3.SQLITE_ERROR,  # no such column, and the like
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}


def _last(cursor: sqlite3.Cursor) -> _Line:
    """The last line, after a check of its seal."""
    rows = cursor.execute(f"{_READ} ORDER BY number DESC LIMIT 2").fetchall()
    lines = [_Line(*row) for row in rows]
    if not lines or not lines[0].follows(lines[1].seal if len(lines) == 2 else b""):
        raise StoreDamaged(f"the last line of the ledger is damaged: {_NOTHING}")
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
    (today,) = cursor.execute(
        "SELECT COALESCE(SUM(cost), 0)"
        f" FROM privacy_ledger WHERE kind IN ('charge', 'restored') AND {days}",
        (day,),
    ).fetchone()
    return last._replace(day=day, today=today)


def _append(cursor: sqlite3.Cursor, line: _Line) -> None:
    """Write a line with the next number and its seal."""
    line = line._replace(number=line.number + 1)
    cursor.execute(_WRITE, line._replace(seal=_seal(line.seal, line[:-1])))


def _seal(before: bytes, values: tuple[object, ...]) -> bytes:
    """SHA-256 over the line and the seal of the line before."""
    words = json.dumps(values, default=bytes.hex)  # a damaged line may hold bytes
    return hashlib.sha256(before + words.encode()).digest()


def _state_to_charge(cursor: sqlite3.Cursor, day: int, cost: int) -> _Line:
    """The state on a day, if the clock can be believed and the cost fits."""
    last = _last(cursor)
    if last.day >= 0 and day > last.day + LEAP_DAYS:
        raise ClockError(
            f"the clock says {_date(day)}, more than {LEAP_DAYS} days after the last charge, on "
            f"{_date(last.day)}. If a trusted source confirms it, call trust_clock(when) once; "
            f"until then {_NOTHING}"
        )
    state = _on(cursor, last, day)
    if cost > state.lifetime - state.life or cost > state.per_day:
        raise BudgetSpent(cost / _NANO, state.left(), None)
    if cost > state.per_day - state.today:
        raise BudgetSpent(cost / _NANO, state.left(), (state.day + 1) * DAY)
    return state


def _budget(epsilon: float) -> int:
    return math.floor(_nano(epsilon))


def _cost(epsilon: float) -> int:
    """The cost in billionths, rounded up."""
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon!r}.")
    return math.ceil(_nano(epsilon))


def _nano(epsilon: float) -> Fraction:
    """Billionths of `epsilon` as printed: 0.1 is exactly a tenth, not the float nearest to it."""
    return Fraction(repr(float(epsilon))) * _NANO


def _day(when: float) -> int:
    check_clock(when)
    return int(when // DAY)


def _date(day: int) -> date:
    return datetime.fromtimestamp(day * DAY, UTC).date()


def _text(nano: int) -> str:
    return f"{nano / _NANO:.10g}"
