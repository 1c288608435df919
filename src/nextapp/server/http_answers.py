"""What every route of a server has in common: refusals, bodies that are bounded, who asks."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from nextapp.server.limits import network_of
from nextapp.server.metrics import Counter

_PART_BYTES = 64 << 10

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
            self.headers["www-authenticate"] = "Bearer"

    def body(self) -> bytes:
        return json.dumps({"error": self.code, "message": self.message}).encode()

    def response(self) -> Response:
        return Response(self.body(), self.status, self.headers, "application/json")


class LongResponse(Response):
    """An answer in parts, each sent when the client has taken those before it.

    Sent at once it would lie in memory, once for every client that does not read.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(head)
        body = bytes(self.body)
        for start in range(0, len(body), _PART_BYTES):
            part = body[start : start + _PART_BYTES]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def no_round() -> Refusal:
    return Refusal(503, "no_round", "no round has been published here yet: come back later.", 10)


def no_storage() -> Refusal:
    return Refusal(
        503, "storage", "the server cannot use its disk now: send the same again later.", 10
    )


def count_answers(requests: Counter, route: str, endpoint: Endpoint) -> Endpoint:
    """The endpoint with refusals as answers, and its answers counted."""

    async def answered(request: Request) -> Response:
        try:
            response = await endpoint(request)
        except Refusal as refusal:
            requests.add(route, refusal.code)
            return refusal.response()
        except ClientDisconnect:
            requests.add(route, "disconnected")
            return Response(status_code=400)  # to nobody
        requests.add(route, str(response.status_code))
        return response

    return answered


def asking_network(request: Request) -> str:
    """The network that a request comes from, as limits count it."""
    return network_of(request.client.host) if request.client else ""


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
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


async def http_error(request: Request, error: Exception) -> Response:
    """What the router refuses, as JSON like every other error."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "error")
    words = {
        404: "there is nothing at this path; /openapi.json lists what there is.",
        405: f"this path takes {headers.get('Allow', 'another method')}.",
    }.get(status, "the request could not be answered.")
    return JSONResponse({"error": code, "message": words}, status, headers)
