"""`nextapp phone`, thin over what python -m nextapp.phone does."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from nextapp.cli.commands import app


@pytest.fixture
def phone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words: str, **more):
        return CliRunner().invoke(app, ["phone", *words], **more)

    assert run("init", "--lifetime", "5", "--per-day", "1").exit_code == 0
    return run


def test_a_phone_from_its_first_launch_to_its_last(phone, tmp_path):
    assert phone("log", "maps", "mail", "maps", "--when", "2026-05-01T10:00:00Z").exit_code == 0
    assert "maps" in phone("predict").output
    assert "3 launches of 2 apps" in phone("status").output
    assert phone("export", "--out", "mine.json").exit_code == 0
    held = json.loads((tmp_path / "mine.json").read_text())
    assert [launch["app"] for launch in held["launches"]] == ["maps", "mail", "maps"]
    assert phone("forget", "--app", "mail").exit_code == 0
    assert phone("forget", input="n\n").exit_code == 1
    assert "1. maps" in phone("predict").output
    assert "nothing to take back" in phone("forget", "--yes").output
    assert "no launches yet" in phone("predict").output


def test_one_persons_launches_are_imported_from_any_log(phone, tmp_path):
    lines = ["user_id,timestamp,app_name", "ann,5,maps", "bob,6,mail", "ann,7,chat"]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    several = phone("import", "log.csv")
    assert several.exit_code == 1
    assert "choose one by --user, of ann, bob" in several.output
    assert "2 launches imported" in phone("import", "log.csv", "--user", "ann").output
    assert phone("import", "log.csv", "--user", "nobody").exit_code == 1
    *named, _ = phone("predict").output.splitlines()
    assert sorted(line[3:] for line in named) == ["chat", "maps"]


def test_a_csv_is_read_as_by_the_base_install(phone, tmp_path):
    """With the lab installed, local times were taken for UTC, and their zone was lost."""
    (tmp_path / "log.csv").write_text("timestamp,app_name\n2026-05-01T10:00:00,maps\n")
    assert phone("import", "log.csv", "--zone", "Asia/Tokyo").exit_code == 0
    (launch,) = json.loads(phone("export").output)["launches"]
    assert (launch["time"], launch["zone"]) == (1777597200.0, 9 * 3600)


def test_errors_are_one_line(phone):
    for words in (("sync",), ("limits", "--lifetime", "9", "--per-day", "1"), ("log", "")):
        done = phone(*words)
        assert done.exit_code == 1
        assert "error" in done.output
        assert "Traceback" not in done.output
    assert phone("limits", "--lifetime", "9", "--per-day", "1", "--raise").exit_code == 0
