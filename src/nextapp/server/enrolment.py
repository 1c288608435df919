"""The route by which phones enrol: a code for a token, within limits on those who guess."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nextapp.server.devices import BadCode
from nextapp.server.http_answers import Refusal, asking_network, read_body
from nextapp.server.limits import Allowance, Limits

_LARGEST = 4096


def token_text(token: bytes) -> str:
    """A token as phones keep it, 43 characters."""
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def enrolment_words(token: bytes, expires: float) -> dict[str, Any]:
    """What a phone is told that has enrolled."""
    return {"token": token_text(token), **expiry_words(expires)}


def expiry_words(expires: float) -> dict[str, float]:
    """When a token expires, if it does."""
    return {"expires": expires} if math.isfinite(expires) else {}


class Enrolment:
    """Answers POST /v1/enrol.

    Parameters
    ----------
    enrol
        Takes a code, the time and the seconds a token is valid; what the phone is told. It may
        raise `BadCode`, and `VaultError`, which is left to the caller.
    """

    def __init__(
        self,
        enrol: Callable[[str, float, float], Mapping[str, Any]],
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        self._enrol, self._clock = enrol, clock
        self._valid = limits.token_valid_seconds
        self._addresses = Allowance(limits.address_burst, limits.address_seconds)
        self._all = Allowance(limits.enrol_burst, limits.enrol_seconds)

    async def answer(self, request: Request) -> Response:
        wait = self._all.take("all", self._clock())
        if wait:
            raise Refusal(503, "busy", "too many phones enrol at once: come back later.", wait)
        try:
            body = await read_body(dict(request.scope["headers"]), request.receive, _LARGEST)
            told = await asyncio.to_thread(self._enrol, _code_in(body), self._clock(), self._valid)
        except (BadCode, Refusal) as error:
            if isinstance(error, Refusal) and error.status == 503:
                raise  # no fault of this address
            wait = self._addresses.take(asking_network(request), self._clock())
            if wait:
                raise Refusal(
                    429, "too_many_requests", "too many wrong codes came from this address.", wait
                ) from error
            if isinstance(error, Refusal):
                raise
            raise Refusal(403, "bad_code", str(error)) from error
        return JSONResponse(dict(told), 201, {"cache-control": "no-store"})


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
