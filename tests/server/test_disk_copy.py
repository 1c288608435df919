"""Whoever copies the disk at one moment matches reports to devices no better than by chance."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import struct
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from servers import payload, report_of

from nextapp.privacy.tokens import MESSAGE, Token, public_key
from nextapp.server import folders
from nextapp.server.gateway import _ORDER_SECONDS
from nextapp.server.issuing import secret_hash
from nextapp.server.vault import RoundRules, Submission, Vault

PHONES = 40
HOUR = 3600.0
WAIT = (4 * HOUR, 28 * HOUR)  # nextapp.phone.phone.TOKEN_WAIT
RULES = RoundRules(goal=1000, minimum=1, seconds=1e9)


class Fleet:
    """Phones that enrol, ask for a token and report; and who sent what, as only the test knows."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.vault = Vault(folder / "vault.sqlite")
        (self.key,) = self.vault.keys.for_next_round(0.0)
        self.public = public_key(self.key)
        self.vault.publish(RULES.open_round(0, 0.0), b"broadcast")
        code = self.vault.devices.issue_code(uses=PHONES, expires=1e12)
        self.secrets = [self.vault.devices.enrol(code, 1.0) for _ in range(PHONES)]
        self.tokens: dict[int, Token] = {}
        self.sender: dict[bytes, int] = {}  # by payload

    def ask(self, phone: int) -> None:
        blinding = self.public.new_blinding(MESSAGE)
        blinded = [self.public.blind(blinding)]
        (signed,) = self.vault.devices.issue(self.secrets[phone], self.key.id, blinded, 1.0)
        self.tokens[phone] = Token.of(self.key, blinding, signed)

    def report(self, *phones: int) -> None:
        some = [Submission(self.tokens[n], 0, b"%8d" % n + payload(report_of(n))) for n in phones]
        self.vault.admit(some)
        self.sender |= {one.payload: n for one, n in zip(some, phones, strict=True)}

    def device(self, row: bytes) -> int:
        """The phone whose hash this is."""
        return [secret_hash(secret) for secret in self.secrets].index(row)


def copy_of(vault: Vault, folder: Path) -> Path:
    """The files as they are, as after a kill."""
    folder.mkdir()
    for path in vault.path.parent.glob("vault.sqlite*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, folder / path.name)
    return folder / "vault.sqlite"


def commits(log: bytes) -> list[int]:
    """Where each transaction of a write-ahead log ends; pages of 4096 bytes."""
    frame = 24 + 4096
    ends = range(32 + frame, len(log) + 1, frame)
    salt = log[16:24]
    return [
        end
        for end in ends
        if log[end - frame + 8 : end - frame + 16] == salt
        and struct.unpack_from(">I", log, end - frame + 4)[0]
    ]


def told_in_order(copy: Path, folder: Path) -> list[tuple[str, bytes]]:
    """What the log tells: each issue (by device) and each report, in the order of their commits.

    Of what was there before the log begins no order is known.
    """
    log_path = copy.with_name("vault.sqlite-wal")
    log = log_path.read_bytes() if log_path.exists() else b""
    folder.mkdir()
    known: set[tuple[str, bytes]] | None = None
    order: list[tuple[str, bytes]] = []
    for end in [0, *commits(log)]:
        part = folder / "part.sqlite"
        for old in folder.iterdir():
            old.unlink()
        shutil.copy(copy, part)
        part.with_name("part.sqlite-wal").write_bytes(log[:end])
        with closing(sqlite3.connect(part)) as read:
            tables = {row[0] for row in read.execute("SELECT name FROM sqlite_master")}
            if "issued" not in tables:
                rows: set[tuple[str, bytes]] = set()
            else:
                rows = {("issue", row[0]) for row in read.execute("SELECT device FROM issued")}
                rows |= {("report", row[0]) for row in read.execute("SELECT payload FROM reports")}
        order += sorted(rows - (known or set())) if known is not None else []
        known = rows
    return order


def matched(fleet: Fleet, order: list[tuple[str, bytes]]) -> tuple[int, int]:
    """(right, guessed) if each report is taken for that of the device served last before it."""
    right = guessed = 0
    asked: list[bytes] = []
    for kind, value in order:
        if kind == "issue":
            asked.append(value)
        elif asked:
            guessed += 1
            right += fleet.device(asked.pop()) == fleet.sender[value]
    return right, guessed


def test_the_attack_finds_phones_that_report_as_soon_as_they_have_a_token(tmp_path):
    """So that the tests below can fail: this is what --now does, and it is for trying by hand."""
    fleet = Fleet(tmp_path / "f")
    fleet.vault.database.truncate_log()
    for phone in range(PHONES):
        fleet.ask(phone)
        fleet.report(phone)
    order = told_in_order(copy_of(fleet.vault, tmp_path / "copy"), tmp_path / "parts")
    assert matched(fleet, order) == (PHONES, PHONES)
    fleet.vault.close()


@pytest.mark.parametrize("together", [1, 4])
def test_a_copy_at_any_moment_does_not_match_reports_to_devices(tmp_path, seed, together):
    """Phones as they are: hours between token and report; the log is emptied every hour."""
    chance = random.Random(seed)
    fleet = Fleet(tmp_path / "f")
    events = []
    for phone in range(PHONES):
        asked = chance.uniform(0, 48 * HOUR)
        events += [(asked, "ask", phone), (asked + chance.uniform(*WAIT), "report", phone)]
    events.sort()
    moments = set(chance.sample(range(1, len(events)), 25))
    right = guessed = 0
    forgotten, waiting = -_ORDER_SECONDS, []
    for number, (when, kind, phone) in enumerate(events):
        if when - forgotten >= _ORDER_SECONDS:
            fleet.vault.forget_order()
            forgotten = when
        if kind == "ask":
            fleet.ask(phone)
        else:
            waiting.append(phone)
        if len(waiting) >= together:
            fleet.report(*waiting)
            waiting = []
        if number in moments:
            copy = copy_of(fleet.vault, tmp_path / f"copy {number}")
            found = told_in_order(copy, tmp_path / f"parts {number}")
            n_right, n_guessed = matched(fleet, found)
            right, guessed = right + n_right, guessed + n_guessed
    assert right == 0  # nobody asks and reports within an hour
    assert guessed > 0  # the attack did have something to guess by
    fleet.vault.close()


def neighbours(file: Path, came: list[bytes]) -> int:
    """Values that lie in the file right behind the one that came before them.

    A page of SQLite is filled from its end: what came later lies before.
    """
    data = file.read_bytes()
    places = [
        (m.start(), n) for n, one in enumerate(came) for m in re.finditer(re.escape(one), data)
    ]
    order = [number for _, number in sorted(places, reverse=True)]
    return sum(b == a + 1 for a, b in pairwise(order))


@pytest.mark.parametrize("at_once", [10_000, 9])
def test_no_page_tells_the_order_in_which_phones_enrolled_or_asked(
    tmp_path, seed, monkeypatch, at_once
):
    """Ranks of phones and of their reports would match them, however many hours lie between."""
    monkeypatch.setattr("nextapp.server.issuing._REWRITTEN_AT_ONCE", at_once)
    fleet = Fleet(tmp_path / "f")
    asked = random.Random(seed).sample(range(PHONES), 30)
    for phone in asked:
        fleet.ask(phone)
    for phone in asked:
        fleet.report(phone)
    devices = [secret_hash(fleet.secrets[phone]) for phone in asked]
    payloads = list(fleet.sender)
    fleet.vault.database.truncate_log()
    assert neighbours(fleet.vault.path, devices) >= 25  # the attack works
    assert neighbours(fleet.vault.path, payloads) >= 25
    fleet.vault.database.copy_to(tmp_path / "backup")
    fleet.vault.forget_order()
    for file in (fleet.vault.path, tmp_path / "backup"):
        # Both tables of devices are in the order of hashes, so each has the same k neighbours, and
        # k > 9 with a chance below 1 in a million: it is a Poisson number of mean 1.
        assert neighbours(file, devices) < 20
        assert neighbours(file, payloads) < 20
        assert all(file.read_bytes().count(each) == 2 for each in devices)  # no page freed has one
        assert all(file.read_bytes().count(each) == 1 for each in payloads)
    assert [fleet.vault.devices.knows(secret) for secret in fleet.secrets] == [True] * PHONES
    fleet.vault.close()


def test_no_table_shares_a_value_between_devices_and_reports(tmp_path):
    """Nor any 8 bytes of one; also in a backup, and after the round is reduced."""
    fleet = Fleet(tmp_path / "f")
    for phone in range(PHONES):
        fleet.ask(phone)
    for phone in random.Random(3).sample(range(PHONES), PHONES):
        fleet.report(phone)
    with closing(sqlite3.connect(fleet.vault.path)) as read:
        rows = {
            name: read.execute(f"SELECT * FROM {name}").fetchall()
            for name in ("devices", "issued", "spent", "reports")
        }

    def pieces(*names: str) -> set[bytes]:
        values = [v for n in names for row in rows[n] for v in row if isinstance(v, bytes)]
        return {value[at : at + 8] for value in values for at in range(len(value) - 7)}

    assert len(rows["issued"]) == len(rows["spent"]) == len(rows["reports"]) == PHONES
    assert not pieces("devices", "issued") & pieces("spent", "reports")
    for token in fleet.tokens.values():  # what the phones have is not there either
        assert token.nonce[:8] not in pieces("devices", "issued", "spent", "reports")
        assert token.signature[:8] not in pieces("devices", "issued", "spent", "reports")
    fleet.vault.close()


def test_a_backup_has_no_log_and_so_no_order(tmp_path):
    fleet = Fleet(tmp_path / "f")
    (tmp_path / "f" / "gateway-id").write_text("main")  # a gateway's folder, which needs no more
    for phone in range(5):
        fleet.ask(phone)
        fleet.report(phone)
    folders.back_up(tmp_path / "f", tmp_path / "backup")
    assert not list((tmp_path / "backup").glob("*-wal"))
    assert told_in_order(tmp_path / "backup" / "vault.sqlite", tmp_path / "parts") == []
    fleet.vault.close()
