"""A server's process: connections within limits, its log, and its end by a signal.

What one client may ask of a gateway is held in memory and written nowhere. Connections that are
slow or endless are ended before they cost anything.

A connection counts while its TLS handshake still lasts, so that silent ones are seen. An address
(for IPv6 its /64 network) may hold `ServerLimits.address_connections` of them; one client can
therefore not take the room of all others.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nextapp.server.certificates import ServedCertificate
from nextapp.server.operator import Metrics

if TYPE_CHECKING:
    from nextapp.server.federation import Federation
    from nextapp.server.gateway import Gateway

LOG = logging.getLogger("nextapp.gateway")

_NO_FILES_SECONDS = 0.1
_STOPPING_SECONDS = 5.0  # for handshakes that are under way when the server stops
_CERTIFICATE_SECONDS = 60.0  # between two looks at the files of the certificate
_FIRST_INHERITED = 3  # the number of the first file that systemd passes on
_OTHER_FILES = 64  # that are kept free for the vault, checkpoints and the operator


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on clients that are slow, many, loud or hostile. Times are seconds.

    Of ``connections`` an address may hold ``address_connections``, and all IPv6 addresses of a site
    (`site_of`) together ``site_connections``.
    A device may ask for tokens ``device_burst`` times at once and every ``device_seconds`` in the
    long run; an address may send as many wrong enrolment codes by ``address_burst`` and
    ``address_seconds``, and fetch ``download_bytes`` of broadcasts at once and as many a second as
    ``download_rate`` in the long run. An enrolment is valid for ``enrolled_seconds``. All phones
    together may enrol ``enrol_burst`` at once, then one every ``enrol_seconds``.
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
    device_burst: float = 30.0
    device_seconds: float = 2.0
    address_burst: float = 20.0
    address_seconds: float = 10.0
    download_bytes: float = 64e6
    download_rate: float = 4e6
    enrol_burst: float = 500.0
    enrol_seconds: float = 0.02
    enrolled_seconds: float = 365 * 86_400.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"the limit {name} must be a number > 0, got {value!r}.")


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
    connection, for the first one), and its answer taken within `response_seconds` more. ``free``
    is called when the connection has ended; see `Acceptor.seat`.
    """

    class Guarded(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None
        _in_head = True
        _n_head = 0  # bytes that came since the head began
        _n_fields = 0  # bytes of the head as parsed
        _cycles: tuple[Any, ...] = ()  # requests of this connection that are not answered

        def __init__(self, *, free: Callable[[], None], **options: Any) -> None:
            super().__init__(**options)
            self._free = free

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._arm(limits.request_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            for cycle in self._cycles:  # uvicorn tells the latest one only
                cycle.disconnected = True
            super().connection_lost(exc)
            self._free()

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


def inherited_socket() -> socket.socket | None:
    """The socket that systemd holds for this process, if there is one (sd_listen_fds).

    It stays open while the server restarts: phones that come meanwhile wait, and none is refused.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=_FIRST_INHERITED)


def tell_systemd(state: str) -> None:
    """Say how this process is, where systemd has asked (sd_notify)."""
    where = os.environ.get("NOTIFY_SOCKET")
    if where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened, suppress(OSError):
            opened.sendto(state.encode(), where.replace("@", "\0", 1))


async def _watched() -> None:
    """Tell systemd's watchdog that the event loop runs; no thread, those may wait for a disk."""
    limit = os.environ.get("WATCHDOG_USEC")
    while limit:
        tell_systemd("WATCHDOG=1")
        await asyncio.sleep(int(limit) / 2e6)


def open_socket(host: str, port: int) -> socket.socket:
    """A socket at this address, open for connections before anything else is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise ValueError(f"{host} port {port} cannot be listened on: {error.strerror}.") from error
    return opened


def room_for_connections(wanted: int) -> int:
    """How many connections the limit on open files allows, after raising it if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - _OTHER_FILES))


class Acceptor:
    """Takes connections from a socket, each with a seat, and hands them to a protocol.

    Parameters
    ----------
    protocol
        Makes the protocol of a connection, which frees its seat when it has ended.
    trusted
        Addresses of proxies, which hold connections for others: as many as there is room for.
    """

    def __init__(
        self,
        opened: socket.socket,
        protocol: Callable[[Callable[[], None]], asyncio.Protocol],
        limits: ServerLimits,
        metrics: Metrics,
        *,
        certificate: ServedCertificate | None = None,
        trusted: Sequence[str] = (),
    ) -> None:
        self._opened, self._protocol, self._certificate = opened, protocol, certificate
        self._limits, self._metrics = limits, metrics
        self._trusted = frozenset(network_of(host) for host in trusted)
        self._room = room_for_connections(limits.connections)
        self._held: Counter[str] = Counter()
        self._n_open = 0
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        opened.setblocking(False)

    def seat(self, network: str) -> Callable[[], None]:
        """Take the place of a connection; what is returned frees it, once."""
        taken = [network]
        self._count(network, 1)
        return lambda: self._count(taken.pop(), -1) if taken else None

    def _count(self, network: str, n: int) -> None:
        for part in (network, site_of(network)):
            self._held[part] += n
            if not self._held[part]:
                del self._held[part]
        self._n_open += n
        self._metrics.connections.set(self._n_open)

    def start(self) -> None:
        self._accepting = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Take no more; those that wait are left to the next process. Handshakes are finished."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._handshakes:
            await asyncio.wait(self._handshakes, timeout=_STOPPING_SECONDS)
        for task in self._handshakes:
            task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._opened)
            except OSError as error:
                await self._not_accepted(error)
                continue
            network = network_of(address[0]) if address else ""
            why = self.refusal(network)
            if why is not None:
                connection.close()
                self._drop(why)
                continue
            task = loop.create_task(self._connect(connection, self.seat(network)))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def refusal(self, network: str) -> str | None:
        """Why a connection from this network is not taken, or None."""
        if self._n_open >= self._room:
            return "too_many"
        if network in self._trusted:
            return None
        site = site_of(network)
        if self._held[network] >= self._limits.address_connections or (
            site and self._held[site] >= self._limits.site_connections
        ):
            return "too_many_of_one_address"
        return None

    async def _not_accepted(self, error: OSError) -> None:
        """A client that has gone again costs nothing; no free file needs a pause."""
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            self._drop("no_files")
            await asyncio.sleep(_NO_FILES_SECONDS)

    async def _connect(self, connection: socket.socket, free: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._certificate is not None:
            patience = self._limits.handshake_seconds
            tls = {"ssl": self._certificate.context, "ssl_handshake_timeout": patience}
        try:
            await loop.connect_accepted_socket(
                functools.partial(self._protocol, free), connection, **tls
            )
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError and TimeoutError, too
            free()
            connection.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            self._drop("handshake")

    def _drop(self, why: str) -> None:
        self._metrics.dropped.labels(why).inc()
        LOG.warning(f"a connection was refused: {why}")  # each reason has a line of its own


class _Server(uvicorn.Server):
    """uvicorn, stopped by a signal without raising it again: the rest is put away in order.

    ``acceptor`` takes its connections, and is stopped first: whoever comes while the last answers
    are given waits in the socket, for the process that comes next.
    """

    acceptor: Acceptor

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.acceptor.start()
            LOG.info("taking reports")  # from here on a signal ends it in order
            tell_systemd("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        tell_systemd("STOPPING=1")
        await self.acceptor.stop()
        LOG.info("stopping: finishing the requests under way")
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()


class _Beside(uvicorn.Server):
    """Another server in the same process: signals are the first one's."""

    def capture_signals(self) -> Any:
        return nullcontext()


def serve(
    federation: Federation | None,
    gateway: Gateway,
    opened: socket.socket,
    *,
    operator: tuple[Callable[..., Awaitable[None]], socket.socket] | None = None,
    certificate: ServedCertificate | None = None,
    trusted: Sequence[str] = (),
    copies: Path | None = None,
) -> None:
    """Run on a socket until SIGTERM or SIGINT. SIGHUP: take the certificate from its files again.

    Parameters
    ----------
    federation
        None: another process opens and closes the rounds of the gateway's vault.
    operator
        The operator's application, and the socket of its own that it listens on.
    certificate
        For TLS; None: plain HTTP.
    trusted
        Addresses of proxies whose X-Forwarded-For header is believed.
    copies
        A folder that gets every checkpoint.
    """
    config = _config(
        gateway,
        http=limited_protocol(gateway.limits, gateway.metrics),
        timeout_keep_alive=gateway.limits.keep_alive_seconds,
        timeout_graceful_shutdown=10,
        proxy_headers=bool(trusted),
        # On a socket of IPv6, such as systemd's, an address of IPv4 has the second form.
        forwarded_allow_ips=[*trusted, *(f"::ffff:{host}" for host in trusted)],
    )
    config.load()

    async def run() -> None:
        server = _Server(config)

        def protocol(free: Callable[[], None]) -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            return made(  # type: ignore[no-any-return]
                config=config,
                server_state=server.server_state,
                app_state=server.lifespan.state,
                free=free,
            )

        server.acceptor = Acceptor(
            opened, protocol, gateway.limits, gateway.metrics,
            certificate=certificate, trusted=trusted,
        )  # fmt: skip
        running = [_renewing(certificate), _watched()]
        if federation is not None:
            running.append(federation.run(gateway, copies))
        tasks = [asyncio.create_task(each) for each in running]
        if operator is not None:
            app, beside = operator
            config_of_operator = _config(
                app, lifespan="off", proxy_headers=False, limit_concurrency=64
            )
            tasks.append(asyncio.create_task(_Beside(config_of_operator).serve([beside])))
        try:
            await server.serve([])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            opened.close()
            LOG.info("stopped")

    sys.setswitchinterval(0.001)  # the thread that writes must not wait for the event loop
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())


def _config(app: Callable[..., Awaitable[None]], **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        log_level="error",  # what clients do wrong is counted, not logged
        access_log=False,
        server_header=False,
        **more,
    )


async def _renewing(certificate: ServedCertificate | None) -> None:
    """Show a certificate that was renewed to those who connect from then on."""
    hang_up = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up.set)
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(hang_up.wait(), _CERTIFICATE_SECONDS)
        hang_up.clear()
        if certificate is None:
            continue
        try:
            renewed = await asyncio.to_thread(certificate.renew)
        except (OSError, ValueError) as error:
            LOG.warning("the certificate of before is still shown: %s", error)
            continue
        if renewed:
            LOG.info("the certificate was renewed, it is valid until %s", certificate.expires)


# The log: one line an event, with level and UTC, plain or as JSON; floods are held back.
# No line says anything about a client: no address, no token, no report.

Form = Literal["plain", "json"]

QUIET_SECONDS = 30.0
"""The same event is logged once in this time; then how often it came meanwhile."""


def start_log(form: Form = "plain") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(form))
    handler.addFilter(OnceInAWhile())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class OnceInAWhile(logging.Filter):
    """Passes one warning of each wording in `seconds`, whatever its arguments; counts the rest.

    Records below the level of a warning, such as the end of a round, always pass.
    """

    def __init__(
        self, seconds: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._last: dict[tuple[str, str], tuple[float, int]] = {}  # when it came, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key, now = (record.name, str(record.msg)), self._clock()
        before, held_back = self._last.get(key, (-self._seconds, 0))
        if now - before < self._seconds:
            self._last[key] = (before, held_back + 1)
            return False
        self._last[key] = (now, 0)
        if held_back:
            words = record.getMessage()
            record.msg = f"{words} (and {held_back:,} like it since)"
            record.args = ()
        return True


class _Lines(logging.Formatter):
    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        created = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        when, level = created.replace("+00:00", "Z"), record.levelname.lower()
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if self._form == "plain":
            return f"{when} {level:7} {message}"
        return json.dumps({"time": when, "level": level, "part": record.name, "message": message})
