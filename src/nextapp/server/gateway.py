"""The gateway: broadcasts down, reports up, over HTTP. The protocol is in docs/protocol.md.

It has two halves that share nothing but the vault. Issuing knows the phone: `/v1/enrol` takes a
code and gives a secret, `/v1/tokens` signs what the phone has blinded. Collecting does not: a
report comes with a token, is checked, stored durably and only then acknowledged. A client's address
is used to answer and never written to a log.
"""

from __future__ import annotations

import asyncio
import binascii
import gzip
import json
import logging
import math
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from nextapp.privacy import requested_mechanism
from nextapp.privacy.tokens import (
    BadSignature,
    Token,
    from_base64,
    public_key,
    to_base64,
)
from nextapp.server.database import VaultError
from nextapp.server.issuing import BadCode, NotIssued
from nextapp.server.listening import Allowance, ServerLimits, network_of
from nextapp.server.operator import Metrics
from nextapp.server.vault import Full, GroupCommit, Outcome, Round, Submission, Vault
from nextapp.wire import MOST_TOKENS, Broadcast, Report, WireError, WrongSize, digest_of

LOG = logging.getLogger("nextapp.gateway")

_OPENAPI = Path(__file__).with_name("openapi.json")
_FOLLOW_SECONDS = 0.25
_REFUSED_SECONDS = 10.0
_ORDER_SECONDS = 3600.0
"""The file and its log keep the order of what was written for no longer: less than the hours that
lie between a phone's tokens and its report, so that a copy of the disk does not link the two."""

_DIGESTS_A_PAGE = 512  # 45 kB at most: what phones take of any answer but a broadcast
_LARGEST_CODE = 4096  # bytes of a request to enrol
_LARGEST_ASK = 512 + 350 * MOST_TOKENS  # bytes of a request for tokens
_PART_BYTES = 64 << 10  # of a long answer
_SHORT_REPORT = 1024  # bytes that are read of any report, to say what is wrong with another kind
_BEARER = re.compile("[Bb]earer ([a-z0-9]{1,16}[.][A-Za-z0-9_-]{43})")
_TOKEN = re.compile("[Tt]oken ([A-Za-z0-9_.-]{1,600})")
Endpoint = Callable[[Request], Awaitable[Response]]


class Refusal(Exception):
    """An answer other than what was asked for; `code` is for programs, the message for people."""

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry_after is None else {"retry-after": str(math.ceil(retry_after))}
        if status == 401:
            self.headers["www-authenticate"] = "Bearer" if code == "unknown_secret" else "Token"

    def response(self) -> Response:
        words = {"error": self.code, "message": self.message}
        return JSONResponse(words, self.status, self.headers)


async def _parts(body: bytes) -> AsyncIterator[bytes]:
    """An answer in parts, each sent when the client has taken those before it.

    Sent at once it would lie in memory, once for every client that does not read.
    """
    for start in range(0, len(body), _PART_BYTES):
        yield body[start : start + _PART_BYTES]


class PublishedRound:
    """The broadcast of a round as phones fetch it, and the mechanism and keys they report by.

    ``state`` is the round as it was in the vault a moment ago.
    """

    def __init__(self, round: Round, body: bytes, region: str) -> None:
        broadcast = Broadcast.from_bytes(body)
        mechanism = requested_mechanism(broadcast)
        self.state, self.round, self.body = round, broadcast.round, body
        self.zipped = gzip.compress(body, 6, mtime=0)
        self.digest = digest_of(body)
        self.mechanism = mechanism
        longest = len(Report(mechanism.name, 0, bytes(mechanism.payload_bytes)).to_bytes())
        self.report_bytes = max(_SHORT_REPORT, longest)
        self.keys = {key.id: public_key(key) for key in broadcast.keys if key.region == region}


class Gateway:
    """An ASGI application over one vault. It follows the vault, whoever publishes rounds there.

    ``one_of_many``: other gateways open the same rounds, some earlier, and a phone may have fetched
    its broadcast from one of those. It is then asked to come back.

    ``issues_only``: for a process beside another one on the same vault, so that whoever knows the
    phones need not be whoever sees the reports.
    """

    def __init__(
        self,
        vault: Vault,
        limits: ServerLimits | None = None,
        clock: Callable[[], float] = time.time,
        *,
        one_of_many: bool = False,
        issues_only: bool = False,
    ) -> None:
        self.vault = vault
        self.limits = limits or ServerLimits()
        self.metrics = Metrics()
        self._clock = clock
        self._one_of_many = one_of_many
        self._published: PublishedRound | None = None
        self._commits: GroupCommit | None = None
        self._asking = Allowance(self.limits.device_burst, self.limits.device_seconds)
        self._downloads = Allowance(self.limits.download_bytes, 1.0 / self.limits.download_rate)
        self._draining, self._asked_until = False, math.inf
        self._refused: tuple[float, str] | None = None  # the last report, if the disk refused it
        self._enrolments = Allowance(self.limits.enrol_burst, self.limits.enrol_seconds)
        self._wrong_codes = Allowance(self.limits.address_burst, self.limits.address_seconds)
        issuing = [
            Route("/v1/enrol", self._counted("enrol", self._enrol), methods=["POST"]),
            Route("/v1/tokens", self._counted("tokens", self._issue), methods=["POST"]),
        ]
        collecting = [
            Route("/v1/broadcast", self._counted("broadcast", self._broadcast)),
            Route("/v1/digest", self._counted("digest", self._digest)),
            Route("/v1/digests", self._counted("digests", self._digests)),
            Route("/v1/report", self._report_is_posted, methods=["POST"]),
            Route("/openapi.json", self._openapi),
        ]
        self._collects = not issues_only
        self._routes = Starlette(
            routes=issuing if issues_only else issuing + collecting,
            exception_handlers={HTTPException: _http_error},
            lifespan=lambda _: self.running(),
        )
        self._routes.router.redirect_slashes = False  # a redirect would repeat the client's Host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_report = scope["type"] == "http" and scope["path"] == "/v1/report"
        if self._collects and is_report and scope["method"] == "POST":
            await self._report(scope, receive, send)
        else:
            await self._routes(scope, receive, send)

    def refresh(self) -> None:
        """Follow the vault: hand out its current broadcast from now on, if phones may have it."""
        wishes = self.vault.database.wishes()
        self._draining = bool(wishes.get("drain"))
        self._asked_until = wishes.get("asked_until", math.inf)
        round = self.vault.round()
        if round is None:
            return
        published = self._published
        if published is None or published.round != round.number:
            body = self.vault.broadcast()
            if body is None:
                return
            published = PublishedRound(round, body, self.vault.keys.region)
        published.state = round
        self._published = published

    @property
    def is_open(self) -> bool:
        """Whether phones are asked for reports."""
        with suppress(Refusal):
            return bool(self._open_round())
        return False

    @property
    def _is_cut_off(self) -> bool:
        """Whether the coordinator of several gateways may have gone on without this one."""
        return self._clock() > self._asked_until

    def _open_round(self) -> PublishedRound:
        """The round that phones are asked to report in.

        Where none is open, or it ends, no broadcast is handed out: a phone that drew a report now
        would spend its ε on a round that has closed when the report arrives.
        """
        if self._draining:
            raise _draining()
        published = self._published
        if published is None:
            raise _no_round()
        round = published.state
        if round.asks and not self._is_cut_off:
            return published
        left, grace = round.ends - self._clock(), round.rules.grace
        # Random, or all phones refused during the grace would come back in the same second.
        raise _no_round(left + random.uniform(0.0, grace) if 0 < left <= grace else 0.0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this lasts reports are written, and the vault is followed."""
        self._commits = GroupCommit(self.vault, self.limits.waiting_reports, self._count_commit)
        self.refresh()
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await self._commits.stop()

    async def _follow(self) -> None:
        forgotten = -math.inf
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            try:
                await asyncio.to_thread(self.refresh)
                if time.monotonic() - forgotten > _ORDER_SECONDS:
                    await asyncio.to_thread(self.vault.forget_order)
                    forgotten = time.monotonic()
                await asyncio.to_thread(self.vault.database.tidy)
            except (VaultError, ValueError) as error:
                self.metrics.storage.labels("refresh").inc()
                LOG.warning("phones still get the broadcast of before: %s", error)

    def _count_commit(self, n_reports: int, seconds: float) -> None:
        self.metrics.commit_reports.observe(n_reports)
        self.metrics.commit_seconds.observe(seconds)

    # Reports, the hot path: no framework between the socket and the vault

    async def _report(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        try:
            outcome = await self._take(dict(scope["headers"]), receive)
            reason, response = outcome.value, _ANSWERS[outcome]
        except Refusal as refusal:
            reason, response = refusal.code, refusal.response()
        except ClientDisconnect:
            self.metrics.reports.labels("disconnected").inc()
            return
        self.metrics.reports.labels(reason).inc()
        if response.status_code in (200, 201):
            self.metrics.report_seconds.observe(time.perf_counter() - start)
        await response(scope, receive, send)

    async def _take(self, headers: Mapping[bytes, bytes], receive: Receive) -> Outcome:
        """Store a report: what became of it."""
        published, commits = self._published, self._commits
        if published is None or commits is None:
            raise _no_round()
        if self._draining:
            raise _draining()
        body = await read_body(headers, receive, published.report_bytes)
        token = _token_in(headers.get(b"authorization", b""), published)
        report = self._check_report(published, body, token)
        try:
            outcome = await commits.submit(Submission(token, report.round, report.payload))
        except Full:
            raise Refusal(
                503, "busy", "too many reports wait for the disk: send the same bytes again later.",
                5,
            ) from None  # fmt: skip
        except VaultError as error:
            self._refused = (time.monotonic(), str(error))
            raise self._storage("report", error) from error
        self._refused = None
        if outcome is Outcome.NO_ROUND:
            raise _no_round()
        return outcome

    def _check_report(self, published: PublishedRound, body: bytes, token: Token) -> Report:
        """A report for the current round, with the coins of its token.

        A report for an earlier round passes: the vault knows whether it was counted.
        """
        try:
            report = Report.from_bytes(body)
        except WireError as error:
            raise Refusal(400, "bad_report", str(error)) from error
        if report.round < published.round:
            return report
        if self._one_of_many and report.round > published.round:
            raise Refusal(503, "no_round", f"round {report.round} is not open here yet.", 10)
        if report.round > published.round:
            raise Refusal(
                400, "wrong_round",
                f"the report is for round {report.round}, the current round is {published.round}.",
            )  # fmt: skip
        if report.mechanism != published.mechanism.name:
            raise Refusal(
                400, "wrong_mechanism",
                f"round {published.round} takes reports of {published.mechanism.name!r}, got one "
                f"of {report.mechanism!r}.",
            )  # fmt: skip
        try:
            published.mechanism.check(report)
        except WrongSize as error:
            raise Refusal(400, "wrong_size", str(error)) from error
        except WireError as error:
            raise Refusal(400, "out_of_range", str(error)) from error
        if not published.mechanism.matches_coins(report, token.coins):
            raise Refusal(
                400, "wrong_coins",
                f"the seed or positions of a {report.mechanism} report are not the phone's to "
                f"choose: draw them with the coins of its token.",
            )  # fmt: skip
        return report

    async def _report_is_posted(self, request: Request) -> Response:
        raise HTTPException(405)  # reached by other methods only, which the router refuses

    # Issuing

    async def _enrol(self, request: Request) -> Response:
        """Trade a code for a secret.

        Wrong codes are limited by address, right codes for all phones together.
        """
        now, devices = self._clock(), self.vault.devices
        try:
            body = await read_body(dict(request.scope["headers"]), request.receive, _LARGEST_CODE)
            code = _code_in(body)
            await asyncio.to_thread(devices.check_code, code, now)
            wait = self._enrolments.take("all", now)
            if not wait:
                valid = self.limits.enrolled_seconds
                secret = await asyncio.to_thread(devices.enrol, code, now, valid)
                return JSONResponse({"secret": secret}, 201, {"cache-control": "no-store"})
        except (BadCode, Refusal) as error:
            wait = self._wrong_codes.take(_asking_network(request), now)
            if wait:
                raise Refusal(
                    429, "too_many_requests", "too many wrong codes came from this address.", wait
                ) from error
            if isinstance(error, Refusal):
                raise
            raise Refusal(403, "bad_code", str(error)) from error
        raise Refusal(503, "busy", "too many phones enrol at once: come back later.", wait)

    async def _issue(self, request: Request) -> Response:
        """Sign the tokens of a device, unseen; see `Devices.issue`."""
        match = _BEARER.fullmatch(request.headers.get("authorization", ""))
        secret, now = match[1] if match else "", self._clock()
        wait = self._asking.take(secret, now) if secret else 0.0
        if wait:
            raise Refusal(
                429, "too_many_requests", "this device asks too often: wait, then ask again.", wait
            )
        body = await read_body(dict(request.scope["headers"]), request.receive, _LARGEST_ASK)
        key, blinded = _ask_in(body)
        try:
            signed = await asyncio.to_thread(self.vault.devices.issue, secret, key, blinded, now)
        except NotIssued as error:
            status = 401 if error.code == "unknown_secret" else 409
            raise Refusal(status, error.code, str(error)) from error
        except BadSignature as error:
            raise Refusal(400, "bad_request", str(error)) from error
        words = {"signatures": [to_base64(each) for each in signed]}
        return JSONResponse(words, 200, {"cache-control": "no-store"})

    # What all phones get

    async def _broadcast(self, request: Request) -> Response:
        published = self._open_round()
        etag = f'"{published.digest}"'
        headers = {
            "etag": etag,
            "nextapp-round": str(published.round),
            "cache-control": "public, no-cache",
            "vary": "accept-encoding",
        }
        if _matches(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        zipped = _accepts_gzip(request)
        body = published.zipped if zipped else published.body
        self._count_download(request, len(body))
        if zipped:
            headers["content-encoding"] = "gzip"
        headers["content-length"] = str(len(body))
        return StreamingResponse(_parts(body), 200, headers, "application/octet-stream")

    async def _digest(self, request: Request) -> Response:
        """Round and digest of the current broadcast: small, and never from a cache."""
        published = self._open_round()
        return JSONResponse(
            {"round": published.round, "sha256": published.digest, "n_bytes": len(published.body)},
            headers={"cache-control": "no-store"},
        )

    async def _digests(self, request: Request) -> Response:
        """A page of the broadcasts that were handed out here, from a round on."""
        first = request.query_params.get("from", "0")
        if not (first.isascii() and first.isdigit() and len(first) <= 16):
            raise Refusal(400, "bad_request", "from must be the number of a round, such as 0.")
        page = await asyncio.to_thread(self.vault.digests, int(first), _DIGESTS_A_PAGE)
        whole = len(page) == _DIGESTS_A_PAGE  # nothing will ever be added to it
        headers = {
            "cache-control": "public, max-age=31536000, immutable" if whole else "no-cache",
            "vary": "accept-encoding",
        }
        body = json.dumps({"digests": page}).encode()
        self._count_download(request, len(body))
        if _accepts_gzip(request):
            body = await asyncio.to_thread(gzip.compress, body, 6, mtime=0)
            headers["content-encoding"] = "gzip"
        return Response(body, 200, headers, "application/json")

    def _count_download(self, request: Request, n_bytes: int) -> None:
        wait = self._downloads.take(_asking_network(request), self._clock(), n_bytes)
        if wait:
            raise Refusal(
                429, "too_many_requests", "this address has fetched too much in a short time.", wait
            )

    def why_not_ready(self) -> str | None:
        """Why no report can be taken now, or None: shown by the last report, or by a probe."""
        round = self._published and self._published.state
        for is_so, words in (
            (round is None, "no round has been published here yet"),
            (round and round.closed, "the last round has closed and the next one is not open yet"),
            (self._draining, "the operator has asked for no more reports"),
            (self._is_cut_off, "the coordinator has not asked in time: it may go on without this"),
        ):
            if is_so:
                return words
        refused = self._refused
        if refused is not None and time.monotonic() - refused[0] < _REFUSED_SECONDS:
            return f"the disk takes no report: {refused[1]}"
        try:
            self.vault.probe()
        except VaultError as error:
            self._storage("probe", error)
            return f"the disk takes no report: {error}"
        return None

    @property
    def n_waiting(self) -> int:
        return self._commits.n_waiting if self._commits else 0

    async def _openapi(self, request: Request) -> Response:
        return Response(_OPENAPI.read_bytes(), media_type="application/json")

    def _storage(self, where: str, error: object) -> Refusal:
        self.metrics.storage.labels(where).inc()
        LOG.warning("storage: %s", error)
        return Refusal(
            503, "storage", "the server cannot use its disk now: send the same again later.", 10
        )

    def _counted(self, route: str, endpoint: Endpoint) -> Endpoint:
        """The endpoint, with refusals turned into answers and every answer counted."""

        async def answered(request: Request) -> Response:
            try:
                try:
                    response = await endpoint(request)
                    code = str(response.status_code)
                except VaultError as error:
                    raise self._storage(route, error) from error
            except Refusal as refusal:
                response, code = refusal.response(), refusal.code
            except ClientDisconnect:
                response, code = Response(status_code=400), "disconnected"  # to nobody
            self.metrics.requests.labels(route, code).inc()
            return response

        return answered


_ANSWERS = {
    Outcome.ACCEPTED: JSONResponse({"status": "accepted"}, 201),
    Outcome.REPEATED: JSONResponse({"status": "repeated"}, 200),
    Outcome.ALREADY_SPENT: Refusal(
        409, "already_spent", "this token came with other bytes before; those count."
    ).response(),
    Outcome.ROUND_CLOSED: Refusal(
        410,
        "round_closed",
        "the round has closed: fetch the next broadcast; this report counts no more.",
    ).response(),
}


def _draining() -> Refusal:
    return Refusal(503, "draining", "this server takes no reports now: send the same later.", 60)


def _token_in(authorization: bytes, published: PublishedRound) -> Token:
    """The token that came with a report, by a key of the current broadcast."""
    match = _TOKEN.fullmatch(authorization.decode("latin-1"))
    try:
        token = Token.from_text(match[1] if match else "")
        key = published.keys.get(token.key)
        if key is not None:
            token.check(key)
    except BadSignature as error:
        raise Refusal(
            401,
            "bad_token",
            f"a report needs 'Authorization: Token TOKEN' that was signed: {error}",
        ) from error
    if key is None:
        raise Refusal(
            401, "unknown_key",
            f"the key {token.key} is not listed here: it has retired, or is another region's.",
        )  # fmt: skip
    return token


def _matches(if_none_match: str | None, etag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag in tags


def _accepts_gzip(request: Request) -> bool:
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        if coding == "gzip":
            return not any(re.fullmatch(r"q=0(\.0*)?", word) for word in parameters)
    return False


def _no_round(seconds: float = 0.0) -> Refusal:
    """``seconds`` that a phone shall wait, and a few for the next round to open."""
    words = "no round is open here now: keep your report and come back later."
    return Refusal(503, "no_round", words, 10 + seconds)


def _asking_network(request: Request) -> str:
    return network_of(request.client.host) if request.client else ""


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
    """The body of a request; refused where it has more than `most` bytes."""
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    parts, n = [], 0
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        n += len(part)
        if n > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"the body may have {most} bytes here.")


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router refuses, as JSON like every other error."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "error")
    words = {
        404: "there is nothing at this path; /openapi.json lists what there is.",
        405: f"this path takes {headers.get('Allow', 'another method')}.",
    }.get(status, "the request could not be answered.")
    return JSONResponse({"error": code, "message": words}, status, headers)


def _ask_in(body: bytes) -> tuple[str, list[bytes]]:
    """The key and the blinded numbers of a request for tokens."""
    try:
        values = json.loads(body)
        key, blinded = values["key"], [from_base64(each) for each in values["blinded"]]
        if isinstance(key, str) and key.isascii() and 1 <= len(blinded) <= MOST_TOKENS:
            return key, blinded
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, binascii.Error):
        pass
    raise Refusal(400, "bad_request", 'the body must be JSON like {"key": "…", "blinded": ["…"]}.')


def _code_in(body: bytes) -> str:
    try:
        code = json.loads(body)["code"]
        if isinstance(code, str) and code.isascii() and 0 < len(code) <= 100:
            return code
    except (ValueError, RecursionError, KeyError, TypeError):
        pass
    raise Refusal(400, "bad_request", 'the body must be JSON like {"code": "ABCD-EFGH-JKLM-NPQR"}.')
