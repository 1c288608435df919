"""Who may talk to the page. Requests are made by hand, as another program or site would."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from pages import DUMPSYS, Visitor, served

from nextapp.data.importers.content import UnreadableLog
from nextapp.page.application import open_page
from nextapp.page.log_room import read_log, upload


@pytest.fixture(scope="module")
def visitor():
    with served() as page:
        yield Visitor(page)


def test_it_listens_on_loopback_only(visitor):
    assert visitor.page._listening.getsockname()[0] == "127.0.0.1"


def test_without_the_token_there_is_nothing_to_see(visitor):
    for path in ("/", "/static/main.js", "/api/about", "/api/log", "/?token=", "/?token=wrong"):
        status, _, body = visitor.request("GET", path, Cookie=None)
        assert status == 403
        assert b"nextapp open" in body
    wrong = f"nextapp-{visitor.page.port}=wrong"
    assert visitor.request("POST", "/api/phone/new", b"{}", Cookie=wrong)[0] == 403


def test_the_file_gives_a_cookie_that_scripts_and_other_sites_do_not_get(visitor):
    address = re.search('url=http://[^/]*([^"]*)', visitor.page.file.read_text())[1]
    for _ in range(2):  # the owner may open it again
        status, headers, body = visitor.request("GET", address, Cookie=None, Origin=None)
        assert (status, b"url=/" in body) == (200, True)  # the token leaves the address bar
        assert "HttpOnly" in headers["set-cookie"]
        assert "samesite=strict" in headers["set-cookie"].lower()


def test_other_users_of_the_machine_read_nothing_that_opens_the_page(visitor, monkeypatch):
    """They can read the command line of the browser, but neither the file nor its folder."""
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    monkeypatch.setenv("DISPLAY", ":0")
    visitor.page.show()
    assert shown == [visitor.page.file.as_uri()]
    assert visitor.page.file.stat().st_mode & 0o777 == 0o600
    assert visitor.page.file.parent.stat().st_mode & 0o777 == 0o700
    assert visitor.page.guard.token not in visitor.page.address  # which is printed


def test_a_ticket_works_once_and_for_seconds(monkeypatch):
    from nextapp.page import security

    for seconds, wanted in ((60.0, [200, 403, 200]), (0.0, [403, 403, 200])):
        monkeypatch.setattr(security, "TICKET_SECONDS", seconds)
        with served() as page:
            visitor = Visitor(page)
            path = page.address.removeprefix(visitor.origin)
            assert visitor.request("GET", path + "x", Cookie=None)[0] == 403
            visits = [visitor.request("GET", path, Cookie=None) for _ in range(2)]
            visits.append(visitor.request("GET", path))  # the owner loads it again
            assert [status for status, _, _ in visits] == wanted
            assert ["set-cookie" in headers for _, headers, _ in visits] == [
                status == 200 for status in wanted
            ]


def test_nothing_in_the_logs_opens_the_page(visitor, caplog, capfd):
    paths = [visitor.page.address.removeprefix(visitor.origin), "/?token=wrong", "/%zz"]
    for path in paths:
        visitor.request("GET", path, Cookie=None)
    with socket.create_connection(("127.0.0.1", visitor.page.port)) as stranger:
        stranger.sendall(b"nonsense\r\n\r\n")
        stranger.recv(1000)
    logged = caplog.text + "".join(capfd.readouterr())
    assert visitor.page.guard.token not in logged
    assert visitor.page.guard.ticket not in logged


@contextmanager
def silent_strangers(port, n, said=b"GET / HTTP/1.1\r\nHost: x\r\n"):
    with ExitStack() as stack:
        strangers = []
        for _ in range(n):
            stranger = socket.create_connection(("127.0.0.1", port), timeout=10)
            stack.enter_context(stranger)
            stranger.sendall(said)
            strangers.append(stranger)
        yield strangers


def is_ended(stranger):
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_that_say_nothing_shut_nobody_out(visitor, monkeypatch):
    from nextapp.page import security

    monkeypatch.setattr(security, "FIRST_REQUEST_SECONDS", 300.0)  # so that only number counts
    with silent_strangers(visitor.page.port, 3 * security.MOST_WAITING) as strangers:
        assert visitor.request("GET", "/api/about")[0] == 200
        assert all(is_ended(stranger) for stranger in strangers[: 2 * security.MOST_WAITING - 1])


def test_a_request_comes_soon_and_is_short_or_its_connection_ends(visitor, monkeypatch):
    from nextapp.page import security

    monkeypatch.setattr(security, "FIRST_REQUEST_SECONDS", 300.0)
    with silent_strangers(visitor.page.port, 1, b"GET / HTTP/1.1\r\nx: ") as (stranger,):
        with suppress(ConnectionError):  # an endless head
            for _ in range(1000):
                stranger.sendall(b"x" * security.MOST_HEAD)
        assert is_ended(stranger)
    monkeypatch.setattr(security, "FIRST_REQUEST_SECONDS", 0.2)
    with silent_strangers(visitor.page.port, 5) as strangers:
        assert all(is_ended(stranger) for stranger in strangers)


def test_strangers_hold_no_connection_open(visitor):
    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % visitor.page.port
    upload = b"POST /api/log HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 99999\r\n\r\nx"
    for said in (request, upload % visitor.page.port):
        with silent_strangers(visitor.page.port, 1, said) as (stranger,):
            answer = stranger.makefile("rb").read()  # until the connection ends
        assert answer.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.evil.example:1", ""]
)
def test_a_foreign_name_that_resolves_here_is_refused(visitor, host):
    assert visitor.request("GET", "/", Host=host)[0] in (400, 421)


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1"])
def test_other_origins_cannot_change_anything(visitor, origin):
    assert visitor.request("POST", "/api/phone/new", b"{}", Origin=origin)[0] == 403
    assert visitor.request("POST", "/api/log", DUMPSYS.encode(), Origin=origin)[0] == 403


def test_requests_that_other_sites_cause_are_refused(visitor):
    for site in ("cross-site", "same-site"):
        assert visitor.request("GET", "/api/about", **{"Sec-Fetch-Site": site})[0] == 403
    assert visitor.request("GET", "/api/about", **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert visitor.request("OPTIONS", "/api/about")[0] == 405
    assert visitor.request("PUT", "/api/log", b"x")[0] == 405


def test_the_policy_allows_this_server_and_nothing_inline(visitor):
    for path in ("/", "/static/style.css", "/api/about", "/nothing"):
        _, headers, body = visitor.request("GET", path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "http:" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        if path == "/":
            assert b"<script>" not in body
            assert b"style=" not in body
            assert b" onclick" not in body


def test_the_icon_is_also_where_browsers_look_by_themselves(visitor):
    answers = [visitor.request("GET", path) for path in ("/favicon.ico", "/static/favicon.svg")]
    assert [(status, headers["content-type"]) for status, headers, _ in answers] == 2 * [
        (200, "image/svg+xml")
    ]
    assert answers[0][2] == answers[1][2]


def test_only_the_files_of_the_page_are_served(visitor):
    for path in ("/static/../application.py", "/static/%2e%2e/application.py", "/static/x.py",
                 "/application.py", "/static/", "/static/..%2f..%2fphone%2fphone.py"):  # fmt: skip
        assert visitor.request("GET", path)[0] in (404, 400)


def test_nonsense_is_answered_in_words(visitor):
    rng = random.Random(0)
    paths = ("new", "tap", "wait", "play", "report")
    values = [None, -1, 1e308, "x" * 500, [], {}, True, float("nan"), "\ud800", 10**30]
    for _ in range(150):
        body = {rng.choice(["id", "app", "n", "hours", "number", "source"]): rng.choice(values)}
        answer = visitor.post(f"/api/phone/{rng.choice(paths)}", **body)
        assert isinstance(answer, dict)
    for body in (b"", b"[", b"[1]", b"\xff", b"[" * 60_000, b" " * 100_000):
        for path in ("/api/phone/tap", "/api/crowd"):
            status, _, data = visitor.request("POST", path, body)
            assert status == 200
            assert json.loads(data)["error"]
    for phones, epsilon in ((0, 1.0), (100, 0.0), (100, float("inf")), ("x", 1)):
        assert visitor.post("/api/crowd", phones=phones, epsilon=epsilon)["error"]


def test_hostile_files_are_answered_in_words(visitor):
    for data in (b"", b"\0" * 100_000, b"[" * 100_000, b"SQLite format 3\0" + b"\xff" * 5_000,
                 b"timestamp,app_name\nx,y\n", b"timestamp,app_name\n1e400,y\n", b"<html>",
                 b"timestamp,app_name\n" + b"\xff" * 1_000, b'{"buckets": 1}'):  # fmt: skip
        status, _, answer = visitor.request("POST", "/api/log?name=x", data)
        assert status == 200
        assert json.loads(answer)["error"]


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(visitor, monkeypatch):
    from nextapp.page import log_room

    monkeypatch.setattr(log_room, "MOST_BYTES", 1 << 20)
    _, _, answer = visitor.request("POST", "/api/log?name=x", b"x" * ((1 << 20) + 1))
    assert "up to 1 MiB" in json.loads(answer)["error"]


def zipped(mib, beginning=b"timestamp,app_name\n", repeated=b"1,a\n"):
    """A gzip file of some kB that is much larger unpacked."""
    return gzip.compress(beginning + repeated * ((mib << 20) // len(repeated)), 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (zipped(200, repeated=b"\0" * 1024), "up to 64 MiB"),
        (zipped(60), "up to 500,000 lines"),
        (zipped(60, repeated=b"\n"), "up to 500,000 lines"),
        (zipped(60, b"[", b"[],"), "up to 3,000,000 fields"),
        (zipped(60, b"[", b'{"a":0},'), "up to 3,000,000 fields"),
    ],
    ids=["bytes", "rows", "empty lines", "lists", "objects"],
)
def test_an_upload_costs_little_whatever_it_unpacks_to(data, words):
    begun = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableLog, match=words):
            read_log(upload(data, "x"))
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - begun < 10


def test_a_database_that_names_a_long_text_in_many_rows_costs_little(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE events (timestamp INT, type INT, package_id INT)")
        database.execute("CREATE TABLE packages (_id INTEGER PRIMARY KEY, package_name)")
        texts = [(1, "x" * 900_000), (2, b"x" * 900_000)]
        database.executemany("INSERT INTO packages VALUES (?, ?)", texts)
        rows = [(1_700_000_000_000 + 9_000 * i, 1, 1 + i % 2) for i in range(2_000)]
        database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        database.commit()
    data = gzip.compress((tmp_path / "x.db").read_bytes())
    tracemalloc.start()
    try:
        log = read_log(upload(data, "x"), "UTC")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert {app for app, _ in log.launches} == {"x" * 255}


def test_an_uploaded_file_is_never_written(visitor, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _, _, answer = visitor.request("POST", "/api/log?name=d.txt&zone=UTC", DUMPSYS.encode())
    assert json.loads(answer)["n_launches"] == 54
    phone = visitor.post("/api/phone/new", source="log")
    visitor.post("/api/phone/report", id=phone["id"])
    for file in tmp_path.rglob("*"):  # the privacy budget of the phone, which names no app
        assert file.is_dir() or b"com.example" not in file.read_bytes()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_page_leaves_no_file(tmp_path, ending):
    code = "import sys; sys.argv[0] = 'nextapp'; from nextapp.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "open", "--no-browser"], text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    said = "".join(process.stdout.readline() for _ in range(4))
    with socket.create_connection(
        ("127.0.0.1", int(re.search(r"127.0.0.1:(\d+)", said)[1]))
    ) as tab:
        tab.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert tab.recv(1)  # it serves
    process.send_signal(ending)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1], errors) == (0, "stopped.", "")
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_says_what_to_do(visitor):
    with pytest.raises(ValueError, match="choose another by --port"), open_page(visitor.page.port):
        pass
