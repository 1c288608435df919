"""The page, served in a thread of the test."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from nextapp.page.application import Page, ServedPage, open_page
from nextapp.page.crowd_room import CrowdRoom

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
