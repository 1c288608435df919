"""The keys by which a gateway signs tokens, in its vault: one for each period, made when it is due.

The two latest are listed in the broadcast: tokens are issued by the newest, and reports taken by
both, so that a token lives one period longer than its key issues.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from nextapp.privacy.tokens import E, PrivateKey
from nextapp.server.database import Database
from nextapp.wire import MOST_TOKENS, TokenKey

KEY_BITS = 2048
MARK_BYTES = 8
"""Of a key's id, with which the marks of its spent tokens begin."""

_LISTED = 2
_ROTATE, _RETIRE_ALL = 1, 2  # what is asked of the next round

TOKEN_KEYS_SCHEMA = """
CREATE TABLE token_keys (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, p BLOB NOT NULL, q BLOB NOT NULL,
    made REAL NOT NULL, tokens INTEGER NOT NULL) STRICT;
CREATE TABLE key_rules (days REAL NOT NULL, tokens INTEGER NOT NULL, asked INTEGER NOT NULL) STRICT;
CREATE TABLE issued (
    key TEXT NOT NULL, device BLOB NOT NULL, request BLOB NOT NULL, row_sum INTEGER NOT NULL,
    PRIMARY KEY (key, device)) STRICT, WITHOUT ROWID;
CREATE TABLE spent (
    mark BLOB PRIMARY KEY, digest BLOB NOT NULL, row_sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""


@dataclass(frozen=True)
class KeyRules:
    """How long a key issues tokens, and how many of it a phone gets: its reports in that time."""

    days: float = 30.0
    tokens: int = 1

    def __post_init__(self) -> None:
        if not self.days > 0:
            raise ValueError(f"a key's days must be a number > 0, got {self.days!r}.")
        if not 1 <= self.tokens <= MOST_TOKENS:
            raise ValueError(
                f"reports per period must be from 1 to {MOST_TOKENS}, got {self.tokens!r}."
            )


DEFAULT_RULES = KeyRules()


class TokenKeys:
    """The keys of a vault. ``region`` is the name of the gateway, which their ids begin with."""

    def __init__(self, database: Database, region: str) -> None:
        self._database = database
        self.region = region
        self._private: dict[str, PrivateKey] = {}

    def set_rules(self, rules: KeyRules) -> None:
        """From the next key on."""
        with self._database.transaction() as write:
            _write_rules(write, rules, _rules(write)[1])

    def rotate(self, *, retire_all: bool = False) -> None:
        """Let the next round have a new key; ``retire_all``: and no older one, after a restore."""
        with self._database.transaction() as write:
            rules, asked = _rules(write)
            _write_rules(write, rules, max(asked, _RETIRE_ALL if retire_all else _ROTATE))

    def for_next_round(self, now: float) -> tuple[TokenKey, ...]:
        """The keys of the broadcast that comes next, the newest last; a new one where it is due.

        What was issued and spent of keys that are no longer listed is forgotten.
        """
        with self._database.transaction() as write:
            rules, asked = _rules(write)
            newest = write.execute(
                "SELECT made, tokens FROM token_keys ORDER BY number DESC LIMIT 1"
            ).fetchone()
            age, tokens = (math.inf, 0) if newest is None else (now - newest[0], newest[1])
            if asked or age >= 86_400 * rules.days or tokens != rules.tokens:
                if asked == _RETIRE_ALL:
                    write.execute("DELETE FROM token_keys")
                write.execute(
                    "INSERT INTO token_keys (id, p, q, made, tokens) VALUES (?, ?, ?, ?, ?)",
                    (*self._new_key(), now, rules.tokens),
                )
                _write_rules(write, rules, 0)
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


def key_mark(key: str) -> bytes:
    """What the marks of a key's spent tokens begin with."""
    return bytes.fromhex(key.rpartition("-")[2])[:MARK_BYTES]


def _public(region: str, p: bytes, q: bytes, tokens: int) -> TokenKey:
    modulus = int.from_bytes(p) * int.from_bytes(q)
    return TokenKey(region, f"{modulus:0{KEY_BITS // 4}x}", tokens)


def _rules(write: sqlite3.Connection) -> tuple[KeyRules, int]:
    """The rules, and what is asked of the next round."""
    row = write.execute("SELECT days, tokens, asked FROM key_rules").fetchone()
    return (DEFAULT_RULES, 0) if row is None else (KeyRules(*row[:2]), row[2])


def _write_rules(write: sqlite3.Connection, rules: KeyRules, asked: int) -> None:
    write.execute("DELETE FROM key_rules")
    write.execute("INSERT INTO key_rules VALUES (?, ?, ?)", (*astuple(rules), asked))


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
