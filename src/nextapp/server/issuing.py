"""Who may report: enrolment codes, the secrets of devices, and the keys that sign their tokens.

A device is kept as the SHA-256 of its secret, so a reader of the file cannot pretend to be it. Also
kept are the keys of which it has had tokens, and a hash of its blinded request; neither can be
linked to a token.

There is a key for each period, made when it is due. The two latest are listed in the broadcast:
tokens are issued by the newest, and reports taken by both, so that a token lives one period longer
than its key issues.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nextapp.privacy.tokens import E, PrivateKey, to_base64
from nextapp.server.database import Database, VaultError, row_sum
from nextapp.settings import setting
from nextapp.wire import MOST_TOKENS, TokenKey

SECRET_BYTES = 32
KEY_BITS = 2048
MARK_BYTES = 8
"""Of a key's id, with which the marks of its spent tokens begin."""

ISSUING_SCHEMA = """
CREATE TABLE codes (
    hash BLOB PRIMARY KEY, expires INTEGER NOT NULL, uses INTEGER NOT NULL, name TEXT NOT NULL,
    row_sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE devices (
    hash BLOB PRIMARY KEY, day INTEGER NOT NULL, expires INTEGER NOT NULL, code TEXT NOT NULL,
    row_sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE token_keys (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, p BLOB NOT NULL, q BLOB NOT NULL,
    made REAL NOT NULL, tokens INTEGER NOT NULL) STRICT;
CREATE TABLE issued (
    key TEXT NOT NULL, device BLOB NOT NULL, request BLOB NOT NULL, row_sum INTEGER NOT NULL,
    PRIMARY KEY (key, device)) STRICT, WITHOUT ROWID;
CREATE TABLE spent (
    mark BLOB PRIMARY KEY, digest BLOB NOT NULL, row_sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""

_NAME_BYTES = 8
_NEVER = 1 << 53  # seconds since 1970
_REWRITTEN_AT_ONCE = 10_000  # devices: some hundredths of a second
_LISTED = 2
_ROTATE, _RETIRE_ALL = 1, 2  # what is asked of the next round


@dataclass(frozen=True)
class KeyRules:
    """How long a key issues tokens, and how many of it a phone gets: its reports in that time."""

    key_days: float = setting(30.0, "Days of a key's period.", metavar="DAYS")
    reports_per_period: int = setting(1, "Reports of a phone in a key's period.", metavar="N")

    def __post_init__(self) -> None:
        if not self.key_days > 0:
            raise ValueError(f"a key's days must be a number > 0, got {self.key_days!r}.")
        if not 1 <= self.reports_per_period <= MOST_TOKENS:
            raise ValueError(
                f"reports per period must be from 1 to {MOST_TOKENS}, got "
                f"{self.reports_per_period!r}."
            )


class TokenKeys:
    """The keys of a vault. ``region`` is the name of the gateway, which their ids begin with."""

    def __init__(self, database: Database, region: str) -> None:
        self._database = database
        self.region = region
        self._private: dict[str, PrivateKey] = {}

    def set_rules(self, rules: KeyRules) -> None:
        """From the next key on."""
        self._database.wish(key_days=rules.key_days, key_tokens=rules.reports_per_period)

    def rotate(self, *, retire_all: bool = False) -> None:
        """Let the next round have a new key; ``retire_all`` drops all older ones, for a restore."""
        asked = self._database.wishes().get("new_key", 0)
        self._database.wish(new_key=max(asked, _RETIRE_ALL if retire_all else _ROTATE))

    def for_next_round(self, now: float) -> tuple[TokenKey, ...]:
        """The keys of the broadcast that comes next, the newest last; a new one where it is due.

        What was issued and spent of keys that are no longer listed is forgotten.
        """
        with self._database.transaction() as write:
            wishes = dict(write.execute("SELECT name, value FROM wishes"))
            asked, days = wishes.get("new_key"), wishes.get("key_days", KeyRules.key_days)
            n_tokens = int(wishes.get("key_tokens", KeyRules.reports_per_period))
            newest = write.execute(
                "SELECT made, tokens FROM token_keys ORDER BY number DESC LIMIT 1"
            ).fetchone()
            age, tokens = (math.inf, 0) if newest is None else (now - newest[0], newest[1])
            if asked or age >= 86_400 * days or tokens != n_tokens:
                if asked == _RETIRE_ALL:
                    write.execute("DELETE FROM token_keys")
                write.execute(
                    "INSERT INTO token_keys (id, p, q, made, tokens) VALUES (?, ?, ?, ?, ?)",
                    (*self._new_key(), now, n_tokens),
                )
                write.execute("DELETE FROM wishes WHERE name = 'new_key'")
                _forget_unlisted(write)
        return self.listed()

    def listed(self) -> tuple[TokenKey, ...]:
        """The public keys, the newest last."""
        rows = self._database.rows("SELECT p, q, tokens FROM token_keys ORDER BY number")
        return tuple(_public(self.region, *row) for row in rows)

    def private(self, key: str) -> PrivateKey | None:
        """The private half of a key; None of one that is not here."""
        if key not in self._private:
            row = self._database.row("SELECT p, q FROM token_keys WHERE id = ?", (key,))
            if row is None:
                return None
            self._private[key] = PrivateKey(int.from_bytes(row[0]), int.from_bytes(row[1]))
        return self._private[key]

    def _new_key(self) -> tuple[str, bytes, bytes]:
        """Id and primes, by OpenSSL."""
        from cryptography.hazmat.primitives.asymmetric import rsa  # slow to import, seldom needed

        numbers = rsa.generate_private_key(E, KEY_BITS).private_numbers()
        p, q = (prime.to_bytes(KEY_BITS // 16) for prime in (numbers.p, numbers.q))
        return _public(self.region, p, q, 1).id, p, q


class NotIssued(ValueError):
    """Tokens that a device does not get: ``code`` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadCode(ValueError):
    """An enrolment code that is not known, used up, or past its time."""

    def __init__(self) -> None:
        super().__init__("the code is not known, was used up or has expired: ask for a new one.")


class Devices:
    """The devices of a vault, and its open enrolment codes."""

    def __init__(self, database: Database, keys: TokenKeys) -> None:
        self._database = database
        self._keys = keys
        self._in_order = False  # whether the file tells nothing of the order in which rows came

    def forget_order(self) -> None:
        """Let the file no longer tell in which order devices enrolled and had their tokens.

        A part of them at a time, so that reports do not wait for long.
        """
        if self._in_order:
            return
        self._in_order = True  # unless one comes meanwhile
        n_parts = 1 + self.count() // _REWRITTEN_AT_ONCE
        inner = [((part << 16) // n_parts).to_bytes(2) for part in range(1, n_parts)]
        try:
            keys = self._database.rows("SELECT DISTINCT key FROM issued")
            for part in pairwise([b"", *inner, b"\xff" * (SECRET_BYTES + 1)]):
                self._database.rewrite("devices", "hash >= ? AND hash < ?", part)
                for (key,) in keys:
                    of_key = "key = ? AND device >= ? AND device < ?"
                    self._database.rewrite("issued", of_key, (key, *part))
        except VaultError:
            self._in_order = False
            raise

    def issue_code(self, *, uses: int = 1, expires: float, name: str = "") -> str:
        """A new enrolment code, 80 random bits; kept as its hash only. ``expires``: since 1970.

        Devices that use it can be found by its ``name``.
        """
        if uses < 1:
            raise ValueError(f"a code needs 1 use or more, got {uses!r}.")
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
        code = "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))
        with self._database.transaction() as write:
            row = _code_hash(code), int(expires), uses, name
            write.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?)", (*row, row_sum(*row)))
        return code

    def codes(self, now: float) -> list[tuple[str, float, int]]:
        """The name of each open code, when it expires, and how many uses it has left."""
        return self._database.rows(
            "SELECT name, expires, uses FROM codes WHERE expires > ? ORDER BY expires", (now,)
        )

    def withdraw_codes(self, name: str | None = None) -> int:
        """Cancel the codes of this name, or all; returns how many there were."""
        return self._forget("DELETE FROM codes WHERE ?1 IS NULL OR name = ?1", name)

    def check_code(self, code: str, now: float) -> None:
        """Raise `BadCode` unless a code can be used; a guess costs no transaction."""
        found = "SELECT 1 FROM codes WHERE hash = ? AND expires > ?"
        if self._database.row(found, (_code_hash(code), now)) is None:
            raise BadCode

    def enrol(self, code: str, now: float, seconds: float = math.inf) -> str:
        """A new device's secret for a code, valid for so long; raises `BadCode`.

        Only the secret's hash is kept, the day, and the name of the code.
        """
        secret = f"{self._keys.region}.{to_base64(secrets.token_bytes(SECRET_BYTES))}"
        key = secret_hash(secret)
        self._in_order = False
        with self._database.transaction() as write:
            name = _use_code(write, code, now)
            row = key, int(now // 86_400), int(min(now + seconds, _NEVER)), name
            write.execute("INSERT INTO devices VALUES (?, ?, ?, ?, ?)", (*row, row_sum(*row)))
        return secret

    def knows(self, secret: str, now: float = -math.inf) -> bool:
        """Whether this secret was given out here and is still valid."""
        row = self._database.row(
            "SELECT expires FROM devices WHERE hash = ?", (secret_hash(secret),)
        )
        return row is not None and row[0] > now

    def issue(self, secret: str, key: str, blinded: Sequence[bytes], now: float) -> list[bytes]:
        """Sign what a device has blinded: its tokens of a key, once.

        The same request has the same answer, so that one that is lost costs no token; any other is
        refused. Raises `NotIssued`, or `BadSignature` for what is no number of the key.
        """
        device = secret_hash(secret)
        request = hashlib.sha256(b"".join(blinded)).digest()
        if not self.knows(secret, now):
            raise NotIssued("unknown_secret", "this phone has not enrolled here: enrol anew.")
        private = self._keys.private(key)
        newest = self._keys.listed()[-1]
        where = "SELECT request FROM issued WHERE key = ? AND device = ?"
        before = self._database.row(where, (key, device))
        if private is None or (before is None and key != newest.id):
            raise NotIssued("unknown_key", f"tokens are issued by the key {newest.id} only.")
        if before is None and len(blinded) > newest.tokens:
            raise NotIssued("too_many", f"a phone gets {newest.tokens:,} tokens of this key.")
        signed = [private.sign(each) for each in blinded] if before in (None, (request,)) else []
        self._in_order = False
        with self._database.transaction() as write:
            row = key, device, request
            write.execute("INSERT OR IGNORE INTO issued VALUES (?, ?, ?, ?)", (*row, row_sum(*row)))
            (there,) = write.execute(where, (key, device)).fetchone()
        if there != request:
            raise NotIssued("already_issued", "this phone has had its tokens of this key.")
        return signed

    def listing(self) -> list[tuple[str, int, float, str]]:
        """All devices by name, an order that says nothing about them.

        A name for each (the beginning of its secret's hash), the day it enrolled, when that
        expires, and the name of its code.
        """
        rows = self._database.rows("SELECT hash, day, expires, code FROM devices ORDER BY hash")
        return [(key[:_NAME_BYTES].hex(), *rest) for key, *rest in rows]

    def expel(self, name: str | None = None, code: str | None = None) -> int:
        """Forget the device of this name, or all that enrolled by codes of a name; how many."""
        if code is not None:
            return self._forget("DELETE FROM devices WHERE code = ?", code)
        found = re.fullmatch(f"[0-9a-f]{{{2 * _NAME_BYTES}}}", name or "")
        if found is None:
            digits = 2 * _NAME_BYTES
            raise ValueError(f"a device's name has {digits} hexadecimal digits, got {name!r}.")
        begins = f"DELETE FROM devices WHERE substr(hash, 1, {_NAME_BYTES}) = ?"
        return self._forget(begins, bytes.fromhex(found[0]))

    def expel_expired(self, now: float) -> int:
        return self._forget("DELETE FROM devices WHERE expires <= ?", now)

    def _forget(self, sql: str, value: object) -> int:
        with self._database.transaction() as write:
            return write.execute(sql, (value,)).rowcount

    def count(self) -> int:
        return int(self._database.row("SELECT count(*) FROM devices")[0])


def key_mark(key: str) -> bytes:
    """What the marks of a key's spent tokens begin with."""
    return bytes.fromhex(key.rpartition("-")[2])[:MARK_BYTES]


def _public(region: str, p: bytes, q: bytes, tokens: int) -> TokenKey:
    modulus = int.from_bytes(p) * int.from_bytes(q)
    return TokenKey(region, f"{modulus:0{KEY_BITS // 4}x}", tokens)


def _forget_unlisted(write: sqlite3.Connection) -> None:
    rows = write.execute(f"SELECT id FROM token_keys ORDER BY number DESC LIMIT {_LISTED}")
    listed: Sequence[str] = [row[0] for row in rows]
    places = ",".join("?" * len(listed))
    write.execute(f"DELETE FROM token_keys WHERE id NOT IN ({places})", listed)
    write.execute(f"DELETE FROM issued WHERE key NOT IN ({places})", listed)
    write.execute(
        f"DELETE FROM spent WHERE substr(mark, 1, {MARK_BYTES}) NOT IN ({places})",
        [key_mark(key) for key in listed],
    )


def _use_code(write: sqlite3.Connection, code: str, now: float) -> str:
    """Take one use of a code; its name."""
    key = _code_hash(code)
    write.execute("DELETE FROM codes WHERE expires <= ?", (now,))
    found = write.execute("SELECT expires, uses, name FROM codes WHERE hash = ?", (key,))
    row = found.fetchone()
    if row is None:
        raise BadCode
    expires, uses, name = row
    write.execute("DELETE FROM codes WHERE hash = ?", (key,))
    if uses > 1:
        row = key, expires, uses - 1, name
        write.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?)", (*row, row_sum(*row)))
    return str(name)


def secret_hash(secret: str) -> bytes:
    return hashlib.sha256(b"nextapp secret" + secret.encode()).digest()


def _code_hash(code: str) -> bytes:
    plain = "".join(code.upper().split()).replace("-", "")
    return hashlib.sha256(b"nextapp code" + plain.encode()).digest()
