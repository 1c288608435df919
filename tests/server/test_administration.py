"""What an operator does to a federation, and what a bad disk does to it."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import time
from contextlib import closing

import pytest
from click.testing import CliRunner
from servers import (
    MECHANISM,
    SETTINGS,
    Device,
    ServerProcess,
    device_name,
    payload,
    report_of,
    unsigned_token,
    until,
)

from nextapp.cli.commands import app
from nextapp.server import folders
from nextapp.server.database import VaultDamaged, VaultError
from nextapp.server.folders import VaultOptions, check_vault, open_federation
from nextapp.server.vault import RoundRules, Submission, Vault

RULES = RoundRules(goal=5, minimum=2, seconds=60.0)
APPS = tuple(f"app-{number:04d}" for number in range(12))


def run(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["admin", *map(str, words)])
    return found.exit_code, found.output


def vault_with_reports(path, n: int = 40) -> Vault:
    """Round 0 reduced, round 1 open with n reports."""
    vault = Vault(path)
    code = vault.devices.issue_code(uses=n, expires=1e12, name="first batch")
    for _ in range(n):
        vault.devices.enrol(code, 1.0)
    for number in range(2):
        vault.publish(RULES.open_round(number, 0.0), b"broadcast %d" % number * 50)
        vault.admit(
            [
                Submission(unsigned_token(f"{k} {number}"), number, payload(report_of(k, number)))
                for k in range(n)
            ]
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
            check_vault(path)
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
    with pytest.raises(VaultDamaged, match="1 rows of the table reports"):
        vault.check()
    vault.close_round(1)
    reduced = vault.reduce(1, MECHANISM)  # it was damaged after the start
    assert (reduced.n_reports, reduced.n_damaged) == (39, 1)
    vault.close()


def test_what_is_damaged_is_left_out_where_that_is_asked_for(tmp_path):
    vault = vault_with_reports(tmp_path / "vault.sqlite")
    vault.close()
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        key, data = other.execute("SELECT key, payload FROM reports").fetchone()
        other.execute("UPDATE reports SET payload = ? WHERE key = ?", (bytes(len(data)), key))
        other.execute("UPDATE tallies SET tally = zeroblob(length(tally))")
        other.commit()
    check_vault(tmp_path / "vault.sqlite", leave_damaged=True)
    check_vault(tmp_path / "vault.sqlite")
    with closing(Vault(tmp_path / "vault.sqlite")) as again:
        assert again.reduced(0) is None
        again.close_round(1)
        assert again.reduce(1, MECHANISM).n_reports == 39


def test_a_damaged_sum_is_never_used(tmp_path):
    vault = vault_with_reports(tmp_path / "vault.sqlite")
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        (data,) = other.execute("SELECT tally FROM tallies").fetchone()
        other.execute("UPDATE tallies SET tally = ?", (bytes([data[0] ^ 1]) + data[1:],))
        other.commit()
    with pytest.raises(VaultDamaged, match=r"the sum of round 0 .* --skip-to 1"):
        vault.reduced(0)
    vault.close()


def test_a_vault_that_is_gone_is_not_replaced_in_silence(tmp_path):
    opened(tmp_path)
    mode = stat.S_IMODE((tmp_path / "vault.sqlite").stat().st_mode)
    assert mode == 0o600  # for its owner alone
    opened(tmp_path)
    for file in tmp_path.glob("vault.sqlite*"):
        file.unlink()
    with pytest.raises(ValueError, match="is missing, but other files"):
        opened(tmp_path)
    (tmp_path / "vault.sqlite").touch()
    with pytest.raises(ValueError, match="is empty, but other files"):
        opened(tmp_path)
    opened(tmp_path, new_vault=True)
    opened(tmp_path)


def opened(folder, *, given=SETTINGS, apps=APPS, **options):
    skip_to, vault = options.pop("skip_to", None), VaultOptions(**options)
    federation, _ = open_federation(folder, given, apps, now=1.0, skip_to=skip_to, options=vault)
    federation.vault.close()
    return federation


def run_round(folder) -> None:
    """A round with two reports, closed."""
    federation, _ = open_federation(folder, SETTINGS, APPS, now=1.0)
    vault, number = federation.vault, federation.coordinator.round
    for device in range(2):
        token = unsigned_token(f"{device} {number}")
        vault.admit([Submission(token, number, payload(report_of(device, number)))])
    vault.amend(RoundRules(goal=2, minimum=1, seconds=1e6), 1.0)
    federation.tick(2.0)
    vault.close()


def test_what_is_left_of_a_federation_is_not_taken_for_a_new_one(tmp_path):
    """Checkpoints alone: a server began round 0 there, without devices."""
    run_round(tmp_path)
    (tmp_path / "settings.json").unlink()
    assert opened(tmp_path).coordinator.round == 1  # the same options: it goes on
    assert (tmp_path / "settings.json").exists()
    (tmp_path / "settings.json").unlink()
    with pytest.raises(ValueError, match="with the options of its first start"):
        opened(tmp_path, given={**SETTINGS, "epsilon": 3.0})
    assert not (tmp_path / "settings.json").exists()
    for file in tmp_path.glob("vault.sqlite*"):
        file.unlink()
    with pytest.raises(ValueError, match="is missing, but other files"):
        opened(tmp_path)
    assert opened(tmp_path, new_vault=True).coordinator.round == 2  # with keys of this vault


def test_a_vault_that_never_had_a_round_is_not_that_of_its_checkpoints(tmp_path):
    run_round(tmp_path)
    for file in tmp_path.glob("vault.sqlite*"):
        file.unlink()
    Vault(tmp_path / "vault.sqlite").close()  # as any program might leave one there
    with pytest.raises(ValueError, match="has had no round"):
        opened(tmp_path)
    assert opened(tmp_path, new_vault=True).coordinator.round == 2  # with keys of this vault


def test_a_new_vault_is_no_leave_to_go_on_with_a_damaged_one(tmp_path):
    run_round(tmp_path)
    with closing(sqlite3.connect(tmp_path / "vault.sqlite")) as other:
        other.execute("UPDATE tallies SET tally = zeroblob(length(tally))")
        other.commit()
    with pytest.raises(VaultDamaged, match="1 rows of the table tallies"):
        opened(tmp_path, new_vault=True)


def test_a_count_that_is_not_that_of_the_reports_is_said_at_the_start(tmp_path):
    """It was found when the round closed, and then the round could never close."""
    path = tmp_path / "vault.sqlite"
    vault_with_reports(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM reports WHERE key = (SELECT min(key) FROM reports)")
        other.commit()
    with pytest.raises(VaultDamaged, match="has counted 40 reports and holds 39"):
        check_vault(path)
    check_vault(path, leave_damaged=True)
    vault = Vault(path)
    vault.close_round(1)
    assert vault.reduce(1, MECHANISM).n_reports == 39
    vault.close()


@pytest.mark.parametrize("name", ["vault.sqlite", "vault.sqlite-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_the_vault_is_gone_from_its_folder(tmp_path, name, replaced):
    """Reports went on into a file without a name, and were lost at the next start."""
    with ServerProcess(tmp_path) as server:
        first, second = server.enrolled(2)
        client = server.client()
        assert client.report(first, report_of(0, by=first)) == (201, "accepted")
        moved = tmp_path / "moved"
        (tmp_path / name).rename(moved)
        if replaced:
            (tmp_path / name).write_bytes(moved.read_bytes())
        assert client.report(second, report_of(1, by=second)) == (503, "storage")
        assert server.operator().json("GET", "/ready")[0] == 503
        moved.replace(tmp_path / name)
        assert client.report(second, report_of(1, by=second)) == (201, "accepted")
        server.kill()
        server.start()
        assert server.metric("nextapp_round_reports") == 2


def test_a_server_does_not_start_on_a_log_that_has_lost_reports(tmp_path):
    with ServerProcess(tmp_path) as server:
        tokens = server.enrolled(12)
        client = server.client()
        for device, token in enumerate(tokens):
            assert client.report(token, report_of(device, by=token))[0] == 201
        server.kill()
        log = tmp_path / "vault.sqlite-wal"
        bad = bytearray(log.read_bytes())
        bad[len(bad) // 4] ^= 1
        log.write_bytes(bad)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"commits to .* are lost"):
                server.start()
        assert "are lost, with reports" in " ".join(run("check", tmp_path)[1].split())
        assert log.read_bytes() == bad  # looking does not take the evidence away
    federation = opened(tmp_path, apps=None, leave_damaged=True)
    assert federation.coordinator.round == 0


def test_other_rules_hold_at_once_and_for_the_rounds_that_come(tmp_path):
    with ServerProcess(tmp_path) as server:
        tokens = server.enrolled(4, rounds=2)
        client = server.client()
        for number in range(2):
            body = report_of(number, by=tokens[number])
            assert client.report(tokens[number], body)[0] == 201
        code, words = run("set", tmp_path, "--goal", 2)
        assert code == 0
        assert "ends at 2 reports" in words
        until(lambda: client.round() == 1)
        assert server.metric("nextapp_round_goal") == 2
        assert run("close-round", tmp_path)[0] == 1  # no report yet, and one is the least
        assert "at most 2: a report in every round, the open" in run("status", tmp_path)[1]
        assert client.report(tokens[2], report_of(2, 1, by=tokens[2])) == (201, "accepted")
        assert "at most 4: a report in every round, the open" in run("status", tmp_path)[1]
        assert run("close-round", tmp_path)[0] == 0
        until(lambda: client.round() == 2)
        server.stop()
        server.settings = {}
        server.start()
        assert server.metric("nextapp_round_goal") == 2
        assert "2 of 2" not in run("status", tmp_path)[1]
        words = " ".join(run("status", tmp_path)[1].split())
        assert "as without, among 1 honest phone of a round" in words
        assert "A phone promises ε = " in words
        assert run("set", tmp_path, "--minimum", 3)[0] == 1  # above the goal


def test_a_server_that_drains_takes_no_reports_until_it_is_told_to(tmp_path):
    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        client, operator = server.client(), server.operator()
        assert run("drain", tmp_path)[0] == 0
        until(lambda: operator.json("GET", "/ready")[0] == 503)
        body = report_of(0, by=token)
        assert client.report(token, body) == (503, "draining")
        assert server.metric('nextapp_storage_errors_total{where="probe"}') == 0  # no alarm
        assert 'where="health"' not in operator.request("GET", "/metrics")[2].decode()
        assert client.json("GET", "/v1/broadcast")[1]["error"] == "draining"  # nobody draws one
        assert "draining" in run("status", tmp_path)[1]
        assert run("drain", tmp_path, "--end")[0] == 0
        until(lambda: operator.json("GET", "/ready")[0] == 200)
        assert client.report(token, body) == (201, "accepted")


def test_root_leaves_no_files_that_the_user_of_a_server_cannot_read(tmp_path, monkeypatch):
    """One `admin set` by root, and the server did not start again: its settings were root's."""
    opened(tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path, 65_534, 65_534)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    before = (tmp_path / "settings.json").stat().st_ino
    with pytest.raises(ValueError, match=r"another user's.*runuser -u nextapp -- nextapp"):
        folders.change(tmp_path, {"goal": 20}, 0.0)
    with pytest.raises(ValueError, match="another user's"), folders.lock_folder(tmp_path):
        pass
    assert (tmp_path / "settings.json").stat().st_ino == before


def test_devices_and_codes_can_be_listed_and_expelled(tmp_path):
    limits = {"device_burst": 1e9, "address_burst": 1e9, "enrolled_seconds": 1000.0}
    with ServerProcess(tmp_path, limits=limits) as server:
        vault = Vault(tmp_path / "vault.sqlite")
        code = vault.devices.issue_code(uses=5, expires=1e12, name="lab")
        client = server.client()
        secrets = [client.json("POST", "/v1/enrol", {"code": code})[1]["secret"] for _ in range(3)]
        names = list(map(device_name, secrets))
        key = vault.keys.listed()[-1].id
        assert {name for name, *_ in vault.devices.listing()} == set(names)
        assert {code for *_, code in vault.devices.listing()} == {"lab"}
        listed = run("devices", tmp_path)[1]
        assert all(name in listed for name in names)
        assert "lab" in run("codes", tmp_path)[1]
        assert run("expel", tmp_path, "--device", names[0])[0] == 0
        assert run("expel", tmp_path, "--device", names[0])[0] == 1
        assert run("expel", tmp_path, "--device", names[0][:4])[0] == 1  # not all that begin so
        assert client.ask(secrets[0], key, [bytes(255) + b"5"])[1]["error"] == "unknown_secret"
        (token,) = client.tokens(secrets[1])
        assert vault.devices.knows(secrets[1], time.time() + 990)
        assert not vault.devices.knows(secrets[1], time.time() + 1010)
        assert "2 devices" in run("expel", tmp_path, "--code", "lab")[1]
        assert client.ask(secrets[2], key, [bytes(255) + b"5"])[1]["error"] == "unknown_secret"
        device = Device(secrets[1], [token])  # what it was given before, nobody can tell apart
        assert client.report(device, report_of(1, by=device)) == (201, "accepted")
        assert "1 code " in run("withdraw", tmp_path, "--code", "lab")[1]
        assert client.json("POST", "/v1/enrol", {"code": code})[0] == 403
        vault.close()


def test_phones_go_on_with_a_backup_on_another_machine(tmp_path):
    """Taken while it runs; what was acknowledged before it is in the sum, once."""
    away, backup = tmp_path / "elsewhere", tmp_path / "backup"
    with ServerProcess(tmp_path / "first") as server:
        tokens = server.enrolled(6)
        client = server.client()
        for number in range(4):
            token = tokens[number]
            assert client.report(token, report_of(number, by=token))[0] == 201
        assert run("backup", tmp_path / "first", backup)[0] == 0
        assert run("backup", tmp_path / "first", backup)[0] == 1  # never into another one
    shutil.rmtree(tmp_path / "first")
    assert run("restore", backup, away)[0] == 0
    assert run("restore", backup, away)[0] == 1
    with ServerProcess(away) as server:
        client = server.client()
        for number, expected in [(0, "repeated"), (3, "repeated"), (4, "accepted")]:
            token = tokens[number]
            assert client.report(token, report_of(number, by=token))[1] == expected
        assert server.round().n_reports == 5


def test_a_damaged_backup_is_not_restored(tmp_path):
    federation, _ = open_federation(tmp_path / "a", SETTINGS, APPS, now=1.0)
    federation.vault.close()
    folders.back_up(tmp_path / "a", tmp_path / "backup")
    (checkpoint,) = (tmp_path / "backup" / "checkpoints").iterdir()
    bad = bytearray(checkpoint.read_bytes())
    bad[len(bad) // 2] ^= 1
    checkpoint.write_bytes(bad)
    with pytest.raises(ValueError, match=checkpoint.name):
        folders.restore(tmp_path / "backup", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(ValueError, match="is no backup"):
        folders.restore(tmp_path / "a", tmp_path / "b")
