"""Devices and the codes by which they enrol, in the vault of a gateway.

A device is kept as the SHA-256 of its token: who reads the file can send no report in its name.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import sqlite3
import string
from dataclasses import dataclass

from nextapp.server.database import Database

TOKEN_BYTES = 32
TOKEN_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
"""Base64url, from 0 to 63."""

DEVICES_SCHEMA = """
CREATE TABLE codes (
    hash BLOB PRIMARY KEY, expires REAL NOT NULL, uses INTEGER NOT NULL, name TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE devices (
    hash BLOB PRIMARY KEY, day INTEGER NOT NULL, expires REAL NOT NULL, code TEXT NOT NULL,
    name BLOB NOT NULL, first_round INTEGER NOT NULL DEFAULT 0, renew INTEGER NOT NULL DEFAULT 0,
    salt BLOB, next BLOB) WITHOUT ROWID;
CREATE INDEX next_tokens ON devices (next) WHERE next IS NOT NULL;
"""

_NAME_LENGTH = 16  # hexadecimal digits
_BAD_CODE = "the code is not known, was used up or has expired: ask for a new one."


class UnknownToken(ValueError):
    """A token that was not given out here, or whose device was expelled."""


class RenewedAlready(ValueError):
    """A token that took the place of another one in the current round."""


class BadCode(ValueError):
    """An enrolment code that is not known, used up, or past its time."""


@dataclass(frozen=True)
class Device:
    """What is known of a phone that enrolled: a name for it, the day, and which code it used.

    The name is the beginning of its first token's hash, and stays when it gets other tokens.
    """

    name: str
    day: int
    expires: float
    code: str


@dataclass(frozen=True)
class TokenStatus:
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


class Devices:
    """The devices of a vault, and its open enrolment codes.

    ``token_letter``: what all tokens begin with that are given out here, see `new_token`.
    """

    def __init__(self, database: Database, token_letter: str = "") -> None:
        self._database = database
        self.token_letter = token_letter

    def issue_code(self, *, uses: int = 1, expires: float, name: str = "") -> str:
        """A new enrolment code, 80 random bits; kept as its hash only. ``expires``: since 1970.

        Devices that use it can be found by its ``name``.
        """
        if uses < 1:
            raise ValueError(f"a code needs 1 use or more, got {uses!r}.")
        letters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
        code = "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))
        with self._database.transaction() as write:
            write.execute(
                "INSERT INTO codes VALUES (?, ?, ?, ?)", (_code_hash(code), expires, uses, name)
            )
        return code

    def codes(self, now: float) -> list[Code]:
        """The codes that can be used."""
        rows = self._database.rows(
            "SELECT name, expires, uses FROM codes WHERE expires > ? ORDER BY expires", (now,)
        )
        return [Code(*row) for row in rows]

    def withdraw_codes(self, name: str | None = None) -> int:
        """Cancel the codes of this name, or all; returns how many there were."""
        with self._database.transaction() as write:
            if name is None:
                return write.execute("DELETE FROM codes").rowcount
            return write.execute("DELETE FROM codes WHERE name = ?", (name,)).rowcount

    def enrol(self, code: str, now: float, seconds: float = math.inf) -> bytes:
        """A new device token for a code, valid for so long; raises `BadCode`.

        Only the token's hash is kept, the day, and the name of the code.
        """
        token = new_token(self.token_letter)
        key = token_hash(token)
        if self._database.row("SELECT 1 FROM codes WHERE hash = ?", (_code_hash(code),)) is None:
            raise BadCode(_BAD_CODE)  # a guess costs no transaction
        with self._database.transaction() as write:
            name = _use_code(write, code, now)
            write.execute(
                "INSERT INTO devices (hash, day, expires, code, name) VALUES (?, ?, ?, ?, ?)",
                (key, int(now // 86_400), now + seconds, name, key[: _NAME_LENGTH // 2]),
            )
        return token

    def status(self, token: bytes) -> TokenStatus | None:
        """What a device may do with this token; None for one that is not known."""
        row = self._database.row(
            "SELECT name, expires, first_round, renew FROM devices WHERE hash = ?",
            (token_hash(token),),
        )
        if row is None:
            return None
        name, expires, first_round, renew = row
        return TokenStatus(name.hex(), expires, first_round, bool(renew))

    def knows(self, token: bytes, now: float = -math.inf) -> bool:
        """Whether this token was given out here and is still valid."""
        found = self.status(token)
        return found is not None and found.expires > now

    # Renewal. A new token takes the place of a device's old one when the phone has shown that it
    # holds it; until then the old one counts. It is made of the old one and a salt that is kept in
    # between only: asked for again it is the same, so no phone can choose among many, and neither
    # the old token nor the vault tells the new one later.

    def offer_token(self, token: bytes) -> bytes:
        """The token that shall take the place of this one; `take_token` makes it so.

        Also of one that has expired. Raises `UnknownToken`, or `RenewedAlready`: a token that is
        new in the current round is not renewed, or a phone could draw new coins until it likes
        them.
        """
        key = token_hash(token)
        if self.status(token) is None:  # a guess costs no transaction
            raise UnknownToken("this token is not known here.")
        with self._database.transaction() as write:
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

    def take_token(self, token: bytes, now: float, seconds: float = math.inf) -> TokenStatus:
        """From now on this token counts, and the one it was made of does not.

        It reports from the next round on, as the device may have reported in the current one. Done
        again it changes nothing. Raises `UnknownToken` where it was not offered.
        """
        key = token_hash(token)
        found = self.status(token)
        if found is not None:
            return found
        if (
            self._database.row("SELECT 1 FROM devices WHERE next = ?", (key,)) is None
        ):  # a guess costs no transaction
            raise UnknownToken("this token was not offered here.")
        with self._database.transaction() as write:
            write.execute(
                "UPDATE devices SET hash = ?, expires = ?, first_round = ?, renew = 0, "
                "salt = NULL, next = NULL WHERE next = ?",
                (key, now + seconds, _round_number(write) + 1, key),
            )
        found = self.status(token)
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
        with self._database.transaction() as write:
            return write.execute(
                f"UPDATE devices SET renew = 1, expires = min(expires, ?) WHERE {where}",
                (expires, *values),
            ).rowcount

    def listing(self, limit: int = -1) -> list[Device]:
        """The first `limit` devices by name, an order that says nothing about them; -1: all."""
        rows = self._database.rows(
            "SELECT name, day, expires, code FROM devices ORDER BY name LIMIT ?", (limit,)
        )
        return [Device(name.hex(), *rest) for name, *rest in rows]

    def expel(self, name: str | None = None, code: str | None = None) -> int:
        """Forget the device of this name, or all that enrolled by codes of a name; how many."""
        with self._database.transaction() as write:
            if code is not None:
                return write.execute("DELETE FROM devices WHERE code = ?", (code,)).rowcount
            key = _name_bytes(name)
            return write.execute("DELETE FROM devices WHERE name = ?", (key,)).rowcount

    def expel_expired(self, now: float) -> int:
        """Forget devices whose time is over; how many."""
        with self._database.transaction() as write:
            return write.execute("DELETE FROM devices WHERE expires <= ?", (now,)).rowcount

    def count(self) -> int:
        return int(self._database.row("SELECT count(*) FROM devices")[0])


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


def _round_number(write: sqlite3.Connection) -> int:
    row = write.execute("SELECT number FROM rounds").fetchone()
    return int(row[0]) if row else 0


def _name_bytes(name: str | None) -> bytes:
    if name is None or re.fullmatch(f"[0-9a-f]{{{_NAME_LENGTH}}}", name) is None:
        raise ValueError(f"a device's name has {_NAME_LENGTH} hexadecimal digits, got {name!r}.")
    return bytes.fromhex(name)


def new_token(letter: str = "") -> bytes:
    """A random device token, see `with_letter`."""
    return with_letter(secrets.token_bytes(TOKEN_BYTES), letter)


def with_letter(token: bytes, letter: str) -> bytes:
    """The token with a base64url text that begins with `letter`; "" leaves it as it is.

    By that letter a proxy in front of several gateways knows whose phone it is: docs/operate.md.
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


def _code_hash(code: str) -> bytes:
    plain = "".join(code.upper().split()).replace("-", "")
    return hashlib.sha256(b"nextapp code" + plain.encode()).digest()
