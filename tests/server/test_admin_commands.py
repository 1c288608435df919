"""`nextapp admin`: what it plans, says and writes down."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers import SETTINGS, Client, ServerProcess, report_of, until

from nextapp.cli.commands import app
from nextapp.cli.serve import VaultOptions
from nextapp.server.federation import copy_checkpoints
from nextapp.server.folders import open_federation
from nextapp.server.listening import ServerLimits
from nextapp.server.vault import Vault

OPERATE = Path(__file__).parents[2] / "docs" / "operate.md"


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def folder(tmp_path):
    apps = tuple(f"app-{number}" for number in range(12))
    federation, _ = open_federation(tmp_path / "data", SETTINGS, apps, now=time.time())
    federation.vault.close()
    return tmp_path / "data"


def planned(*words: object) -> list[tuple[str, float]]:
    """The rows of a plan: days, and reports a day."""
    _, table = re.split(r"^days .*\n", run("admin", "plan", *words), flags=re.MULTILINE)
    rows = [re.split(r" {2,}", line.strip()) for line in table.splitlines()]
    return [(days, float(number.replace(",", ""))) for days, number, _ in rows]


def test_the_plan_is_what_phones_do_that_are_played_one_by_one():
    """7 reports for life, 3 in 4 days: every phone sends those of a period on its first day."""
    days, new_each_day, at_first = 4, 5, 40
    lives = [0] * at_first + [day for day in range(40) for _ in range(new_each_day)]
    sent = [0] * 40
    for enrolled in lives:
        left, day = 7, enrolled
        while left and day < 40:
            now = min(3, left)
            sent[day] += now
            left, day = left - now, day + days
    by_period = [sum(sent[day : day + days]) / days for day in range(0, 40, days)]
    found = planned(
        "--epsilon", 0.1, "--lifetime", 0.7, "--reports-per-period", 3, "--key-days", days,
        "--new-phones", new_each_day, "--phones", at_first,
    )  # fmt: skip
    assert found == [
        ("0–4", by_period[0]), ("4–8", by_period[1]), ("8–12", by_period[2]),
        ("12 on", by_period[3]),
    ]  # fmt: skip
    assert len(set(by_period[3:])) == 1  # from then on nothing changes


def test_without_new_phones_a_fleet_falls_silent():
    assert planned("--phones", 3000) == [("0–30", 100.0), ("30 on", 0.0)]
    assert "never" in run("admin", "plan", "--phones", 3000)


def test_the_table_of_who_reports_when_is_what_the_command_plans():
    section = OPERATE.read_text().split("## Who reports when")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| (\d+) \| (\d+) \| (.*) \|$", section, re.M)
    assert len(rows) == 5
    for epsilon, lifetime, reports, days, last_columns in rows:
        rates = [float(rate.replace(",", "")) for rate in last_columns.split(" | ")]
        for new_phones, rate in zip((100, 1_000, 10_000), rates, strict=True):
            assert rate == new_phones * int(reports)
            last = planned("--epsilon", epsilon, "--lifetime", lifetime, "--new-phones", new_phones)
            assert last[-1] == (f"{days} on", rate)


def test_the_status_is_also_json_and_nothing_else(folder):
    found = json.loads(run("admin", "status", folder, "--json", "-"), parse_constant=pytest.fail)
    round, rules = found["round"], found["round"]["rules"]
    assert (round["number"], round["n_reports"], found["devices"]) == (0, 0, 0)
    assert (rules["goal"], rules["minimum"], found["draining"]) == (10**6, 1, False)
    assert (found["mechanism"], found["epsilon"]) == ("harmony", 2.0)
    assert round["deadline"] - round["opened"] == pytest.approx(1e6)
    assert found["accounting"]["reports"] == 0
    file = folder.parent / "status.json"
    assert "round" in run("admin", "status", folder, "--json", file)
    assert json.loads(file.read_text()) == found


def test_what_administrators_change_is_written_down_and_what_they_read_is_not(folder):
    log = folder / "admin.log"
    for words in (("status",), ("devices",), ("codes",), ("check",)):
        run("admin", words[0], folder)
    assert not log.exists()
    code = run("enrol-code", folder, "--uses", 3, "--name", "first").split()[0]
    run("admin", "set", folder, "--goal", 77)
    run("admin", "drain", folder)
    run("admin", "withdraw", folder, "--code", "first")
    run("admin", "rotate", folder)
    run("admin", "backup", folder, folder.parent / "copy")
    refused = CliRunner().invoke(app, ["admin", "set", str(folder), "--goal", "-1"])
    assert refused.exit_code == 1
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    said = [line["message"].split(": ", 1)[1] for line in lines]
    assert [words.split()[0] for words in said] == [
        "enrol-code", "set", "drain", "withdraw", "rotate", "backup",
    ]  # fmt: skip
    assert said[:3] == ["enrol-code hours=72.0 name=first uses=3", "set goal=77", "drain"]
    assert code not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert all(set(line) == {"time", "level", "part", "message"} for line in lines)


def test_enrolments_expire_after_a_year_if_nothing_else_is_said(folder):
    assert VaultOptions().limits() == ServerLimits()
    now = 1e9
    with closing(Vault(folder / "vault.sqlite")) as vault:
        code = vault.devices.issue_code(expires=now + 1)
        secret = vault.devices.enrol(code, now, ServerLimits().enrolled_seconds)
        assert vault.devices.knows(secret, now + 364 * 86_400)
        assert not vault.devices.knows(secret, now + 366 * 86_400)


def test_with_copies_of_its_checkpoints_a_lost_server_comes_back_where_phones_have_it(tmp_path):
    """The backup is two rounds old; a broadcast of before would be refused for a week."""
    first, copies, backup, second = (
        tmp_path / name for name in ("first", "copies", "backup", "second")
    )
    with ServerProcess(first, goal=1, options={"copies": str(copies)}) as server:
        run("admin", "backup", first, backup)
        client = server.client()
        for number, device in enumerate(server.enrolled(2, rounds=2)):
            body = report_of(number, round=number, by=device)
            assert client.report(device, body) == (201, "accepted")
            until(lambda number=number: client.round() == number + 1)
        newest = copies / "round-0000000002.safetensors"
        until(newest.exists)
        published = client.json("GET", "/v1/digest")[1]
    shutil.rmtree(first)
    run("admin", "restore", backup, second)
    for path in copies.iterdir():
        shutil.copy(path, second / "checkpoints")
    with ServerProcess(second, goal=1) as server:
        assert server.client().json("GET", "/v1/digest")[1] == published


def test_copies_of_later_rounds_are_refused(tmp_path):
    """Of another server, or one that was restored without them: each new copy was dropped."""
    copies = tmp_path / "copies"
    copies.mkdir()
    for number in range(41, 51):
        (copies / f"round-{number:010d}.safetensors").touch()
    words = ["serve", "--data", tmp_path / "new", "--port", 0, "--copies", copies]
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 1
    assert "has a checkpoint of round 50, " in " ".join(found.output.split())
    assert not (tmp_path / "new").exists()


def test_copies_that_fail_are_an_alarm_and_rounds_go_on(tmp_path):
    (tmp_path / "full").write_text("a file in the place of a folder")
    options = {"copies": str(tmp_path / "full")}
    with ServerProcess(tmp_path / "data", goal=1, options=options) as server:
        (device,) = server.enrolled(1)
        assert server.client().report(device, report_of(0, by=device)) == (201, "accepted")
        until(lambda: server.round().number == 1)
        failed = 'nextapp_storage_errors_total{where="copies"}'
        until(lambda: server.metric(failed) >= 2)  # at the start, and after the round


def test_a_checkpoint_is_kept_elsewhere_as_long_as_here(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    for number in range(25):
        (here / f"round-{number:010d}.safetensors").write_bytes(b"%d" % number)
        if number >= 10:
            (here / f"round-{number - 10:010d}.safetensors").unlink()
        copy_checkpoints(here, there)
    contents = {path.name: path.read_bytes() for path in there.iterdir()}
    assert contents == {path.name: path.read_bytes() for path in here.iterdir()}
    assert len(contents) == 10
    newest = "round-0000000024.safetensors"
    (here / newest).write_bytes(b"published anew")
    copy_checkpoints(here, there)
    assert (there / newest).read_bytes() == b"published anew"


@pytest.mark.slow
def test_where_programs_read_the_log_both_streams_are_lines_of_it(tmp_path):
    def said(*words: str) -> tuple[list[dict], list[dict], int]:
        command = ["serve", "--data", str(tmp_path / "data"), "--port", "0", "--log", "json"]
        server = subprocess.Popen(
            [sys.executable, "-m", "nextapp", *command, "--operator", "off", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        err = []
        for line in server.stderr:
            err.append(line)
            if found := re.search(r"http://127.0.0.1:(\d+)", line):  # it waits until it is served
                with closing(Client(int(found[1]), 120.0)) as client:
                    assert client.request("GET", "/v1/digest")[0] == 200
                server.terminate()
        out = server.stdout.read()
        assert server.wait(120) is not None
        server.stdout.close()
        server.stderr.close()
        return [*map(json.loads, out.splitlines())], [*map(json.loads, err)], server.returncode

    out, err, status = said()
    assert (out, status) == ([], 0)
    messages = [line["message"] for line in err]
    assert any(message.startswith("http://127.0.0.1:") for message in messages)
    assert messages[-1] == "stopped at round 0; start again to continue."
    out, err, status = said("--epsilon", "2")
    assert (out, status) == ([], 1)
    (refused,) = err
    assert refused["level"] == "error"
    assert "was started with epsilon = 1.0, not 2.0" in refused["message"]
