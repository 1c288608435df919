"""What an operator does to a federation, and what a bad disk does to it."""

from __future__ import annotations

import random
import shutil
import sqlite3
import stat
import time
from contextlib import closing

import numpy as np
import pytest
from servers import MECHANISM, SETTINGS, ServerProcess, payload, report_of, token_bytes, until
from typer.testing import CliRunner

from nextapp.cli.commands import app
from nextapp.server import administration, single_process
from nextapp.server.rounds import RoundRules
from nextapp.server.vault import Submission, Vault, VaultDamaged, VaultError, device_name
from nextapp.wire import Report

RULES = RoundRules(goal=5, minimum=2, seconds=60.0)
APPS = tuple(f"app-{number:04d}" for number in range(12))


def run(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["admin", *map(str, words)])
    return found.exit_code, found.output


def vault_with_reports(path, n: int = 40) -> Vault:
    """Round 0 reduced, round 1 open with n reports."""
    vault = Vault(path)
    code = vault.issue_code(uses=n, expires=1e12, name="first batch")
    tokens = [vault.enrol(code, 1.0) for _ in range(n)]
    for number in range(2):
        vault.publish(RULES.open_round(number, 0.0), b"broadcast %d" % number * 50, RULES)
        vault.admit(
            [Submission(t, number, payload(report_of(k, number))) for k, t in enumerate(tokens)]
        )
        if number == 0:
            vault.close_round(0)
            vault.reduce(0, MECHANISM)
    return vault


def content(path) -> list:
    """All that learning rests on, as SQLite reads it."""
    with closing(sqlite3.connect(path)) as read:
        return [
            sorted(map(repr, read.execute(f"SELECT {columns} FROM {table}").fetchall()))
            for table, columns in (
                ("tallies", "number, n_reports, tally, shape"),
                ("reports", "key, payload"),
                ("broadcasts", "*"),
                ("rounds", "number, n_reports, closed"),
            )
        ]


def test_a_flipped_bit_that_changes_what_is_learnt_is_found(tmp_path):
    """One bit: anywhere in the file, in a report, in a sum."""
    vault = vault_with_reports(tmp_path / "vault.sqlite")
    vault.close()
    whole = (tmp_path / "vault.sqlite").read_bytes()
    before = content(tmp_path / "vault.sqlite")
    places = random.Random(1)
    noticed = changed = 0
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as read:
        keys = [row[0] for row in read.execute("SELECT key FROM reports")]
        (tally,) = read.execute("SELECT tally FROM tallies").fetchone()
    at_reports = [whole.index(key) + k for key in keys for k in range(14)]  # the payload follows
    at_sums = [whole.index(tally) + k for k in range(len(tally))]
    for trial in range(500):
        at = places.choice((range(len(whole)), at_reports, at_sums)[trial % 3])
        bad = bytearray(whole)
        bad[at] ^= 1 << places.randrange(8)
        path = tmp_path / f"{trial}.sqlite"
        path.write_bytes(bad)
        try:
            single_process.check_vault(path)
        except (VaultDamaged, VaultError, ValueError):
            noticed += 1
        else:
            after = content(path)
            # the count of a round's reports is held against its reports when it is reduced
            assert after[:3] == before[:3], f"bit {at}"
            changed += after != before
        for file in tmp_path.glob(f"{trial}.sqlite*"):
            file.unlink()
    assert noticed > 330
    assert changed <= 3


def test_a_damaged_report_is_left_out_and_said(tmp_path):
    vault = vault_with_reports(tmp_path / "vault.sqlite")
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        key, data = other.execute("SELECT key, payload FROM reports").fetchone()
        other.execute("UPDATE reports SET payload = ? WHERE key = ?", (bytes(len(data)), key))
        other.commit()
    with pytest.raises(VaultDamaged, match="1 reports of the round at hand"):
        vault.check()
    vault.check(leave_damaged=True)
    vault.close_round(1)
    reduced = vault.reduce(1, MECHANISM)
    assert (reduced.n_reports, reduced.n_damaged) == (39, 1)
    vault.close()


def test_a_damaged_sum_is_never_used(tmp_path):
    vault = vault_with_reports(tmp_path / "vault.sqlite")
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        (data,) = other.execute("SELECT tally FROM tallies").fetchone()
        other.execute("UPDATE tallies SET tally = ?", (bytes([data[0] ^ 1]) + data[1:],))
        other.commit()
    with pytest.raises(VaultDamaged, match=r"the sum of round 0 .* --skip-to 1"):
        vault.reduced(0)
    vault.close()


def test_a_vault_of_the_schema_before_is_taken_over_with_its_reports(tmp_path):
    """Written here by hand as schema 2 was."""
    path = tmp_path / "vault.sqlite"
    vault = vault_with_reports(path)
    vault.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for table, columns in (
            ("codes", "hash BLOB PRIMARY KEY, expires REAL NOT NULL, uses INTEGER NOT NULL"),
            ("devices", "hash BLOB PRIMARY KEY"),
            ("reports", "key BLOB PRIMARY KEY, payload BLOB NOT NULL"),
            ("tallies", "number INTEGER PRIMARY KEY, n_reports INTEGER NOT NULL, "
             "tally BLOB NOT NULL, shape TEXT NOT NULL"),
            ("digests", "number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL"),
        ):  # fmt: skip
            names = ",".join(word.split()[0] for word in columns.split(","))
            kept = old.execute(f"SELECT {names} FROM {table}").fetchall()
            old.execute(f"DROP TABLE {table}")
            rowid = "" if table in ("tallies", "digests") else " WITHOUT ROWID"
            old.execute(f"CREATE TABLE {table} ({columns}){rowid}")
            places = ",".join("?" * len(names.split(",")))
            old.executemany(f"INSERT INTO {table} VALUES ({places})", kept)
        old.execute("DROP TABLE flags")
        old.execute("PRAGMA user_version = 2")
    before = content(path)
    vault = Vault(path)
    assert content(path) == before
    vault.check()
    assert len(vault.devices()) == 40
    assert {device.expires for device in vault.devices()} == {np.inf}
    vault.close_round(1)
    expected = MECHANISM.tally([Report("harmony", 1, payload(report_of(k, 1))) for k in range(40)])
    assert np.array_equal(vault.reduce(1, MECHANISM).tally, expected)
    vault.close()


def test_a_vault_that_is_gone_is_not_replaced_in_silence(tmp_path):
    def opened(**options):
        return single_process.open_federation(tmp_path, SETTINGS, None, now=1.0, **options)

    federation, _ = single_process.open_federation(tmp_path, SETTINGS, APPS, now=1.0)
    federation.vault.close()
    mode = stat.S_IMODE((tmp_path / "vault.sqlite").stat().st_mode)
    assert mode == 0o600  # for its owner alone
    opened()[0].vault.close()
    for file in tmp_path.glob("vault.sqlite*"):
        file.unlink()
    with pytest.raises(ValueError, match="is missing, but checkpoints are there"):
        opened()
    (tmp_path / "vault.sqlite").touch()
    with pytest.raises(ValueError, match="is empty, but checkpoints are there"):
        opened()
    opened(new_vault=True)[0].vault.close()
    opened()[0].vault.close()


def test_other_rules_hold_at_once_and_for_the_rounds_that_come(tmp_path):
    with ServerProcess(tmp_path) as server:
        tokens = server.enrolled(4)
        client = server.client()
        for number in range(2):
            body = report_of(number, token=tokens[number])
            assert client.report(tokens[number], body)[0] == 201
        code, words = run("set", tmp_path, "--goal", 2)
        assert code == 0
        assert "closes at 2 reports" in words
        until(lambda: client.json("GET", "/v1/round")[1]["round"] == 1)
        assert client.json("GET", "/v1/round")[1]["goal"] == 2
        assert run("close-round", tmp_path)[0] == 1  # no report yet, and one is the least
        assert client.report(tokens[2], report_of(2, 1, token=tokens[2])) == (201, "accepted")
        assert run("close-round", tmp_path)[0] == 0
        until(lambda: client.json("GET", "/v1/round")[1]["round"] == 2)
        server.stop()
        server.settings = {}
        server.start()
        assert server.client().json("GET", "/v1/round")[1]["goal"] == 2
        assert "2 of 2" not in run("status", tmp_path)[1]
        assert run("set", tmp_path, "--minimum", 3)[0] == 1  # above the goal


def test_a_server_that_drains_takes_no_reports_until_it_is_told_to(tmp_path):
    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        client, operator = server.client(), server.operator()
        assert run("drain", tmp_path)[0] == 0
        until(lambda: operator.json("GET", "/ready")[0] == 503)
        body = report_of(0, token=token)
        assert client.report(token, body) == (503, "draining")
        assert client.request("GET", "/v1/broadcast")[0] == 200
        assert "draining" in run("status", tmp_path)[1]
        assert run("drain", tmp_path, "--end")[0] == 0
        until(lambda: operator.json("GET", "/ready")[0] == 200)
        assert client.report(token, body) == (201, "accepted")


def test_devices_and_codes_can_be_listed_and_expelled(tmp_path):
    limits = {"token_burst": 1e9, "address_burst": 1e9, "token_valid_seconds": 1000.0}
    with ServerProcess(tmp_path, limits=limits) as server:
        vault = Vault(tmp_path / "vault.sqlite")
        code = vault.issue_code(uses=5, expires=1e12, name="lab")
        client = server.client()
        tokens = [client.json("POST", "/v1/enrol", {"code": code})[1]["token"] for _ in range(3)]
        names = [device_name(token_bytes(token)) for token in tokens]
        assert {each.name for each in vault.devices()} == set(names)
        assert {each.code for each in vault.devices()} == {"lab"}
        listed = run("devices", tmp_path)[1]
        assert all(name in listed for name in names)
        assert "lab" in run("codes", tmp_path)[1]
        assert run("expel", tmp_path, "--device", names[0])[0] == 0
        assert run("expel", tmp_path, "--device", names[0])[0] == 1
        assert run("expel", tmp_path, "--device", names[0][:4])[0] == 1  # not all that begin so
        assert client.report(tokens[0], report_of(0, token=tokens[0])) == (401, "unknown_token")
        assert client.report(tokens[1], report_of(1, token=tokens[1])) == (201, "accepted")
        assert vault.knows(token_bytes(tokens[1]), time.time() + 990)
        assert not vault.knows(token_bytes(tokens[1]), time.time() + 1010)
        assert "2 devices" in run("expel", tmp_path, "--code", "lab")[1]
        assert client.report(tokens[2], report_of(2, token=tokens[2])) == (401, "unknown_token")
        assert "1 code " in run("withdraw", tmp_path, "--code", "lab")[1]
        assert client.json("POST", "/v1/enrol", {"code": code})[0] == 403
        vault.close()


def test_a_device_that_sends_what_no_phone_sends_is_among_the_suspects(tmp_path):
    with ServerProcess(tmp_path) as server:
        honest, hostile = server.enrolled(2)
        client = server.client()
        assert client.report(honest, report_of(0, token=honest))[0] == 201
        for _ in range(3):
            other = Report("kashin", 0, b"x").to_bytes()
            assert client.report(hostile, other) == (400, "wrong_mechanism")
        found = server.operator().json("GET", "/suspects")[1]["suspects"]
        assert found == [[device_name(token_bytes(hostile)), 3]]
        code, words = run("suspects", "--operator", f"127.0.0.1:{server.operator_port}")
        assert code == 0
        assert device_name(token_bytes(hostile)) in words


def test_phones_go_on_with_a_backup_on_another_machine(tmp_path):
    """Taken while it runs; what was acknowledged before it is in the sum, once."""
    away, backup = tmp_path / "elsewhere", tmp_path / "backup"
    with ServerProcess(tmp_path / "first") as server:
        tokens = server.enrolled(6)
        client = server.client()
        for number in range(4):
            token = tokens[number]
            assert client.report(token, report_of(number, token=token))[0] == 201
        assert run("backup", tmp_path / "first", backup)[0] == 0
        assert run("backup", tmp_path / "first", backup)[0] == 1  # never into another one
    shutil.rmtree(tmp_path / "first")
    assert run("restore", backup, away)[0] == 0
    assert run("restore", backup, away)[0] == 1
    with ServerProcess(away) as server:
        client = server.client()
        for number, expected in [(0, "repeated"), (3, "repeated"), (4, "accepted")]:
            token = tokens[number]
            assert client.report(token, report_of(number, token=token))[1] == expected
        assert client.json("GET", "/v1/round")[1]["n_reports"] == 5


def test_a_damaged_backup_is_not_restored(tmp_path):
    federation, _ = single_process.open_federation(tmp_path / "a", SETTINGS, APPS, now=1.0)
    federation.vault.close()
    administration.back_up(tmp_path / "a", tmp_path / "backup")
    (checkpoint,) = (tmp_path / "backup" / "checkpoints").iterdir()
    bad = bytearray(checkpoint.read_bytes())
    bad[len(bad) // 2] ^= 1
    checkpoint.write_bytes(bad)
    with pytest.raises(ValueError, match=checkpoint.name):
        administration.restore(tmp_path / "backup", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(ValueError, match="is no backup"):
        administration.restore(tmp_path / "a", tmp_path / "b")
