"""Access control of the page: only the browser of the person who started it.

A website can make a browser send requests to loopback. So the Host header must name this server
(another name that resolves to 127.0.0.1 is refused: DNS rebinding), the Origin of POST requests
must be this page, and every request needs a cookie.

Other users of this machine can connect too, and read command lines, also that of a browser. The
browser is therefore started with a file that only the owner can read; the token in it sets the
cookie. The printed address has a ticket, which does so once and soon.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
TICKET_SECONDS = 60.0
FIRST_REQUEST_SECONDS = 5.0
MOST_WAITING = 64  # connections without a request; of more the oldest end
MOST_HEAD = 64 << 10  # bytes of a request without its body
_NOT_OPENED = (
    "This page is private to the browser that opened it.\n"
    "Open the file that `nextapp open` printed. An address with a ticket works once, and soon:\n"
    "if yours was new and somebody else used it, stop `nextapp open`.\n"
)


class Guard:
    """ASGI middleware that checks every request and adds security headers to every response."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self.token = secrets.token_urlsafe(24)
        self.ticket = secrets.token_urlsafe(24)
        self._ticket_ends = time.monotonic() + TICKET_SECONDS
        self._cookie = f"nextapp-{port}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0].decode() not in HEADERS]
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*kept, *extra]
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal is not None:
            refusal.headers["connection"] = "close"  # strangers hold none open
        answer: ASGIApp | Callable[..., Awaitable[None]] = refusal or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a refused request; None if the request is allowed."""
        foreign = self._foreign(request)
        if foreign is not None:
            return foreign
        is_open = self._is_token(request.cookies.get(self._cookie, ""))
        if request.url.path == "/" and {"token", "ticket"} & request.query_params.keys():
            if not (is_open or self._may_open(request)):
                return PlainTextResponse(_NOT_OPENED, 403)
            opened = HTMLResponse(forward_to("/"))  # a redirect would still come from the file
            opened.set_cookie(self._cookie, self.token, httponly=True, samesite="strict", path="/")
            return opened
        site = request.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return PlainTextResponse("requests from other sites are refused\n", 403)
        return None if is_open else PlainTextResponse(_NOT_OPENED, 403)

    def _may_open(self, request: Request) -> bool:
        given = request.query_params
        if self._is_token(given.get("token", "")):
            return True
        is_ticket = hmac.compare_digest(given.get("ticket", "").encode(), self.ticket.encode())
        in_time = time.monotonic() < self._ticket_ends
        if is_ticket:
            self._ticket_ends = 0.0
        return is_ticket and in_time

    def _foreign(self, request: Request) -> Response | None:
        """The response to a request for another host or from another origin; else None."""
        if request.headers.get("host", "") not in self._hosts:
            return PlainTextResponse("unknown host\n", 421)
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("method not allowed\n", 405)
        if request.method == "POST" and request.headers.get("origin") not in self._origins:
            return PlainTextResponse("requests from other origins are refused\n", 403)
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def forward_to(address: str) -> str:
    """A document that opens an address; the request comes from the document's own site."""
    return (
        f'<!doctype html><meta charset="utf-8"><title>nextapp</title>'
        f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">nextapp</a>\n'
    )


def patient_protocol() -> type[HttpToolsProtocol]:
    """uvicorn's protocol for one connection, which anybody on this machine may open.

    Its first request must come soon and be short, and silent ones give way to new ones, so that
    nobody shuts the owner out. Later requests are the owner's: strangers are refused at the first.
    """
    waiting: dict[HttpToolsProtocol, asyncio.TimerHandle] = {}

    def end(connection: HttpToolsProtocol) -> None:
        settle(connection)
        connection.transport.abort()

    def settle(connection: HttpToolsProtocol) -> None:
        timer = waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    class Patient(HttpToolsProtocol):
        _n_head = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = self.loop.call_later(FIRST_REQUEST_SECONDS, end, self)
            if len(waiting) > MOST_WAITING:
                end(next(iter(waiting)))

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._n_head += len(data)
            if self in waiting and self._n_head > MOST_HEAD:
                end(self)

        def on_headers_complete(self) -> None:
            settle(self)
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            settle(self)
            super().connection_lost(exc)

    return Patient
