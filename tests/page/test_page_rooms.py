"""What the rooms answer, held against the library and against counting by hand."""

from __future__ import annotations

import gc
import json
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from pages import DUMPSYS, Visitor, served

from nextapp.page.catalogue import ICONS, NAMES, short_name
from nextapp.page.crowd_room import CrowdRoom
from nextapp.page.log_room import (
    MOST_MEASURED,
    PersonLog,
    by_hour,
    portrait,
    read_log,
    session_sizes,
    upload,
)
from nextapp.page.phone_room import MODELS, PhoneSession, person_of_log, synthetic_person
from nextapp.predictor import Habits
from nextapp.wire import Report


@pytest.fixture
def session():
    one = PhoneSession(synthetic_person(1))
    yield one
    one.close()


def library_phone(launches):
    """Habits, fed by hand with the same launches."""
    habits, numbers = Habits(), {}
    for app, when in launches:
        habits.observe(numbers.setdefault(app, len(numbers)), when)
    return habits, numbers


def expected_suggestions(launches, when, n_open=1):
    """Without the open app, which is the latest one; or of all apps, where `n_open` is 0."""
    habits, numbers = library_phone(launches)
    names = list(numbers)
    candidates = [numbers[app] for app in dict.fromkeys(app for app, _ in reversed(launches))]
    chances = habits.chances(candidates, when)
    others = chances[n_open:] / (1 - chances[:n_open].sum())
    best = np.argsort(-others, kind="stable")[:5]
    return [(names[candidates[n_open + i]], others[i]) for i in best]


def test_suggestions_are_those_of_the_library_after_every_tap(session):
    person = session.person
    launches = list(person.launches[: person.n_learnt])
    clock = launches[-1][1]
    for app in ("Mail", "Maps", "Mail", "Chat"):
        session.tap(app)
        clock += 20.0
        launches.append((app, clock))
        shown = [(each["app"], each["share"]) for each in session.suggestions()]
        wanted = expected_suggestions(launches, clock)
        assert [app for app, _ in shown] == [app for app, _ in wanted]
        assert [share for _, share in shown] == pytest.approx([share for _, share in wanted])


def test_a_suggestion_that_is_not_wanted_stays_away_until_it_is_wanted_again(session):
    session.tap("Mail")
    first, second = [each["app"] for each in session.state()["suggestions"]][:2]
    session.leave_out(first, 24.0)
    session.leave_out(second, None)
    state = session.state()
    assert {first, second} == {each["app"] for each in state["left_out"]}
    assert not {first, second} & {each["app"] for each in state["suggestions"]}
    session.wait(24.0)
    assert [each["app"] for each in session.state()["left_out"]] == [second]
    session.leave_out(second, 0)
    assert session.state()["left_out"] == []
    for app, hours in (("no such app", 1.0), (first, -1.0), (first, math.nan)):
        with pytest.raises(ValueError, match=r"there is no app|hours must be from 0 to 720"):
            session.leave_out(app, hours)


def test_playing_counts_hits_of_the_person_s_own_launches(session):
    person = session.person
    first = person.n_learnt
    played = person.launches[first : first + 60]
    hits, n = dict.fromkeys(MODELS, 0.0), 0
    for place, (app, when) in enumerate(played):
        before = list(person.launches[: first + place])
        latest = list(dict.fromkeys(name for name, _ in reversed(before)))
        n_open = int(when - before[-1][1] <= 900)  # the open app is no candidate
        if n_open and app == latest[0]:
            continue
        n += 1
        latest = latest[n_open:]
        hits["mru"] += app in latest[:5]
        hits["nextapp"] += app in [name for name, _ in expected_suggestions(before, when, n_open)]
        after = Counter(b for (a, _), (b, _) in pairwise(before) if a == before[-1][0])
        better = sum(after[name] > after[app] for name in latest)
        equal = sum(after[name] == after[app] for name in latest)
        hits["sr-od"] += min(max((5 - better) / equal, 0.0), 1.0) if app in latest else 0.0
    assert session.play(60) == ""
    rates = session.state()["rates"]
    for model in ("mru", "nextapp", "sr-od"):
        assert rates[model]["at_5"] == pytest.approx(hits[model] / n), model
    assert {figures["n"] for figures in rates.values()} == {n}
    assert 0 < n < 60


def test_the_open_app_launched_again_is_no_prediction(session):
    session.tap("Mail")
    n = session.state()["rates"]["mru"]["n"]
    session.tap("Mail")
    session.wait(1.0)
    assert session.state()["rates"]["mru"]["n"] == n
    session.tap("Mail")  # at an opening it is a candidate
    rates = session.state()["rates"]
    assert rates["mru"]["n"] == n + 1
    assert [event["app"] for event in session.state()["events"]][-1] == "Mail"


def test_a_report_is_charged_shown_as_it_left_and_limited(session):
    session.report()
    state = session.state()
    (report,) = state["reports"]
    data = bytes.fromhex(report["hex"])
    assert len(data) == report["n_bytes"]
    assert Report.from_bytes(data).payload == bytes.fromhex(report["payload"])
    assert report["odds"] == pytest.approx(math.e)
    assert (state["budget"]["left"], state["budget"]["left_today"]) == (0.0, 0.0)
    for hours in (1, 24):  # one in its life
        session.wait(hours)
        assert "does not fit" in session.report()
    assert len(session.state()["reports"]) == 1


def test_a_log_can_be_played(tmp_path):
    log = read_log(upload(DUMPSYS.encode(), "d.txt"), "UTC")
    session = PhoneSession(person_of_log("d.txt", log.launches))
    try:
        assert session.state()["to_play"] == 54 - 36
        assert session.play(200) == ""
        assert session.play(1) == "The log ends here."
        assert session.state()["rates"]["nextapp"]["n"] == 18
    finally:
        session.close()


def texts_with(word):
    """How many references to texts with this word are in this process."""
    found, objects = 0, gc.get_objects()
    for _ in range(3):  # what the collector does not track is found in what it tracks
        objects = [each for each in gc.get_referents(*objects) if not gc.is_tracked(each)]
        texts = [each for each in objects if type(each) is str]
        found += sum(word in text and text != word for text in texts)
    return found


def test_forgetting_a_log_leaves_nothing_of_it_in_the_program():
    word = "".join(["zeb", "ras "])  # as a constant it would be found in this code
    rows = [f"2026-01-{1 + i // 12:02d}T{8 + i % 12:02d}:00:00Z,{word}{i % 5}" for i in range(240)]
    data = "\n".join(["timestamp,app_name", *rows]).encode()
    del rows
    with served() as page:
        visitor = Visitor(page)
        visitor.request("POST", "/api/log?name=x.csv", data)
        phone = visitor.post("/api/phone/new", source="log")["id"]
        visitor.post("/api/phone/play", id=phone, n=20)
        assert texts_with(word) > 0
        visitor.post("/api/log/forget")
        assert visitor.post("/api/phone/tap", id=phone, app="x")["error"].startswith("this phone")
        visitor.post("/api/phone/new", number=0)  # the threads let go of their last work
        assert json.loads(visitor.request("GET", "/api/log")[2]) is None
        gc.collect()
        assert texts_with(word) == 0


def test_the_portrait_counts_what_is_in_the_log():
    found = portrait(read_log(upload(DUMPSYS.encode(), "d.txt"), "Europe/Berlin"))
    assert found["n_launches"] == 54
    assert {each["app"]: each["count"] for each in found["apps"]} == {
        "com.example.mail": 18,
        "com.example.chat": 18,
        "com.example.maps": 9,
        "com.example.music": 9,
    }
    hours = np.array(found["hours"])
    assert hours.sum() == 54
    assert hours[0, 8] == hours[1, 12] == hours[2, 19] == 6  # 4 August 2025: a Monday
    assert (found["sessions"]["n"], found["sessions"]["median"]) == (9, 6.0)
    names = [each["label"] for each in found["flow"]["apps"]]
    counts = np.array(found["flow"]["counts"])
    assert counts[names.index("Mail"), names.index("Maps")] == 9
    assert counts[names.index("Music"), names.index("Chat")] == 9
    measured = found["measured"]
    assert measured["n"] == 27
    for figures in measured["models"].values():
        assert 0 <= figures["at_1"]["mean"] <= figures["at_5"]["mean"] <= 1
        assert figures["at_5"]["low"] <= figures["at_5"]["mean"] <= figures["at_5"]["high"]
    assert len(measured["lately"]) == 27


def test_most_recently_used_and_most_used_are_counted_as_by_hand():
    log = read_log(upload(DUMPSYS.encode(), "d.txt"), "UTC")
    apps = [app for app, _ in log.launches]
    hits = {"mru": 0.0, "mfu": 0.0}
    for place in range(27, 54):
        before, app = apps[:place], apps[place]
        latest = list(dict.fromkeys(reversed(before)))
        hits["mru"] += latest[0] == app
        counts = Counter(before)
        best = max(counts.values())
        tied = [name for name, n in counts.items() if n == best]
        hits["mfu"] += (app in tied) / len(tied)
    models = portrait(log)["measured"]["models"]
    for model, count in hits.items():
        assert models[model]["at_1"]["mean"] == pytest.approx(count / 27)


def test_nextapp_never_sees_a_choice_among_more_apps_than_there_are():
    apps = np.random.default_rng(0).integers(5, size=60).tolist()
    launches = tuple((f"app {app}", 9_000.0 * i) for i, app in enumerate(apps))
    choices = portrait(PersonLog("x", "y", (), ("me",), launches))["measured"]["choices"]
    assert (choices["apps"], choices["by_nextapp"]) == (5, 5.0)


def test_apps_that_are_not_among_the_measured_launches_cost_nothing():
    """A file may name as many apps as it has rows; tables over all of them would fill memory."""
    others = [(f"app {i}", 60.0 * i) for i in range(30_000)]
    start = others[-1][1] + 3600
    own = [(("Mail", "Maps", "Chat")[i % 3], start + 60.0 * i) for i in range(MOST_MEASURED)]
    together = PersonLog("x", "y", (), ("me",), tuple(others + own))
    alone = PersonLog("x", "y", (), ("me",), tuple(own))
    found = portrait(together)
    assert found["n_apps"] == 30_003
    assert found["measured"] == portrait(alone)["measured"]


def test_hours_and_sessions():
    monday = 4 * 86400.0  # 1970-01-05
    assert by_hour(np.array([monday + 3600 * 5.5]))[0, 5] == 1
    assert session_sizes(np.array([0.0, 900.0, 1801.0, 1900.0])).tolist() == [2, 2]


def test_more_phones_tell_more():
    room = CrowdRoom(n_base=500, n_new=10)
    much = room.answer(1_000_000, 8.0)
    fresh = room.answer(10_000, 4.5)
    assert much["likeness"] > fresh["likeness"] > 0.3
    assert much["likeness"] > 0.97
    assert "among 1,000,000 honest phones" in much["without_senders"]
    nothing = room.answer(100, 0.25)
    assert nothing["gain"]["low"] <= 0 <= nothing["gain"]["high"]
    assert nothing["likeness"] < 0.3
    assert much["gain"]["low"] <= much["gain"]["mean"] <= much["gain"]["high"]
    assert much["private"]["mean"] - much["without"]["mean"] == pytest.approx(much["gain"]["mean"])


def test_every_icon_is_in_the_sprite():
    from importlib.resources import files

    sprite = files("nextapp.page").joinpath("static", "icons.svg").read_text("utf-8")
    assert all(f'id="{icon}"' in sprite for icon in ICONS)
    assert len({name for name, _ in NAMES}) == len(NAMES)
    assert short_name("com.google.android.apps.maps") == "Maps"
