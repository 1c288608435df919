from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from servers import MECHANISM, device_name, payload, report_of, unsigned_token

from nextapp.privacy.tokens import from_base64
from nextapp.server.database import VaultError
from nextapp.server.issuing import BadCode
from nextapp.server.vault import Due, Outcome, RoundRules, Submission, Vault
from nextapp.wire import Report

RULES = RoundRules(goal=5, minimum=2, seconds=60.0)


@pytest.fixture
def vault(tmp_path):
    vault = Vault(tmp_path / "vault.sqlite", busy_seconds=0.1)
    vault.publish(RULES.open_round(0, 0.0), b"broadcast 0")
    yield vault
    vault.close()


def sent(token: str | int, device: int, round: int = 0, draw: int = 0) -> Submission:
    return Submission(unsigned_token(token), round, payload(report_of(device, round, draw)))


def all_bytes(vault: Vault) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(vault.path.parent.iterdir()))


def test_a_code_enrols_as_often_as_it_says_until_it_expires(vault):
    code = vault.devices.issue_code(uses=2, expires=10.0)
    tokens = [
        vault.devices.enrol(code.lower().replace("-", " "), 9.0),
        vault.devices.enrol(code, 9.0),
    ]
    assert len(set(tokens)) == 2
    assert all(map(vault.devices.knows, tokens))
    with pytest.raises(BadCode):
        vault.devices.enrol(code, 9.0)
    with pytest.raises(BadCode):
        vault.devices.enrol(vault.devices.issue_code(expires=10.0), 10.0)
    with pytest.raises(BadCode):
        vault.devices.enrol("AAAA-AAAA-AAAA-AAAA", 1.0)


def test_neither_codes_nor_secrets_are_in_the_files(vault):
    code = vault.devices.issue_code(uses=2, expires=10.0)
    secret = vault.devices.enrol(code, 1.0)
    data = all_bytes(vault)
    assert secret.encode() not in data
    assert from_base64(secret.partition(".")[2]) not in data
    assert code.encode() not in data
    assert code.replace("-", "").encode() not in data


def test_a_revoked_secret_is_unknown(vault):
    secret = vault.devices.enrol(vault.devices.issue_code(expires=10.0), 1.0)
    assert vault.devices.expel(name=device_name(secret)) == 1
    assert not vault.devices.knows(secret)
    assert vault.devices.expel(name=device_name(secret)) == 0


def test_one_report_a_token_the_same_again_is_the_same(vault):
    one, other = "one", "other"
    assert vault.admit([sent(one, 1), sent(one, 1), sent(one, 1, draw=1), sent(other, 2)]) == [
        Outcome.ACCEPTED, Outcome.REPEATED, Outcome.ALREADY_SPENT, Outcome.ACCEPTED,
    ]  # fmt: skip
    assert vault.round().n_reports == 2
    vault.close_round(0)
    assert vault.admit([sent(other, 2), sent(other, 3)]) == [
        Outcome.REPEATED, Outcome.ALREADY_SPENT,
    ]  # fmt: skip


def test_a_closed_round_takes_nothing_more(vault):
    one, other = "one", "other"
    assert vault.admit([sent(one, 1, round=1)]) == [Outcome.ROUND_CLOSED]
    vault.admit([sent(one, 1)])
    vault.close_round(0)
    assert vault.admit([sent(other, 2), sent(one, 1)]) == [Outcome.NO_ROUND, Outcome.REPEATED]
    assert vault.reduce(0, MECHANISM).n_reports == 1


def test_a_round_is_reduced_once_and_its_reports_are_gone_from_the_files(vault):
    reports = [report_of(device) for device in range(4)]
    vault.admit([sent(device, device) for device in range(4)])
    with pytest.raises(ValueError, match="not a closed round"):
        vault.reduce(0, MECHANISM)
    vault.close_round(0)
    keys = [row[0] for row in vault.database._reader.execute("SELECT key FROM reports")]
    assert len(keys) == 4
    reduced = vault.reduce(0, MECHANISM)
    assert reduced.n_reports == 4
    assert np.array_equal(reduced.tally, MECHANISM.tally(list(map(Report.from_bytes, reports))))
    again = vault.reduce(0, MECHANISM)
    assert again.n_reports == 4
    assert np.array_equal(again.tally, reduced.tally)
    data = all_bytes(vault)
    for key in keys:  # a payload of few bytes can be anywhere by chance, a key of 12 cannot
        assert key not in data
    assert vault.database._reader.execute("SELECT count(*) FROM reports").fetchone() == (0,)


def test_what_was_deleted_leaves_the_log_even_if_somebody_was_reading(vault):
    token = "one"
    vault.admit([sent(token, 1)])
    (key,) = vault.database._reader.execute("SELECT key FROM reports").fetchone()
    other = sqlite3.connect(vault.path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM reports").fetchall()  # keeps the log as it is
    vault.close_round(0)
    vault.reduce(0, MECHANISM)
    assert key in all_bytes(vault)
    other.execute("ROLLBACK")
    other.close()
    vault.database.tidy()
    assert key not in all_bytes(vault)


def test_the_order_of_reports_on_disk_is_not_that_of_arrival(vault):
    """Nor have the tables a value in common; what a copy of the disk tells: test_disk_copy.py."""
    for device in range(60):
        vault.admit([sent(device, device)])
    tables = {
        name: vault.database._reader.execute(f"SELECT * FROM {name}").fetchall()
        for name in ("spent", "reports")
    }
    values = [{value for row in rows for value in row} for rows in tables.values()]
    assert len(set.union(*values)) == sum(map(len, values))
    stored = [row[1] for row in tables["reports"]]
    arrived = [payload(report_of(device)) for device in range(60)]
    assert sorted(stored) == sorted(arrived)
    assert stored != arrived  # by chance once in 60!
    schema = vault.database._reader.execute(
        "SELECT group_concat(sql) FROM sqlite_master"
    ).fetchone()[0]
    for table in ("reports", "spent", "issued", "devices"):
        assert "WITHOUT ROWID" in schema.split(f"{table} (")[1].split("CREATE")[0]


def test_rounds_never_go_back_and_open_only_when_the_last_is_reduced(vault):
    token = "one"
    vault.admit([sent(token, 1)])
    vault.publish(RULES.open_round(0, 5.0), b"another")
    assert vault.broadcast() == b"broadcast 0"
    with pytest.raises(ValueError, match="not reduced"):
        vault.publish(RULES.open_round(1, 5.0), b"broadcast 1")
    vault.close_round(0)
    vault.reduce(0, MECHANISM)
    vault.publish(RULES.open_round(1, 5.0), b"broadcast 1")
    assert vault.round() == RULES.open_round(1, 5.0)
    with pytest.raises(ValueError, match="never go back"):
        vault.publish(RULES.open_round(0, 5.0), b"broadcast 0")


@pytest.mark.parametrize(
    ("n_reports", "now", "due"),
    [
        (0, 59.9, Due.WAIT), (0, 60.0, Due.EXTEND), (1, 60.0, Due.EXTEND),
        (2, 59.9, Due.WAIT), (2, 60.0, Due.CLOSE), (4, 0.0, Due.WAIT),
        (5, 0.0, Due.CLOSE), (9, -1.0, Due.CLOSE),
        (2, -1.0, Due.CLOSE), (1, -1.0, Due.EXTEND),  # a clock that was set back
    ],
)  # fmt: skip
def test_when_a_round_ends(n_reports, now, due):
    assert replace(RULES.open_round(0, 0.0), n_reports=n_reports).due(now) is due


@pytest.mark.parametrize("rules", [(0, 0, 1.0), (5, 6, 1.0), (5, 2, 0.0), (5, 2, float("nan"))])
def test_rules_that_make_no_sense_are_refused(rules):
    with pytest.raises(ValueError, match="got"):
        RoundRules(*rules)


def test_a_round_below_its_minimum_stays_open_with_its_reports(vault):
    token = "one"
    vault.admit([sent(token, 1)])
    assert vault.settle(61.0) is Due.EXTEND
    expected = replace(RULES.open_round(0, 0.0), deadline=121.0, n_reports=1, extensions=1)
    assert vault.round() == expected
    assert vault.settle(62.0) is Due.WAIT


def test_a_locked_file_is_said_and_stores_nothing(vault):
    token = "one"
    other = sqlite3.connect(vault.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(VaultError, match="locked"):
        vault.admit([sent(token, 1)])
    other.execute("ROLLBACK")
    other.close()
    assert vault.round().n_reports == 0
    assert vault.admit([sent(token, 1)]) == [Outcome.ACCEPTED]


@pytest.mark.parametrize(("version", "says"), [(99, "newer"), (5, "begin anew")])
def test_a_file_of_another_version_is_refused_and_left_as_it_is(tmp_path, version, says):
    path = tmp_path / "v"
    Vault(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"has the schema {version}.*{says}"):
        Vault(path)
    assert path.read_bytes() == before


def test_a_kill_while_a_vault_is_made_leaves_none(tmp_path, monkeypatch):
    """All statements and the number are one transaction: it is cut off before its last one."""
    path = tmp_path / "v"

    def cut_off(*_, **__):
        raise OSError("cut off")

    monkeypatch.setattr("nextapp.server.database.CommitCount.begin", cut_off)
    with pytest.raises(OSError, match="cut off"):
        Vault(path)
    monkeypatch.undo()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    Vault(path).close()


def test_a_file_that_is_no_vault_is_said(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"not a database at all" * 100)
    with pytest.raises(VaultError, match="not a database"):
        Vault(tmp_path / "x")
