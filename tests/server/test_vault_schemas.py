"""Vaults of every schema there was, written by frozen SQL, open in this version with all they hold.

Schema 3 is the first that was in use; 4 is that of the first release. A version that changes the
schema adds a file, and leaves these as they are.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from servers import MECHANISM, payload, report_of

from nextapp.server.vault import (
    _SCHEMAS,
    DRAINING,
    BadCode,
    Outcome,
    Submission,
    Vault,
    device_name,
)
from nextapp.wire import Report

SCRIPTS = sorted(Path(__file__).parent.glob("vault-schema-*.sql"))


def tally_of(round: int, *devices: int) -> np.ndarray:
    reports = [Report("harmony", round, payload(report_of(k, round))) for k in devices]
    return MECHANISM.tally(reports)


def columns(path: Path) -> dict[str, list]:
    """Name, type and whether it may be empty, of every column of every table."""
    with closing(sqlite3.connect(path)) as read:
        names = [row[0] for row in read.execute("SELECT name FROM sqlite_master ORDER BY name")]
        return {
            name: [row[1:4] for row in read.execute(f"PRAGMA table_info({name})")] for name in names
        }


def test_there_is_a_vault_of_the_present_schema():
    assert SCRIPTS[-1].name == f"vault-schema-{len(_SCHEMAS)}.sql"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_vault_of_an_earlier_schema_goes_on_where_it_stood(tmp_path, script):
    text, path = script.read_text(), tmp_path / "vault.sqlite"
    (code,) = re.findall(r"^-- code (\S+)$", text, re.MULTILINE)
    tokens = [bytes.fromhex(each) for each in re.findall(r"^-- token (\S+)$", text, re.MULTILINE)]
    with closing(sqlite3.connect(path)) as write:
        write.executescript(text)
    vault = Vault(path)
    vault.check()
    Vault(tmp_path / "new.sqlite").close()
    assert columns(path) == columns(tmp_path / "new.sqlite")

    assert [(each.day, each.code) for each in vault.devices()] == [(20_000, "lab")] * 3
    assert {each.name for each in vault.devices()} == set(map(device_name, tokens))
    assert all(vault.knows(token, 2_728_000_004.0) for token in tokens)
    assert not any(vault.knows(token, 2_728_000_005.0) for token in tokens)
    assert vault.flags() == {DRAINING}
    for _ in range(2):  # the uses that the code had left
        assert vault.knows(vault.enrol(code, 1e9))
    with pytest.raises(BadCode):
        vault.enrol(code, 1e9)

    assert vault.published().broadcast == b"broadcast 1"
    assert [number for number, _ in vault.digests(10)] == [0, 1]
    assert np.array_equal(vault.reduced(0).tally, tally_of(0, 0, 1, 2))
    outcomes = vault.admit(
        [Submission(token, 1, payload(report_of(k, 1))) for k, token in enumerate(tokens)]
    )
    assert outcomes == [Outcome.REPEATED, Outcome.REPEATED, Outcome.ACCEPTED]
    vault.close_round(1)
    assert np.array_equal(vault.reduce(1, MECHANISM).tally, tally_of(1, 0, 1, 2))
    # renewal works on devices that enrolled before there was any
    new = vault.offer_token(tokens[0])
    assert vault.take_token(new, 1e9).name == device_name(tokens[0])
    vault.close()


def test_a_vault_of_a_later_schema_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "vault.sqlite"
    Vault(path).close()
    with closing(sqlite3.connect(path)) as write:
        write.execute(f"PRAGMA user_version = {len(_SCHEMAS) + 1}")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"schema {len(_SCHEMAS) + 1}, this version knows"):
        Vault(path)
    assert path.read_bytes() == before


def test_a_kill_in_the_middle_of_a_migration_leaves_the_schema_before(tmp_path, monkeypatch):
    """All statements and the number are one transaction: it is cut off before its last one."""
    path = tmp_path / "vault.sqlite"
    with closing(sqlite3.connect(path)) as write:
        write.executescript(SCRIPTS[0].read_text())
    before = columns(path)
    monkeypatch.setattr("nextapp.server.vault._SCHEMAS", (*_SCHEMAS, "CREATE TABLE nonsense"))
    with pytest.raises(OSError, match=r"syntax|incomplete"):
        Vault(path)
    monkeypatch.undo()
    assert columns(path) == before
    Vault(path).close()
