"""Connections that are slow or endless are ended before they cost anything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nextapp.server.gateway import Metrics
from nextapp.server.limits import Limits

_FIRST_REQUEST_SECONDS = 2.0  # for a client that connected just before the server stops


def _last_words(status: str, error: str, message: str) -> bytes:
    body = json.dumps({"error": error, "message": message})
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}"
    ).encode()


_TOO_SLOW = _last_words("408 Request Timeout", "too_slow", "the request did not arrive in time.")
_LONG_HEAD = _last_words(
    "431 Request Header Fields Too Large", "long_head", "the head of a request is too long."
)
_BAD_HTTP = _last_words("400 Bad Request", "bad_http", "this is not a request of HTTP/1.1.")


def limited_protocol(limits: Limits, metrics: Metrics) -> type[HttpToolsProtocol]:
    """uvicorn's protocol for one connection, within these limits.

    A request must be there, head and body, within `request_seconds` of its first byte (of the
    connection, for the first one), and its answer taken within `response_seconds` more. ``seat``
    is freed when the connection has ended; see `nextapp.server.listening`.
    """

    class Guarded(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None
        _in_head = True
        _n_head = 0  # bytes that came since the head began
        _n_fields = 0  # bytes of the head as parsed
        _cycles: tuple[Any, ...] = ()  # requests of this connection that are not answered

        def __init__(self, *, seat: Any, **options: Any) -> None:
            super().__init__(**options)
            self._seat = seat

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._arm(limits.request_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            for cycle in self._cycles:  # uvicorn tells the latest one only
                cycle.disconnected = True
            super().connection_lost(exc)
            self._seat.free()

        def shutdown(self) -> None:
            """The server stops; a client that has just connected is heard first."""
            if self.cycle is None:
                self.loop.call_later(_FIRST_REQUEST_SECONDS, super().shutdown)
            else:
                super().shutdown()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self._in_head and self._timer is not None:
                self._n_head += len(data)
                if self._n_head > limits.head_bytes:
                    metrics.dropped.add("long_head")
                    self._end(_LONG_HEAD)

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            self._count_field(len(url))

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            self._count_field(len(name) + len(value) + len(": \r\n"))

        def _count_field(self, n: int) -> None:
            """A head that comes in one piece is parsed at once: the parser is stopped in it."""
            self._n_fields += n
            if self._n_fields > limits.head_bytes:
                raise ValueError("the head of a request is too long.")  # the parser's to catch

        def send_400_response(self, msg: str) -> None:
            if self._n_fields > limits.head_bytes:
                metrics.dropped.add("long_head")
                self._end(_LONG_HEAD)
                return
            metrics.dropped.add("bad_http")
            self._end(_BAD_HTTP)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._n_head, self._n_fields = True, 0, 0
            self._arm(limits.request_seconds)

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()
            waiting = (cycle for cycle in self._cycles if not cycle.response_complete)
            self._cycles = (*waiting, self.cycle)

        def on_message_complete(self) -> None:
            super().on_message_complete()
            if self.cycle.response_complete:
                self._disarm()
            else:
                self._arm(limits.response_seconds)

        def on_response_complete(self) -> None:
            if not self.cycle.more_body:
                self._disarm()
            super().on_response_complete()

        def _arm(self, seconds: float) -> None:
            self._disarm()
            self._timer = self.loop.call_later(seconds, self._too_slow)

        def _disarm(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_slow(self) -> None:
            self._timer = None
            metrics.dropped.add("slow")
            if self.cycle is None or self._in_head or not self.cycle.response_started:
                self._end(_TOO_SLOW)
            else:
                self.transport.abort()

        def _end(self, last_words: bytes) -> None:
            self._disarm()
            self.transport.write(last_words)
            self.transport.close()

    return Guarded
