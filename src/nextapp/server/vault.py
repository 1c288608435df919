"""What a gateway keeps on disk: codes, devices, the round at hand and its reports. One SQLite file.

Nothing that links a report to a phone can be read from it. A device is the SHA-256 of its token.
That it has reported is kept under a hash keyed with the token itself, which only the phone has:
neither the device nor the report can be found from it, yet the same phone finds its own mark again.
Reports lie in random order, a thousand or so among each other. Marks and reports go, overwritten,
when the round is reduced.

A report is on disk before `admit` returns. `reduce` replaces the reports of a closed round by their
tally in one transaction; after a crash at any moment it either has happened or can be done again.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.server.rounds import Round, RoundRules, Verdict
from nextapp.wire import Report, digest_of

TOKEN_BYTES = 32
_REPORTS_AT_ONCE = 4096
_LONG_LOG = 8 << 20  # bytes
_MINGLED = 1024  # reports that lie in random order among each other: few pages a commit
_BUSY_SECONDS = 2.0

_SCHEMAS = (
    """
CREATE TABLE codes (
    hash BLOB PRIMARY KEY, expires REAL NOT NULL, uses INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE devices (hash BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, opened REAL NOT NULL, deadline REAL NOT NULL,
    n_reports INTEGER NOT NULL, extensions INTEGER NOT NULL, closed INTEGER NOT NULL,
    goal INTEGER NOT NULL, minimum INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE TABLE broadcasts (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE seen (
    mark BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE reports (key BLOB PRIMARY KEY, payload BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tallies (
    number INTEGER PRIMARY KEY, n_reports INTEGER NOT NULL, tally BLOB NOT NULL,
    shape TEXT NOT NULL);
""",
    """
CREATE TABLE digests (number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
""",
)
"""What each version of the schema adds to the one before."""


class VaultError(RuntimeError):
    """The storage does not take it now: a full disk, a lock held by another. Nothing was stored."""


class BadCode(ValueError):
    """An enrolment code that is not known, used up, or past its time."""


class Outcome(Enum):
    """What became of a report."""

    ACCEPTED = "accepted"  # on disk
    REPEATED = "repeated"  # the same bytes were on disk already
    ALREADY_REPORTED = "already_reported"  # this device sent other bytes for this round
    ROUND_CLOSED = "round_closed"


@dataclass(frozen=True)
class Submission:
    """A report that was checked, and the token (32 bytes) it came with."""

    token: bytes
    round: int
    payload: bytes


@dataclass(frozen=True)
class Reduced:
    """A round as one sum: all that a coordinator needs of it."""

    round: int
    n_reports: int
    tally: Tally


@dataclass(frozen=True)
class Published:
    """The broadcast of the round at hand as it is handed out, and the round's rules."""

    round: int
    broadcast: bytes
    rules: RoundRules


class Vault:
    """The file, for one gateway process and any number of helpers on the same machine.

    Methods may be called from any thread; what writes does so one after the other. Every method
    raises `VaultError` where the storage refuses, and then nothing has changed.
    """

    def __init__(self, path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._log_has_deleted = True
        with _refusals():
            self._writer = self._connected()
            self._reader = self._connected()
            with self._transaction() as write:
                version = write.execute("PRAGMA user_version").fetchone()[0]
                for schema in _SCHEMAS[version:]:
                    for statement in schema.split(";"):
                        write.execute(statement)
                if version == 1:  # what is handed out has a digest, too
                    for number, data in write.execute("SELECT * FROM broadcasts").fetchall():
                        digest = digest_of(data)
                        write.execute("INSERT INTO digests VALUES (?, ?)", (number, digest))
                if version < len(_SCHEMAS):
                    write.execute(f"PRAGMA user_version = {len(_SCHEMAS)}")
        if version > len(_SCHEMAS):
            raise ValueError(
                f"{path} has the schema {version}, this version knows {len(_SCHEMAS)}: it was "
                f"written by a newer nextapp; install that one."
            )

    def close(self) -> None:
        with self._writing, self._reading:
            self._writer.close()
            self._reader.close()

    # Enrolment

    def issue_code(self, *, uses: int = 1, expires: float) -> str:
        """A new enrolment code, 80 random bits; kept as its hash only. ``expires``: since 1970."""
        if uses < 1:
            raise ValueError(f"a code needs 1 use or more, got {uses!r}.")
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
        code = "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))
        with self._transaction() as write:
            write.execute("INSERT INTO codes VALUES (?, ?, ?)", (_code_hash(code), expires, uses))
        return code

    def enrol(self, code: str, now: float) -> bytes:
        """A new device token for a code; raises `BadCode`. Only the token's hash is kept."""
        token = secrets.token_bytes(TOKEN_BYTES)
        key = _code_hash(code)
        with self._transaction() as write:
            write.execute("DELETE FROM codes WHERE expires <= ?", (now,))
            row = write.execute("SELECT uses FROM codes WHERE hash = ?", (key,)).fetchone()
            if row is None:
                raise BadCode(
                    "the code is not known, was used up or has expired: ask for a new one."
                )
            if row[0] > 1:
                write.execute("UPDATE codes SET uses = uses - 1 WHERE hash = ?", (key,))
            else:
                write.execute("DELETE FROM codes WHERE hash = ?", (key,))
            write.execute("INSERT INTO devices VALUES (?)", (token_hash(token),))
        return token

    def knows(self, token: bytes) -> bool:
        """Whether this token was given out here."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT 1 FROM devices WHERE hash = ?", (token_hash(token),)
            ).fetchone()
        return row is not None

    def revoke(self, token: bytes) -> bool:
        """Forget a device; False if there was none."""
        with self._transaction() as write:
            gone = write.execute("DELETE FROM devices WHERE hash = ?", (token_hash(token),))
        return gone.rowcount > 0

    def adopt(self, other: Path, *, before: int) -> None:
        """Take over the devices and open codes of another vault, and its digests `before` a round.

        So phones that came along find the broadcast in their hands among the digests.
        """
        if not other.exists():
            raise ValueError(f"{other} is not there to take devices from.")
        with _refusals(), closing(sqlite3.connect(other)) as source:
            devices = source.execute("SELECT hash FROM devices").fetchall()
            codes = source.execute("SELECT hash, expires, uses FROM codes").fetchall()
            digests = []
            if source.execute("PRAGMA user_version").fetchone()[0] > 1:
                digests = source.execute(
                    "SELECT number, sha256 FROM digests WHERE number < ?", (before,)
                ).fetchall()
        with self._transaction() as write:
            write.executemany("INSERT OR IGNORE INTO devices VALUES (?)", devices)
            write.executemany("INSERT OR IGNORE INTO codes VALUES (?, ?, ?)", codes)
            write.executemany("INSERT OR IGNORE INTO digests VALUES (?, ?)", digests)

    def n_devices(self) -> int:
        with _refusals(), self._reading:
            return int(self._reader.execute("SELECT count(*) FROM devices").fetchone()[0])

    # Rounds

    def publish(self, round: Round, broadcast: bytes, rules: RoundRules) -> None:
        """Open a round with its broadcast; done again for the same round it changes nothing.

        The round before must have been reduced. Tallies of rounds long past are dropped.
        """
        with self._transaction() as write:
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
            write.execute("DELETE FROM seen")
            write.execute("DELETE FROM rounds")
            write.execute("DELETE FROM broadcasts")
            write.execute("DELETE FROM tallies WHERE number < ?", (round.number - 8,))
            write.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (round.number, round.opened, round.deadline, 0, round.extensions, 0, rules.goal,
                 rules.minimum, rules.seconds),
            )  # fmt: skip
            write.execute("INSERT INTO broadcasts VALUES (?, ?)", (round.number, broadcast))
            write.execute("INSERT INTO digests VALUES (?, ?)", (round.number, digest_of(broadcast)))

    def round(self) -> Round | None:
        """The round at hand, or None before the first."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT number, opened, deadline, n_reports, extensions, closed FROM rounds"
            ).fetchone()
        if row is None:
            return None
        number, opened, deadline, n_reports, extensions, closed = row
        return Round(number, opened, deadline, n_reports, extensions, bool(closed))

    def published(self) -> Published | None:
        """The broadcast of the round at hand, or None before the first."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT number, data, goal, minimum, seconds FROM rounds JOIN broadcasts "
                "USING (number)"
            ).fetchone()
        if row is None:
            return None
        number, broadcast, *rules = row
        return Published(number, broadcast, RoundRules(*rules))

    def digests(self, most: int) -> list[tuple[int, str]]:
        """Round and digest of every broadcast that was handed out here, the latest `most`."""
        with _refusals(), self._reading:
            rows = self._reader.execute(
                "SELECT number, sha256 FROM digests ORDER BY number DESC LIMIT ?", (most,)
            ).fetchall()
        return rows[::-1]

    def rules(self) -> RoundRules | None:
        """Of the round at hand, or None before the first."""
        with _refusals(), self._reading:
            row = self._reader.execute("SELECT goal, minimum, seconds FROM rounds").fetchone()
        return None if row is None else RoundRules(*row)

    def amend(self, rules: RoundRules, now: float) -> None:
        """Other rules for the round at hand; its time starts anew if that has changed."""
        before = self.rules()
        if before is None or before == rules:
            return
        with self._transaction() as write:
            write.execute("UPDATE rounds SET goal = ?, minimum = ?", (rules.goal, rules.minimum))
            if rules.seconds != before.seconds:
                write.execute(
                    "UPDATE rounds SET seconds = ?, deadline = ?",
                    (rules.seconds, now + rules.seconds),
                )

    def settle(self, now: float) -> Verdict:
        """Hold the round at hand against its rules, and close or extend it if they say so."""
        rules, round = self.rules(), self.round()
        if rules is None or round is None:
            raise ValueError("no round is open in this vault yet: publish one.")
        if round.closed:
            return Verdict.CLOSE
        verdict = rules.verdict(round, now)
        if verdict is Verdict.CLOSE:
            self.close_round(round.number)
        elif verdict is Verdict.EXTEND:
            self.extend(rules.extended(round, now))
        return verdict

    def extend(self, round: Round) -> None:
        """Take over the deadline of a round that stays open."""
        with self._transaction() as write:
            write.execute(
                "UPDATE rounds SET deadline = ?, extensions = ? WHERE number = ? AND closed = 0",
                (round.deadline, round.extensions, round.number),
            )

    def close_round(self, number: int) -> None:
        """From now on round `number` takes no reports; closing it again changes nothing."""
        with self._transaction() as write:
            write.execute("UPDATE rounds SET closed = 1 WHERE number = ?", (number,))

    # Reports

    def admit(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """Take reports, all in one transaction, which is on disk when this returns.

        A handful of statements whatever the number of reports: each one hands the interpreter to
        other threads, and getting it back takes longer than the statement.
        """
        marks = [_mark(one) for one in submissions]
        with self._transaction() as write:
            row = write.execute("SELECT number, closed, n_reports FROM rounds").fetchone()
            number, closed, n_reports = row or (None, True, 0)
            held = _held(write, [mark for mark, _ in marks])
            outcomes, seen, reports = [], [], []
            group = (n_reports // _MINGLED).to_bytes(4, "big")
            for one, (mark, digest) in zip(submissions, marks, strict=True):
                if mark in held:  # also where the round has closed since: it is in the sum
                    same = held[mark] == digest
                    outcomes.append(Outcome.REPEATED if same else Outcome.ALREADY_REPORTED)
                elif closed or one.round != number:
                    outcomes.append(Outcome.ROUND_CLOSED)
                else:
                    held[mark] = digest
                    seen += [mark, digest]
                    reports += [group + secrets.token_bytes(8), one.payload]
                    outcomes.append(Outcome.ACCEPTED)
            if seen:
                places = ",".join(["(?,?)"] * (len(seen) // 2))
                write.execute(f"INSERT INTO seen VALUES {places}", seen)
                write.execute(f"INSERT INTO reports VALUES {places}", reports)
                write.execute("UPDATE rounds SET n_reports = n_reports + ?", (len(seen) // 2,))
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
        n_reports, tally = 0, mechanism.tally([])
        for payloads in self._payloads():
            reports = [Report(mechanism.name, number, payload) for payload in payloads]
            tally = tally + mechanism.tally(reports)
            n_reports += len(reports)
        if n_reports != round.n_reports:
            raise RuntimeError(
                f"round {number} has counted {round.n_reports} reports and holds {n_reports}: the "
                f"vault {self.path} was changed by another hand; restore it from a backup."
            )
        with self._transaction() as write:
            if (
                write.execute("SELECT 1 FROM tallies WHERE number = ?", (number,)).fetchone()
                is None
            ):
                write.execute(
                    "INSERT INTO tallies VALUES (?, ?, ?, ?)",
                    (number, n_reports, tally.astype("<i8").tobytes(),
                     ",".join(map(str, tally.shape))),
                )  # fmt: skip
                write.execute("DELETE FROM reports")
                write.execute("DELETE FROM seen")
        self._truncate_log()
        return Reduced(number, n_reports, tally)

    def reduced(self, number: int) -> Reduced | None:
        """The tally of a round that was reduced before, if it is still kept."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT n_reports, tally, shape FROM tallies WHERE number = ?", (number,)
            ).fetchone()
        if row is None:
            return None
        shape = tuple(map(int, row[2].split(",")))
        tally = np.frombuffer(row[1], "<i8").astype(np.int64).reshape(shape)
        return Reduced(number, row[0], tally)

    def _payloads(self) -> Iterator[list[bytes]]:
        """The reports of the round in parts."""
        last = b""
        while True:
            with _refusals(), self._reading:
                rows = self._reader.execute(
                    "SELECT key, payload FROM reports WHERE key > ? ORDER BY key LIMIT ?",
                    (last, _REPORTS_AT_ONCE),
                ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [payload for _, payload in rows]

    # The file

    def version(self) -> int:
        """A number that changes when another process has written to the file."""
        with _refusals(), self._reading:
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 50000")  # `tidy` comes long before
        connection.execute("PRAGMA cache_size = -65536")
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, on disk at the end."""
        with self._writing, _refusals():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def tidy(self) -> None:
        """Bring a long write-ahead log into the file, in the background of those who write.

        Two passes without a lock leave little to do for the third, after which the log starts
        anew. Left to SQLite, a writer would stop for the whole of it.
        """
        log = self.path.with_name(self.path.name + "-wal")
        if not log.exists() or (log.stat().st_size < _LONG_LOG and not self._log_has_deleted):
            return
        with _refusals(), closing(self._connected()) as other:
            for _ in range(2):
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            with self._writing:
                self._log_has_deleted = not _truncated(other)

    def _truncate_log(self) -> None:
        """What was deleted shall not live on in the write-ahead log; else `tidy` sees to it."""
        with self._writing, _refusals():
            self._log_has_deleted = not _truncated(self._writer)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise VaultError(f"the vault cannot be used: {error}.") from error


def _held(write: sqlite3.Connection, marks: Sequence[bytes]) -> dict[bytes, bytes]:
    """The digests of those marks that are there already."""
    places = ",".join("?" * len(marks))
    return dict(
        write.execute(f"SELECT mark, digest FROM seen WHERE mark IN ({places})", marks).fetchall()
    )


def _truncated(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log into the file; False where a reader was in the way."""
    return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def token_hash(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(b"nextapp token" + token).digest()


def _code_hash(code: str) -> bytes:
    plain = "".join(code.upper().split()).replace("-", "")
    return hashlib.sha256(b"nextapp code" + plain.encode()).digest()


def _mark(one: Submission) -> tuple[bytes, bytes]:
    """Where a device's report of a round is looked for, and what its bytes are held against."""
    number = one.round.to_bytes(8, "little")
    mark = hashlib.blake2b(number, key=one.token, digest_size=16, person=b"nextapp seen")
    digest = hashlib.blake2b(
        number + one.payload, key=one.token, digest_size=16, person=b"nextapp report"
    )
    return mark.digest(), digest.digest()
