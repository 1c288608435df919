"""The server room: what it reads off a gateway's own metrics."""

from __future__ import annotations

import json
from http.client import HTTPConnection

import pytest
from pages import Visitor, metrics_text, operator_listener, served

from nextapp.page.application import Page
from nextapp.page.server_room import ServerWatch, summary


def test_what_is_shown_is_what_the_gateway_counted():
    found = summary(metrics_text(), now=1500.0)
    assert (found["accepted"], found["devices"]) == (120, 50)
    assert found["refused"] == {"wrong_round": 7}
    assert found["dropped"] == {"slow": 2}
    assert found["rounds"]["stepped"] == 4
    assert found["slow_seconds"] == 0.005  # 99 of 100 took 4 ms; bounds are 2.5 and 5 ms
    assert found["round"] == {
        "number": 4,
        "reports": 20,
        "goal": 60,
        "minimum": 30,
        "extensions": 2,
        "left": 100.0,
        "long": 600.0,
    }


@pytest.mark.parametrize("text", ["", "x 1\n", "<html>", "nextapp_devices{} nan"])
def test_other_metrics_are_no_server(text):
    with pytest.raises(ValueError, match="not from nextapp serve"):
        summary(text, 0.0)


@pytest.mark.parametrize(
    "url", ["http://example.org", "http://127.0.0.1.example.org:1", "file:///etc/passwd", "x", ""]
)
def test_only_this_machine_is_watched(url):
    with pytest.raises(ValueError, match="on this machine"):
        ServerWatch(url)


def test_a_server_that_is_not_there_is_said_so():
    look = ServerWatch("http://127.0.0.1:1").look()
    assert "refused" in look["unreachable"].lower()


def test_looks_come_as_server_sent_events():
    with (
        operator_listener() as small_server,
        served(Page(server=ServerWatch(small_server))) as page,
    ):
        visitor = Visitor(page)
        assert json.loads(visitor.request("GET", "/api/about")[2])["server"] == small_server
        connection = HTTPConnection("127.0.0.1", page.port, timeout=30)
        connection.request("GET", "/api/server", headers={"Cookie": visitor.cookie})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        first, blank, second = (answer.readline() for _ in range(3))
        connection.close()
    assert blank == b"\n"
    counts = [len(json.loads(line[len(b"data: ") :])["looks"]) for line in (first, second)]
    assert counts == [1, 2]
    assert json.loads(first[len(b"data: ") :])["looks"][0]["accepted"] == 120
