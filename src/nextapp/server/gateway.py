"""The gateway: broadcasts down, reports up, over HTTP. The protocol is in docs/protocol.md.

A report is checked, stored durably and only then acknowledged. What identifies a client, its
address and its token, is used to answer and never written to a log.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from nextapp.privacy import Mechanism, requested
from nextapp.randomness import DeviceCoins
from nextapp.server.commits import Full, GroupCommit
from nextapp.server.limits import Allowance, Limits
from nextapp.server.metrics import Counter, Histogram, gauges
from nextapp.server.openapi import description
from nextapp.server.vault import BadCode, Outcome, Submission, Vault, VaultError
from nextapp.wire import Broadcast, Report, WireError, WrongSize, digest_of

LOG = logging.getLogger("nextapp.gateway")

_FOLLOW_SECONDS = 0.25
_MOST_DIGESTS = 10_000  # that are shown; under a megabyte
_BEARER = re.compile(rb"[Bb]earer ([A-Za-z0-9_-]{43})")
_JSON = (b"content-type", b"application/json")


class Refusal(Exception):
    """An answer other than what was asked for; `code` is for programs, the message for people."""

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry_after is None else {"retry-after": str(math.ceil(retry_after))}
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    def body(self) -> bytes:
        return json.dumps({"error": self.code, "message": self.message}).encode()

    def response(self) -> Response:
        return Response(self.body(), self.status, self.headers, "application/json")


@dataclass(frozen=True, eq=False)
class Handout:
    """The broadcast of a round as phones fetch it, and the mechanism they report by."""

    round: int
    body: bytes
    zipped: bytes
    digest: str
    mechanism: Mechanism
    report_bytes: int

    @classmethod
    def of(cls, body: bytes, body_bytes: int) -> Handout:
        broadcast = Broadcast.from_bytes(body)
        mechanism = requested(broadcast)
        if not mechanism.finite_output:
            raise ValueError(
                f"a gateway takes no reports of {mechanism.name}: real numbers give away more than "
                f"their ε. Ask for a mechanism with finite_output, such as 'codebook'."
            )
        return cls(
            broadcast.round,
            body,
            gzip.compress(body, 6, mtime=0),
            digest_of(body),
            mechanism,
            max(body_bytes, mechanism.D // 4 + 1024),
        )


class Gateway:
    """An ASGI application over one vault. It follows the vault, whoever publishes rounds there."""

    def __init__(
        self,
        vault: Vault,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.vault = vault
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self._clock = clock
        self._handout: Handout | None = None
        self._commits: GroupCommit | None = None
        self._tokens = Allowance(self.limits.token_burst, self.limits.token_seconds)
        self._addresses = Allowance(self.limits.address_burst, self.limits.address_seconds)
        self._routes = Starlette(
            routes=[
                Route("/v1/enrol", self._counted("enrol", self._enrol), methods=["POST"]),
                Route("/v1/broadcast", self._counted("broadcast", self._broadcast)),
                Route("/v1/digest", self._counted("digest", self._digest)),
                Route("/v1/digests", self._counted("digests", self._digests)),
                Route("/v1/report", self._report_is_posted, methods=["POST"]),
                Route("/v1/round", self._counted("round", self._round)),
                Route("/v1/health", self._counted("health", self._health)),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._openapi),
            ],
            exception_handlers={HTTPException: _as_json},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/v1/report" and scope["method"] == "POST":
            await self._report(scope, receive, send)
        else:
            await self._routes(scope, receive, send)

    def refresh(self) -> None:
        """Hand out the vault's current broadcast from now on."""
        round = self.vault.round()
        if round is None or (self._handout is not None and self._handout.round == round.number):
            return
        published = self.vault.published()
        if published is not None:
            self._handout = Handout.of(published.broadcast, self.limits.body_bytes)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> Any:
        del app
        self._commits = GroupCommit(
            self.vault, self.limits.waiting_reports, self.metrics.observe_commit
        )
        self.refresh()
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.to_thread(self._commits.stop)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            try:
                await asyncio.to_thread(self.refresh)
                await asyncio.to_thread(self.vault.tidy)
            except (VaultError, ValueError) as error:
                self.metrics.storage.add("refresh")
                LOG.warning("the broadcast at hand is handed out further: %s", error)

    # Reports, the hot path: no framework between the socket and the vault

    async def _report(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        extra: Mapping[str, str] = {}
        try:
            outcome = await self._taken(headers, receive)
            reason, (status, body) = outcome.value, _ANSWERS[outcome]
        except Refusal as refusal:
            reason, status, body = refusal.code, refusal.status, refusal.body()
            extra = refusal.headers
        except ClientDisconnect:
            self.metrics.reports.add("disconnected")
            return
        self.metrics.reports.add(reason)
        if status in (200, 201):
            self.metrics.report_seconds.add(time.perf_counter() - start)
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    _JSON,
                    (b"content-length", b"%d" % len(body)),
                    *((name.encode(), value.encode()) for name, value in extra.items()),
                ],
            }
        )
        await send({"type": "http.response.body", "body": body})

    async def _taken(self, headers: Mapping[bytes, bytes], receive: Receive) -> Outcome:
        handout, commits = self._handout, self._commits
        if handout is None or commits is None:
            raise _no_round()
        token = self._known_token(headers.get(b"authorization", b""))
        wait = self._tokens.take(token, self._clock())
        if wait:
            raise Refusal(
                429, "too_many_requests", "this device sends too often: wait, then send it again.",
                wait,
            )  # fmt: skip
        body = await _read(headers, receive, handout.report_bytes)
        payload = self._checked(handout, body, token)
        try:
            return await commits.submit(Submission(token, handout.round, payload))
        except Full:
            raise Refusal(
                503, "busy", "too many reports wait for the disk: send the same bytes again later.",
                5,
            ) from None  # fmt: skip
        except VaultError as error:
            raise self._storage("report", error) from error

    def _known_token(self, authorization: bytes) -> bytes:
        match = _BEARER.fullmatch(authorization)
        if match is not None:
            token = base64.urlsafe_b64decode(match[1] + b"=")
            try:
                if self.vault.knows(token):
                    return token
            except VaultError as error:
                raise self._storage("token", error) from error
        raise Refusal(
            401, "unknown_token",
            "a report needs the header 'Authorization: Bearer TOKEN' with a token that this server "
            "gave out: enrol at /v1/enrol.",
        )  # fmt: skip

    def _checked(self, handout: Handout, body: bytes, token: bytes) -> bytes:
        """The payload of a report for the round at hand, by the device of this token."""
        try:
            report = Report.from_bytes(body)
        except WireError as error:
            raise Refusal(400, "bad_report", str(error)) from error
        if report.round < handout.round:
            raise Refusal(
                410, "round_closed",
                f"round {report.round} has closed, the round at hand is {handout.round}: fetch the "
                f"broadcast; this report counts no more.",
            )  # fmt: skip
        if report.round > handout.round:
            raise Refusal(
                400, "wrong_round",
                f"the report is for round {report.round}, the round at hand is {handout.round}.",
            )  # fmt: skip
        if report.mechanism != handout.mechanism.name:
            raise Refusal(
                400, "wrong_mechanism",
                f"round {handout.round} takes reports of {handout.mechanism.name!r}, got one of "
                f"{report.mechanism!r}.",
            )  # fmt: skip
        try:
            handout.mechanism.check(report)
        except WrongSize as error:
            raise Refusal(400, "wrong_size", str(error)) from error
        except WireError as error:
            raise Refusal(400, "out_of_range", str(error)) from error
        if not handout.mechanism.matches_coins(report, DeviceCoins(token, report.round)):
            raise Refusal(
                400, "wrong_coins",
                f"the seed or positions of a {report.mechanism} report are not the phone's to "
                f"choose: draw them with the coins of this device and round.",
            )  # fmt: skip
        return report.payload

    async def _report_is_posted(self, request: Request) -> Response:
        raise HTTPException(405)  # reached by other methods only, which the router refuses

    # Everything else

    async def _enrol(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        try:
            code = _code_in(await _read(dict(request.scope["headers"]), request.receive, 4096))
            token = await asyncio.to_thread(self.vault.enrol, code, self._clock())
        except (BadCode, Refusal) as error:
            wait = self._addresses.take(address, self._clock())
            if wait:
                raise Refusal(
                    429, "too_many_requests", "too many wrong codes came from this address.", wait
                ) from error
            if isinstance(error, Refusal):
                raise
            raise Refusal(403, "bad_code", str(error)) from error
        except VaultError as error:
            raise self._storage("enrol", error) from error
        text = base64.urlsafe_b64encode(token).decode().rstrip("=")
        return JSONResponse({"token": text}, 201, {"cache-control": "no-store"})

    async def _broadcast(self, request: Request) -> Response:
        handout = self._handout
        if handout is None:
            raise _no_round()
        etag = f'"{handout.digest}"'
        headers = {
            "etag": etag,
            "nextapp-round": str(handout.round),
            "cache-control": "public, no-cache",
            "vary": "accept-encoding",
        }
        if _matches(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        if _accepts_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
            return Response(handout.zipped, 200, headers, "application/octet-stream")
        return Response(handout.body, 200, headers, "application/octet-stream")

    async def _digest(self, request: Request) -> Response:
        """What the broadcast in hand is known by: small, and never from a cache."""
        handout = self._handout
        if handout is None:
            raise _no_round()
        return JSONResponse(
            {"round": handout.round, "sha256": handout.digest, "n_bytes": len(handout.body)},
            headers={"cache-control": "no-store"},
        )

    async def _digests(self, request: Request) -> Response:
        """All broadcasts that were handed out here, for anyone to compare."""
        try:
            digests = await asyncio.to_thread(self.vault.digests, _MOST_DIGESTS)
        except VaultError as error:
            raise self._storage("digests", error) from error
        return JSONResponse({"digests": digests}, headers={"cache-control": "no-cache"})

    async def _round(self, request: Request) -> Response:
        try:
            round, rules = self.vault.round(), self.vault.rules()
            self.refresh()  # whoever has seen a round shall find its broadcast
        except VaultError as error:
            raise self._storage("round", error) from error
        if round is None or rules is None:
            raise _no_round()
        return JSONResponse(
            {
                "round": round.number,
                "opened": round.opened,
                "deadline": round.deadline,
                "goal": rules.goal,
                "minimum": rules.minimum,
                "n_reports": round.n_reports,
                "extensions": round.extensions,
                "closed": round.closed,
            },
            headers={"cache-control": "no-store"},
        )

    async def _health(self, request: Request) -> Response:
        try:
            round = self.vault.round()
        except VaultError as error:
            raise self._storage("health", error) from error
        if round is None or self._handout is None:
            raise _no_round()
        return JSONResponse({"status": "ok", "round": self._handout.round})

    async def _metrics(self, request: Request) -> Response:
        lines = self.metrics.lines() + gauges(self._gauges())
        return Response(
            "\n".join(lines) + "\n", 200, media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    def _gauges(self) -> dict[str, tuple[float, str]]:
        waiting = self._commits.n_waiting if self._commits else 0
        values: dict[str, tuple[float, str]] = {
            "nextapp_waiting_reports": (waiting, "Reports that wait for the disk."),
            "nextapp_open_connections": (self.metrics.connections, "Clients connected."),
        }
        try:
            round, rules = self.vault.round(), self.vault.rules()
            values["nextapp_devices"] = (self.vault.n_devices(), "Devices enrolled.")
        except VaultError:
            self.metrics.storage.add("metrics")
            return values
        if round is not None and rules is not None:
            for name, value, words in (
                ("number", round.number, "The round at hand."),
                ("reports", round.n_reports, "Reports of the round at hand."),
                ("goal", rules.goal, "Reports at which a round closes."),
                ("minimum", rules.minimum, "Reports below which it changes nothing."),
                ("opened_seconds", round.opened, "When it opened, since 1970."),
                ("deadline_seconds", round.deadline, "When its time is over, since 1970."),
                ("extensions", round.extensions, "Deadlines it has passed below the minimum."),
            ):
                values[f"nextapp_round_{name}"] = (value, words)
        return values

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(description())

    def _storage(self, where: str, error: VaultError) -> Refusal:
        self.metrics.storage.add(where)
        LOG.warning("storage: %s", error)
        return Refusal(
            503, "storage", "the server cannot use its disk now: send the same again later.", 10
        )

    def _counted(
        self, route: str, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint with refusals as answers, and its answers counted."""

        async def answered(request: Request) -> Response:
            try:
                response = await endpoint(request)
            except Refusal as refusal:
                self.metrics.requests.add(f"{route} {refusal.code}")
                return refusal.response()
            except ClientDisconnect:
                self.metrics.requests.add(f"{route} disconnected")
                return Response(status_code=400)  # to nobody
            self.metrics.requests.add(f"{route} {response.status_code}")
            return response

        return answered


class Metrics:
    """What a gateway counts. No label says anything about a client."""

    def __init__(self) -> None:
        self.reports = Counter(
            "nextapp_reports_total", "outcome", "Reports by what became of them.",
            [*(outcome.value for outcome in Outcome), *_REASONS],
        )  # fmt: skip
        self.requests = Counter(
            "nextapp_requests_total", "answer", "Other requests by route and answer."
        )
        self.storage = Counter(
            "nextapp_storage_errors_total", "where", "Times the vault refused: disk full, locked.",
            ["report", "token", "enrol", "tick"],
        )  # fmt: skip
        self.rounds = Counter(
            "nextapp_rounds_total", "ending", "Rounds by how they ended.",
            ["stepped", "passed_over", "extended", "stuck"],
        )  # fmt: skip
        self.dropped = Counter(
            "nextapp_dropped_connections_total", "why", "Connections the gateway ended.",
            ["slow", "too_many", "long_head", "bad_http"],
        )  # fmt: skip
        self.report_seconds = Histogram(
            "nextapp_report_seconds", "From the request's head to the durable acknowledgement."
        )
        self.commit_seconds = Histogram("nextapp_commit_seconds", "Of one transaction.")
        self.commit_reports = Histogram(
            "nextapp_commit_reports", "Reports in one transaction.", (1, 2, 4, 8, 16, 64, 256, 1000)
        )
        self.connections = 0

    def observe_commit(self, n_reports: int, seconds: float) -> None:
        self.commit_reports.add(n_reports)
        self.commit_seconds.add(seconds)

    def lines(self) -> list[str]:
        return [
            line
            for metric in (
                self.reports, self.requests, self.storage, self.rounds, self.dropped,
                self.report_seconds, self.commit_seconds, self.commit_reports,
            )
            for line in metric.lines()
        ]  # fmt: skip


_REASONS = (
    "unknown_token", "too_many_requests", "too_large", "bad_report", "wrong_round",
    "wrong_mechanism", "wrong_size", "out_of_range", "wrong_coins", "busy", "storage", "no_round",
    "disconnected",
)  # fmt: skip


def _answer(status: int, /, **values: str) -> tuple[int, bytes]:
    return status, json.dumps(values).encode()


_ANSWERS = {
    Outcome.ACCEPTED: _answer(201, status="accepted"),
    Outcome.REPEATED: _answer(200, status="repeated"),
    Outcome.ALREADY_REPORTED: _answer(
        409,
        error="already_reported",
        message="this device has sent other bytes for this round; those count.",
    ),
    Outcome.ROUND_CLOSED: _answer(
        410,
        error="round_closed",
        message="the round has just closed: fetch the next broadcast; this report counts no more.",
    ),
}


async def _read(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
    """The body of a request, of at most so many bytes."""
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


def _no_round() -> Refusal:
    return Refusal(503, "no_round", "no round has been published here yet: come back later.", 10)


def _code_in(body: bytes) -> str:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if (
        isinstance(values, dict)
        and isinstance(values.get("code"), str)
        and 0 < len(values["code"]) <= 100
        and values["code"].isascii()
    ):
        return str(values["code"])
    raise Refusal(400, "bad_request", 'the body must be JSON like {"code": "ABCD-EFGH-JKLM-NPQR"}.')


def _matches(if_none_match: str | None, etag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag in tags


def _accepts_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        if coding == "gzip":
            return not any(re.fullmatch(r"q=0(\.0*)?", word) for word in parameters)
    return False


async def _as_json(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "error")
    words = {
        404: "there is nothing at this path; /openapi.json lists what there is.",
        405: f"this path takes {headers.get('Allow', 'another method')}.",
    }.get(status, "the request could not be answered.")
    return JSONResponse({"error": code, "message": words}, status, headers)
