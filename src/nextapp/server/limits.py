"""What one client may ask of a gateway. All of it is held in memory and written nowhere.

Connections that are slow or endless are ended before they cost anything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nextapp.server.operator import Metrics


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on clients that are slow, many, loud or hostile. Times are seconds.

    Of ``connections`` an address may hold ``address_connections``, and all IPv6 addresses of a site
    (`site_of`) together ``site_connections``.
    A device may send ``token_burst`` requests at once and one every ``token_seconds`` in the long
    run; an address may send as many wrong enrolment codes by ``address_burst`` and
    ``address_seconds``, and fetch ``download_bytes`` of broadcasts at once and as many a second as
    ``download_rate`` in the long run. A token is valid for ``token_valid_seconds``, and devices are
    asked to renew it in the last quarter of that. All phones together may enrol ``enrol_burst`` at
    once, then one every ``enrol_seconds``.
    """

    connections: int = 4096
    address_connections: int = 256
    site_connections: int = 1024
    handshake_seconds: float = 10.0
    head_bytes: int = 32 << 10
    request_seconds: float = 20.0
    response_seconds: float = 60.0
    keep_alive_seconds: int = 30
    waiting_reports: int = 20_000
    token_burst: float = 30.0
    token_seconds: float = 2.0
    address_burst: float = 20.0
    address_seconds: float = 10.0
    download_bytes: float = 64e6
    download_rate: float = 4e6
    enrol_burst: float = 500.0
    enrol_seconds: float = 0.02
    token_valid_seconds: float = math.inf

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"the limit {name} must be a number > 0, got {value!r}.")

    @property
    def renewal_seconds(self) -> float:
        """How long before it expires a token shall be renewed; 0 for one that never does."""
        return self.token_valid_seconds / 4 if math.isfinite(self.token_valid_seconds) else 0.0


class Allowance:
    """A bucket for each key: `burst` requests at once, refilled by one every `seconds`.

    The keys seen longest ago are forgotten where there are more than `most_keys`.
    """

    def __init__(self, burst: float, seconds: float, most_keys: int = 100_000) -> None:
        self.burst, self.seconds, self.most_keys = burst, seconds, most_keys
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable, now: float, n: float = 1.0) -> float:
        """Take n from the key's bucket: 0.0 if it was there, else the seconds until it is."""
        left, before = self._left.pop(key, (self.burst, now))
        left = min(self.burst, left + max(0.0, now - before) / self.seconds)
        wait = 0.0 if left >= n else (n - left) * self.seconds
        self._left[key] = (left if wait else left - n, now)
        if len(self._left) > self.most_keys:
            self._left.popitem(last=False)
        return wait


def network_of(host: str) -> str:
    """What counts as one address: for IPv6 the /64 that one subscriber has.

    >>> network_of("192.0.2.7"), network_of("2001:db8:0:1:a::7"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:0:1::', '192.0.2.7')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_address(int(address) >> 64 << 64))


def site_of(network: str) -> str:
    """The /48 of an IPv6 network, which is given out for free: 65,536 of what `network_of` counts.

    >>> site_of("2001:db8:0:1::"), site_of("192.0.2.7")
    ('2001:db8::/48', '')
    """
    try:
        address = ipaddress.IPv6Address(network)
    except ValueError:
        return ""
    return f"{ipaddress.IPv6Address(int(address) >> 80 << 80)}/48"


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


def limited_protocol(limits: ServerLimits, metrics: Metrics) -> type[HttpToolsProtocol]:
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
            """The server stops; a client that has just connected is served first."""
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
                    metrics.dropped.labels("long_head").inc()
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
                metrics.dropped.labels("long_head").inc()
                self._end(_LONG_HEAD)
                return
            metrics.dropped.labels("bad_http").inc()
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
            metrics.dropped.labels("slow").inc()
            if self.cycle is None or self._in_head or not self.cycle.response_started:
                self._end(_TOO_SLOW)
            else:
                self.transport.abort()

        def _end(self, last_words: bytes) -> None:
            self._disarm()
            self.transport.write(last_words)
            self.transport.close()

    return Guarded
