"""What a gateway keeps on disk: the current round, its reports, devices, keys. One SQLite file.

Nothing that links a report to a phone can be read from it, at any moment. A report comes with a
token (`nextapp.privacy.tokens`), of which a hash is kept until its key retires, so that it counts
once; what was issued to whom is kept apart and has nothing in common with it. Reports lie in random
order, a thousand or so among each other, and go, overwritten, when the round is reduced.

A report is on disk before `admit` returns; `GroupCommit` admits many at once. `reduce` replaces the
reports of a closed round by their tally in one transaction; after a crash it either has happened or
can be done again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.tokens import Token
from nextapp.server.database import Database, VaultDamaged, VaultError, row_sum
from nextapp.server.devices import DEVICES_SCHEMA, Devices
from nextapp.server.token_keys import TOKEN_KEYS_SCHEMA, TokenKeys, key_mark
from nextapp.wire import Report, digest_of

GATEWAY_ID = "gateway-id"
"""A file beside the vault of one gateway of several: what that is known by, and its region."""

REGION = "main"
"""The region of a gateway that is the only one."""

DRAINING = "draining"
"""A flag: no new reports are taken."""

_REPORTS_AT_ONCE = 4096
_MINGLED = 1024  # reports that lie in random order among each other: few pages a commit
_GROUPS_AT_ONCE = 8  # of them: some hundredths of a second
_BUSY_SECONDS = 2.0
_MOST_AT_ONCE = 1000  # reports in one transaction

SCHEMA_VERSION = 9
_SCHEMA = (
    DEVICES_SCHEMA
    + TOKEN_KEYS_SCHEMA
    + """
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, opened REAL NOT NULL, deadline REAL NOT NULL,
    n_reports INTEGER NOT NULL, extensions INTEGER NOT NULL, closed INTEGER NOT NULL,
    ends REAL NOT NULL, goal INTEGER NOT NULL, minimum INTEGER NOT NULL, seconds REAL NOT NULL,
    grace REAL NOT NULL) STRICT;
CREATE TABLE broadcasts (number INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE digests (
    number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, row_sum INTEGER NOT NULL) STRICT;
CREATE TABLE reports (
    key BLOB PRIMARY KEY, payload BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tallies (
    number INTEGER PRIMARY KEY, n_reports INTEGER NOT NULL, tally BLOB NOT NULL,
    shape TEXT NOT NULL, checksum BLOB NOT NULL) STRICT;
CREATE TABLE flags (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""
)
_SEALED = ("rounds", "token_keys", "key_rules", "flags", "sqlite_sequence")


class Verdict(Enum):
    """What to do with a round now."""

    WAIT = "wait"
    END = "end"  # enough reports: phones are asked no more, those under way are taken
    CLOSE = "close"  # no more are taken, and the learner takes a step
    EXTEND = "extend"  # past the deadline and below the minimum: nothing changes, it stays open


@dataclass(frozen=True)
class RoundRules:
    """A round ends at ``goal`` reports, or at its deadline with ``minimum`` or more.

    It closes ``grace`` seconds later: a phone draws a report, and spends its ε, some minutes before
    the report arrives. A round below the minimum at its deadline changes nothing: it stays open
    with the reports it has for another ``seconds``, so that no phone has spent its ε in vain.
    """

    goal: int
    minimum: int
    seconds: float
    grace: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.goal:
            raise ValueError(
                f"a round needs 1 <= minimum <= goal, got minimum {self.minimum!r} and goal "
                f"{self.goal!r}."
            )
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"a round's seconds must be a number > 0, got {self.seconds!r}.")
        if not (math.isfinite(self.grace) and self.grace >= 0):
            raise ValueError(f"a round's grace must be a number >= 0, got {self.grace!r}.")

    def open_round(self, number: int, now: float) -> Round:
        return Round(number, opened=now, deadline=now + self.seconds)

    def verdict(self, round: Round, now: float) -> Verdict:
        if math.isfinite(round.ends):
            return Verdict.WAIT if 0 < round.ends - now <= self.grace else Verdict.CLOSE
        if round.n_reports < self.goal:
            if 0 < round.deadline - now <= self.seconds:
                return Verdict.WAIT
            if round.n_reports < self.minimum:
                return Verdict.EXTEND
        return Verdict.END if self.grace else Verdict.CLOSE

    def end_round(self, round: Round, now: float) -> Round:
        return replace(round, ends=now + self.grace)

    def extend_round(self, round: Round, now: float) -> Round:
        return replace(round, deadline=now + self.seconds, extensions=round.extensions + 1)


@dataclass(frozen=True)
class Round:
    """A round as it stands. Times are seconds since 1970; ``closed`` rounds take no reports.

    Once it ``ends`` phones are asked no more; by then it closes. A time further away than a whole
    round, or a whole grace, can only come from a clock that was set back: it counts as passed.
    """

    number: int
    opened: float
    deadline: float
    n_reports: int = 0
    extensions: int = 0
    closed: bool = False
    ends: float = math.inf


class Outcome(Enum):
    """What became of a report."""

    ACCEPTED = "accepted"  # on disk
    REPEATED = "repeated"  # the same bytes were on disk already
    ALREADY_SPENT = "already_spent"  # its token came with other bytes before
    ROUND_CLOSED = "round_closed"
    NO_ROUND = "no_round"  # its round is closed and the next one is not open yet


@dataclass(frozen=True)
class Submission:
    """A report that was checked, and the token it came with."""

    token: Token
    round: int
    payload: bytes


@dataclass(frozen=True)
class Reduced:
    """A round as one sum: all that a coordinator needs of it."""

    round: int
    n_reports: int
    tally: Tally
    n_damaged: int = 0  # reports that the disk did not keep as they were written; not in the sum


class Vault:
    """The file, for one gateway process and any number of helpers on the same machine.

    Methods may be called from any thread; what writes does so one after the other. Every method
    raises `VaultError` where the storage refuses, and then nothing has changed. A write-ahead log
    that has lost commits is refused (`VaultDamaged`), unless by ``leave_damaged``.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float = _BUSY_SECONDS,
        leave_damaged: bool = False,
    ) -> None:
        self.path = path
        self.database = Database(
            path,
            _SCHEMA,
            SCHEMA_VERSION,
            _SEALED,
            busy_seconds=busy_seconds,
            leave_damaged=leave_damaged,
        )
        identity = path.with_name(GATEWAY_ID)
        region = identity.read_text(encoding="ascii").strip() if identity.exists() else REGION
        self.keys = TokenKeys(self.database, region)
        self.devices = Devices(self.database, self.keys)
        self._in_order = (-1, 0)  # round, and how many groups of its reports tell no order

    def close(self) -> None:
        self.database.close()

    def forget_order(self) -> None:
        """Let neither the file nor its log tell in which order phones asked and reported."""
        self.devices.forget_order()
        round = self.round()
        if round is not None:
            first = self._in_order[1] if self._in_order[0] == round.number else 0
            last = round.n_reports // _MINGLED
            for group in range(first, last + 1, _GROUPS_AT_ONCE):
                edges = [each.to_bytes(4, "big") for each in (group, group + _GROUPS_AT_ONCE)]
                self.database.rewrite("reports", "key >= ? AND key < ?", edges)
            self._in_order = round.number, last
        self.database.truncate_log()

    # Rounds

    def publish(self, round: Round, broadcast: bytes, rules: RoundRules) -> None:
        """Open a round with its broadcast; done again for the same round it changes nothing.

        The round before must have been reduced. Tallies of rounds long past are dropped.
        """
        with self.database.transaction() as write:
            latest = write.execute("SELECT max(number) FROM rounds").fetchone()[0]
            if latest is not None and latest >= round.number:
                if latest == round.number:
                    return
                raise ValueError(
                    f"round {round.number} cannot open: the vault has seen round {latest}. Rounds "
                    f"never go back, since phones refuse broadcasts older than the one they hold."
                )
            if write.execute("SELECT 1 FROM reports LIMIT 1").fetchone():
                raise ValueError(
                    f"round {latest} has reports that are not reduced yet: close and reduce it."
                )
            write.execute("DELETE FROM rounds")
            write.execute("DELETE FROM broadcasts")
            write.execute("DELETE FROM tallies WHERE number < ?", (round.number - 8,))
            write.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (round.number, round.opened, round.deadline, 0, round.extensions, 0, round.ends,
                 rules.goal, rules.minimum, rules.seconds, rules.grace),
            )  # fmt: skip
            write.execute("INSERT INTO broadcasts VALUES (?, ?)", (round.number, broadcast))
            row = round.number, digest_of(broadcast)
            write.execute("INSERT INTO digests VALUES (?, ?, ?)", (*row, row_sum(*row)))

    def round(self) -> Round | None:
        """The current round, or None before the first."""
        row = self.database.row(
            "SELECT number, opened, deadline, n_reports, extensions, closed, ends FROM rounds"
        )
        if row is None:
            return None
        number, opened, deadline, n_reports, extensions, closed, ends = row
        return Round(number, opened, deadline, n_reports, extensions, bool(closed), ends)

    def broadcast(self) -> bytes | None:
        """The broadcast of the current round as it is handed out, or None before the first."""
        row = self.database.row("SELECT data FROM broadcasts")
        return None if row is None else row[0]

    def digests(self, first: int, most: int) -> list[tuple[int, str]]:
        """Round and digest of broadcasts that were handed out here, `most` from a round on."""
        return self.database.rows(
            "SELECT number, sha256 FROM digests WHERE number >= ? ORDER BY number LIMIT ?",
            (first, most),
        )

    def rules(self) -> RoundRules | None:
        """The rules of the current round, or None before the first."""
        row = self.database.row("SELECT goal, minimum, seconds, grace FROM rounds")
        return None if row is None else RoundRules(*row)

    def amend(self, rules: RoundRules, now: float) -> None:
        """Other rules for the current round; its time starts anew if that has changed."""
        before = self.rules()
        if before is None or before == rules:
            return
        with self.database.transaction() as write:
            write.execute(
                "UPDATE rounds SET goal = ?, minimum = ?, grace = ?",
                (rules.goal, rules.minimum, rules.grace),
            )
            if rules.seconds != before.seconds:
                write.execute(
                    "UPDATE rounds SET seconds = ?, deadline = ?",
                    (rules.seconds, now + rules.seconds),
                )

    def settle(self, now: float) -> Verdict:
        """Hold the current round against its rules, and end, close or extend it as they say."""
        rules, round = self.rules(), self.round()
        if rules is None or round is None:
            raise ValueError("no round is open in this vault yet: publish one.")
        if round.closed:
            return Verdict.CLOSE
        verdict = rules.verdict(round, now)
        if verdict is Verdict.CLOSE:
            self.close_round(round.number)
        elif verdict is Verdict.EXTEND:
            self.set_times(rules.extend_round(round, now))
        elif verdict is Verdict.END:
            self.set_times(rules.end_round(round, now))
        return verdict

    def set_times(self, round: Round) -> None:
        """Take over deadline and end of a round that is not closed."""
        with self.database.transaction() as write:
            write.execute(
                "UPDATE rounds SET deadline = ?, extensions = ?, ends = ? "
                "WHERE number = ? AND closed = 0",
                (round.deadline, round.extensions, round.ends, round.number),
            )

    def close_round(self, number: int) -> None:
        """From now on round `number` takes no reports; closing it again changes nothing."""
        with self.database.transaction() as write:
            write.execute("UPDATE rounds SET closed = 1 WHERE number = ?", (number,))

    def probe(self) -> None:
        """Write to the disk what is there already; raises `VaultError` where it takes nothing."""
        with self.database.transaction() as write:
            write.execute("UPDATE rounds SET extensions = extensions")

    # Reports

    def admit(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """Take reports, all in one transaction, which is on disk when this returns.

        A handful of statements for any number of reports: each one hands the interpreter to
        other threads, and getting it back takes longer than the statement.
        """
        marks = [_mark(one) for one in submissions]
        with self.database.transaction() as write:
            row = write.execute("SELECT number, closed, n_reports FROM rounds").fetchone()
            number, closed, n_reports = row or (None, True, 0)
            held = _known_digests(write, [mark for mark, _ in marks])
            outcomes, spent, reports = [], [], []
            group = (n_reports // _MINGLED).to_bytes(4, "big")
            for one, (mark, digest) in zip(submissions, marks, strict=True):
                if mark in held:  # also where the round has closed since: it is in the sum
                    same = held[mark] == digest
                    outcomes.append(Outcome.REPEATED if same else Outcome.ALREADY_SPENT)
                elif one.round != number:
                    outcomes.append(Outcome.ROUND_CLOSED)
                elif closed:
                    outcomes.append(Outcome.NO_ROUND)
                else:
                    held[mark] = digest
                    spent += [mark, digest, row_sum(mark, digest)]
                    key = group + secrets.token_bytes(8)
                    reports += [key, one.payload, zlib.crc32(key + one.payload)]
                    outcomes.append(Outcome.ACCEPTED)
            if spent:
                n = len(spent) // 3
                write.execute(f"INSERT INTO spent VALUES {','.join(['(?,?,?)'] * n)}", spent)
                write.execute(f"INSERT INTO reports VALUES {','.join(['(?,?,?)'] * n)}", reports)
                write.execute("UPDATE rounds SET n_reports = n_reports + ?", (n,))
        return outcomes

    def reduce(self, number: int, mechanism: Mechanism) -> Reduced:
        """The tally of a closed round, which takes the place of its reports; the same every time.

        Before this has ended the reports are there, afterwards the tally is, and never both.
        """
        done = self.reduced(number)
        if done is not None:
            return done
        round = self.round()
        if round is None or round.number != number or not round.closed:
            raise ValueError(f"round {number} is not a closed round of this vault.")
        n_reports, n_damaged, tally = 0, 0, mechanism.tally([])
        for payloads, damaged in self._payloads():
            reports = [Report(mechanism.name, number, payload) for payload in payloads]
            tally = tally + mechanism.tally(reports)
            n_reports += len(reports)
            n_damaged += damaged
        if n_reports + n_damaged != round.n_reports:
            raise VaultDamaged(
                f"round {number} has counted {round.n_reports} reports and holds "
                f"{n_reports + n_damaged}: the vault {self.path} was changed by another hand; "
                f"restore it from a backup."
            )
        with self.database.transaction() as write:
            if (
                write.execute("SELECT 1 FROM tallies WHERE number = ?", (number,)).fetchone()
                is None
            ):
                row = (
                    number, n_reports, tally.astype("<i8").tobytes(),
                    ",".join(map(str, tally.shape)),
                )  # fmt: skip
                write.execute("INSERT INTO tallies VALUES (?, ?, ?, ?, ?)", (*row, _checksum(*row)))
                write.execute("DELETE FROM reports")
        self.database.truncate_log()
        return Reduced(number, n_reports, tally, n_damaged)

    def reduced(self, number: int) -> Reduced | None:
        """The tally of a round that was reduced before, if it is still kept."""
        row = self.database.row(
            "SELECT number, n_reports, tally, shape, checksum FROM tallies WHERE number = ?",
            (number,),
        )
        if row is None:
            return None
        *row, checksum = row
        if _checksum(*row) != checksum:
            raise VaultDamaged(
                f"the sum of round {number} in {self.path} is not what was written there: the disk "
                f"has damaged it. Restore the vault from a backup, or pass the round over with "
                f"--skip-to {number + 1}."
            )
        shape = tuple(map(int, row[3].split(",")))
        tally = np.frombuffer(row[2], "<i8").astype(np.int64).reshape(shape)
        return Reduced(number, row[1], tally)

    def _payloads(self) -> Iterator[tuple[list[bytes], int]]:
        """The reports of the round in parts, and how many more of a part are damaged."""
        last = b""
        while True:
            rows = self.database.rows(
                "SELECT key, payload, checksum FROM reports WHERE key > ? ORDER BY key LIMIT ?",
                (last, _REPORTS_AT_ONCE),
            )
            if not rows:
                return
            last = rows[-1][0]
            good = [
                payload
                for key, payload, checksum in rows
                if isinstance(payload, bytes) and zlib.crc32(key + payload) == checksum
            ]
            yield good, len(rows) - len(good)

    # The operator

    def raise_flag(self, name: str, up: bool = True) -> None:
        """Tell the running server something, such as `DRAINING`; it stands until it is lowered."""
        with self.database.transaction() as write:
            write.execute("DELETE FROM flags WHERE name = ?", (name,))
            if up:
                write.execute("INSERT INTO flags VALUES (?)", (name,))

    def flags(self) -> frozenset[str]:
        return frozenset(row[0] for row in self.database.rows("SELECT name FROM flags"))

    def check(self, *, leave_damaged: bool = False) -> None:
        """Read all of it; raises `VaultDamaged` where it is not what was written.

        ``leave_damaged``: reports that are damaged are accepted and left out by `reduce`, a count
        of reports that is wrong is made right, and other rows are taken as they are.
        """
        rows = self.database.rows
        words = [row[0] for row in rows("PRAGMA integrity_check(10)")]
        broadcasts = rows(
            "SELECT number, data, sha256 FROM broadcasts LEFT JOIN digests USING (number)"
        )
        sums = [row[0] for row in rows("SELECT number FROM tallies")]
        rounds = rows(
            "SELECT number, n_reports, (SELECT count(*) FROM reports), data IS NULL "
            "FROM rounds LEFT JOIN broadcasts USING (number)"
        )
        if words != ["ok"]:
            raise VaultDamaged(
                f"{self.path} is damaged: {'; '.join(words)}. Restore it from a backup."
            )
        for number, data, digest in broadcasts:
            if digest_of(data) != digest:
                raise VaultDamaged(
                    f"the broadcast of round {number} in {self.path} is not what was written "
                    f"there. Restore the vault from a backup."
                )
        for number in sums:
            self.reduced(number)
        for number, n_counted, n_there, no_broadcast in rounds:
            if no_broadcast:
                raise VaultDamaged(
                    f"round {number} in {self.path} has no broadcast: its number is not what was "
                    f"written there. Restore the vault from a backup."
                )
            if number in sums or n_counted == n_there:
                continue
            if not leave_damaged:
                raise VaultDamaged(
                    f"round {number} in {self.path} has counted {n_counted:,} reports and holds "
                    f"{n_there:,}. Restore the vault from a backup, or start with --leave-damaged "
                    f"to continue with those it holds."
                )
            with self.database.transaction() as write:
                write.execute("UPDATE rounds SET n_reports = (SELECT count(*) FROM reports)")
        others = [*self.database.damage(), *self._foreign_keys()]
        if others and not leave_damaged:
            raise VaultDamaged(
                f"{self.path} is damaged: {'; '.join(others)}. Restore it from a backup, or start "
                f"with --leave-damaged to continue with what is there."
            )
        if others:
            self.database.accept_damage()
        (n_damaged,) = self.database.row(
            "SELECT count(*) FROM reports WHERE checksum != crc32(CAST(key || payload AS BLOB))"
        )
        if n_damaged and not leave_damaged:
            raise VaultDamaged(
                f"{n_damaged:,} reports of the current round in {self.path} are not what was "
                f"written there. Restore the vault from a backup, or start with --leave-damaged to "
                f"continue without them."
            )

    def _foreign_keys(self) -> list[str]:
        region = f"{self.keys.region}-"
        ids = [row[0] for row in self.database.rows("SELECT id FROM token_keys")]
        if all(name.startswith(region) for name in ids):
            return []
        return [f"its keys are of another region than {self.path.with_name(GATEWAY_ID)} names"]


_Waiting = tuple[Submission, "asyncio.Future[Outcome]"]


class Full(RuntimeError):
    """More reports wait for the disk than may."""


class GroupCommit:
    """Reports on their way to a vault. While one transaction syncs, the next ones gather.

    Parameters
    ----------
    observe
        Called on the event loop with the number of reports and the seconds of each transaction.
    """

    def __init__(
        self, vault: Vault, most_waiting: int, observe: Callable[[int, float], None]
    ) -> None:
        self._vault = vault
        self._most_waiting = most_waiting
        self._observe = observe
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(1, "group commit")
        self._writing: asyncio.Task[None] | None = None

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    def submit(self, submission: Submission) -> asyncio.Future[Outcome]:
        """What became of a report, known when it is on disk; or a `VaultError`."""
        if len(self._waiting) >= self._most_waiting:
            raise Full("too many reports wait for the disk.")
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return answer

    async def stop(self) -> None:
        """Write what waits, and end."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write(self) -> None:
        while self._waiting:
            batch = self._waiting[:_MOST_AT_ONCE]
            del self._waiting[:_MOST_AT_ONCE]
            start = time.perf_counter()
            admitted = asyncio.get_running_loop().run_in_executor(
                self._thread, self._vault.admit, [submission for submission, _ in batch]
            )
            await asyncio.wait([admitted])
            error = admitted.exception()  # of any kind: those who wait need an answer
            self._observe(len(batch), time.perf_counter() - start)
            for place, (_, answer) in enumerate(batch):
                if answer.done():  # the client has gone
                    continue
                if error is None:
                    answer.set_result(admitted.result()[place])
                else:
                    known = isinstance(error, VaultError)
                    answer.set_exception(error if known else VaultError(repr(error)))
        self._writing = None


def _checksum(number: int, n_reports: int, tally: bytes, shape: str) -> bytes:
    """Of a sum as it is stored."""
    words = f"{number} {n_reports} {shape} ".encode()
    return hashlib.blake2b(words + tally, digest_size=16).digest()


def _known_digests(write: sqlite3.Connection, marks: Sequence[bytes]) -> dict[bytes, bytes]:
    """The digests of those marks that are there already."""
    places = ",".join("?" * len(marks))
    return dict(
        write.execute(f"SELECT mark, digest FROM spent WHERE mark IN ({places})", marks).fetchall()
    )


def _mark(one: Submission) -> tuple[bytes, bytes]:
    """Where a spent token is looked for, and what the bytes that it came with are held against."""
    signature, number = one.token.signature, one.round.to_bytes(8, "little")
    mark = hashlib.blake2b(signature, digest_size=16, person=b"nextapp spent").digest()
    digest = hmac.digest(signature, number + one.payload, "sha256")
    return key_mark(one.token.key) + mark, digest[:16]
