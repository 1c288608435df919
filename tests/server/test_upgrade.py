"""Another version on a folder: all is read before anything is written, and there is a way back."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from test_federation import opened, played, vectors
from test_flipped_bits import content

from nextapp.server.federation import copy_checkpoints
from nextapp.server.folders import create_or_resume, open_gateway_vault

LATER = "99.0"
FILES = ("vault.sqlite", "vault.count", "settings.json", "version", "checkpoints")


def files(folder: Path) -> dict[str, bytes]:
    """All that a start may not touch; an index of SQLite's is no part of the content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.fixture
def folder(tmp_path):
    """Two rounds, and one report of the third; what was written last is in the log only."""
    federation = opened(tmp_path / "server")
    played(federation, 2)
    shutil.copytree(tmp_path / "server", tmp_path / "killed")
    federation.vault.close()
    return tmp_path / "killed"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("nextapp.server.vault.SCHEMA_VERSION", 99, "the schema 10, this version knows 99"),
        ("nextapp.server.vault.SCHEMA_VERSION", 1, "the schema 10, this version knows 1"),
        ("nextapp.learners.CHECKPOINT_VERSION", "99", "no checkpoint of this version"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words_and_nothing_is_written(
    folder, monkeypatch, name, value, words
):
    """The vault was raised before the checkpoint was read, and the version of before refused it."""
    before = files(folder)
    monkeypatch.setattr("nextapp.server.folders.__version__", LATER)
    monkeypatch.setattr(name, value)
    with pytest.raises(ValueError, match=words):
        opened(folder)
    assert files(folder) == before
    monkeypatch.undo()
    federation = opened(folder)  # the version of before goes on
    assert federation.coordinator.round == 2
    played(federation, 1, first=2)
    federation.vault.close()


def test_what_the_version_before_has_left_is_kept_and_is_the_way_back(
    folder, tmp_path, monkeypatch
):
    federation = opened(folder)  # the same version again: nothing is kept
    federation.vault.close()
    assert not list(folder.glob("before-*"))
    before, tables = vectors(federation), content(folder / "vault.sqlite")
    monkeypatch.setattr("nextapp.server.folders.__version__", LATER)
    for _ in range(2):  # once, at the first start
        federation = opened(folder)
        played(federation, 1, first=federation.coordinator.round)
        federation.vault.close()
    assert federation.coordinator.round == 4
    monkeypatch.undo()
    copy = folder / f"before-{LATER}"
    assert content(copy / "vault.sqlite") == tables
    back = folder.with_name("back")
    back.mkdir()
    shutil.copytree(copy, back / copy.name)
    for name in FILES:
        (copy / name).rename(back / name)
    federation = opened(back)
    assert federation.coordinator.round == 2
    assert np.array_equal(vectors(federation), before)
    played(federation, 1, first=2)
    federation.vault.close()
    tables, copies = content(back / "vault.sqlite"), tmp_path / "copies"
    copy_checkpoints(back / "checkpoints", copies)
    monkeypatch.setattr("nextapp.server.folders.__version__", LATER)
    federation = opened(back)  # the upgrade is tried again: it kept what was there the first time
    federation.vault.close()
    assert content(back / copy.name / "vault.sqlite") == tables
    copy_checkpoints(back / "checkpoints", copies)
    kept = files(back / copy.name / "checkpoints")
    assert files(copies / copy.name) == kept == files(back / "checkpoints")


def test_the_folders_of_flower_and_the_copies_of_checkpoints_keep_theirs(tmp_path, monkeypatch):
    coordinator, gateway, copies = (tmp_path / name for name in ("run", "gateway", "copies"))
    opened(tmp_path / "whole").vault.close()
    coordinator.mkdir()
    gateway.mkdir()
    for name in ("settings.json", "version", "checkpoints"):
        (tmp_path / "whole" / name).rename(coordinator / name)
    open_gateway_vault(gateway).close()
    there = files(coordinator), content(gateway / "vault.sqlite")
    monkeypatch.setattr("nextapp.server.folders.__version__", LATER)
    for _ in range(2):
        create_or_resume(coordinator, {}, None)
        with closing(open_gateway_vault(gateway)) as vault:
            vault.devices.issue_code(expires=1e12)
        copy_checkpoints(coordinator / "checkpoints", copies)
    kept = [folder / f"before-{LATER}" for folder in (coordinator, gateway, copies)]
    assert files(kept[0]) == there[0]
    assert content(kept[1] / "vault.sqlite") == there[1]
    names = [path.name for path in kept[2].iterdir()]
    assert names == [path.name for path in (coordinator / "checkpoints").iterdir()]
