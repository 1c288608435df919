"""Serve the page on loopback."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from nextapp.data.importers import Content
from nextapp.page import log_room
from nextapp.page.application import Page
from nextapp.page.log_room import PersonLog
from nextapp.page.security import Guard

HOST = "127.0.0.1"


def read_log_file(path: Path, zone: str | None, user: str | None) -> PersonLog:
    """The log of one person in a file."""
    return log_room.read_log(Content.of_file(path).data, path.name, zone, user)


class ServedPage:
    """The page, bound to a port."""

    def __init__(self, listening: socket.socket, page: Page) -> None:
        self._listening = listening
        self.port: int = listening.getsockname()[1]
        self.guard = Guard(page.application(), self.port)
        config = uvicorn.Config(
            self.guard,
            log_level="warning",
            ws="none",
            access_log=False,
            server_header=False,
            limit_concurrency=64,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
        )
        self.server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self.guard.token}"

    def show(self) -> None:
        """Open the browser, if there is a screen."""
        has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if has_screen or sys.platform in ("darwin", "win32"):
            webbrowser.open(self.address)

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self.server.run(sockets=[self._listening])


@contextmanager
def open_page(port: int = 0, page: Page | None = None) -> Iterator[ServedPage]:
    """The page on a port of loopback; 0 means any free port."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise ValueError(
                f"port {port} of {HOST} cannot be used ({error.strerror}): choose another by "
                f"--port; 0 takes a free one."
            ) from None
        listening.listen(64)  # a browser that connects before the server is ready waits
        yield ServedPage(listening, page or Page())
    finally:
        listening.close()
