"""Logs from people's own devices, on made-up files in the exact form of each source.

Times are checked against UTC by hand: Berlin is two hours ahead in summer, one in winter, and had
02:00 to 03:00 twice on 2025-10-26.
"""

# ruff: noqa: E501  (lines in the form in which devices print them)

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from nextapp.data.importers import content as table
from nextapp.data.importers import import_content, import_file, list_formats, read_any
from nextapp.data.importers.content import Content, UnreadableLog
from nextapp.data.importers.events import not_apps_text, parse_list
from nextapp.data.loading import read_log

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

BERLIN = "Europe/Berlin"


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def imported(data: str | bytes, zone: str = BERLIN, dates: str | None = None):
    data = data.encode() if isinstance(data, str) else data
    found = import_content(Content(data, "f", dates=dates), zone=zone)
    assert found is not None
    return found


def launches(data: str | bytes, zone: str = BERLIN) -> list[tuple[str, float]]:
    return [(launch.app, launch.clock) for launch in imported(data, zone).launches]


# --- dumpsys usagestats

DUMPSYS = """\
user=0
  Last 24 hour events (timeRange="8/29/2025, 8:30 PM – 8/30/2025, 8:30 PM" )
    time="2025-08-30 20:24:30" type=SCREEN_INTERACTIVE package=android flags=0x0
    time="2025-08-30 20:24:31" type=ACTIVITY_RESUMED package=com.sec.android.app.launcher class=com.sec.android.app.launcher.activities.LauncherActivity instanceId=1 taskRootPackage=com.sec.android.app.launcher flags=0x0
    time="2025-08-30 20:24:32" type=ACTIVITY_RESUMED package=com.android.chrome class=org.chromium.chrome.Main instanceId=2 taskRootPackage=com.android.chrome taskRootClass=x flags=0x0
    time="2025-08-30 20:24:33" type=ACTIVITY_PAUSED package=com.android.chrome class=org.chromium.chrome.Main instanceId=2 flags=0x0
    time="2025-08-30 20:24:34" type=ACTIVITY_RESUMED package=com.android.chrome class=org.chromium.chrome.Settings instanceId=3 flags=0x0
    time="2025-08-30 20:24:36" type=ACTIVITY_RESUMED package=com.google.android.permissioncontroller class=x instanceId=5 flags=0x0
    time="2025-08-30 20:24:40" type=ACTIVITY_RESUMED package=com.android.chrome class=x instanceId=3 flags=0x0
    time="2025-08-30 20:25:00" type=ACTIVITY_RESUMED package=com.sec.android.app.launcher class=x instanceId=1 flags=0x0
    time="2025-08-30 20:25:02" type=ACTIVITY_RESUMED package=com.android.chrome class=x instanceId=3 flags=0x0
    time="2025-08-30 20:26:00" type=ACTIVITY_RESUMED package=com.whatsapp class=com.whatsapp.Main instanceId=7 flags=0x0
  In-memory daily stats
    timeRange="8/30/2025, 12:00 AM – 8:30 PM"
    packages
      package=com.whatsapp totalTimeUsed="01:10:00" lastTimeUsed="2025-08-30 20:26:00" appLaunchCount=5
"""
DUMPSYS_LAUNCHES = [
    ("com.android.chrome", utc("2025-08-30 18:24:32")),
    ("com.android.chrome", utc("2025-08-30 18:25:02")),  # after the home screen, so a new launch
    ("com.whatsapp", utc("2025-08-30 18:26:00")),
]


def test_dumpsys_gives_resumed_activities_of_another_package():
    found = imported(DUMPSYS)
    assert "dumpsys usagestats" in found.format
    assert [(each.app, each.clock) for each in found.launches] == DUMPSYS_LAUNCHES
    assert {each.zone for each in found.launches} == {7200}
    assert any("home screens: 2" in note for note in found.notes)


@pytest.mark.parametrize(
    "data",
    [
        DUMPSYS.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + DUMPSYS.encode(),
        b"\xff\xfe" + DUMPSYS.encode("utf-16-le"),  # PowerShell's >
        DUMPSYS.replace("ACTIVITY_RESUMED", "MOVE_TO_FOREGROUND").encode(),
        DUMPSYS.encode() + b"\xff\xfe not text",
    ],
    ids=["windows", "bom", "utf-16", "old names", "some bytes that are no text"],
)
def test_dumpsys_however_it_was_saved(data):
    assert launches(data) == DUMPSYS_LAUNCHES


def test_old_androids_print_the_same_events_again_by_day_week_and_month():
    day = '        time="03/09/2017 21:18" type=MOVE_TO_FOREGROUND package=com.a class=x \n'
    day += '        time="03/09/2017 21:18" type=MOVE_TO_FOREGROUND package=com.b class=x \n'
    day += '        time="03/09/2017 21:18" type=MOVE_TO_FOREGROUND package=com.a class=x \n'
    before = '        time="28/08/2017 09:00" type=MOVE_TO_FOREGROUND package=com.c class=x \n'
    text = f"user=0\n  In-memory daily stats\n      events\n{day}"
    text += f"  In-memory weekly stats\n      events\n{before}{day}"
    at = utc("2017-09-03 19:18")  # 3 September: the 28 elsewhere can only be a day
    assert launches(text) == [
        ("com.c", utc("2017-08-28 07:00")),
        ("com.a", at),
        ("com.b", at),
        ("com.a", at),
    ]


def test_users_of_one_android_are_kept_apart():
    text = DUMPSYS + "user=10\n  Last 24 hour events (x)\n"
    text += '    time="2025-08-30 20:24:50" type=ACTIVITY_RESUMED package=com.work class=x\n'
    found = imported(text)
    assert found.users == ["0", "10"]
    assert [each.app for each in found.launches if each.user == "10"] == ["com.work"]


def test_the_hour_that_comes_twice_in_autumn():
    text = "user=0\n"
    for clock, app in (
        ("01:50", "a"),
        ("02:40", "b"),
        ("02:10", "c"),
        ("02:50", "d"),
        ("03:05", "e"),
    ):
        text += f'  time="2025-10-26 {clock}:00" type=ACTIVITY_RESUMED package={app} class=x\n'
    assert launches(text) == [
        ("a", utc("2025-10-25 23:50")),
        ("b", utc("2025-10-26 00:40")),  # summer time
        ("c", utc("2025-10-26 01:10")),  # the clock went back
        ("d", utc("2025-10-26 01:50")),
        ("e", utc("2025-10-26 02:05")),
    ]


def test_a_dump_without_events_says_so():
    with pytest.raises(UnreadableLog, match=r"dumpsys usagestats.*no event of an app moving"):
        imported("user=0\n  Last 24 hour events (x)\n  In-memory daily stats\n")


# --- App Usage (AUM)


def aum(rows: list[tuple[str, str, str]], end: str = "\n") -> str:
    lines = ['"App name","Date","Time","Duration"']
    lines += [f'"{app}","{day}","{clock}","0:00:00"' for app, day, clock in rows]
    return end.join(lines) + end


@pytest.mark.parametrize(
    ("days", "clocks", "dates"),
    [
        (("2/9/20", "2/8/20"), ("1:29:29 AM", "11:10:00 PM"), "month/day"),
        (("2/9/2020", "2/8/2020"), ("1:29:29 AM", "11:10:00\u202fPM"), "month/day"),
        (("2020-02-09", "2020-02-08"), ("01:29:29", "23:10:00"), None),
        (("09/02/2020", "08/02/2020"), ("01:29:29", "23:10:00"), "day/month"),
        (("09.02.2020", "08.02.2020"), ("01:29:29", "23:10:00"), None),
        (("9/2/20", "8/2/20"), ("1:29:29 π.μ.", "11:10:00 μ.μ."), "day/month"),
    ],
)
def test_app_usage_in_its_forms_of_dates_newest_first(days, clocks, dates):
    text = aum(
        [
            ("Maps, \u00e4", days[0], clocks[0]),
            ("Screen on (unlocked)", days[0], clocks[0]),
            ("Notification posted (Mail)", days[1], clocks[1]),
            ("Chat", days[1], clocks[1]),
            ("Chat", days[1], clocks[1]),
        ]
    )
    for data in (text, text.replace("\n", "\r\n"), "\ufeff" + text):
        found = imported(data, dates=dates)
        assert "App Usage" in found.format
        assert [(each.app, each.clock) for each in found.launches] == [
            ("Chat", utc("2020-02-08 22:10")),
            ("Chat", utc("2020-02-08 22:10")),  # every row is a launch
            ("Maps, ä", utc("2020-02-09 00:29:29")),
        ]
        assert any("newest first" in note for note in found.notes)
        assert any("other events: 2" in note for note in found.notes)


def test_days_and_months_are_told_apart_by_a_number_above_12_or_by_the_order():
    by_number = aum([("A", "3/4/2024", "10:00:00"), ("B", "25/3/2024", "10:00:00")])
    assert launches(by_number, "UTC")[-1] == ("A", utc("2024-04-03 10:00"))
    # newest first: 2 May, 1 May, 12 April as days first; as months first the order would jump
    by_order = aum(
        [("A", "2/5/2024", "9:00"), ("B", "1/5/2024", "9:00"), ("C", "12/4/2024", "9:00")]
    )
    assert launches(by_order, "UTC") == [
        ("C", utc("2024-04-12 09:00")),
        ("B", utc("2024-05-01 09:00")),
        ("A", utc("2024-05-02 09:00")),
    ]


@pytest.mark.parametrize("days", [["03/04/2024"], ["3/4/24"], ["3-4-24"], ["1/2/24", "1/3/24"]])
def test_an_order_of_days_and_months_that_nothing_tells_is_asked_for(days):
    text = aum([(f"App {number}", day, "10:00:00") for number, day in enumerate(days)])
    with pytest.raises(UnreadableLog, match="Say it: --dates day/month, or --dates month/day"):
        imported(text)
    first, second, year = map(int, re.split("[-/]", days[0]))
    for dates, (month, day) in (("month/day", (first, second)), ("day/month", (second, first))):
        when = datetime(2000 + year % 100, month, day, 10, tzinfo=UTC)
        assert imported(text, "UTC", dates).launches[0].clock == when.timestamp()


@pytest.mark.parametrize("day", ["4/4/24", "2024-03-04", "03.04.2024"])
def test_a_date_that_is_clear_is_not_asked_for(day):
    assert len(launches(aum([("App", day, "10:00:00")]))) == 1


TEN = utc("2024-03-25 10:00")
TABLES = {
    "no user": "timestamp,app_name\n2024-03-25 10:00:00,Mail\n",
    "any case": "Timestamp,App Name\n2024-03-25 10:00:00,Mail\n",
    "capitals": "USER_ID;TIMESTAMP;APP_NAME\nme;2024-03-25T10:00:00Z;Mail\n",
    "short names": "user\ttime\tapp\nme\t1711360800\tMail\n",
    "day first": "timestamp,app_name\n25/03/2024 10:00,Mail\n",
    "half day": "timestamp,app_name\n3/25/24 10:00 AM,Mail\n",
    "dots": "date,app\n25.03.2024 10:00:00,Mail\n",
    "minutes": "timestamp,app_name\n2024-03-25 10:00,Mail\n",
    "a row number": '"","App name","Date","Time","Duration"\n"1","Mail","3/25/24","10:00:00 AM","0:01:00"\n',
    "further columns": "App,Paquet,Jour,Heure,Durée,Réseau\nMail,com.mail,25/03/2024,10:00:00,0:01:00,Wi-Fi\n",
    "no duration": "Date,Time,App name\n2024-03-25,10:00:00,Mail\n",
    "small letters": "date,time,app\n25.03.2024,10:00,Mail\n",
    "a user": "user_id;date;time;application\nme;2024-03-25;10:00:00;Mail\n",
    "a zone after minutes": "time,app\n2024-03-25T11:00+01:00,Mail\n",
    "a zone after a blank": "time,app\n2024-03-25 11:00:00 +0100,Mail\n",
    "UTC": "time,app\n2024-03-25 10:00:00.000 UTC,Mail\n",
    "a month's name": 'time,app\n"Mar 25, 2024 at 10:00 AM",Mail\n',
    "a weekday's name": "time,app\nMonday 25 March 2024 10:00,Mail\n",
    "bars": "timestamp|app_name\n2024-03-25 10:00:00|Mail\n",
    "Android's events": "packageName,eventType,timeStamp\nMail,1,1711360800000\n",
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_common_tables_are_read_by_every_reader(tmp_path, text, encoding):
    text += text.splitlines()[1].replace("Mail", "Café") + "\n"  # not ASCII
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode(encoding))
    found = [
        (each.user, each.app, each.clock)
        for each in read_any(Content.of_file(path), zone="UTC").launches
    ]
    assert found == [("me", "Mail", TEN), ("me", "Café", TEN)]
    log = read_log(path, zone="UTC")
    assert set(log.apps) == {"Café", "Mail"}
    assert (log.users, *log.time.tolist()) == (("me",), 1000 * TEN, 1000 * TEN)


def test_a_table_asks_for_an_order_that_no_row_tells(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("timestamp,app_name\n01/02/2024 10:00,Mail\n")
    with pytest.raises(UnreadableLog, match="dates such as 01/02/2024 may begin with the day"):
        read_log(path)
    with pytest.raises(UnreadableLog, match="dates such as 01/02/2024 may begin with the day"):
        read_any(Content.of_file(path))
    for dates, day in (("day/month", "2024-02-01"), ("month/day", "2024-01-02")):
        clock = utc(f"{day} 10:00")
        assert read_log(path, dates=dates).time.tolist() == [1000 * clock]
        assert read_any(Content.of_file(path, dates)).launches[0].clock == clock


def test_one_late_row_tells_the_order_of_all(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"{1 + number // 60 % 12}/1/2024 10:{number % 60:02},Mail" for number in range(3000)]
    path.write_text("\n".join(["timestamp,app_name", *rows, "1/31/2024 10:00,Mail"]))
    log = read_log(path)
    assert datetime.fromtimestamp(log.time.max() / 1000, UTC).month == 12


def test_a_column_that_may_name_users_is_not_passed_over(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("device_id,timestamp,app_name\na,1,Mail\nb,2,Maps\n")
    for reader in (read_log, lambda path: read_any(Content.of_file(path))):
        with pytest.raises(UnreadableLog, match=r"the nearest name is .device_id.*--user-column"):
            reader(path)


def test_standard_input_is_read_by_a_hyphen(monkeypatch):
    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    give("timestamp,app_name\n2024-03-25 10:00:00,Mail\n")
    assert read_log("-").apps == ("Mail",)
    give("timestamp,app_name\n2024-03-25 10:00:00,Mail\n")
    assert read_any(Content.of_file(Path("-"))).users == ["me"]
    give("timestamp,app_name\nyesterday,Mail\n")
    with pytest.raises(UnreadableLog, match=r"^standard input, line 2"):
        read_log("-")


@pytest.mark.parametrize(
    "row", ["Bildschirm aus (gesperrt)", "Écran allumé (déverrouillé)", "Gerätestart", "画面オフ"]
)
def test_rows_of_the_logger_in_other_languages_are_no_apps(row):
    text = aum([("Karten", "09.02.2020", "10:00:00"), (row, "09.02.2020", "09:00:00")])
    text = text.replace('"App name","Date","Time","Duration"', '"App-Name","Datum","Zeit","Dauer"')
    assert [app for app, _ in launches(text)] == ["Karten"]


def some_days(words: dict[str, str]) -> str:
    """Twenty sessions: the screen goes on, three apps, one notification, the screen goes off."""
    rows = []
    for number in range(20):
        apps = [
            ("Mail", "Maps", "Chat", "Minesweeper (Classic)")[(number + k) % 4] for k in (0, 1, 3)
        ]
        session = [words["on"], *apps, words["tells"].format(apps[0]), words["off"]]
        session.insert(2, words["tells"].format("Bank"))  # an app that is never opened
        rows += [(row, "2024-03-25", f"{number}:{k:02}:00") for k, row in enumerate(session)]
    return aum(rows[::-1])


@pytest.mark.parametrize(
    "words",
    [
        {"on": "Screen on (unlocked)", "off": "Screen off (locked)", "tells": "Notification posted ({})"},
        {"on": "Écran allumé", "off": "Écran éteint", "tells": "Notifications envoyées ({})"},
        {"on": "Skjár á (ólæst)", "off": "Skjár af (læst)", "tells": "Tilkynning birt ({})"},
        {"on": "Näyttö päällä", "off": "Näyttö sammutettu", "tells": "Ilmoitus ({})"},
        {"on": "စခရင်ဖွင့်", "off": "စခရင်ပိတ်", "tells": "အသိပေးချက် （{}）"},
    ],
)  # fmt: skip
def test_rows_on_notifications_and_screens_are_known_by_their_shape(words):
    found = imported(some_days(words))
    counts = Counter(launch.app for launch in found.launches)
    assert counts == {"Mail": 15, "Maps": 15, "Chat": 15, "Minesweeper (Classic)": 15}
    (note,) = (each for each in found.notes if each.startswith("left out, no apps"))
    assert "notifications, screens and other events: 80;" in note
    assert f"{words['tells'].split(' ({')[0].split(' （')[0]} (…) 40" in note


def test_apps_with_brackets_and_apps_in_turn_stay_apps():
    apps = [
        "Mail (Work)",
        "Maps (Work)",
        "Mail",
        "Maps",
        "Work",
        "Firefox (Beta)",
        "Mines (Classic)",
        "Clock (Samsung)",
        "Clock (Google)",
        "Screen Recorder",
        "Lock Screen Wallpaper",
        "Notification History",
        "Device Care",
    ]
    rows = [
        (app, "2024-03-25", f"{number}:{k:02}:00")
        for number in range(20)
        for k, app in enumerate(apps)
    ]
    assert len(launches(aum(rows))) == len(rows)
    in_turn = [
        ("Google Mail" if k % 2 else "Google Maps", "2024-03-25", f"{k // 60}:{k % 60:02}:00")
        for k in range(60)
    ]
    assert len(launches(aum(in_turn))) == 60
    for round_ in ("App 1", "App 2", "App 3"), ("App 1", "App 2", "Mail"), ("My a", "My b", "My c"):
        rows = [(round_[k % 3], "2024-03-25", f"{k // 60}:{k % 60:02}:00") for k in range(90)]
        assert len(launches(aum(rows))) == 90


def test_the_logger_itself_and_launchers_are_no_apps():
    rows = ["Maps", "App Usage", "One UI Home", "Pixel Launcher", "System UI", "Launch Day"]
    text = aum([(row, "2020-02-09", "10:00:00") for row in rows])
    assert [app for app, _ in launches(text)] == ["Maps", "Launch Day"]


# --- ActivityWatch


def activitywatch(events, name="aw-watcher-android-test", **more) -> str:
    bucket = {"id": name, "type": "currentwindow", "hostname": "unknown", "events": events}
    away = {"type": "afkstatus", "events": [{"timestamp": "x", "duration": 1, "data": {}}]}
    return json.dumps({"buckets": {name: bucket | more, "aw-watcher-afk_pc": away}})


def aw_event(when: str, app: str, package: str | None = None, duration: float = 0.0):
    data = {"app": app} if package is None else {"app": app, "package": package, "classname": "x"}
    return {"id": 1, "timestamp": when, "duration": duration, "data": data}


@pytest.mark.parametrize("name", ["aw-watcher-android-test", "aw-watcher-android"])
def test_activitywatch_on_android_gives_the_label_where_the_app_changes(name):
    events = [  # newest first, as it exports them
        aw_event("2023-04-18T07:31:00.5Z", "Nachrichten", "com.chat"),
        aw_event("2023-04-18T07:30:30+00:00", "Chrome", "com.android.chrome", 2.5),
        aw_event("2023-04-18T07:30:00.204000Z", "Chrome", "com.android.chrome"),
        aw_event(
            "2023-04-18T07:29:39.204000Z", "Pixel Launcher", "com.google.android.apps.nexuslauncher"
        ),
    ]
    found = imported(activitywatch(events, name))
    assert [(each.app, each.clock, each.zone) for each in found.launches] == [
        ("Chrome", utc("2023-04-18T07:30:00.204"), 7200),
        ("Nachrichten", utc("2023-04-18T07:31:00.5"), 7200),
    ]


def test_activitywatch_on_a_desktop_and_several_devices():
    desktop = activitywatch(
        [aw_event("2023-01-01T00:00:00Z", "Firefox")], "aw-watcher-window_my-pc"
    )
    assert imported(desktop).users == ["my-pc"]
    both = json.loads(desktop)
    both["buckets"] |= json.loads(activitywatch([aw_event("2023-01-01T00:00:00Z", "x", "com.x")]))[
        "buckets"
    ]
    both["buckets"]["aw-watcher-android-unlock"] = {
        "events": [aw_event("2023-01-01T00:00:00Z", "u")]
    }
    assert imported(json.dumps(both)).users == ["android", "my-pc"]


def test_activitywatch_buckets_of_other_importers_are_known_by_their_type():
    events = [aw_event("2023-01-01T00:00:00Z", "Mail"), aw_event("2023-01-01T00:01:00Z", "unknown")]
    data = json.loads(activitywatch(events, "aw-import-screentime_ipad", hostname="ipad"))
    data["buckets"]["aw-import-screentime_ipad"]["type"] = "currentwindow"
    found = imported(json.dumps(data))
    assert [(each.user, each.app) for each in found.launches] == [("ipad", "Mail")]
    data["buckets"]["aw-import-screentime_ipad"]["type"] = "web.tab.current"
    with pytest.raises(UnreadableLog, match="no launch"):
        imported(json.dumps(data))


# --- Google Takeout


def takeout(header, title, when, package=None, products=("Android",)):
    record = {"header": header, "title": title, "time": when, "products": list(products)}
    if package:
        record["titleUrl"] = f"https://play.google.com/store/apps/details?id={package}"
    return record


def test_takeout_gives_the_apps_used_by_their_package():
    records = [
        takeout("Chrome", "Used Chrome", "2020-05-17T13:58:00.123Z", "com.android.chrome"),
        takeout("Chrome", "Used Chrome", "2020-05-17T13:57:48.203Z"),
        takeout("Google Play Store", "Installed Chat", "2020-05-17T13:50:00Z", "com.chat"),
        takeout("Chat", "Used Chat", "2020-05-17T13:40:00Z"),
        takeout("YouTube", "Watched a film", "2020-05-17T13:30:00Z", products=["YouTube"]),
    ]
    found = imported(json.dumps(records))
    assert "Takeout" in found.format
    assert [(each.app, each.clock) for each in found.launches] == [
        ("Chat", utc("2020-05-17T13:40:00")),
        ("com.android.chrome", utc("2020-05-17T13:57:48.203")),  # known by the other record
        ("com.android.chrome", utc("2020-05-17T13:58:00.123")),
    ]


@pytest.mark.parametrize("wording", ["{} verwendet", "Vous avez utilisé {}", "Qo'llanilgan: {}"])
def test_takeout_in_other_languages(wording):
    records = [
        takeout(app, wording.format(app), f"2020-05-17T13:0{i}:00Z", package)
        for i, (app, package) in enumerate(
            [("Chrome", "com.android.chrome"), ("Karten", "com.maps")]
        )
    ]
    records.append(takeout("Karten", "something else", "2020-05-17T13:09:00Z"))
    assert [app for app, _ in launches(json.dumps(records))] == ["com.android.chrome", "com.maps"]


def test_takeout_of_other_products_or_as_html_says_what_to_choose():
    records = [takeout("YouTube", "Watched x", "2020-05-17T13:30:00Z", products=["YouTube"])]
    with pytest.raises(UnreadableLog, match="Choose Android"):
        imported(json.dumps(records))
    with pytest.raises(UnreadableLog, match="choose JSON"):
        imported("<html><head><title>My Activity</title>")


# --- SQLite


def database(path: Path, *statements: str) -> bytes:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path.read_bytes()


def test_digital_wellbeing_gives_events_of_type_1(tmp_path):
    data = database(
        tmp_path / "app_usage",
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE packages (_id INTEGER PRIMARY KEY, package_name TEXT)",
        "CREATE TABLE events (_id INTEGER PRIMARY KEY, timestamp INTEGER, type INTEGER, package_id INTEGER)",
        "INSERT INTO packages VALUES (1, 'com.android.chrome'), (2, 'com.google.android.apps.nexuslauncher'), (3, 'com.chat')",
        "INSERT INTO events (timestamp, type, package_id) VALUES (1600000003000, 1, 3), (1600000000000, 1, 1),"
        " (1600000001000, 2, 1), (1600000001500, 1, 2), (1600000002000, 1, 1), (1600000002500, 12, 3), ('x', 1, 1)",
    )
    found = imported(data)
    assert "Digital Wellbeing" in found.format
    assert [(each.app, each.clock, each.zone) for each in found.launches] == [
        ("com.android.chrome", 1600000000.0, 7200),
        ("com.android.chrome", 1600000002.0, 7200),
        ("com.chat", 1600000003.0, 7200),
    ]
    assert any("without a readable app or time, left out: 1" in note for note in found.notes)


def test_knowledgec_counts_from_2001_and_knows_its_zone(tmp_path):
    data = database(
        tmp_path / "knowledgeC.db",
        "CREATE TABLE ZSOURCE (Z_PK INTEGER PRIMARY KEY, ZDEVICEID TEXT)",
        "CREATE TABLE ZOBJECT (Z_PK INTEGER PRIMARY KEY, ZSTREAMNAME TEXT, ZVALUESTRING TEXT,"
        " ZSTARTDATE REAL, ZENDDATE REAL, ZSECONDSFROMGMT INTEGER, ZSOURCE INTEGER)",
        "INSERT INTO ZSOURCE VALUES (1, NULL), (2, 'other-device')",
        "INSERT INTO ZOBJECT (ZSTREAMNAME, ZVALUESTRING, ZSTARTDATE, ZENDDATE, ZSECONDSFROMGMT, ZSOURCE) VALUES"
        " ('/app/inFocus', 'com.apple.mobilesafari', 600000000.5, 600000000.5, -25200, 1),"
        " ('/app/inFocus', 'com.apple.springboard', 600000001, 600000002, -25200, 1),"
        " ('/app/inFocus', 'com.apple.MobileSMS', 600000003, 600000004, -25200, NULL),"
        " ('/app/inFocus', 'com.apple.Mail', 600000003, 600000004, 0, 2),"
        " ('/display/isBacklit', 'x', 600000003, 600000004, 0, 1)",
    )
    found = imported(data)
    mine = [(each.app, each.clock, each.zone) for each in found.launches if each.user == "me"]
    assert mine == [
        ("com.apple.mobilesafari", 600000000.5 + 978307200, -25200),
        ("com.apple.MobileSMS", 600000003 + 978307200, -25200),
    ]
    assert found.users == ["me", "other-device"]


def test_knowledgec_of_newer_systems_has_another_stream(tmp_path):
    data = database(
        tmp_path / "knowledgeC.db",
        "CREATE TABLE ZSOURCE (Z_PK INTEGER PRIMARY KEY, ZDEVICEID TEXT)",
        "CREATE TABLE ZOBJECT (Z_PK INTEGER PRIMARY KEY, ZSTREAMNAME TEXT, ZVALUESTRING TEXT,"
        " ZSTARTDATE REAL, ZENDDATE REAL, ZSECONDSFROMGMT INTEGER, ZSOURCE INTEGER)",
        "INSERT INTO ZSOURCE VALUES (2, 'phone')",
        "INSERT INTO ZOBJECT (ZSTREAMNAME, ZVALUESTRING, ZSTARTDATE, ZENDDATE, ZSECONDSFROMGMT, ZSOURCE) VALUES"
        " ('/app/inFocus', 'com.apple.Safari', 600000000, 600000001, 0, NULL),"
        " ('/app/usage', 'com.apple.Safari', 600000000, 600000001, 0, NULL),"  # the same, again
        " ('/app/usage', 'com.apple.Mail', 600000003, 600000004, 0, 2)",
    )
    found = imported(data)
    assert [(each.user, each.app) for each in found.launches] == [
        ("me", "com.apple.Safari"),
        ("phone", "com.apple.Mail"),
    ]
    assert any("/app/usage was read" in note for note in found.notes)


def test_a_database_that_is_none_of_these_names_its_tables(tmp_path):
    data = database(tmp_path / "x.db", "CREATE TABLE moz_places (id)")
    with pytest.raises(UnreadableLog, match=r"not recognised.*tables here are: moz_places"):
        imported(data)


def test_a_view_that_never_ends_is_not_a_table(tmp_path):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    data = database(
        tmp_path / "x.db",
        "CREATE TABLE packages (_id, package_name)",
        f"CREATE VIEW events AS {endless} SELECT i AS timestamp, 1 AS type, i AS package_id FROM n",
    )
    start = time.monotonic()
    with pytest.raises(UnreadableLog):
        imported(data)
    assert time.monotonic() - start < 5


# --- the front


def test_a_file_that_is_nothing_gets_one_line_that_says_what_was_looked_for(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    assert import_file(path) is None
    with pytest.raises(UnreadableLog) as caught:
        read_log(path)
    assert list_formats() in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("1600000000000", b"<?xml version='1.0'?>\n<usagestats version=\"1\">", "Android backup"),
        ("1600000000000", b"\x08\x80\xdd\xdb\x01\x12\x09", "Android backup"),
        ("x.xml", b"ABX\x00\x10\x02", "binary XML file of Android"),
        ("705", b"SEGB" + bytes(60), "Biome"),
        ("705", bytes(52) + b"SEGB" + bytes(60), "Biome"),
        ("MyActivity.html", b"\xef\xbb\xbf<!DOCTYPE html><html>", "choose JSON"),
        ("empty.txt", b"\r\n", "empty"),
    ],
)
def test_known_files_that_are_not_read_are_named_in_one_short_line(tmp_path, name, data, words):
    with pytest.raises(UnreadableLog, match=words) as refused:
        read_any(Content(data, name))
    assert len(str(refused.value)) < 200
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UnreadableLog, match=words):
        read_log(path)


def test_times_of_three_columns_without_a_zone_are_in_the_zone_given():
    rows = "timestamp,app_name\n2025-07-01 10:00:00,A\n2025-01-01T10:00:00Z,B\n1751356800,C\n"
    found = read_any(Content(rows.encode(), "f"), zone=BERLIN)
    assert [(each.app, each.clock, each.zone) for each in found.launches] == [
        ("B", utc("2025-01-01 10:00"), 0),
        ("A", utc("2025-07-01 08:00"), 7200),
        ("C", utc("2025-07-01 08:00"), 7200),
    ]


def test_a_message_about_a_file_of_zeros_is_short(tmp_path):
    path = tmp_path / "zeros.bin"
    path.write_bytes(bytes(100_000))
    with pytest.raises(UnreadableLog) as refused:
        read_log(path)
    assert len(str(refused.value)) < 2_000


def test_everything_that_takes_data_reads_them(tmp_path):
    path = tmp_path / "dump.txt"
    path.write_text(DUMPSYS)
    log = read_log(path, zone=BERLIN)
    names = [log.apps[app] for app in log.app]
    assert list(zip(names, (log.time / 1000).tolist(), strict=True)) == DUMPSYS_LAUNCHES
    assert "dumpsys usagestats" in log.notes[0]


def test_convert_writes_the_three_columns(tmp_path):
    (tmp_path / "dump.txt").write_text(DUMPSYS)
    words = ["data", "convert", "dump.txt", "out.csv", "--zone", BERLIN]
    done = subprocess.run(
        [sys.executable, "-m", "nextapp", *words],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "dumpsys usagestats" in " ".join(done.stdout.split())
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "user_id,timestamp,app_name"
    assert lines[1] == "0,2025-08-30 18:24:32.000,com.android.chrome"
    again = read_log(tmp_path / "out.csv")
    assert len(again) == 3


def test_a_phone_imports_without_the_lab(tmp_path):
    (tmp_path / "dump.txt").write_text(DUMPSYS)
    code = (
        "import sys\n"
        "for name in ('polars', 'numba', 'scipy', 'click'): sys.modules[name] = None\n"
        "from nextapp.phone.commands import main\n"
        "assert main(['init']) == 0\n"
        f"sys.exit(main(['import', 'dump.txt', '--zone', '{BERLIN}']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "dumpsys usagestats" in done.stdout
    assert "3 launches imported" in done.stdout


def test_the_list_can_be_seen_and_changed(tmp_path):
    mine = not_apps_text() + "\n[passing]\ncom.whatsapp\n"
    path, changed = tmp_path / "dump.txt", tmp_path / "mine.txt"
    path.write_text(DUMPSYS)
    changed.write_text(mine)
    log = read_log(path, zone=BERLIN, leave_out=changed)
    assert log.apps == ("com.android.chrome",)
    with pytest.raises(ValueError, match=r"line 1: the parts are \[home\]"):
        parse_list("[apps]", "x")
    with pytest.raises(ValueError, match="a time zone must be a name like"):
        import_file(path, zone="Mars/Olympus")


def test_a_list_of_ones_own_is_left_out_of_tables_too(tmp_path):
    """Bug: it did nothing there, nor did a list that is not there."""
    table, frame = tmp_path / "log.csv", pl.DataFrame({"timestamp": [5, 6], "app_name": ["a", "b"]})
    frame.write_csv(table)
    (tmp_path / "na.txt").write_text("[passing]\nA\n")
    for source in (table, frame):
        log = read_log(source, leave_out=str(tmp_path / "na.txt"))
        assert log.apps == ("b",)
        assert "rows of entries that are listed as no apps, left out: 1" in log.notes
        with pytest.raises(FileNotFoundError):
            read_log(source, leave_out=tmp_path / "gone.txt")
    found = read_any(Content.of_file(table), not_apps=parse_list("[home]\na", "x"))
    assert [launch.app for launch in found.launches] == ["b"]
    assert found.notes == ("rows of entries that are listed as no apps, left out: 1",)
    (tmp_path / "na.txt").write_text("[passing]\n*\n")
    with pytest.raises(UnreadableLog, match="listed as no apps, left out: 2"):
        read_log(table, leave_out=tmp_path / "na.txt")


# --- hostile files: never a traceback, whatever the bytes

SEEDS = [
    DUMPSYS.encode(),
    aum([("Maps", "2/9/20", "1:29:29 AM"), ("Chat", "2/8/20", "11:10:00 PM")]).encode(),
    activitywatch([aw_event("2023-04-18T07:31:00Z", "x", "com.x")]).encode(),
    json.dumps([takeout("Chrome", "Used Chrome", "2020-05-17T13:58:00Z", "com.c")]).encode(),
]
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=12)), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def import_or_refuse(data: bytes) -> None:
    try:
        found = import_content(Content(data, "f"), zone="UTC")
    except UnreadableLog:
        return
    for launch in found.launches if found else ():
        assert launch.app.isprintable()
        assert 0 < len(launch.app) <= 255
        assert 0 < launch.clock < 4102444800
        assert abs(launch.zone) <= 86400


@settings(max_examples=300, deadline=None)
@given(seed=st.sampled_from(SEEDS), edits=EDITS, cut=st.integers(0, 10**6))
def test_edited_exports_are_read_or_refused(seed, edits, cut):
    data = bytearray(seed)
    for place, new in edits:
        at = place % (len(data) + 1)
        data[at : at + len(new)] = new
    import_or_refuse(bytes(data[: max(1, cut % (2 * len(data) + 1))]))


@settings(max_examples=200, deadline=None)
@given(event=JSON, record=JSON)
def test_any_json_is_read_or_refused(event, record):
    buckets = {
        "buckets": {"aw-watcher-android": {"events": [event, {"data": event, "timestamp": record}]}}
    }
    records = [{"title": event, "time": record, "header": event, "products": ["Android"]}, record]
    for value in (buckets, {"buckets": event}, records, event):
        import_or_refuse(json.dumps(value).encode())


@settings(max_examples=150, deadline=None)
@given(edits=EDITS)
def test_damaged_databases_are_read_or_refused(edits):
    source = sqlite3.connect(":memory:")
    source.execute("CREATE TABLE packages (_id INTEGER PRIMARY KEY, package_name TEXT)")
    source.execute("CREATE TABLE events (timestamp INTEGER, type INTEGER, package_id INTEGER)")
    source.execute("INSERT INTO packages VALUES (1, 'com.a')")
    source.execute("INSERT INTO events VALUES (1600000000000, 1, 1)")
    source.commit()
    data = bytearray(source.serialize())
    source.close()
    for place, new in edits:
        at = 16 + place % (len(data) - 16)
        data[at : at + len(new)] = new
    import_or_refuse(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000,
        b'{"buckets": ' * 100_000,
        b'[{"title": "\\ud800", "time": "\\ud800", "products": ["Android"]}]',
        b"[" + b"9" * 100_000 + b"]",
        b'"App name","Date","Time","Duration"\n' + b'"' * 1_000_000,
        b'"App name","Date","Time","Duration"\n' + b",".join([b"x"] * 1_000_000),
        b'time="' + b"1" * 1_000_000,
        b" " * 4_000_000 + b"time=",
        b"user=0\n" * 300_000,
        b"\xff\xfe" + b"\x00\xd8" * 1000,
        b"SQLite format 3\x00",
        b"SQLite format 3\x00" + b"\xff" * 5000,
        b"",
    ],
    ids=range(13),
)
def test_hostile_files_end_soon(data):
    start = time.monotonic()
    import_or_refuse(data)
    assert time.monotonic() - start < 10


def test_a_zipped_file_is_read_as_what_is_in_it_and_a_bomb_is_refused():
    plain = b"user_id,timestamp,app_name\nme,1700000000,mail\nme,1700000100,chat\n"
    found = read_any(Content(gzip.compress(plain), "log.csv.gz"))
    assert [launch.app for launch in found.launches] == ["mail", "chat"]
    with pytest.raises(UnreadableLog, match="damaged"):
        read_any(Content(gzip.compress(plain)[:12] + b"nonsense", "log.csv.gz"))
    with pytest.raises(UnreadableLog, match="may have up to 1 MiB"):
        read_any(Content(gzip.compress(bytes(50 << 20)), "bomb.gz", most_bytes=1 << 20))


def test_the_advice_names_the_column_that_has_the_word():
    """Bug: for the time meta.app was advised, which is likelier spelled than what says time."""
    with pytest.raises(UnreadableLog) as refused:
        table.table_of_header(b"who,meta.app,event time", "nested.csv", table.Columns())
    assert "--time-column 'event time'" in str(refused.value)
    assert "--app-column meta.app" in str(refused.value)


def test_a_column_that_tells_the_app_is_not_advised_for_the_time(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"ts": "2024-03-25T10:00:00Z", "meta": {"app": "Mail"}}\n')
    with pytest.raises(UnreadableLog, match=r"--time-column ts .*--app-column meta.app"):
        read_log(path)


# --- Usage Logger

CONTINUOUS = """\
1571236317025,screen off,
1571236319690,screen on,
1571236319827,App: Usage Logger,
1571236322128,user present,
1571236322852,App: Quickstep,
1571236335091,App: Mail, Work,
1571236346356,Mail note removed,
1571236435383,App: Quickstep,
1571236438530,App: Mail, Work,
1571236454828,Chat posted note,
1571236455000,App: Chat,
1571236460000,uninstalled: Chess,
"""
PAST = """\
1571151207258,Android system,15,
1571151207619,Mail,2,
1571151207626,Mail,1,
1571151212147,Mail,1,
1571151212200,Maps,11,
1571151284316,Quickstep,1,
1571151287149,Maps,1,
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            CONTINUOUS,
            [("Mail, Work", 1571236335.091), ("Mail, Work", 1571236438.53), ("Chat", 1571236455)],
        ),
        (PAST, [("Mail", 1571151207.626), ("Maps", 1571151287.149)]),
        (PAST.replace(",\n", "\r\n"), [("Mail", 1571151207.626), ("Maps", 1571151287.149)]),
    ],
    ids=["continuous", "past usage", "of another spreadsheet"],
)
def test_usage_logger_gives_apps_that_come_to_the_foreground(tmp_path, text, expected):
    found = imported(text)
    assert found.format == "Usage Logger export"
    assert [(each.app, each.clock) for each in found.launches] == expected
    assert any("events of other kinds, left out" in note for note in found.notes)
    path = tmp_path / "log.csv"
    path.write_text(text)
    log = read_log(path)
    assert (log.time / 1000).tolist() == [clock for _, clock in expected]


# --- JSON, a line or a list element for a launch

RECORDS = [
    {"at": 1700000000, "meta": {"app": "Mail", "tags": ["a"]}, "who": {"name": "x"}},
    {"at": 1700000060.5, "meta": {"app": "Maps"}, "who": {"name": "y"}},
]


@pytest.mark.parametrize("text", ["\n".join(map(json.dumps, RECORDS)), json.dumps(RECORDS)])
def test_a_nested_column_is_named_with_a_dot(tmp_path, text):
    path = tmp_path / "log.json"
    path.write_text(text)
    columns = {"time_column": "at", "app_column": "meta.app", "user_column": "who.name"}
    log = read_log(path, **columns)
    names = [(log.users[user], log.apps[app]) for user, app in zip(log.user, log.app, strict=True)]
    assert names == [("x", "Mail"), ("y", "Maps")]
    assert log.time.tolist() == [1700000000000, 1700000060500]
    with pytest.raises(
        UnreadableLog, match=r"the columns are 'at', 'meta.app'.*--app-column meta.app"
    ):
        read_log(path, time_column="at")
    with pytest.raises(
        UnreadableLog, match=r"--app-column meta.app .*nextapp data convert takes such"
    ):
        read_any(Content(text.encode(), "f"))
    import polars

    frame = polars.DataFrame(RECORDS)
    frame.write_parquet(tmp_path / "log.parquet")
    for source in (frame, tmp_path / "log.parquet"):
        assert read_log(source, **columns).time.tolist() == log.time.tolist()


def test_every_reader_unpacks_gzip_and_skips_the_line_of_excel_and_blanks_beside_names(tmp_path):
    lines = "sep=;\n\ntimestamp; app_name\n2024-01-02 10:00:00; Mail\n2024-01-02 10:01:00; Maps\n"
    records = json.dumps([{"time": 1700000000, "app": "Mail"}, {"time": 1700000060, "app": "Maps"}])
    for text, apps in ((DUMPSYS, None), (lines, ["Mail", "Maps"]), (records, ["Mail", "Maps"])):
        path = tmp_path / "log.gz"
        path.write_bytes(gzip.compress(text.encode()))
        log = read_log(path)
        read = read_any(Content.of_file(path))
        assert [log.apps[app] for app in log.app] == [each.app for each in read.launches]
        assert apps is None or list(log.apps) == apps


def test_a_date_and_a_time_in_two_columns_are_a_time(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("Date,Time,App\n2024-01-02,10:00:00,Mail\n2024-01-02,10:01:00,Maps\n")
    assert [launch.app for launch in read_any(Content.of_file(path)).launches] == ["Mail", "Maps"]
    first, second = read_log(path).time.tolist()
    assert second - first == 60_000
    path.write_text("Participant,Date,Time,App\na,2024-01-02,10:00,Mail\nb,2024-01-02,9:00,Maps\n")
    assert read_log(path).users == ("a", "b")  # not all of one person


@pytest.mark.parametrize(
    ("header", "opened", "closed"),
    [
        ("eventType", "1", "2"),
        ("Event Type", "ACTIVITY_RESUMED", "ACTIVITY_PAUSED"),
        ("event_type", "opened", "closed"),
    ],
)
def test_events_of_android_that_open_no_app_are_no_launches(tmp_path, header, opened, closed):
    path = tmp_path / "events.csv"
    rows = [f"2024-03-25 10:00:0{k},Mail,{(opened, closed)[k % 2]}\n" for k in range(4)]
    path.write_text(f"timestamp,package,{header}\n{''.join(rows)}")
    assert len(read_any(Content.of_file(path)).launches) == len(read_log(path)) == 2
    path.write_text(f"timestamp,package,{header}\n{rows[1]}")
    for reader in (read_log, lambda path: read_any(Content.of_file(path))):
        with pytest.raises(UnreadableLog, match="none of the 1 rows is a launch"):
            reader(path)


def test_days_of_a_spreadsheet_are_no_seconds(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("timestamp,app_name\n45293.4166,Mail\n45293.5,Maps\n")
    for reader in (read_log, lambda path: read_any(Content.of_file(path))):
        with pytest.raises(UnreadableLog, match="a spreadsheet counts days"):
            reader(path)


@pytest.mark.parametrize("as_list", [False, True])
def test_json_with_the_usual_names_is_read_by_every_reader(tmp_path, as_list):
    rows = [
        {"timestamp": "2024-03-25T10:00:00Z", "app_name": "Mail"},
        {"app_name": "Maps", "timestamp": "2024-03-25 10:01:00", "battery": None},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(rows) if as_list else "\n".join(map(json.dumps, rows)) + "\n")
    log = read_log(path)
    times = [utc("2024-03-25 10:00"), utc("2024-03-25 10:01")]
    assert log.apps == ("Mail", "Maps")
    assert (log.time / 1000).tolist() == times
    found = read_any(Content.of_file(path))
    assert [(each.app, each.clock) for each in found.launches] == list(
        zip(log.apps, times, strict=True)
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "line 2, whole line: expected a JSON object, got 'nonsense'"),
        ('{"timestamp": 5}', "line 2, column app_name: expected the name of an app, got None"),
        ('{"timestamp": [], "app_name": "x"}', "line 2, column timestamp: expected a time"),
        ('{"timestamp": true, "app_name": "x"}', "line 2, column timestamp: expected a time"),
    ],
)
def test_a_bad_line_of_json_is_named(tmp_path, line, words):
    path = tmp_path / "log.jsonl"
    path.write_text('{"timestamp": 1700000000, "app_name": "Mail"}\n' + line + "\n")
    for reader in (read_log, lambda path: read_any(Content.of_file(path))):
        with pytest.raises(UnreadableLog, match=re.escape(words)):
            reader(path)
    assert len(read_log(path, skip_bad_rows=True)) == 1


# --- Screens and locks, by their shape


def days_with(around: tuple[list[str], list[str]], n: int = 30) -> str:
    """Sessions of an hour apart; before every pause stand some rows, and some after it."""
    rows = []
    for number in range(n):
        apps = [("Mail", "Maps", "Chat", "News", "Chess")[(number * k) % 5] for k in (1, 2, 3)]
        session = [*around[1], *apps, *around[0]]
        day, hour = divmod(number, 20)
        rows += [(row, f"2024-03-{25 + day}", f"{hour}:{k:02}:00") for k, row in enumerate(session)]
    return aum(rows[::-1])


@pytest.mark.parametrize(
    "around",
    [
        (["Pantalla fosca"], ["S'ha encès"]),  # no word in common
        (["Ekrāns izslēgts"], ["Ekrāns ieslēgts (bloķēts)"]),
        (["Dimmed", "Locked"], ["Lit", "Unlocked"]),  # a screen and a lock
        (["नींद"], ["जागा"]),
    ],
)
def test_rows_around_every_pause_are_no_apps_in_any_language(around):
    found = imported(days_with(around))
    counts = Counter(launch.app for launch in found.launches)
    assert set(counts) == {"Mail", "Maps", "Chat", "News", "Chess"}
    assert sum(counts.values()) == 90


def test_apps_that_stand_around_some_pauses_are_apps():
    text = days_with((["Radio"], []))  # what plays when all is left: one row alone
    assert Counter(each.app for each in imported(text).launches)["Radio"] == 30
    rows = []
    for number in range(
        40
    ):  # every second evening ends with one app, and the day begins with another
        last, first = ("Sleep", "Clock") if number % 2 else ("Mail", "News")
        names = [first, "Chat", "Maps", last] if number % 3 else [first, last, "Clock", last]
        rows += [
            (name, f"2024-{3 + number // 20:02}-{1 + number % 20:02}", f"8:{k:02}:00")
            for k, name in enumerate(names)
        ]
    assert len(launches(aum(rows))) == 160
    rows = [("Mail", "2024-03-25", f"{n}:00:00") for n in range(20)]
    rows += [("Chat", "2024-03-25", f"{n}:01:00") for n in range(20)]  # all that there is
    assert len(launches(aum(sorted(rows, key=lambda row: int(row[2].replace(":", "")))))) == 40


def test_one_column_cannot_be_the_time_and_the_app(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("timestamp,app_name\n2024-01-02 10:00:00,Mail\n")
    with pytest.raises(
        UnreadableLog, match="must be different columns, got 'app_name', 'app_name'"
    ):
        read_log(path, time_column="app_name")


def test_a_wrong_order_of_dates_is_refused_and_a_city_is_answered_with_its_zone(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("timestamp,app_name\n2024-01-02 10:00:00,Mail\n")
    with pytest.raises(ValueError, match="dates must be day/month or month/day, got 'dm'"):
        read_log(path, dates="dm")
    for city, zone in (("Berlin", BERLIN), ("new york", "America/New_York")):
        with pytest.raises(ValueError, match=f"Did you mean {zone}"):
            read_log(path, zone=city)
