"""The page, served in a thread of the test."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from prometheus_client import Gauge, generate_latest

from nextapp.page.application import Page, ServedPage, open_page
from nextapp.page.crowd_room import CrowdRoom
from nextapp.server.operator import Metrics

DUMPSYS = "user=0\n  Last 24 hour events (timeRange=x)\n" + "".join(
    f'    time="2025-08-{day:02d} {hour:02d}:{minute:02d}:00" type=ACTIVITY_RESUMED'
    f" package=com.example.{app} class=x instanceId=1 flags=0x0\n"
    for day in (4, 5, 6)
    for hour in (8, 12, 19)
    for minute, app in enumerate(("mail", "maps", "chat", "mail", "music", "chat"))
)


@contextmanager
def served(page: Page | None = None) -> Iterator[ServedPage]:
    """A page with a small crowd, running."""
    with open_page(page=page or Page(crowd=CrowdRoom(n_base=500, n_new=10))) as opened:
        thread = threading.Thread(target=opened.run)
        thread.start()
        try:
            end = time.monotonic() + 60
            while not opened.server.started and time.monotonic() < end:
                time.sleep(0.01)
            yield opened
        finally:
            opened.server.should_exit = True
            thread.join(30)


class Visitor:
    """Requests as a browser makes them, or not."""

    def __init__(self, page: ServedPage) -> None:
        self.page = page
        self.origin = f"http://127.0.0.1:{page.port}"
        self.cookie = f"nextapp-{page.port}={page.guard.token}"

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        given: dict[str, str | None] = {"Cookie": self.cookie, "Origin": self.origin, **headers}
        connection = HTTPConnection("127.0.0.1", self.page.port, timeout=300)
        try:
            kept = {name: value for name, value in given.items() if value is not None}
            connection.request(method, path, body, kept)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def post(self, path: str, **body: Any) -> Any:
        status, _, data = self.request("POST", path, json.dumps(body).encode())
        assert status == 200, data
        return json.loads(data)


def metrics_text() -> str:
    """Metrics as a gateway writes them, after some traffic."""
    metrics = Metrics()
    metrics.reports.labels("accepted").inc(120)
    metrics.reports.labels("repeated").inc(3)
    metrics.reports.labels("wrong_round").inc(7)
    metrics.dropped.labels("slow").inc(2)
    metrics.rounds.labels("stepped").inc(4)
    metrics.connections.set(5)
    for _ in range(99):
        metrics.report_seconds.observe(0.004)
    metrics.report_seconds.observe(0.4)
    values = {
        "nextapp_devices": 50,
        "nextapp_waiting_reports": 1,
        "nextapp_round_number": 4,
        "nextapp_round_reports": 20,
        "nextapp_round_goal": 60,
        "nextapp_round_minimum": 30,
        "nextapp_round_opened_seconds": 1000,
        "nextapp_round_deadline_seconds": 1600,
        "nextapp_round_extensions": 2,
    }
    for name, value in values.items():
        Gauge(name, "x", registry=metrics.registry).set(value)
    return generate_latest(metrics.registry).decode()


@contextmanager
def operator_listener() -> Iterator[str]:
    """An operator's listener with these metrics; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            text = metrics_text() if self.path == "/metrics" else '{"status": "ok"}'
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
