"""The commands of a phone with the base install: python -m nextapp.phone."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nextapp.data.times import time_and_offset
from nextapp.phone import Store, commands
from nextapp.phone.commands import MARKING, main, odds
from nextapp.wire import Report


@pytest.fixture
def phone(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder with a phone; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    assert run("init", "--lifetime", "5", "--per-day", "1")[0] == 0
    return run


def suggested(phone, *options: str) -> list[str]:
    """The apps that are named; the line below them says for which moment."""
    code, said, _ = phone("predict", "-n", "9", *options)
    *named, moment = said.splitlines()
    assert code == 0
    assert moment.startswith("Predicted for ")
    return [line[3:] for line in named]


def test_launches_are_logged_and_predicted(phone):
    assert phone("log", *["maps", "mail"] * 20, "chat", "maps") == (0, "", "")
    assert phone("predict", "-n", "1")[1].startswith("1. mail\nPredicted for ")
    assert sorted(suggested(phone, "--with-open")) == ["chat", "mail", "maps"]


def test_a_prediction_says_why(phone):
    phone("log", *["maps", "mail"] * 20)
    first = phone("predict", "--why")[1].splitlines()[0]
    assert first.startswith("1. maps")  # mail was last, and maps came after it 19 times
    assert "after +" in first


def test_only_apps_above_a_threshold_are_named(phone):
    phone("log", *["maps", "mail"] * 30)
    assert suggested(phone, "--threshold", "0.5") == ["maps"]
    assert suggested(phone, "--with-open", "--threshold", "0") == ["maps", "mail"]
    assert phone("predict", "--threshold", "1")[1] == "No app is likelier than 100% next.\n"
    code, _, error = phone("predict", "--threshold", "7")
    assert code != 0
    assert "threshold must be a probability" in error


def test_the_open_app_is_not_suggested(phone):
    phone("log", "maps")
    assert "no other app to suggest" in phone("predict")[1]
    phone("log", "mail", "chat", "chat")
    assert sorted(suggested(phone)) == ["mail", "maps"]
    assert sorted(suggested(phone, "--with-open")) == ["chat", "mail", "maps"]
    for options in ((), ("--why",)):
        said = phone("predict", "--when", "2030-01-01T00:00:00Z", *options)[1]
        assert said.splitlines()[-1] == "Predicted for 2030-01-01 00:00+00:00, local time."
    why = suggested(phone, "--why")
    assert [line.split()[0] for line in why] == suggested(phone)


def test_a_row_on_the_screen_stays_in_its_places(phone):
    phone("log", "maps", "mail", "notes", "maps", "mail", "chat")
    shown = suggested(phone)[::-1]
    row = ",".join(["chat", *shown])
    assert suggested(phone, "--shown", row, "--steady", "1000") == [shown[2], shown[0], shown[1]]
    code, _, error = phone("predict", "--shown", row, "--steady", "0.5")
    assert code != 0
    assert "steady must be a factor of 1 or more" in error


def test_the_owner_hides_dismisses_installs_and_removes_apps(phone):
    phone("log", "maps", "mail", "notes", "chat")
    assert phone("hide", "maps", "notes")[1].count("unhide takes this back") == 2
    assert suggested(phone) == ["mail"]
    assert "maps is suggested again." in phone("unhide", "maps")[1]
    assert "mail is not suggested until 20" in phone("dismiss", "mail", "--hours", "4")[1]
    assert suggested(phone) == ["maps"]
    phone("installed", "chess")
    phone("removed", "maps")
    assert suggested(phone) == ["chess"]
    said = phone("status")[1]
    assert "Hidden, never reported: notes." in said
    assert "Dismissed, never reported: mail until 20" in said
    assert "Installed, never reported: chess." in said
    assert "Removed, never reported: maps." in said
    assert "chess" in phone("predict", "--why")[1]
    for hours in ("0", "nan", "1e9"):
        code, _, error = phone("dismiss", "mail", "--hours", hours)
        assert code != 0
        assert "more than 0 s and for a year at most" in error


def test_what_the_owner_said_is_answered_as_it_is(phone):
    """An app that is not there, one that was not hidden, and nothing left to suggest."""
    phone("log", "maps", "mail")
    assert phone("unhide", "maps")[1] == "maps was not hidden.\n"
    code, _, error = phone("hide", "mail", "maqs")
    assert code == 1
    assert "maqs was never launched on this phone: did you mean maps?" in error
    assert "mail was not hidden" in phone("unhide", "mail")[1]
    phone("installed", "maqs")
    assert "unhide takes this back" in phone("hide", "maqs")[1]
    assert "never launched" not in phone("hide", "maps", "mail")[1]
    for options in ((), ("--with-open",)):
        said = phone("predict", *options)[1]
        assert (
            said
            == "All apps are hidden, dismissed or removed: 'nextapp phone status' lists them.\n"
        )
    phone("unhide", "mail")
    assert "--with-open names it" in phone("predict")[1]


@pytest.mark.parametrize("name", ["", " ", "\u3000", "maps ", "ma\nps", "\u200b", "m" * 256])
@pytest.mark.parametrize("action", [*MARKING, "log"])
def test_no_app_has_a_blank_or_absurd_name(phone, action, name):
    code, said, error = phone(action, name)
    assert (code, said) == (1, "")
    assert "an app's name must have 1 to 255 printable characters, the first and the last" in error
    assert "0 launches of 0 apps" in phone("status")[1]


def test_a_new_phone_says_that_nothing_has_left_it(phone):
    code, said, _ = phone("status")
    assert code == 0
    assert "0 launches of 0 apps" in said
    assert "No report." in said
    assert "5 is left" in said


def test_status_lists_what_left_and_what_it_means(phone):
    with Store("phone.db") as store:
        for round_, epsilon in ((3, 0.25), (4, 0.5)):
            drawn = store.charge_report(
                "https://server", Report("walsh", round_, bytes(9)), epsilon, 1.79e9
            )
        store.begin_sending(drawn)
        store.settle(drawn, "accepted", "", 1.79e9)
    said = phone("status")[1]
    rows = [line.split() for line in said.splitlines() if " walsh " in line]
    assert [(row[2], row[4]) for row in rows] == [("3", "0.25"), ("4", "0.5")]
    assert "not sent yet" in said
    assert "the server has it" in said
    assert "×1.28 " in said  # e^0.25
    assert "×1.65 " in said  # e^0.5
    assert max(len(line) for line in said.splitlines() if " walsh " in line) <= 80
    assert "2.12 times" in said  # e^0.75, for both together
    assert "4.25 is left" in said


def test_forget_asks_first_erases_and_says_what_cannot_be_taken_back(phone, tmp_path, monkeypatch):
    phone("log", "geheimnis")
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\n"))
    assert phone("forget")[0] == 1
    assert suggested(phone, "--with-open") == ["geheimnis"]
    with Store("phone.db") as store:
        drawn = store.charge_report("https://server", Report("walsh", 1, b""), 0.5, 1.79e9)
        store.begin_sending(drawn)
        store.settle(drawn, "accepted", "", 1.79e9)
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    code, said, _ = phone("forget")
    assert code == 0
    assert "cannot be taken back: 1 report left this phone, together ε = 0.5" in said
    assert all(b"geheimnis" not in file.read_bytes() for file in tmp_path.iterdir())
    assert "4.5 is left" in phone("status")[1]  # the budget does not come back


@pytest.mark.parametrize("n_kept", [0, 1])
def test_after_an_old_copy_was_put_back_it_says_what_is_known(phone, tmp_path, n_kept):
    """Three reports were sent, and the copy knows of one or none."""
    path = tmp_path / "phone.db"
    for round_ in (1, 2, 3):
        if round_ == 1 + n_kept:
            old = path.read_bytes()
        with Store(path) as store:
            report = Report("harmony", round_, b"")
            drawn = store.charge_report("https://a", report, 0.25, 1_790_000_000.0)
            store.begin_sending(drawn)
            store.settle(drawn, "accepted", "", 1_790_000_000.0)
    for rest in ("-wal", "-shm"):
        path.with_name(path.name + rest).unlink(missing_ok=True)
    path.write_bytes(old)
    _, said, _ = phone("forget", "--yes")
    assert f"{1 + n_kept} report{'s' * n_kept} or more left this phone, together ε = 0.75." in said
    assert "An older copy of this file was put back; of what it lacked only the ε is known." in said
    status = phone("status")[1]
    assert "restored from an older copy 1 time" in status
    (lost,) = (line for line in status.splitlines() if "lost, maybe seen" in line)
    assert f" {0.75 - 0.25 * n_kept:g} " in lost


def test_what_is_exported_replaces_nothing_and_is_for_the_owner_alone(phone, tmp_path):
    phone("log", "maps")
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("phone.db", "phone.db.witness"):
        (tmp_path / name).touch()
        code, _, error = phone("export", "--out", name)
        assert (code, "is there already" in error) == (1, True)
    assert (tmp_path / "phone.db").read_bytes() == held["phone.db"]
    assert phone("export", "--out", "mine.json")[0] == 0
    assert (tmp_path / "mine.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "mine.json").read_text())["launches"][0]["app"] == "maps"


def test_an_app_that_was_uninstalled_is_forgotten_alone(phone):
    phone("log", "maps", "mail")
    assert phone("forget", "--app", "maps")[0] == 0
    assert suggested(phone, "--with-open") == ["mail"]
    assert phone("forget", "--app", "maps")[0] == 1


def test_what_is_exported_can_be_imported_elsewhere(phone, tmp_path):
    phone("log", "maps", "--when", "2026-05-01T10:00:00+02:00")
    phone("log", 'a "quoted", name', "--when", "1777629700.25")
    assert phone("export", "--format", "csv", "--out", "out.csv")[0] == 0
    assert list(csv.reader((tmp_path / "out.csv").read_text().splitlines())) == [
        ["timestamp", "app_name"],
        ["2026-05-01T10:00:00+02:00", "maps"],
        ["2026-05-01T10:01:40.250000+00:00", 'a "quoted", name'],
    ]
    held = json.loads(phone("export")[1])
    assert [launch["app"] for launch in held["launches"]] == ["maps", 'a "quoted", name']
    assert phone("--store", "other.db", "init", "--lifetime", "1", "--per-day", "1")[0] == 0
    assert "2 launches imported" in phone("--store", "other.db", "import", "out.csv")[1]
    assert "0 launches imported" in phone("--store", "other.db", "import", "out.csv")[1]
    assert "0 launches imported" in phone("import", "out.csv")[1]  # what it gave it has
    when = ("predict", "--when", "2030-01-01T00:00:00Z")
    assert phone("--store", "other.db", *when)[1] == phone(*when)[1]
    theirs = json.loads(phone("--store", "other.db", "export")[1])
    assert theirs["launches"] == held["launches"]


def test_times_of_a_csv_without_a_zone_are_in_the_zone_given(phone, tmp_path):
    """The option was taken and had no effect."""
    (tmp_path / "log.csv").write_text("timestamp,app_name\n2026-05-01T10:00:00,maps\n")
    assert phone("import", "log.csv", "--zone", "Asia/Tokyo")[0] == 0
    (launch,) = json.loads(phone("export")[1])["launches"]
    assert (launch["time"], launch["zone"]) == (1777597200.0, 9 * 3600)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hour,app\n1,maps\n", "None is 'timestamp' or 'datetime'. Name the column of the time"),
        ("hour,app\n1,maps\n", "For a phone and the page, nextapp data convert takes such options"),
        ("timestamp,app_name\nnoon,maps\n", "line 2, column timestamp: expected a time"),
        ("timestamp,app_name\n-5,maps\n", "line 2, column timestamp: expected a time from 1970"),
        ("timestamp,app_name\n5,\n", "expected the name of an app"),
        ("user_id,timestamp,app_name\na,5,maps\nb,6,maps\n", "launches of 2 people"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told_and_changes_nothing(phone, tmp_path, text, message):
    (tmp_path / "in.csv").write_text(text)
    code, _, error = phone("import", "in.csv")
    assert code == 1
    assert message in error
    assert "0 launches" in phone("status")[1]


@pytest.mark.parametrize(
    "words",
    [
        ("--store", "nowhere.db", "status"),
        ("init", "--lifetime", "5", "--per-day", "1"),
        ("--store", "n.db", "init", "--lifetime", "0", "--per-day", "1"),
        ("--store", "n.db", "init", "--lifetime", "1", "--per-day", "1", "--days", "nan"),
        ("log", ""),
        ("log", "maps", "--when", "yesterday"),
        ("sync",),
        ("sync", "--server", "http://server.example"),
        ("sync", "--server", "https://localhost:1", "--ca", "missing.pem"),
        ("limits", "--lifetime", "50", "--per-day", "1"),
        ("import", "missing.csv"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_1(phone, words):
    code, _, error = phone(*words)
    assert code == 1
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_limits_can_be_lowered_and_raised_on_purpose(phone):
    assert "3 it may spend" in phone("limits", "--lifetime", "3", "--per-day", "1")[1]
    said = phone("limits", "--lifetime", "9", "--per-day", "1", "--raise")[1]
    assert "raised 1 time" in said


def test_a_server_that_cannot_be_reached_is_exit_code_1(phone, monkeypatch):
    monkeypatch.setattr("nextapp.phone.client.LONGEST_WAIT", 0.0)  # no second attempt
    with Store("phone.db") as store:
        store.set(server="https://localhost:9", token="t" * 43)
    code, said, _ = phone("sync")
    assert code == 1
    assert "not reached" in said


def test_a_time_without_a_zone_is_local():
    assert time_and_offset("1970-01-02T00:00:00Z") == (86_400.0, 0)
    assert time_and_offset("1970-01-02T00:00:00-01:30") == (91_800.0, -5400)
    assert time_and_offset("12.5")[0] == 12.5


def test_a_large_epsilon_is_not_called_a_promise():
    assert "no real promise" in odds(148.5)
    assert "7.39 times" in odds(2.0)


def test_it_runs_as_a_module(tmp_path):
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "nextapp.phone", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert run("init", "--lifetime", "1", "--per-day", "1").returncode == 0
    assert run("dance").returncode == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--per-day", "20"], "--per-day must not be above --lifetime, got 20 and 1"),
        (["--per-report", "3", "--lifetime", "2"], "--per-report must not be above --lifetime"),
        (["--lifetime", "1e9"], "--lifetime must be an ε of at most 100"),
    ],
)
def test_limits_that_make_no_sense_are_refused(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *words]) == 1
    assert says in capsys.readouterr().err
    assert not Path("phone.db").exists()


def test_a_small_lifetime_takes_the_other_limits_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--lifetime", "0.5"]) == 0
    with Store("phone.db") as store:
        limits = store.limits
    assert (limits.lifetime, limits.per_day, limits.per_report) == (0.5, 0.5, 0.5)


def test_ctrl_c_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def interrupt(*arguments, **given):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.Store, "create", interrupt)
    assert main(["init"]) == 130
    assert capsys.readouterr().err == "\nstopped. Run the command again to continue.\n"
