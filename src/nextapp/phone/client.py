"""A phone's side of the HTTP protocol (docs/protocol.md), with the standard library only.

Nothing is followed to another address, nothing is sent through a relay that was not named, no
answer is read beyond a limit, and a report is only ever sent again with the same bytes. No string
of a server is ever sent back to it but the secret, and that only with requests for tokens; these
and reports go on connections that carry nothing else.
"""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from os import PathLike
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from nextapp.phone.core import (
    MOST_BYTES,
    BadAnswer,
    Closing,
    NotAsPublished,
    Overloaded,
    Refused,
    ServerError,
    Unreachable,
    Untrusted,
    printable,
)
from nextapp.privacy.tokens import from_base64, to_base64
from nextapp.randomness import SystemBits, below
from nextapp.wire import digest_of, is_digest, is_round

LARGEST_ANSWER = 64 << 10
DIGESTS_FROM = 1024
"""Lists of digests are asked for from a multiple of it on."""
_MOST_PAGES = 64  # of them; as many bytes as a broadcast may have
LONGEST_WAIT = 30.0
"""Seconds a call waits between two attempts; a server that asks for more is asked again later."""

_SECRET = re.compile("[a-z0-9]{1,16}[.][A-Za-z0-9_-]{16,512}")
_CHUNK = 64 << 10
_LONGEST_WAIT = 30 * 86_400.0  # that a server may ask for
_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_NOT_NOW = (408, 425, 429, 500, 502, 503, 504)  # the same request may do later


class PublishedDigest(NamedTuple):
    """Which broadcast is the current one, as the server says."""

    round: int
    digest: str


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, object]:
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    @property
    def reason(self) -> str:
        return str(self.document.get("message") or "no reason given")


class Client(Closing):
    """A server, as one phone sees it.

    Parameters
    ----------
    url
        ``https://host[:port]``. Plain ``http://`` is taken for this machine itself only.
    ca
        A file with the only certificates to trust; None trusts those of the operating system.
    timeout
        Seconds until a connection, or a pause in it, is given up; `patience` is for a whole answer.
    relay
        ``http://host:port`` of a relay (HTTP CONNECT) that hides this phone's address from the
        server; it sees no more than which server is talked to. None goes straight there.
    attempts
        How often a call is made at most while the server is down or overloaded.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | PathLike[str] | None = None,
        timeout: float = 10.0,
        patience: float = 120.0,
        relay: str | None = None,
        attempts: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = _check_url(url)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.server_time: float | None = None
        self._parts = parts
        self._timeout = timeout
        self._patience = patience
        self._attempts = attempts
        self._sleep = sleep
        self._relay = None if relay is None else _relay(relay, parts)
        self._context = _context(ca) if parts.scheme == "https" else None
        self._connection: HTTPConnection | None = None

    def enrol(self, code: str) -> str:
        """Trade the operator's code for a secret, by which this phone asks for tokens.

        Not repeated when the answer is lost: a code is good for one phone.
        """
        with self._connection_of_its_own():
            body = json.dumps({"code": code}).encode()
            answer = self._call("POST", "/v1/enrol", {}, body, good=(201,), once=True)
        secret = answer.document.get("secret")
        if not (isinstance(secret, str) and _SECRET.fullmatch(secret)):
            raise BadAnswer("the server took the code but gave no secret; ask for another code.")
        return secret

    def sign(self, secret: str, key: str, blinded: Sequence[bytes]) -> list[bytes]:
        """The server's answers to what this phone has blinded for a key; the same every time."""
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        body = json.dumps({"key": key, "blinded": [to_base64(each) for each in blinded]}).encode()
        with self._connection_of_its_own():
            listed = self._call("POST", "/v1/tokens", headers, body).document.get("signatures")
        try:
            signed = [from_base64(each) for each in listed]  # type: ignore[attr-defined]
        except (TypeError, ValueError, AttributeError):
            signed = []
        if len(signed) != len(blinded):
            raise BadAnswer("the server does not answer with one signature for each token.")
        return signed

    def current(self, held: str | None = None) -> bytes | None:
        """The bytes of the current broadcast; None where its digest is `held`.

        The requests are the same for every phone: what is held is compared here, not sent.
        """
        with self._connection_of_its_own():
            published = self.published()
            if published.digest == held:
                return None
            data = self.broadcast()
            if digest_of(data) != published.digest:  # a round may have closed in between
                published = self.published()
        if digest_of(data) != published.digest:
            raise NotAsPublished(
                f"the broadcast fetched from {self.url} is not the one whose digest it publishes: "
                f"a stale or changed copy. It was not read."
            )
        return None if published.digest == held else data

    def published(self) -> PublishedDigest:
        """Round and digest of the current broadcast: a small document."""
        document = self._call("GET", "/v1/digest", {}).document
        round_, digest = document.get("round"), document.get("sha256")
        if not (is_round(round_) and is_digest(digest)):
            raise BadAnswer("the server does not say which broadcast is the current one.")
        return PublishedDigest(round_, digest)

    def digests(self, first: int, end: int) -> list[tuple[int, str]]:
        """Rounds and digests of the broadcasts published before `end`, as the server says.

        They begin at `first` or before it: requests start at round multiples, so that many phones
        send the same one, and it says little about the broadcast that this phone has.
        """
        found: list[tuple[int, str]] = []
        start = first - first % DIGESTS_FROM
        with self._connection_of_its_own():
            for _ in range(_MOST_PAGES):
                page = self._page_of_digests(start) if start < end else []
                if not page:
                    break
                found += page
                start = page[-1][0] + 1
        return found

    def _page_of_digests(self, start: int) -> list[tuple[int, str]]:
        answer = self._call("GET", f"/v1/digests?from={start}", {"Accept-Encoding": "gzip"})
        listed = answer.document.get("digests")
        try:
            page = [(round_, digest) for round_, digest in listed]  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            page = [(None, None)]
        if not all(is_round(round_) and is_digest(digest) for round_, digest in page) or (
            page and page[-1][0] < start
        ):
            raise BadAnswer("the server does not say which broadcasts it has published.")
        return page

    def broadcast(self) -> bytes:
        """The current broadcast as it came, not yet read."""
        headers = {"Accept-Encoding": "gzip"}
        return self._call("GET", "/v1/broadcast", headers, limit=MOST_BYTES).body

    def submit(self, report: bytes, token: str) -> None:
        """Send a report; on returning the server has it for good. The same bytes may be sent again.

        Raises `Refused` where it will never be taken, `Unreachable` or `Overloaded` where it may be
        later. It may have arrived then; sending the same bytes again shows that.
        """
        headers = {"Authorization": f"Token {token}", "Content-Type": "application/octet-stream"}
        with self._connection_of_its_own():
            self._call("POST", "/v1/report", headers, report, good=(200, 201))

    @contextmanager
    def _connection_of_its_own(self) -> Iterator[None]:
        """A connection that nothing else was or will be sent on, so that it links nothing."""
        self.close()
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None = None,
        *,
        good: tuple[int, ...] = (200,),
        limit: int = LARGEST_ANSWER,
        once: bool = False,
    ) -> _Answer:
        """One call, repeated while the server is down or overloaded, ever more slowly.

        Any answer but a good one is raised.
        """
        for attempt in range(1, self._attempts + 1):
            pause = 0.5 * 2 ** (attempt - 1) * (0.5 + below(SystemBits(), 1 << 20) / (1 << 20))
            try:
                answer = self._one_call(method, path, headers, body, limit)
                if answer.status in good:
                    return answer
                if answer.status not in _NOT_NOW:
                    raise self._refusal(answer)
                asked = _retry_after(answer.headers.get("retry-after"), self.server_time)
                error: ServerError = Overloaded(
                    f"the server answers {answer.status}: {answer.reason}", asked
                )
                pause = max(pause, asked or 0.0)
            except Unreachable as unreachable:
                error = unreachable
            if once or attempt == self._attempts or pause > LONGEST_WAIT:
                raise error
            self._sleep(pause)
        raise ValueError(f"attempts must be 1 or more, got {self._attempts!r}.")

    def _one_call(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, limit: int
    ) -> _Answer:
        kept = self._connection is not None
        with self._cut_off(), self._network_errors():
            try:
                response = self._answer_to(method, path, headers, body)
            except (OSError, HTTPException):
                if not kept:
                    raise
                self.close()  # the server had closed it
                response = self._answer_to(method, path, headers, body)
            with response:  # or its connection takes no further request
                data = self._read(response, limit)
        found = {name.lower(): value for name, value in response.getheaders()}
        self.server_time = _time(found.get("date"))
        return _Answer(response.status, found, data)

    def _refusal(self, answer: _Answer) -> ServerError:
        if 300 <= answer.status < 400:
            return BadAnswer(
                f"{self.url} points to {answer.headers.get('location', 'nowhere')!r}. A phone "
                f"follows nobody; if that is the right address, set it as the server's."
            )
        if 400 <= answer.status < 500:
            code = str(answer.document.get("error") or f"http_{answer.status}")
            return Refused(answer.status, printable(code)[:64], answer.reason)
        return BadAnswer(f"the server answers {answer.status}, which is not of the protocol.")

    @contextmanager
    def _cut_off(self) -> Iterator[None]:
        """Break the connection off after `patience` seconds, even if the server keeps sending."""
        is_cut = threading.Event()

        def cut() -> None:
            is_cut.set()
            socket_ = getattr(self._connection, "sock", None)
            if socket_ is not None:
                with suppress(OSError):
                    socket_.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._patience, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        if is_cut.is_set():  # what was read may look like a whole answer
            self.close()
            raise Unreachable(f"the answer took longer than {self._patience:g} s.")

    @contextmanager
    def _network_errors(self) -> Iterator[None]:
        """What goes wrong on the way is a `ServerError`, and the connection is given up."""
        try:
            yield
        except ServerError:
            self.close()
            raise
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise Untrusted(
                f"the TLS certificate of {self.url} is not trusted ({error.verify_message}). "
                f"Nothing was sent. If its certificate is your own, name its CA file."
            ) from error
        except (OSError, HTTPException, zlib.error) as error:
            self.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN_OFF):
                raise Untrusted(f"no safe connection to {self.url}: {error}.") from error
            reason = str(error) or type(error).__name__
            way = "" if self._relay is None else " through its relay, {}:{}".format(*self._relay)
            raise Unreachable(f"{self.url} is not reached{way}: {reason}.") from error

    def _answer_to(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> HTTPResponse:
        """Send a request and read the head of what comes back."""
        connection = self._open_connection()
        connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
        return connection.getresponse()

    def _open_connection(self) -> HTTPConnection:
        """To the server, or to the relay with a tunnel to the server, for what TLS then hides."""
        if self._connection is None:
            host, port = self._parts.hostname or "", self._parts.port
            first = self._relay or (host, port)
            if self._context is None:
                made = HTTPConnection(*first, timeout=self._timeout)
            else:
                made = HTTPSConnection(*first, timeout=self._timeout, context=self._context)
            made._create_connection = self._connect  # type: ignore[attr-defined]
            if self._relay is not None:
                made.set_tunnel(host, port or made.default_port)
            self._connection = made
        return self._connection

    def _connect(self, to: tuple[str, int], timeout: float, source: None) -> socket.socket:
        """As `socket.create_connection`, but all addresses of a host share one deadline."""
        deadline = time.monotonic() + self._patience
        error: OSError = TimeoutError("none of its addresses answers")
        for *_, address in socket.getaddrinfo(*to, type=socket.SOCK_STREAM):
            left = min(timeout, deadline - time.monotonic())
            if left <= 0:
                break
            try:
                found = socket.create_connection(address[:2], left, source)  # type: ignore[arg-type]
            except OSError as failed:
                error = failed
            else:
                found.settimeout(timeout)
                return found
        raise error

    def _read(self, response: HTTPResponse, limit: int) -> bytes:
        """The body, unpacked, or an error once it is larger than the limit."""
        packing = response.headers.get("Content-Encoding", "identity").lower()
        if packing not in ("identity", "gzip"):
            raise BadAnswer(f"the answer is packed as {packing!r}, which was not asked for.")
        unpacker = zlib.decompressobj(31) if packing == "gzip" else None
        body = bytearray()
        n_raw = 0
        while chunk := response.read1(_CHUNK):
            n_raw += len(chunk)
            while chunk:
                body += chunk if unpacker is None else unpacker.decompress(chunk, _CHUNK)
                chunk = b"" if unpacker is None else unpacker.unconsumed_tail
                if len(body) > limit or n_raw > limit + _CHUNK:
                    raise BadAnswer(f"the answer is larger than {limit:,} bytes; it was not read.")
            if unpacker is not None and unpacker.unused_data:
                raise BadAnswer("there are bytes after the end of the answer.")
        if unpacker is not None and not unpacker.eof:
            raise Unreachable("the answer was cut short.")
        if response.length:  # what its Content-Length still promises
            raise Unreachable("the answer was cut short.")
        return bytes(body)


def _check_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.scheme not in ("http", "https") or parts.query or parts.username:
        raise ValueError(
            f"a server's address must look like https://host or https://host:port, got {url!r}."
        )
    if parts.scheme == "http" and not _is_here(parts.hostname or ""):
        raise ValueError(
            f"{url!r} is not encrypted: the way would be open to all who see it. Use https; "
            f"plain http is for a server on this machine only."
        )
    return parts


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _context(ca: str | PathLike[str] | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"the CA file {ca} cannot be used: {error}.") from error


def _relay(url: str, server: SplitResult) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise ValueError(f"a relay must look like http://host:port, got {url!r}.")
    if server.scheme == "http" and not _is_here(parts.hostname):
        raise ValueError(
            f"the relay {url!r} could read and change all that a phone and a server without TLS "
            f"say. Use https; plain http is for trying a relay on this machine."
        )
    return parts.hostname, parts.port


def _retry_after(value: str | None, now: float | None) -> float | None:
    """Seconds to wait, from a number of seconds or a date."""
    if value is None:
        return None
    try:
        pause = float(value)
    except ValueError:
        at = _time(value)
        pause = math.nan if at is None else at - (time.time() if now is None else now)
    return min(max(0.0, pause), _LONGEST_WAIT) if math.isfinite(pause) else None


def _time(value: str | None) -> float | None:
    """An HTTP date in seconds since 1970."""
    if value is None:
        return None
    try:
        return parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
