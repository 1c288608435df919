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
import hmac
import math
import os
import re
import secrets
import sqlite3
import string
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.server.rounds import Round, RoundRules, Verdict
from nextapp.server.write_ahead_log import lost_commits
from nextapp.wire import Report, digest_of

TOKEN_BYTES = 32
TOKEN_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
"""Base64url, from 0 to 63."""

GATEWAY_ID = "gateway-id"
"""A file beside the vault of one gateway of several: what that is known by."""

TOKEN_LETTER = "token-letter"
"""A file beside it: what the tokens of that gateway begin with, if they all begin alike."""

DRAINING = "draining"
"""A flag: no new reports are taken."""

_NAME_LENGTH = 16  # hexadecimal digits of a device's name
_REPORTS_AT_ONCE = 4096
_LONG_LOG = 8 << 20  # bytes
_MINGLED = 1024  # reports that lie in random order among each other: few pages a commit
_BUSY_SECONDS = 2.0
_BAD_CODE = "the code is not known, was used up or has expired: ask for a new one."

SCHEMA_VERSION = 5
_SCHEMA = """
CREATE TABLE codes (
    hash BLOB PRIMARY KEY, expires REAL NOT NULL, uses INTEGER NOT NULL, name TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE devices (
    hash BLOB PRIMARY KEY, day INTEGER NOT NULL, expires REAL NOT NULL, code TEXT NOT NULL,
    name BLOB NOT NULL, first_round INTEGER NOT NULL DEFAULT 0, renew INTEGER NOT NULL DEFAULT 0,
    salt BLOB, next BLOB) WITHOUT ROWID;
CREATE INDEX next_tokens ON devices (next) WHERE next IS NOT NULL;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, opened REAL NOT NULL, deadline REAL NOT NULL,
    n_reports INTEGER NOT NULL, extensions INTEGER NOT NULL, closed INTEGER NOT NULL,
    goal INTEGER NOT NULL, minimum INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE TABLE broadcasts (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE digests (number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
CREATE TABLE seen (mark BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE reports (
    key BLOB PRIMARY KEY, payload BLOB NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tallies (
    number INTEGER PRIMARY KEY, n_reports INTEGER NOT NULL, tally BLOB NOT NULL,
    shape TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE flags (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class VaultError(OSError):
    """The storage does not take it now: a full disk, a lock held by another. Nothing was stored."""


class VaultDamaged(ValueError):
    """What is on disk is not what was written."""


class UnknownToken(ValueError):
    """A token that was not given out here, or whose device was expelled."""


class RenewedAlready(ValueError):
    """A token that took the place of another one in the round at hand."""


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
    n_damaged: int = 0  # reports that the disk did not keep as they were written; not in the sum


@dataclass(frozen=True)
class Device:
    """What is known of a phone that enrolled: a name for it, the day, and which code it used."""

    name: str
    day: int
    expires: float
    code: str


@dataclass(frozen=True)
class Standing:
    """What a device may do with its token: report from a round on, until it expires.

    ``renew`` is whether its operator wants another token in its place.
    """

    name: str
    expires: float
    first_round: int
    renew: bool


@dataclass(frozen=True)
class Code:
    """An enrolment code that is open; the code itself is not kept."""

    name: str
    expires: float
    uses: int


@dataclass(frozen=True)
class Published:
    """The broadcast of the round at hand as it is handed out, and the round's rules."""

    round: int
    broadcast: bytes
    rules: RoundRules


class Vault:
    """The file, for one gateway process and any number of helpers on the same machine.

    Methods may be called from any thread; what writes does so one after the other. Every method
    raises `VaultError` where the storage refuses, and then nothing has changed. ``token_letter``:
    what all tokens begin with that it gives out, see `new_token`. A write-ahead log that has lost
    commits is refused (`VaultDamaged`), unless by ``leave_damaged``.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float = _BUSY_SECONDS,
        token_letter: str = "",
        leave_damaged: bool = False,
    ) -> None:
        self.path = path
        self.token_letter = token_letter
        self._busy_seconds = busy_seconds
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._log_has_deleted = True
        self._files: list[tuple[Path, tuple[int, int]]] = []
        with _refusals():
            _create_private(path)
            if not leave_damaged:
                self._check_log()
            self._writer = self._connected()
            self._reader = self._connected()
            with self._transaction() as write:
                version = write.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    for statement in _SCHEMA.split(";"):
                        write.execute(statement)
                    write.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        if version not in (0, SCHEMA_VERSION):
            writer = "a newer nextapp; install that one"
            if version < SCHEMA_VERSION:
                writer = "an earlier nextapp; begin anew in another folder"
            raise ValueError(
                f"{path} has the schema {version}, this version knows {SCHEMA_VERSION}: it was "
                f"written by {writer}."
            )

    def _check_log(self) -> None:
        n_lost = lost_commits(self.path)
        if n_lost:
            raise VaultDamaged(
                f"the log {self.path}-wal is not what was written there: {n_lost:,} commits behind "
                f"the damage cannot be read, and reports that were acknowledged are among them. "
                f"Restore the vault from a backup, or start with --leave-damaged to go on without "
                f"them."
            )

    def close(self) -> None:
        with self._writing, self._reading:
            self._writer.close()
            self._reader.close()

    # Enrolment

    def issue_code(self, *, uses: int = 1, expires: float, name: str = "") -> str:
        """A new enrolment code, 80 random bits; kept as its hash only. ``expires``: since 1970.

        Devices that use it can be found by its ``name``.
        """
        if uses < 1:
            raise ValueError(f"a code needs 1 use or more, got {uses!r}.")
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
        code = "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))
        with self._transaction() as write:
            write.execute(
                "INSERT INTO codes VALUES (?, ?, ?, ?)", (_code_hash(code), expires, uses, name)
            )
        return code

    def codes(self, now: float) -> list[Code]:
        """The codes that can be used."""
        with _refusals(), self._reading:
            rows = self._reader.execute(
                "SELECT name, expires, uses FROM codes WHERE expires > ? ORDER BY expires", (now,)
            ).fetchall()
        return [Code(*row) for row in rows]

    def withdraw_codes(self, name: str | None = None) -> int:
        """Cancel the codes of this name, or all; returns how many there were."""
        with self._transaction() as write:
            if name is None:
                return write.execute("DELETE FROM codes").rowcount
            return write.execute("DELETE FROM codes WHERE name = ?", (name,)).rowcount

    def enrol(self, code: str, now: float, seconds: float = math.inf) -> bytes:
        """A new device token for a code, valid for so long; raises `BadCode`.

        Only the token's hash is kept, the day, and the name of the code.
        """
        token = new_token(self.token_letter)
        self.code_name(code)  # a guess costs no transaction
        with self._transaction() as write:
            name = _use_code(write, code, now)
            _add_device(write, token, now, seconds, name)
        return token

    def code_name(self, code: str) -> str:
        """The name of a code that is known; raises `BadCode`. Nothing is written."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT name FROM codes WHERE hash = ?", (_code_hash(code),)
            ).fetchone()
        if row is None:
            raise BadCode(_BAD_CODE)
        return str(row[0])

    def standing(self, token: bytes) -> Standing | None:
        """What a device may do with this token; None for one that is not known."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT name, expires, first_round, renew FROM devices WHERE hash = ?",
                (token_hash(token),),
            ).fetchone()
        if row is None:
            return None
        name, expires, first_round, renew = row
        return Standing(name.hex(), expires, first_round, bool(renew))

    def knows(self, token: bytes, now: float = -math.inf) -> bool:
        """Whether this token was given out here and is still valid."""
        found = self.standing(token)
        return found is not None and found.expires > now

    # Renewal. A new token takes the place of a device's old one when the phone has shown that it
    # holds it; until then the old one counts. It is made of the old one and a salt that is kept in
    # between only: asked for again it is the same, so no phone can choose among many, and neither
    # the old token nor the vault tells the new one later.

    def offer_token(self, token: bytes) -> bytes:
        """The token that shall take the place of this one; `take_token` makes it so.

        Also of one that has expired. Raises `UnknownToken`, or `RenewedAlready`: a token that is
        new in the round at hand is not renewed, or a phone could draw new coins until it likes
        them.
        """
        key = token_hash(token)
        if self.standing(token) is None:  # a guess costs no transaction
            raise UnknownToken("this token is not known here.")
        with self._transaction() as write:
            row = write.execute(
                "SELECT salt, first_round FROM devices WHERE hash = ?", (key,)
            ).fetchone()
            if row is None:
                raise UnknownToken("this token is not known here.")
            salt, first_round = row
            if _round_number(write) < first_round:
                raise RenewedAlready(
                    f"this token is new; it can be renewed from round {first_round} on."
                )
            salt = salt or secrets.token_bytes(TOKEN_BYTES)
            derived = hmac.digest(salt, b"nextapp renewal" + token, "sha256")
            new = with_letter(derived, self.token_letter)
            write.execute(
                "UPDATE devices SET salt = ?, next = ? WHERE hash = ?", (salt, token_hash(new), key)
            )
        return new

    def take_token(self, token: bytes, now: float, seconds: float = math.inf) -> Standing:
        """From now on this token counts, and the one it was made of does not.

        It reports from the next round on, as the device may have reported in the one at hand. Done
        again it changes nothing. Raises `UnknownToken` where it was not offered.
        """
        key = token_hash(token)
        found = self.standing(token)
        if found is not None:
            return found
        with _refusals(), self._reading:
            row = self._reader.execute("SELECT 1 FROM devices WHERE next = ?", (key,)).fetchone()
        if row is None:  # a guess costs no transaction
            raise UnknownToken("this token was not offered here.")
        with self._transaction() as write:
            write.execute(
                "UPDATE devices SET hash = ?, expires = ?, first_round = ?, renew = 0, "
                "salt = NULL, next = NULL WHERE next = ?",
                (key, now + seconds, _round_number(write) + 1, key),
            )
        found = self.standing(token)
        if found is None:
            raise UnknownToken("this token was offered to a device that was expelled.")
        return found

    def ask_renewal(self, expires: float, name: str | None = None, code: str | None = None) -> int:
        """Let a device, those of a code's name, or all, get new tokens by then; how many."""
        where, values = "1", list[str | bytes]()
        if code is not None:
            where, values = "code = ?", [code]
        elif name is not None:
            where, values = "name = ?", [_name_bytes(name)]
        with self._transaction() as write:
            return write.execute(
                f"UPDATE devices SET renew = 1, expires = min(expires, ?) WHERE {where}",
                (expires, *values),
            ).rowcount

    def devices(self, most: int = -1) -> list[Device]:
        """Devices in no order that tells anything, at most so many."""
        with _refusals(), self._reading:
            rows = self._reader.execute(
                "SELECT name, day, expires, code FROM devices ORDER BY name LIMIT ?", (most,)
            ).fetchall()
        return [Device(name.hex(), *rest) for name, *rest in rows]

    def expel(self, name: str | None = None, code: str | None = None) -> int:
        """Forget the device of this name, or all that enrolled by codes of a name; how many."""
        with self._transaction() as write:
            if code is not None:
                return write.execute("DELETE FROM devices WHERE code = ?", (code,)).rowcount
            key = _name_bytes(name)
            return write.execute("DELETE FROM devices WHERE name = ?", (key,)).rowcount

    def expire_devices(self, now: float) -> int:
        """Forget devices whose time is over; how many."""
        with self._transaction() as write:
            return write.execute("DELETE FROM devices WHERE expires <= ?", (now,)).rowcount

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
            self.extend(rules.extend_round(round, now))
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

    def probe(self) -> None:
        """Write to the disk what is there already; raises `VaultError` where it takes nothing."""
        with self._transaction() as write:
            write.execute("UPDATE rounds SET extensions = extensions")

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
            held = _known_digests(write, [mark for mark, _ in marks])
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
                    key = group + secrets.token_bytes(8)
                    reports += [key, one.payload, zlib.crc32(key + one.payload)]
                    outcomes.append(Outcome.ACCEPTED)
            if seen:
                n = len(seen) // 2
                write.execute(f"INSERT INTO seen VALUES {','.join(['(?,?)'] * n)}", seen)
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
        with self._transaction() as write:
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
                write.execute("DELETE FROM seen")
        self._truncate_log()
        return Reduced(number, n_reports, tally, n_damaged)

    def reduced(self, number: int) -> Reduced | None:
        """The tally of a round that was reduced before, if it is still kept."""
        with _refusals(), self._reading:
            row = self._reader.execute(
                "SELECT number, n_reports, tally, shape, checksum FROM tallies WHERE number = ?",
                (number,),
            ).fetchone()
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
            with _refusals(), self._reading:
                rows = self._reader.execute(
                    "SELECT key, payload, checksum FROM reports WHERE key > ? ORDER BY key LIMIT ?",
                    (last, _REPORTS_AT_ONCE),
                ).fetchall()
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
        with self._transaction() as write:
            write.execute("DELETE FROM flags WHERE name = ?", (name,))
            if up:
                write.execute("INSERT INTO flags VALUES (?)", (name,))

    def flags(self) -> frozenset[str]:
        with _refusals(), self._reading:
            return frozenset(row[0] for row in self._reader.execute("SELECT name FROM flags"))

    def expire_deadline(self, number: int, now: float) -> None:
        """Let the deadline of round `number` be over."""
        with self._transaction() as write:
            write.execute(
                "UPDATE rounds SET deadline = ? WHERE number = ? AND closed = 0", (now, number)
            )

    def check(self, *, leave_damaged: bool = False) -> None:
        """Read all of it; raises `VaultDamaged` where it is not what was written.

        ``leave_damaged``: reports that are damaged are borne with, `reduce` leaves them out, and a
        count of reports that is wrong is made right. Devices and codes have no checksum: a damaged
        one is a phone that must enrol again.
        """
        with _refusals(), self._reading:
            words = [row[0] for row in self._reader.execute("PRAGMA integrity_check(10)")]
            broadcasts = self._reader.execute(
                "SELECT number, data, sha256 FROM broadcasts LEFT JOIN digests USING (number)"
            ).fetchall()
            sums = [row[0] for row in self._reader.execute("SELECT number FROM tallies")]
            rounds = self._reader.execute(
                "SELECT number, n_reports, (SELECT count(*) FROM reports), data IS NULL "
                "FROM rounds LEFT JOIN broadcasts USING (number)"
            ).fetchall()
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
                    f"to go on with those it holds."
                )
            with self._transaction() as write:
                write.execute("UPDATE rounds SET n_reports = (SELECT count(*) FROM reports)")
        n_damaged = sum(damaged for _, damaged in self._payloads())
        if n_damaged and not leave_damaged:
            raise VaultDamaged(
                f"{n_damaged:,} reports of the round at hand in {self.path} are not what was "
                f"written there. Restore the vault from a backup, or start with --leave-damaged to "
                f"go on without them."
            )

    def copy_to(self, path: Path) -> None:
        """A copy of the file as it is at one moment, while it is in use."""
        with _refusals(), closing(sqlite3.connect(self.path)) as source:
            _create_private(path)
            with closing(sqlite3.connect(path)) as copy:
                source.backup(copy)

    # The file

    def version(self) -> int:
        """A number that changes when another process has written to the file."""
        with _refusals(), self._reading:
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def _connected(self) -> sqlite3.Connection:
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

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, on disk at the end."""
        with self._writing, _refusals():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                self._check_files()
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

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

    def tidy(self) -> None:
        """Bring a long write-ahead log into the file, in the background of those who write.

        Two passes without a lock leave little to do for the third, after which the log starts
        anew. Left to SQLite, a writer would stop for the whole of it.
        """
        log = self.path.with_name(self.path.name + "-wal")
        if not log.exists() or (log.stat().st_size < _LONG_LOG and not self._log_has_deleted):
            return
        self._check_files()  # another connection would make a log that was deleted anew
        with _refusals(), closing(self._connected()) as other:
            for _ in range(2):
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            with self._writing:
                self._log_has_deleted = not _empty_log(other)

    def _truncate_log(self) -> None:
        """What was deleted shall not live on in the write-ahead log; else `tidy` sees to it."""
        with self._writing, _refusals():
            self._log_has_deleted = not _empty_log(self._writer)


def _create_private(path: Path) -> None:
    """An empty file that only its owner may read; one that is there stays as it is."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _checksum(number: int, n_reports: int, tally: bytes, shape: str) -> bytes:
    """Of a sum as it is stored."""
    words = f"{number} {n_reports} {shape} ".encode()
    return hashlib.blake2b(words + tally, digest_size=16).digest()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise VaultError(f"the vault cannot be used: {error}.") from error


def _use_code(write: sqlite3.Connection, code: str, now: float) -> str:
    """Take one use of a code; its name."""
    key = _code_hash(code)
    write.execute("DELETE FROM codes WHERE expires <= ?", (now,))
    row = write.execute("SELECT uses, name FROM codes WHERE hash = ?", (key,)).fetchone()
    if row is None:
        raise BadCode(_BAD_CODE)
    if row[0] > 1:
        write.execute("UPDATE codes SET uses = uses - 1 WHERE hash = ?", (key,))
    else:
        write.execute("DELETE FROM codes WHERE hash = ?", (key,))
    return str(row[1])


def _add_device(
    write: sqlite3.Connection, token: bytes, now: float, seconds: float, code: str
) -> None:
    key = token_hash(token)
    write.execute(
        "INSERT INTO devices (hash, day, expires, code, name) VALUES (?, ?, ?, ?, ?)",
        (key, int(now // 86_400), now + seconds, code, key[: _NAME_LENGTH // 2]),
    )


def _round_number(write: sqlite3.Connection) -> int:
    row = write.execute("SELECT number FROM rounds").fetchone()
    return int(row[0]) if row else 0


def _name_bytes(name: str | None) -> bytes:
    if name is None or re.fullmatch(f"[0-9a-f]{{{_NAME_LENGTH}}}", name) is None:
        raise ValueError(f"a device's name has {_NAME_LENGTH} hexadecimal digits, got {name!r}.")
    return bytes.fromhex(name)


def _known_digests(write: sqlite3.Connection, marks: Sequence[bytes]) -> dict[bytes, bytes]:
    """The digests of those marks that are there already."""
    places = ",".join("?" * len(marks))
    return dict(
        write.execute(f"SELECT mark, digest FROM seen WHERE mark IN ({places})", marks).fetchall()
    )


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log into the file; False where a reader was in the way."""
    return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def new_token(letter: str = "") -> bytes:
    """A random device token, see `with_letter`."""
    return with_letter(secrets.token_bytes(TOKEN_BYTES), letter)


def with_letter(token: bytes, letter: str) -> bytes:
    """The token with a base64url text that begins with `letter`; "" leaves it as it is.

    By that letter a proxy in front of several gateways knows whose phone it is: docs/operating.md.
    """
    if not letter:
        return token
    place = TOKEN_LETTERS.find(letter)
    if len(letter) != 1 or place < 0:
        raise ValueError(f"a token letter is one of {TOKEN_LETTERS}, got {letter!r}.")
    return bytes([place << 2 | token[0] & 3]) + token[1:]  # a letter of base64 is six bits


def token_hash(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(b"nextapp token" + token).digest()


def device_name(token: bytes) -> str:
    """What an operator calls the device that enrolled with a token: the beginning of its hash.

    It keeps this name when it gets other tokens.
    """
    return token_hash(token).hex()[:_NAME_LENGTH]


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
