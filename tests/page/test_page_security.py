"""Who may talk to the page. Requests are made by hand, as another program or site would."""

from __future__ import annotations

import json
import random

import pytest
from pages import DUMPSYS, Visitor, served

from nextapp.page.application import open_page


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


def test_the_opened_address_gives_a_cookie_that_scripts_and_other_sites_do_not_get(visitor):
    path = visitor.page.address.removeprefix(visitor.origin)
    status, headers, _ = visitor.request("GET", path, Cookie=None, Origin=None)
    assert (status, headers["location"]) == (303, "/")  # the token leaves the address bar
    assert "HttpOnly" in headers["set-cookie"]
    assert "samesite=strict" in headers["set-cookie"].lower()


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


def test_an_uploaded_file_is_never_written(visitor, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _, _, answer = visitor.request("POST", "/api/log?name=d.txt&zone=UTC", DUMPSYS.encode())
    assert json.loads(answer)["n_launches"] == 54
    phone = visitor.post("/api/phone/new", source="log")
    visitor.post("/api/phone/report", id=phone["id"])
    for file in tmp_path.rglob("*"):  # the privacy budget of the phone, which names no app
        assert file.is_dir() or b"com.example" not in file.read_bytes()


def test_a_port_that_is_taken_says_what_to_do(visitor):
    with pytest.raises(ValueError, match="choose another by --port"), open_page(visitor.page.port):
        pass
