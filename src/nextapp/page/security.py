"""Access control of the page: only this machine's browser, with the token of the opened address.

A website can make a browser send requests to loopback. So the Host header must name this server
(another name that resolves to 127.0.0.1 is refused: DNS rebinding), the Origin of POST requests
must be this page, and every request needs a cookie that only the opened address sets.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_NOT_OPENED = (
    "This page is private to the browser that opened it.\n"
    "Open the address that `nextapp open` printed, with its token.\n"
)


class Guard:
    """ASGI middleware that checks every request and adds security headers to every response."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port
        self.token = secrets.token_urlsafe(24)
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
        answer: ASGIApp | Callable[..., Awaitable[None]] = refusal or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a refused request; None if the request is allowed."""
        foreign = self._foreign(request)
        if foreign is not None:
            return foreign
        given = request.query_params.get("token")
        if request.url.path == "/" and given is not None:
            if not self._is_token(given):
                return PlainTextResponse(_NOT_OPENED, 403)
            opened = RedirectResponse("/", 303)
            opened.set_cookie(self._cookie, self.token, httponly=True, samesite="strict", path="/")
            return opened
        site = request.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return PlainTextResponse("requests from other sites are refused\n", 403)
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return PlainTextResponse(_NOT_OPENED, 403)
        return None

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
