"""`nextapp explain` as a person runs it."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from nextapp import Phone, Store
from nextapp.cli.commands import app

HISTORY = "timestamp,app_name\n" + "".join(
    f"{1_700_000_000 + 30 * step},{'mail' if step % 2 else 'maps'}\n" for step in range(9)
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phone.csv").write_text(HISTORY)

    def call(*arguments, code=0):
        result = CliRunner().invoke(app, ["explain", *(str(word) for word in arguments)])
        assert result.exit_code == code, result.output + repr(result.exception)
        return " ".join(result.output.split())

    return call


@pytest.fixture
def in_zone(monkeypatch):
    def move(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


def test_a_history_is_explained_in_words_and_numbers(run, tmp_path):
    """maps, mail, maps, …: after the last maps comes mail, and order 1 is why."""
    text = run("--history", "phone.csv", "--json", "why.json")
    assert "1. mail" in text
    assert "times after maps" in text
    result = json.loads((tmp_path / "why.json").read_text())
    best = result["apps"][0]
    assert best["app"] == "mail"
    assert best["speaks"]["after-1"] > 0
    assert best["evidence"]["after-1"] == pytest.approx(1 + 0.97 + 0.97**2 + 0.97**3)
    assert best["evidence"]["after-4"] == pytest.approx(1 + 0.965)
    assert "about twice after the last four apps" in best["words"]
    assert result["n_launches"] == 9


def test_a_launch_of_a_log_is_explained_and_told(run):
    text = run("synthetic:phones=3,apps=20,days=5", "--user", "phone-0001", "--launch", 30, "-n", 2)
    assert "phone-0001: 29 launches" in text
    assert "Launched: app-" in text


def test_the_crowds_part_shows_unless_it_is_left_out(run, tmp_path):
    """Another phone always goes from a to c: that speaks for c here, where c came once after a."""
    rows = ["who,at,what"]
    rows += [f"one,{100 * step},{app}" for step, app in enumerate("abacaba")]
    rows += [f"two,{100 * step + 1},{'ca'[step % 2]}" for step in range(100)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    columns = ("--user-column", "who", "--time-column", "at", "--app-column", "what")
    asked = ("log.csv", *columns, "--user", "one", "--json", "why.json")
    run(*asked)
    parts = {app["app"]: app for app in json.loads((tmp_path / "why.json").read_text())["apps"]}
    assert parts["c"]["speaks"]["crowd"] > parts["b"]["speaks"]["crowd"]
    run(*asked, "--alone")
    apps = json.loads((tmp_path / "why.json").read_text())["apps"]
    assert "crowd" not in apps[0]["speaks"]


def test_the_crowd_of_a_launch_is_that_before_it(run, tmp_path):
    """What others do later must not change the reasons."""
    early = "user_id,timestamp,app_name\n" + "".join(
        f"one,{100 * step},{app}\n" for step, app in enumerate("abacaba")
    )
    (tmp_path / "early.csv").write_text(early)
    (tmp_path / "late.csv").write_text(early + "two,9000,a\ntwo,9100,c\ntwo,9200,a\n")
    found = []
    for name in ("early.csv", "late.csv"):
        run(name, "--user", "one", "--launch", 6, "--json", "why.json")
        found.append(json.loads((tmp_path / "why.json").read_text())["apps"])
    assert found[0] == found[1]


def test_of_launches_without_times_no_time_is_told(run, tmp_path):
    """Bug: seconds and a date of 1970 were told that nobody had given."""
    (tmp_path / "names.txt").write_text("mail\nmaps\nchat\nmaps\nmail\n")
    text = run("--history", "names.txt", "--json", "why.json")
    for word in ("1970", "seconds", "ago", "time of day"):
        assert word not in text
    result = json.loads((tmp_path / "why.json").read_text())
    assert result["when"] is None
    assert not {"seconds", "hour"} & result["apps"][0]["evidence"].keys()


def with_zone(history, hours):
    """The times of a history as ISO in a zone."""
    zone = timezone(timedelta(hours=hours))
    return re.sub(
        "[0-9]{9,}",
        lambda clock: datetime.fromtimestamp(int(clock.group()), zone).isoformat(),
        history,
    )


@pytest.mark.parametrize("pause", [0, 5000])
@pytest.mark.parametrize(
    ("zone", "hours"), [("UTC", None), ("Asia/Kolkata", 5.5), ("Asia/Tokyo", None)]
)
def test_a_phone_and_explain_say_the_same_of_the_same_moment(
    run, tmp_path, in_zone, pause, zone, hours
):
    """The phone imports what `explain` reads; later launches of the log are those it lacks."""
    in_zone(zone)
    moment = 1_700_000_000 + 30 * 8 + pause
    said = CliRunner().invoke(app, ["phone", "init"])
    assert said.exit_code == 0, said.output
    history = HISTORY.replace("1700000060,maps", "1700000060,chat")
    later = f"{history}{moment},chat\n"
    if hours is not None:
        history, later = with_zone(history, hours), with_zone(later, hours)
    (tmp_path / "phone.csv").write_text(history)
    assert CliRunner().invoke(app, ["phone", "import", "phone.csv"]).exit_code == 0
    (tmp_path / "later.csv").write_text(later)
    words = ["--history", "phone.csv"] if pause == 0 else ["--history", "later.csv", "--launch", 10]
    text = run(*words, "--json", "why.json")
    explained = json.loads((tmp_path / "why.json").read_text())
    run(*words[1:], "--alone", "--json", "log.json")
    assert json.loads((tmp_path / "log.json").read_text()) == explained
    with Phone(Store(tmp_path / "phone.db")) as phone:
        reasons = phone.explain(9, float(moment), with_open=True)
    assert [each["app"] for each in explained["apps"]] == [name for name, _ in reasons]
    assert len(reasons) == 3
    for each, (_, reason) in zip(explained["apps"], reasons, strict=True):
        assert each["share"] == pytest.approx(reason.share, rel=1e-9)
        assert each["speaks"] == pytest.approx(reason.speaks, rel=1e-9, abs=1e-12)
    when = datetime.fromtimestamp(moment, ZoneInfo(zone))
    assert f"Predicted for {when.isoformat()}, by the phone's clock or this machine's" in text
    assert f"nextapp phone predict --with-open --when {when.isoformat()} " in text
    shown = (
        CliRunner()
        .invoke(app, ["phone", "predict", "--why", "--with-open", "--when", str(moment)])
        .output
    )
    assert f"Predicted for {when.isoformat(' ', 'minutes')}, local time." in shown
    for each in explained["apps"]:
        assert re.search(rf"\d\. {each['app']} +{each['share']:.0%}", shown), shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either a log (DATA) or --history FILE"),
        (("synthetic:phones=3,apps=20,days=5", "--user", "phone-1"), "unknown user"),
        (("synthetic:phones=3,apps=20,days=5", "--launch", "1"), "launch must be from 2"),
    ],
)
def test_what_cannot_be_explained_is_said(run, arguments, says):
    assert says in run(*arguments, code=1)


def test_names_in_brackets_are_names_and_no_styles(run, tmp_path):
    rows = (f"[/b],{1_700_000_000 + 30 * step},Game [/x] {step % 2}\n" for step in range(30))
    (tmp_path / "odd.csv").write_text("user_id,timestamp,app_name\n" + "".join(rows))
    text = run("odd.csv", "--launch", "25")
    assert text.startswith("[/b]: 24 launches, the last of them Game [/x] 1 at")
    assert "Launched: Game [/x] 0, suggestion number" in text
