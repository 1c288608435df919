"""What a gateway keeps on disk: the current round, its reports, devices, keys. One SQLite file.

Nothing that links a report to a phone can be read from it, at any moment. A report comes with a
token (`nextapp.privacy.tokens`), of which a hash is kept until its key retires, so that it counts
once; what was issued to whom is kept apart and has nothing in common with it. Each group of about a
thousand reports is stored in random order. When the round is reduced, they are overwritten.

A report is on disk before `admit` returns; `GroupCommit` admits many at once. `reduce` replaces the
reports of a closed round by their tally in one transaction; after a crash it either has happened or
can be done again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path

import numpy as np

from nextapp.privacy import FiniteMechanism
from nextapp.privacy.mechanism import Tally
from nextapp.privacy.tokens import Token
from nextapp.server.database import REMEDY, Database, VaultDamaged, VaultError, row_sum
from nextapp.server.issuing import ISSUING_SCHEMA, Devices, TokenKeys, key_mark
from nextapp.wire import Report, digest_of

GATEWAY_ID = "gateway-id"
"""A file beside the vault of one gateway of several: what that is known by, and its region."""

REGION = "main"
"""The region of a gateway that is the only one."""

SMALLEST_GOAL = 10_000  # by default, while few phones are enrolled
_MINIMA = 10  # the default deadline: as many times the minimum are expected by then
_DAY, _DAYS_A_REPORT = 86_400.0, 30.0  # a phone has one report in a period of its key

_REPORTS_AT_ONCE = 4096
_MINGLED = 1024  # reports that lie in random order among each other: few pages a commit
_GROUPS_AT_ONCE = 8  # of them: some hundredths of a second
_BUSY_SECONDS = 2.0
_MOST_AT_ONCE = 1000  # reports in one transaction

SCHEMA_VERSION = 10
_SCHEMA = (
    ISSUING_SCHEMA
    + """
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, n_reports INTEGER NOT NULL, closed INTEGER NOT NULL,
    words TEXT NOT NULL) STRICT;
CREATE TABLE broadcasts (number INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE digests (
    number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, row_sum INTEGER NOT NULL) STRICT;
CREATE TABLE reports (
    key BLOB PRIMARY KEY, payload BLOB NOT NULL, row_sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tallies (
    number INTEGER PRIMARY KEY, n_reports INTEGER NOT NULL, tally BLOB NOT NULL,
    shape TEXT NOT NULL, row_sum INTEGER NOT NULL) STRICT;
"""
)
_SEALED = ("rounds", "token_keys")


class Due(Enum):
    """What to do with a round now."""

    WAIT = "wait"
    END = "end"  # enough reports: phones are asked no more, those under way are taken
    CLOSE = "close"  # no more are taken, and the learner takes a step
    EXTEND = "extend"  # past the deadline and below the minimum: nothing changes, it stays open


@dataclass(frozen=True)
class RoundRules:
    """A round ends at ``goal`` reports, or ``seconds`` after it opened with ``minimum`` or more.

    It closes ``grace`` seconds later: a phone draws a report, and spends its ε, some minutes before
    the report arrives. A round below the minimum at its deadline changes nothing: it stays open
    with the reports it has for another ``seconds``, so that no phone has spent its ε in vain.

    Goal and seconds follow from the number of phones where they are None. Then the goal is one
    report of each phone, so that a peak ends no round; the deadline is when ten times the minimum
    has come if each phone reports once in 30 days, but a day at least, and 30 at most.
    """

    goal: int | None
    minimum: int
    seconds: float | None
    grace: float = 0.0

    def __post_init__(self) -> None:
        if self.minimum < 1 or (self.goal is not None and self.goal < self.minimum):
            raise ValueError(
                f"a round needs 1 <= minimum <= goal, got minimum {self.minimum!r} and goal "
                f"{self.goal!r}."
            )
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"a round's seconds must be a number > 0, got {self.seconds!r}.")
        if not (math.isfinite(self.grace) and self.grace >= 0):
            raise ValueError(f"a round's grace must be a number >= 0, got {self.grace!r}.")

    def goal_of(self, n_phones: int) -> int:
        return self.goal or max(SMALLEST_GOAL, self.minimum, n_phones)

    def seconds_of(self, n_phones: int) -> float:
        enough = n_phones >= self.minimum  # else it stays open until there are more
        days = _MINIMA * self.minimum * _DAYS_A_REPORT / n_phones if enough else 1.0
        return self.seconds or _DAY * min(max(days, 1.0), _DAYS_A_REPORT)

    def open_round(self, number: int, now: float, n_phones: int = 0) -> Round:
        seconds = self.seconds_of(n_phones)
        return Round(number, now, now + seconds, self.goal_of(n_phones), seconds, rules=self)


@dataclass(frozen=True)
class Round:
    """A round as it stands. Times are seconds since 1970; ``closed`` rounds take no reports.

    Once it ``ends`` phones are asked no more; by then it closes. A time further away than a whole
    round, or a whole grace, can only come from a clock that was set back: it counts as passed.
    """

    number: int
    opened: float
    deadline: float
    goal: int
    seconds: float
    n_reports: int = 0
    extensions: int = 0
    closed: bool = False
    ends: float = math.inf
    rules: RoundRules = field(kw_only=True)

    def due(self, now: float) -> Due:
        if self.closed:
            return Due.CLOSE
        if math.isfinite(self.ends):
            return Due.WAIT if 0 < self.ends - now <= self.rules.grace else Due.CLOSE
        if self.n_reports < self.goal:
            if 0 < self.deadline - now <= self.seconds:
                return Due.WAIT
            if self.n_reports < self.rules.minimum:
                return Due.EXTEND
        return Due.END if self.rules.grace else Due.CLOSE

    def after(self, due: Due, now: float) -> Round:
        """The round once that is done."""
        if due is Due.CLOSE:
            return replace(self, closed=True)
        if due is Due.END:
            return replace(self, ends=now + self.rules.grace)
        if due is Due.EXTEND:
            return replace(self, deadline=now + self.seconds, extensions=self.extensions + 1)
        return self

    def amended(self, rules: RoundRules, now: float) -> Round:
        """With other rules; its time starts anew if that has changed."""
        goal, seconds = rules.goal or max(self.goal, rules.minimum), rules.seconds or self.seconds
        deadline = self.deadline if seconds == self.seconds else now + seconds
        return replace(self, goal=goal, seconds=seconds, deadline=deadline, rules=rules)

    @property
    def words(self) -> str:
        """All of it; the inverse is `of`."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, words: str) -> Round:
        values = json.loads(words)
        return cls(**{**values, "rules": RoundRules(**values["rules"])})

    @property
    def asks(self) -> bool:
        """Whether phones are asked for reports."""
        return not self.closed and math.isinf(self.ends)


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
    raises `VaultError` where the storage refuses, and then nothing has changed. A file that has
    lost commits is refused (`VaultDamaged`), unless by ``leave_damaged``.
    """

    def __init__(
        self, path: Path, *, busy_seconds: float = _BUSY_SECONDS, leave_damaged: bool = False
    ) -> None:
        self.path = path
        self.database = Database(
            path, _SCHEMA, SCHEMA_VERSION, _SEALED,
            busy_seconds=busy_seconds, leave_damaged=leave_damaged,
        )  # fmt: skip
        identity = path.with_name(GATEWAY_ID)
        name = identity.read_text("ascii", "replace") if identity.exists() else REGION
        self.keys = TokenKeys(self.database, name.strip())
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

    def publish(self, round: Round, broadcast: bytes) -> None:
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
            write.execute("INSERT INTO rounds VALUES (?, 0, 0, ?)", (round.number, round.words))
            write.execute("INSERT INTO broadcasts VALUES (?, ?)", (round.number, broadcast))
            row = round.number, digest_of(broadcast)
            write.execute("INSERT INTO digests VALUES (?, ?, ?)", (*row, row_sum(*row)))

    def round(self) -> Round | None:
        """The current round, or None before the first."""
        row = self.database.row("SELECT words, n_reports, closed FROM rounds")
        if row is None:
            return None
        words, n_reports, closed = row
        return replace(Round.of(words), n_reports=n_reports, closed=bool(closed))

    def current(self) -> Round:
        """The current round; before the first an error."""
        round = self.round()
        if round is None:
            raise ValueError("no round is open in this vault yet: publish one.")
        return round

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

    def amend(self, rules: RoundRules, now: float) -> None:
        """Other rules for the current round and all that follow."""
        round = self.round()
        if round is not None:
            self.set_round(round.amended(rules, now))

    def settle(self, now: float) -> Due:
        """Hold the current round against its rules, and end, close or extend it as they say."""
        round = self.current()
        due = round.due(now)
        self.set_round(round.after(due, now))
        return due

    def set_round(self, round: Round) -> None:
        """Take over times and rules of the current round, and that it is closed."""
        there = self.round()
        if there is None or there.number != round.number:
            return
        new = replace(round, opened=there.opened, n_reports=there.n_reports)
        if new != there:
            with self.database.transaction() as write:
                write.execute(
                    "UPDATE rounds SET words = ?, closed = max(closed, ?) WHERE number = ?",
                    (new.words, new.closed, new.number),
                )

    def close_round(self, number: int) -> None:
        """From now on round `number` takes no reports; closing it again changes nothing."""
        with self.database.transaction() as write:
            write.execute("UPDATE rounds SET closed = 1 WHERE number = ?", (number,))

    def probe(self) -> None:
        """Write to the disk what is there already; raises `VaultError` where it takes nothing."""
        with self.database.transaction() as write:
            write.execute("UPDATE rounds SET n_reports = n_reports")

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
            known = f"SELECT mark, digest FROM spent WHERE mark IN ({','.join('?' * len(marks))})"
            held = dict(write.execute(known, [mark for mark, _ in marks]).fetchall())
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
                    reports += [key, one.payload, row_sum(key, one.payload)]
                    outcomes.append(Outcome.ACCEPTED)
            if spent:
                n = len(spent) // 3
                write.execute(f"INSERT INTO spent VALUES {','.join(['(?,?,?)'] * n)}", spent)
                write.execute(f"INSERT INTO reports VALUES {','.join(['(?,?,?)'] * n)}", reports)
                write.execute("UPDATE rounds SET n_reports = n_reports + ?", (n,))
        return outcomes

    def reduce(self, number: int, mechanism: FiniteMechanism) -> Reduced:
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
        row = number, n_reports, tally.astype("<i8").tobytes(), ",".join(map(str, tally.shape))
        with self.database.transaction() as write:
            write.execute(
                "INSERT OR IGNORE INTO tallies VALUES (?, ?, ?, ?, ?)", (*row, row_sum(*row))
            )
            write.execute("DELETE FROM reports")
        self.database.truncate_log()
        return Reduced(number, n_reports, tally, n_damaged)

    def reduced(self, number: int) -> Reduced | None:
        """The tally of a round that was reduced before, if it is still kept."""
        row = self.database.row("SELECT * FROM tallies WHERE number = ?", (number,))
        if row is None:
            return None
        *row, checksum = row
        if row_sum(*row) != checksum:
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
                "SELECT * FROM reports WHERE key > ? ORDER BY key LIMIT ?",
                (last, _REPORTS_AT_ONCE),
            )
            if not rows:
                return
            last = rows[-1][0]
            good = [payload for key, payload, checksum in rows if row_sum(key, payload) == checksum]
            yield good, len(rows) - len(good)

    # The operator

    def check(self, *, leave_damaged: bool = False) -> None:
        """Read all of it; raises `VaultDamaged` where it is not what was written.

        ``leave_damaged``: rows that are damaged are left out, and what is there is continued with.
        """
        damage, round, data = self.database.damage(), self.round(), self.broadcast()
        if round is not None:
            if data is None or dict(self.digests(round.number, 1)) != {
                round.number: digest_of(data)
            }:
                raise VaultDamaged(
                    f"the broadcast of round {round.number} in {self.path} is not what was written "
                    f"there. Restore the vault from a backup."
                )
            reduced = "number IN (SELECT number FROM tallies)"
            there = f"SELECT n_reports, (SELECT count(*) FROM reports), {reduced} FROM rounds"
            n_counted, n_there, is_reduced = self.database.row(there)
            if n_counted != n_there and not is_reduced:
                damage.append(
                    f"round {round.number} has counted {n_counted:,} reports and holds {n_there:,}"
                )
        ids = [row[0] for row in self.database.rows("SELECT id FROM token_keys")]
        if not all(name.startswith(f"{self.keys.region}-") for name in ids):
            damage.append(f"its keys are not of the region of {self.path.with_name(GATEWAY_ID)}")
        if damage and not leave_damaged:
            raise VaultDamaged(f"{self.path} is damaged: {'; '.join(damage)}. {REMEDY}")
        if damage:
            self.database.leave_out_damage()
            with self.database.transaction() as write:
                write.execute(
                    "UPDATE rounds SET n_reports = (SELECT count(*) FROM reports) "
                    "WHERE number NOT IN (SELECT number FROM tallies)"
                )


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


def _mark(one: Submission) -> tuple[bytes, bytes]:
    """Where a spent token is looked for, and what the bytes that it came with are held against."""
    signature, number = one.token.signature, one.round.to_bytes(8, "little")
    mark = hashlib.blake2b(signature, digest_size=16, person=b"nextapp spent").digest()
    digest = hmac.digest(signature, number + one.payload, "sha256")
    return key_mark(one.token.key) + mark, digest[:16]
