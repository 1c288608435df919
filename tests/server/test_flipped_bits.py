"""One flipped bit anywhere in a server's folder, or a log that is lost or cut: all is seen."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from servers import report_of, unsigned_token
from test_federation import GIVEN, opened, played

from nextapp.learners import read_checkpoint
from nextapp.privacy.tokens import Token
from nextapp.server.database import VaultDamaged
from nextapp.server.folders import check_vault
from nextapp.server.settings import FederationSettings
from nextapp.server.vault import Submission, Vault
from nextapp.wire import Report, WireError

FLIPS = 75  # of each of four kinds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As a kill leaves it: two rounds in the file, half a round in the log only."""
    folder, killed = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("killed")
    federation = opened(folder / "f")
    vault = federation.vault
    code = vault.devices.issue_code(uses=30, expires=1e12, name="phones")
    key = vault.keys.listed()[-1].id
    for number in range(25):
        secret = vault.devices.enrol(code, 1.0)
        vault.devices.issue(secret, key, [number.to_bytes(256)], 2.0)
    played(federation, 2)
    vault.database.truncate_log()
    for device in range(3):
        token = unsigned_token(f"half {device}")
        body = Report.from_bytes(report_of(device, 2)).payload
        vault.admit([Submission(Token(key, *token[1:]), 2, body)])
    shutil.copytree(folder / "f", killed / "f")
    vault.close()
    return killed / "f"


def content(path: Path) -> list[list[str]]:
    """Every row of every table."""
    with closing(sqlite3.connect(path)) as read:
        read.text_factory = bytes
        names = [row[0].decode() for row in read.execute("SELECT name FROM sqlite_master")]
        tables = [name for name in names if not name.startswith("sqlite_autoindex")]
        return [sorted(map(repr, read.execute(f"SELECT * FROM {name}"))) for name in tables]


def flipped(data: bytes, chance: random.Random) -> bytes:
    bad = bytearray(data)
    bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    return bytes(bad)


def copied(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for path in folder.glob("vault.*"):
        shutil.copy(path, to / path.name)
    (to / "vault.sqlite-shm").unlink(missing_ok=True)
    return to / "vault.sqlite"


def is_noticed(vault: Path) -> bool:
    try:
        check_vault(vault)
    except (OSError, ValueError):
        return True
    return False


@pytest.mark.parametrize("name", ["vault.sqlite", "vault.sqlite-wal", "vault.count"])
def test_a_flip_in_vault_log_or_count_is_noticed_or_changes_nothing(folder, tmp_path, name, seed):
    chance = random.Random(f"{seed} {name}")
    whole = copied(folder, tmp_path / "whole")
    assert not is_noticed(whole)
    before, n_noticed = content(whole), 0
    for _ in range(FLIPS if name != "vault.count" else 20):
        vault = copied(folder, tmp_path / "copy")
        bad = vault.with_name(name)
        bad.write_bytes(flipped(bad.read_bytes(), chance))
        if is_noticed(vault):
            n_noticed += 1
        else:
            assert content(vault) == before
    assert n_noticed > 5


@pytest.mark.parametrize("table", ["rounds", "spent", "issued", "codes", "wishes", "token_keys"])
def test_a_changed_row_is_noticed(folder, tmp_path, table):
    """Of every kind that decides what counts, by another hand; and it can be continued with."""
    vault = copied(folder, tmp_path / "copy")
    change = {
        "rounds": "words = replace(words, '4', '5')", "spent": "mark = zeroblob(24)",
        "issued": "request = zeroblob(32)", "codes": "uses = 6", "wishes": "value = 50",
        "token_keys": "tokens = 50",
    }[table]  # fmt: skip
    with closing(sqlite3.connect(vault)) as write:
        write.execute(f"UPDATE OR IGNORE {table} SET {change}")
        write.commit()
    with pytest.raises(VaultDamaged, match=r"--leave-damaged"):
        check_vault(vault)
    check_vault(vault, leave_damaged=True)
    check_vault(vault)


@pytest.mark.parametrize("table", ["rounds", "wishes", "token_keys"])
def test_no_commit_seals_a_changed_row_anew(folder, tmp_path, table):
    """A code that was issued between damage and start hid it."""
    vault = copied(folder, tmp_path / "copy")
    with closing(sqlite3.connect(vault)) as write:
        write.execute(f"DELETE FROM {table}")
        write.commit()
    with pytest.raises(VaultDamaged, match=r"--leave-damaged"), closing(Vault(vault)) as opened:
        opened.devices.issue_code(expires=1e12)
    assert is_noticed(vault)


def test_a_log_that_is_lost_or_cut_is_refused_in_words(folder, tmp_path):
    log = (folder / "vault.sqlite-wal").read_bytes()
    frame = 24 + 4096
    n_frames = (len(log) - 32) // frame
    assert n_frames > 3
    for n in [None, *range(n_frames)]:
        vault = copied(folder, tmp_path / "copy")
        kept = vault.with_name("vault.sqlite-wal")
        kept.unlink() if n is None else kept.write_bytes(log[: 32 + n * frame])
        with pytest.raises(VaultDamaged, match=r"commits to .* are lost.*missing, cut or"):
            check_vault(vault)
    check_vault(vault, leave_damaged=True)
    check_vault(vault)


def test_a_count_that_is_gone_is_said(folder, tmp_path):
    vault = copied(folder, tmp_path / "copy")
    vault.with_name("vault.count").unlink()
    with pytest.raises(VaultDamaged, match="which counts commits"):
        check_vault(vault)


def test_a_flip_in_the_name_of_a_version_or_region_is_no_riddle(folder, tmp_path):
    """Of eight flips of a letter one makes it no text at all."""
    copy = tmp_path / "f"
    shutil.copytree(folder, copy)
    (copy / "version").write_bytes(b"\xb0.2.0\n")
    opened(copy).vault.close()
    (copy / "gateway-id").write_bytes(b"\xe3" * 16)
    with pytest.raises(VaultDamaged, match=r"not of the region of .*gateway-id"):
        check_vault(copy / "vault.sqlite")


def test_a_flip_in_the_settings_is_noticed_or_changes_nothing(folder, tmp_path, seed):
    chance, path = random.Random(seed), tmp_path / "settings.json"
    data = (folder / "settings.json").read_bytes()
    path.write_bytes(data)
    before = FederationSettings.read(path)
    assert before.goal == GIVEN["goal"]
    for _ in range(FLIPS):
        path.write_bytes(flipped(data, chance))
        try:
            assert FederationSettings.read(path) == before
        except ValueError:
            continue
    path.write_text(data.decode().replace('"goal": 4', '"goal": 5'))
    with pytest.raises(ValueError, match="line sha256"):
        FederationSettings.read(path)


def test_a_flip_in_a_checkpoint_is_noticed(folder, tmp_path, seed, caplog):
    chance = random.Random(seed)
    path = sorted((folder / "checkpoints").iterdir())[-1]
    data, bad = path.read_bytes(), tmp_path / path.name
    for _ in range(FLIPS):
        bad.write_bytes(flipped(data, chance))
        with pytest.raises(WireError):
            read_checkpoint(bad)
    copy = tmp_path / "f"
    shutil.copytree(folder, copy)
    (copy / "checkpoints" / path.name).write_bytes(flipped(data, chance))
    federation = opened(copy)  # the step before, and the round's sum from the vault
    assert federation.coordinator.round == 2
    assert path.name in caplog.text
    federation.vault.close()
