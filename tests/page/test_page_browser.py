"""The page in a real browser: Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
from pages import DUMPSYS, served

from nextapp.page.catalogue import NAMES
from nextapp.page.phone_room import synthetic_person
from nextapp.predictor import Habits

CHROMIUM = os.environ.get("NEXTAPP_CHROMIUM") or shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no browser here: apt-get install -y chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: make page")

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = 120_000  # ms: the first phone and the first crowd compile their loops


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page():
    with served() as opened:
        yield opened


def note(tab, message):
    if message.type in ("error", "warning"):
        tab.problems.append(message.text)


def enter(tab, page):
    """As the browser is started."""
    tab.set_default_timeout(60_000)
    tab.goto(page.file.as_uri())
    tab.wait_for_url(f"http://127.0.0.1:{page.port}/")


@pytest.fixture
def visit(browser, page):
    """Opens a tab; afterwards: no error in the console, no request off this machine."""
    tabs = []

    def opened(room="phone", **settings):
        context = browser.new_context(**({"viewport": {"width": 1240, "height": 900}} | settings))
        tab = context.new_page()
        tab.problems, tab.asked = [], []
        tab.on("console", lambda message: note(tab, message))
        tab.on("pageerror", lambda error: tab.problems.append(str(error)))
        tab.on("request", lambda request: tab.asked.append(request.url))
        enter(tab, page)
        tab.goto(f"http://127.0.0.1:{page.port}/#{room}")
        tabs.append((context, tab))
        return tab

    yield opened
    for context, tab in tabs:
        problems, asked = tab.problems, tab.asked
        context.close()
        assert problems == []
        assert {urlsplit(url).hostname for url in asked} <= {"127.0.0.1", None}  # None: the file


def suggestions(tab):
    return tab.eval_on_selector_all(
        "#suggestions .app", "all => all.map(e => [e.dataset.app, Number(e.dataset.share)])"
    )


def wait_for_phone(tab):
    tab.wait_for_selector("#suggestions .app", timeout=PATIENCE)


def until(tab, condition):
    """The policy of the page forbids the driver's own way of waiting, which evaluates strings."""
    end = time.monotonic() + 120
    while not tab.evaluate(condition):
        assert time.monotonic() < end, condition
        tab.wait_for_timeout(50)


def launch(tab, act):
    """Do something that launches an app, and wait until the phone has answered."""
    act()
    until(tab, "document.getElementById('room-phone').ariaBusy === 'false'")


def test_the_token_leaves_the_address_bar(visit):
    assert "token" not in visit().url


def test_the_printed_address_opens_the_page_in_a_browser(browser):
    with served() as page:
        tab = browser.new_page()
        tab.set_default_timeout(60_000)
        tab.goto(page.address)
        tab.wait_for_url(f"http://127.0.0.1:{page.port}/")
        tab.wait_for_selector("#suggestions", state="attached")
        tab.close()


def test_tapping_launches_and_suggestions_equal_the_library_s(visit):
    tab = visit()
    wait_for_phone(tab)
    person = synthetic_person(0)
    habits, numbers = Habits(), {}
    for app, when in person.launches[: person.n_learnt]:
        habits.observe(numbers.setdefault(app, len(numbers)), when)
    last_use = {app: i for i, (app, _) in enumerate(person.launches[: person.n_learnt])}
    for number, app in enumerate(("Mail", "Music", "Mail", "Browser"), 1):
        launch(tab, lambda app=app: tab.click(f"#apps .app[data-app={app}]"))
        when += 20.0
        habits.observe(numbers[app], when)
        last_use[app] = 10**6 + number
        candidates = sorted(numbers, key=lambda name: -last_use[name])
        chances = habits.chances([numbers[name] for name in candidates], when)
        chances /= 1 - chances[0]  # the open app is not suggested
        best = 1 + np.argsort(-chances[1:], kind="stable")[:5]
        shown = suggestions(tab)
        assert app not in dict(shown)
        assert [name for name, _ in shown] == [candidates[i] for i in best]
        assert [share for _, share in shown] == pytest.approx([chances[i] for i in best], rel=1e-9)
        percent = tab.inner_text("#suggestions .app .chance")
        assert percent == f"{round(100 * shown[0][1])} %"
    assert tab.inner_text("#why .why-words")
    assert tab.locator("#why .part").count() >= 1


def test_a_day_is_played_beside_the_rivals(visit):
    tab = visit()
    wait_for_phone(tab)
    tab.fill("#speed", "5")
    tab.click("#play")
    until(tab, "parseInt(document.getElementById('played').textContent) >= 60")
    tab.click("#play")
    until(tab, "document.querySelectorAll('#strip .beat i, #strip .beat.miss').length === 40")
    label = tab.get_attribute("#rates svg", "aria-label")
    assert all(name in label for name in ("nextapp", "MRU", "SR-od"))
    until(tab, "document.getElementById('room-phone').ariaBusy === 'false'")
    still = tab.inner_text("#played")
    tab.wait_for_timeout(600)
    assert tab.inner_text("#played") == still  # paused


def test_what_has_left_the_phone(visit):
    tab = visit()
    wait_for_phone(tab)
    assert "one randomised report in its life" in tab.inner_text("#nothing")
    assert tab.inner_text("#report") == "Send its report"
    assert "ε 1\n" in tab.inner_text("#budget")
    launch(tab, lambda: tab.click("#report"))
    assert not tab.is_visible("#nothing")
    said = tab.inner_text("#reports")
    assert "34 bytes, 9 of them payload" in said
    assert "Only the marked byte depends on the launches." in said
    assert "a factor of 2.72" in said
    assert "ε 0\n" in tab.inner_text("#budget")
    assert "sends no more reports" in tab.inner_text("#budget")
    assert "at most 2.7 times; with 10 it would be 22,000 times" in tab.inner_text("#budget")
    assert tab.is_disabled("#report")


def test_habits_that_tell_nothing_are_said_to_tell_nothing(visit):
    tab = visit("log")
    drawn = np.random.default_rng(0).integers(0, 8, 400)
    rows = [f"{1_700_000_000 + 60 * n},app{app}" for n, app in enumerate(drawn)]
    text = "\n".join(["timestamp,app_name", *rows]).encode()
    tab.set_input_files("#file", {"name": "at-random.csv", "mimeType": "text/csv", "buffer": text})
    tab.wait_for_selector("#portrait .sentence")
    assert "Your habits say no more than that." in tab.inner_text("#portrait .sentence >> nth=0")
    tab.click("#forget")


def test_the_crowd_s_sliders(visit):
    tab = visit("crowd")
    tab.wait_for_selector("#estimate svg", timeout=PATIENCE)
    tab.wait_for_selector("#curve svg circle >> nth=9", state="attached", timeout=PATIENCE)
    assert tab.inner_text("#phones-value") == "100,000"
    assert tab.inner_text("#epsilon-value") == "1"  # what a phone accepts by itself
    assert "can say little about its phone" in tab.inner_text("#verdict")
    assert "factor of 2.7: from 50 % to 73 %" in tab.inner_text("#verdict")
    allowed = "Phones allow this by themselves, up to ε = 1 in a lifetime."
    assert allowed in tab.inner_text("#verdict")
    tab.focus("#phones")
    with tab.expect_response("**/api/crowd"):
        for _ in range(6):
            tab.keyboard.press("ArrowLeft")
        tab.focus("#epsilon")
        for _ in range(2):
            tab.keyboard.press("ArrowLeft")
    until(tab, "document.querySelectorAll('#room-crowd .stale').length === 0")
    assert "does not help yet" in tab.inner_text("#verdict")
    assert (tab.inner_text("#phones-value"), tab.inner_text("#epsilon-value")) == ("100", "0.25")
    assert "almost nothing about its phone" in tab.inner_text("#verdict")
    assert "almost only noise" in tab.inner_text("#likeness")
    assert tab.locator("#truth .cell").count() == 144
    tab.fill("#epsilon", "5")
    until(tab, "document.getElementById('verdict').textContent.includes('to 98.9 %')")  # ε 4.5
    assert "nearly everything about its phone" in tab.inner_text("#verdict")
    assert "Phones refuse to send it" in tab.inner_text("#verdict")


def test_dragging_a_slider_leaves_no_queue_of_requests(visit):
    tab = visit("crowd")
    tab.wait_for_selector("#estimate svg", timeout=PATIENCE)
    open_now, most = [], [0]

    def began(request):
        if request.url.endswith("/api/crowd"):
            open_now.append(request)
            most[0] = max(most[0], len(open_now))

    tab.on("request", began)
    tab.on("requestfinished", lambda request: request in open_now and open_now.remove(request))
    until(tab, "document.querySelectorAll('#curve circle').length === 10")
    tab.evaluate(
        """() => { const slider = document.getElementById("epsilon");
        for (const place of [4, 3, 2, 1, 0, 1, 2, 3]) { slider.value = place; slider.dispatchEvent(new Event("input")); } }"""
    )
    until(tab, "document.getElementById('verdict').textContent.includes('factor of 7.4')")  # e^2
    until(tab, "document.querySelectorAll('#room-crowd .stale').length === 0")
    assert most[0] == 1


def test_a_cell_is_compared_in_both_maps(visit):
    tab = visit("crowd")
    tab.wait_for_selector("#estimate svg", timeout=PATIENCE)
    assert "Point at a cell" in tab.inner_text("#picked")
    tab.hover("#truth .cell >> nth=13")  # second row, second column
    said = tab.inner_text("#picked")
    assert said.startswith("After Browser, Browser: in truth ")
    assert "estimated" in said
    for box in ("truth", "estimate"):
        assert tab.locator(f"#{box} g.on").count() == 1
        assert tab.locator(f"#{box} text.on").all_text_contents() == ["Browser", "Browser"]
    tab.mouse.move(2, 2)
    assert tab.locator("#room-crowd .on").count() == 0


def test_charts_are_drawn_at_the_size_they_are_shown(visit):
    """Else their text would shrink on narrow screens."""
    tab = visit("crowd", viewport={"width": 360, "height": 740})
    tab.wait_for_selector("#curve svg", timeout=PATIENCE)
    for width in (360, 900):
        tab.set_viewport_size({"width": width, "height": 740})
        until(
            tab,
            """(() => { const all = [...document.querySelectorAll("#room-crowd .heat > svg, #room-crowd .chart > svg")];
            return all.length === 4 && all.every(e => e.viewBox.baseVal.width === Math.round(e.getBoundingClientRect().width) && e.viewBox.baseVal.width === e.parentElement.clientWidth); })()""",
        )


DROP = """([id, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], "usagestats.txt", {type: "text/plain"}));
    return document.getElementById(id).dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def test_a_file_may_be_dropped_anywhere_and_never_replaces_the_page(visit):
    tab = visit("phone")
    wait_for_phone(tab)
    assert tab.evaluate(DROP, ["apps", DUMPSYS]) is False  # the browser does not open it itself
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert tab.url.endswith("#log")
    tab.click("#forget")


def test_a_made_up_person_shows_the_room_without_a_file(visit):
    tab = visit("log")
    tab.click("#example")
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert "made up, not data of a person" in tab.inner_text("#portrait")
    tab.click("#play-mine")
    until(tab, "document.getElementById('person').textContent.includes('Synthetic person 5')")
    assert "not a real person" in tab.inner_text("#person")
    tab.click("nav a[data-room=log]")
    tab.click("#forget")
    tab.wait_for_selector("#example", state="visible")


def test_forget_it_leaves_nothing_of_the_log_in_any_tab(visit, page):
    """Neither text nor titles nor what a chart is drawn from again; the phone that played it goes."""
    tab = visit("log")
    rows = [
        f"2026-01-{1 + i // 12:02d}T{8 + i % 12:02d}:00:00Z,Zebra {i % 5}\n" for i in range(240)
    ]
    data = f"timestamp,app_name\n{''.join(rows)}".encode()
    tab.set_input_files("#file", {"name": "zebras.csv", "mimeType": "text/csv", "buffer": data})
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    tab.click("#play-mine")
    until(tab, "document.getElementById('person').textContent.includes('zebras.csv')")
    other = tab.context.new_page()
    other.set_default_timeout(60_000)
    other.goto(f"http://127.0.0.1:{page.port}/#log")
    other.wait_for_selector("#portrait .card", timeout=PATIENCE)
    until(tab, "document.querySelectorAll('#strip [title]').length > 3")  # it plays by itself
    tab.click("nav a[data-room=log]")
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")
    other.wait_for_selector("#portrait", state="hidden")
    tab.click("nav a[data-room=phone]")
    wait_for_phone(tab)
    tab.set_viewport_size({"width": 700, "height": 900})
    tab.wait_for_timeout(200)
    for each in (tab, other):
        assert "zebra" not in each.content().lower()
        assert each.evaluate("sessionStorage.getItem('nextapp-person')") != "log"
    assert "Synthetic person 1" in tab.inner_text("#person")
    assert tab.locator("#whose option[value=log]").is_disabled()


def test_a_program_that_has_ended_is_said_to_have(browser):
    with served() as page:
        tab = browser.new_page()
        enter(tab, page)
        wait_for_phone(tab)
    assert not tab.is_visible("#ended")
    launch(tab, lambda: tab.click("#apps .app"))
    said = tab.locator("#ended").bounding_box()
    assert 0 <= said["y"] < 200
    assert "Start it again with nextapp open" in tab.inner_text("#ended")
    tab.close()


def test_the_person_stays_when_the_page_is_loaded_again(visit):
    tab = visit()
    wait_for_phone(tab)
    tab.select_option("#whose", "3")
    until(tab, "document.getElementById('person').textContent.includes('Synthetic person 4')")
    apps = suggestions(tab)
    tab.reload()
    until(tab, "document.getElementById('person').textContent.includes('Synthetic person 4')")
    assert tab.input_value("#whose") == "3"
    assert suggestions(tab) == apps


def test_a_dropped_file_is_read_and_shown_and_forgotten(visit):
    tab = visit("log")
    tab.fill("#zone", "Europe/Berlin")
    tab.evaluate(DROP, ["drop", DUMPSYS])
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    words = tab.inner_text("#portrait")
    assert "dumpsys usagestats" in words
    assert "Which model predicts you best" in words
    assert tab.locator("#portrait .lately li").count() == 27
    tab.click("#play-mine")
    until(tab, "document.getElementById('person').textContent.includes('usagestats.txt')")
    assert {app for app, _ in suggestions(tab)} <= {
        f"com.example.{x}" for x in ("mail", "maps", "chat", "music")
    }
    tab.click("nav a[data-room=log]")
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_a_bad_file_is_said_so(visit):
    tab = visit("log")
    bad = {"name": "diary.txt", "mimeType": "text/plain", "buffer": b"dear diary"}
    tab.set_input_files("#file", bad)
    tab.wait_for_selector("#log-error", state="visible")
    said = tab.inner_text("#log-error")
    assert "not recognised" in said
    assert "ActivityWatch" in said
    table = {"name": "x.csv", "mimeType": "text/csv", "buffer": b"moment,program\n1,Mail\n"}
    tab.set_input_files("#file", table)
    until(tab, "document.getElementById('log-error').innerText.includes(\"'moment', 'program'\")")
    assert tab.get_attribute("#log-error", "role") == "alert"
    assert tab.locator("#log-error li").count() == 8  # one for each format that was looked for


@pytest.mark.parametrize("width", [1240, 360])
def test_long_names_and_few_launches_fit(visit, width):
    tab = visit("log", viewport={"width": width, "height": 740})
    apps = ["W" * 200, "com.example." + "x" * 80, "一" * 60, "Mail"]
    rows = [f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:00:00Z,{apps[i % 4]}\n" for i in range(80)]
    for name, kept in (("y" * 150, rows), ("one", rows[:1])):
        data = f"timestamp,app_name\n{''.join(kept)}".encode()
        tab.set_input_files(
            "#file", {"name": f"{name}.csv", "mimeType": "text/csv", "buffer": data}
        )
        tab.wait_for_selector(f"#portrait h2:has-text('{name}')", timeout=PATIENCE)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        beyond = "[...document.querySelectorAll('#portrait .chart')].filter(box => [...box.querySelectorAll('text')].some(e => e.getBoundingClientRect().right > box.getBoundingClientRect().right + 8 || e.getBoundingClientRect().left < box.getBoundingClientRect().left - 8)).length"
        assert tab.evaluate(beyond) == 0
    assert "Twenty are needed" in tab.inner_text("#portrait")
    tab.click("#forget")


def test_names_that_differ_at_their_end_can_be_told_apart_at_phone_width(visit):
    tab = visit("log", viewport={"width": 360, "height": 740})
    rows = [f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:00:00Z,app-00{10 + i % 7}" for i in range(80)]
    data = "\n".join(["timestamp,app_name", *rows]).encode()
    tab.set_input_files("#file", {"name": "n.csv", "mimeType": "text/csv", "buffer": data})
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    for shown in (
        tab.locator(".portrait > .card:nth-child(3) text.name").all_text_contents(),
        tab.locator("#portrait .lately .letters").all_text_contents(),
    ):
        assert {each[-2:] for each in shown} == {str(10 + i) for i in range(7)}
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_the_people_of_a_log_can_be_chosen_also_after_a_reload(visit):
    tab = visit("log")
    rows = [
        f"2026-01-{1 + i // 12:02d}T{8 + i % 12:02d}:00:00Z,{'ann' if i % 3 else 'ben'},App {i % 7}"
        for i in range(240)
    ]
    data = "\n".join(["timestamp,user_id,app_name", *rows]).encode()
    tab.set_input_files("#file", {"name": "two.csv", "mimeType": "text/csv", "buffer": data})
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert tab.input_value("#user") == "ann"
    assert "160\nlaunches" in tab.inner_text("#portrait")
    assert "Launches by weekday and hour, UTC." in tab.inner_text("#portrait")
    tab.click("#play-mine")
    until(tab, "document.getElementById('person').textContent.includes('ann in two.csv')")
    tab.click("nav a[data-room=log]")
    tab.select_option("#user", "ben")
    until(tab, "document.getElementById('portrait').innerText.includes('80\\nlaunches')")
    tab.reload()
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert tab.input_value("#user") == "ben"
    tab.select_option("#user", "ann")
    until(tab, "document.getElementById('portrait').innerText.includes('160\\nlaunches')")
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_the_order_of_day_and_month_is_asked_for(visit):
    tab = visit("log")
    rows = [f"0{1 + i % 9}/02/2024 1{i % 10}:00,App {i % 3}" for i in range(90)]
    data = "\n".join(["timestamp,app_name", *rows]).encode()
    tab.set_input_files("#file", {"name": "dates.csv", "mimeType": "text/csv", "buffer": data})
    tab.wait_for_selector("#log-error button", timeout=PATIENCE)
    assert "--dates" not in tab.inner_text("#log-error")
    tab.click("#log-error button:has-text('Day first')")
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert "2024-02-01 to 2024-02-09" in tab.inner_text("#portrait")
    assert not tab.is_visible("#log-error")
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_what_is_taken_for_no_app_is_said_beside_the_ten_commonest_apps(visit):
    tab = visit("log")
    apps = [NAMES[i][0] for i in np.random.default_rng(0).permutation(np.arange(440) % 11)]
    told = [f"Notifications envoyées ({app})" if i % 2 else app for i, app in enumerate(apps)]
    rows = [
        f'"{name}","2026-01-{1 + i // 48:02d}","{8 + i % 48 // 4:02d}:{i % 4 * 15:02d}:00","0:30"'
        for i, name in enumerate(told)
    ]
    data = "\n".join(['"App name","Date","Time","Duration"', *rows]).encode()
    tab.set_input_files("#file", {"name": "usage.csv", "mimeType": "text/csv", "buffer": data})
    until(tab, "document.getElementById('log-busy').hidden")
    words = tab.inner_text("#portrait .card >> nth=0")
    assert "220\nlaunches\n11\napps" in words
    assert "left out, no apps" in words
    assert "Notifications envoyées (…) 220" in words
    shown = tab.get_attribute("#portrait .chart svg", "aria-label")
    assert shown.count(",") == 9
    assert "Notifications" not in shown
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_one_count_of_launches_and_apps_in_tiles_and_text(visit):
    """More apps and launches than the measured part has; a repeat within 3 s is a launch, too."""
    tab = visit("log")
    rows = [f"2026-01-01T00:00:{i:02d}Z,Mail" for i in range(2)]
    rows += [f"2026-01-{1 + i // 12:02d}T{8 + i % 12:02d}:00:00Z,Old {i}" for i in range(90)]
    rows += [f"2026-02-{1 + i // 12:02d}T{8 + i % 12:02d}:00:00Z,App {i % 3}" for i in range(110)]
    data = "\n".join(["timestamp,app_name", *rows]).encode()
    tab.set_input_files("#file", {"name": "many.csv", "mimeType": "text/csv", "buffer": data})
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    words = tab.inner_text("#portrait")
    assert "202\nlaunches\n94\napps" in words
    assert "In your last 101 launches you used 3 of your 94 apps" in words
    assert "Each of your last 101 launches is predicted before it is seen" in words
    assert "of 101 launches" in words
    assert tab.get_attribute("#portrait .chart svg", "aria-label").count(",") == 9  # ten apps
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_nothing_is_said_of_the_best_model_where_the_leaders_are_level(visit):
    tab = visit("log")
    rows = [f"2026-01-{1 + i // 12:02d}T{8 + i % 12:02d}:00:00Z,App {i % 5}" for i in range(240)]
    data = "\n".join(["timestamp,app_name", *rows]).encode()
    tab.set_input_files("#file", {"name": "five.csv", "mimeType": "text/csv", "buffer": data})
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert "This log cannot say: nextapp, MRU, MFU and SR-od are level" in tab.inner_text(
        "#portrait"
    )
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_names_in_a_file_are_text_and_never_markup(visit):
    tab = visit("log")
    name = "<img src=x onerror=window.hit=1>"
    rows = "".join(f'2026-01-0{d}T1{h}:00:00Z,"{name}"\n' for d in range(1, 9) for h in range(4))
    file = {
        "name": f"{name}.csv",
        "mimeType": "text/csv",
        "buffer": f"timestamp,app_name\n{rows}".encode(),
    }
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    assert name in tab.inner_text("#portrait")
    assert tab.evaluate("window.hit") is None
    assert tab.locator("#portrait img").count() == 0
    tab.click("#forget")
    tab.wait_for_selector("#portrait", state="hidden")


def test_the_browser_lets_the_page_talk_to_this_machine_only(visit):
    tab = visit()
    tab.evaluate(
        "document.addEventListener('securitypolicyviolation', e => { window.stopped = e.violatedDirective; })"
    )
    assert (
        tab.evaluate("fetch('http://192.0.2.1/').then(() => 'went', () => 'refused')") == "refused"
    )
    assert tab.evaluate("window.stopped") == "connect-src"
    tab.problems.clear()  # the browser reports what it stopped
    tab.asked[:] = [url for url in tab.asked if "192.0.2.1" not in url]


def test_everything_works_by_keyboard(visit):
    tab = visit()
    wait_for_phone(tab)
    first = suggestions(tab)[0][0]
    launch(tab, lambda: tab.keyboard.press("1"))
    assert tab.get_attribute("#apps .is-last", "data-app") == first
    for _ in range(60):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.dataset.app") == "Maps":
            break
    launch(tab, lambda: tab.keyboard.press("Enter"))
    assert tab.get_attribute("#apps .is-last", "data-app") == "Maps"
    assert tab.evaluate("document.activeElement.dataset.app") == "Maps"  # focus stays
    assert "Suggestions:" in tab.text_content("#spoken")


def test_a_suggestion_is_hidden_and_comes_back(visit):
    tab = visit()
    wait_for_phone(tab)
    before = suggestions(tab)
    launch(tab, lambda: tab.click("#why [data-key=hide]"))
    assert [name for name, _ in suggestions(tab)][:4] == [name for name, _ in before][1:]
    launch(tab, lambda: tab.click("#why [data-key=not-today]"))
    assert tab.locator("#why [data-key^=again-]").count() == 2
    launch(tab, lambda: tab.click(f"#why [data-key=again-{before[0][0]}]"))
    assert suggestions(tab)[0] == before[0]
    assert before[1][0] not in dict(suggestions(tab))
    launch(tab, lambda: tab.click(f"#why [data-key=again-{before[1][0]}]"))


def test_what_is_hidden_stays_hidden_when_the_page_is_loaded_again(visit):
    tab = visit()
    wait_for_phone(tab)
    hidden = suggestions(tab)[0][0]
    launch(tab, lambda: tab.click("#why [data-key=hide]"))
    for whose in ("1", "0"):
        launch(tab, lambda whose=whose: tab.select_option("#whose", whose))
        assert (tab.locator("#why [data-key^=again-]").count() == 1) == (whose == "0")
    tab.reload()
    wait_for_phone(tab)
    assert hidden not in dict(suggestions(tab))
    launch(tab, lambda: tab.click(f"#why [data-key=again-{hidden}]"))
    assert hidden in dict(suggestions(tab))


def test_a_long_press_on_a_suggestion_leaves_it_out(visit):
    tab = visit(viewport={"width": 360, "height": 740}, has_touch=True)
    wait_for_phone(tab)
    before = suggestions(tab)
    finger = tab.context.new_cdp_session(tab)
    box = tab.locator("#suggestions .app").first.bounding_box()
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 20}
    finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at]})
    tab.wait_for_selector("#menu", state="visible", timeout=60_000)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert before[0][0] in tab.inner_text("#menu")
    with tab.expect_response("**/api/phone/leave-out"):
        tab.click("#menu [data-key=hide]")
    until(tab, "document.querySelectorAll('#why [data-key^=again-]').length === 1")
    assert [name for name, _ in suggestions(tab)][:4] == [name for name, _ in before][1:]
    assert not tab.is_visible("#menu")
    assert not any(url.endswith("/api/phone/tap") for url in tab.asked)  # nothing was launched
    launch(tab, lambda: tab.click("#why [data-key^=again-]"))


def test_the_menu_of_a_suggestion_opens_and_closes_by_keyboard_too(visit):
    tab = visit()
    wait_for_phone(tab)
    tab.focus("#suggestions .app >> nth=1")
    tab.dispatch_event("#suggestions .app >> nth=1", "contextmenu")
    assert tab.evaluate("document.activeElement.textContent") == "Not for a day"
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#menu")
    assert tab.evaluate("document.activeElement.dataset.app") == suggestions(tab)[1][0]


def test_nothing_moves_for_those_who_asked_for_less_motion(visit):
    tab = visit(reduced_motion="reduce")
    wait_for_phone(tab)
    moving = "[...document.querySelectorAll('*')].filter(e => getComputedStyle(e).transitionDuration !== '0s' || getComputedStyle(e, '::before').animationName !== 'none' || getComputedStyle(e).animationName !== 'none').length"
    assert tab.evaluate(moving) == 0


def test_reasons_are_factors_of_the_library_s_parts(visit):
    tab = visit()
    wait_for_phone(tab)
    with tab.expect_response("**/api/phone/tap") as answer:
        launch(tab, lambda: tab.click("#apps .app[data-app=Mail]"))
    parts = answer.value.json()["suggestions"][0]["parts"]
    shown = tab.locator("#why .parts .number").all_inner_texts()
    signs = {True: "÷", False: "×"}
    assert [text.split()[0] for text in shown] == [signs[each["part"] < 0] for each in parts]
    assert [float(text.split()[1]) for text in shown] == pytest.approx(
        [np.exp(abs(each["part"])) for each in parts], abs=0.5, rel=0.05
    )


@pytest.mark.parametrize("room", ["phone", "crowd", "log"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen_and_can_be_read(visit, room, scheme):
    tab = visit(room, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    ready = {
        "phone": "#suggestions .app",
        "crowd": "#estimate svg",
        "log": "#drop",
    }[room]
    tab.wait_for_selector(ready, timeout=PATIENCE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.evaluate("document.documentElement.dataset.theme") == scheme
    assert tab.evaluate(CONTRAST) == []
    assert tab.evaluate(OVERLAPS) == []
    if room == "phone":
        tab.fill("#speed", "5")
        tab.click("#play")
        until(tab, "parseInt(document.getElementById('played').textContent) >= 60")
        tab.click("#play")
        launch(tab, lambda: tab.click("#report"))
        tab.wait_for_selector("#reports li")
    if room == "log":
        tab.click("#example")
        tab.wait_for_selector("#portrait .card", timeout=PATIENCE)
    tab.evaluate("scrollTo(0, 0)")  # the header lies over what is scrolled
    tab.wait_for_timeout(300)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.evaluate(CONTRAST) == []
    assert tab.evaluate(OVERLAPS) == []
    if room == "log":
        tab.click("#forget")
        tab.wait_for_selector("#portrait", state="hidden")


CONTRAST = """() => {
  const luminance = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const solid = (c) => c.startsWith("rgb(") ;
  const low = [];
  for (const e of document.querySelectorAll("main h1, main h2, main p, main button, main .label, main .chance, nav a, .foot p, main svg text")) {
    if (!e.checkVisibility() || !e.textContent.trim()) continue;
    let at = e, back = null;
    while (at && !back) { const style = getComputedStyle(at); if (style.backgroundImage !== "none") break; if (solid(style.backgroundColor)) back = style.backgroundColor; at = at.parentElement; }
    if (!back) continue;
    const [a, b] = [luminance(getComputedStyle(e)[e.namespaceURI.endsWith("svg") ? "fill" : "color"]), luminance(back)].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) low.push(e.textContent.trim().slice(0, 40));
  }
  return low;
}"""  # WCAG 2.2, 1.4.3: 4.5 to 1

OVERLAPS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), texts = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || !e.checkVisibility() || e.closest("script, select, pre, .sr, .skip, [transform]")) continue;
    const range = document.createRange();
    let box = e;
    while (box && getComputedStyle(box).overflowX === "visible") box = box.parentElement;
    const inside = box?.getBoundingClientRect();  // what is cut off there cannot be seen
    range.selectNodeContents(node);
    for (const { left, right, top, bottom } of range.getClientRects()) texts.push({ e, node, left, right: Math.min(right, inside?.right ?? right), top, bottom, words: node.textContent.trim().slice(0, 30) });
  }
  const found = texts.filter((a) => a.left < -1 || a.right > innerWidth + 1).map((a) => `cut: ${a.words}`);
  texts.forEach((a, i) => texts.slice(i + 1).forEach((b) => {
    if (a.node === b.node) return;
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5) found.push(`${a.words} | ${b.words}`);
  }));
  return found;
}"""  # of texts on each other, and beyond the screen
