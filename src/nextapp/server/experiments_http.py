"""The phones' port of a server with several experiments: a gateway for each, one enrolment for all.

Phones enrol at /v1/enrol and are told the number of their experiment; everything else of it is at
/v1/experiments/NUMBER/ as it is at /v1/ where there is one federation alone.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nextapp.server.enrolment import Enrolment, enrolment_words
from nextapp.server.experiments import Experiment, assign_experiment
from nextapp.server.gateway import Gateway, Metrics
from nextapp.server.http_answers import Refusal, count_answers, http_error, no_storage
from nextapp.server.limits import Limits
from nextapp.server.logs import log_of
from nextapp.server.openapi import description
from nextapp.server.vault import TOKEN_BYTES, BadCode, Vault, VaultError

_OF_ONE = frozenset(
    f"/v1/{name}" for name in ("broadcast", "digest", "digests", "report", "token", "round")
)
_PREFIX = re.compile(r"/v1/experiments/([1-9][0-9]?)(/.*)")


class Experiments:
    """An ASGI application over the gateways of several experiments.

    Parameters
    ----------
    vault
        Of the enrolment codes.
    parts
        Each experiment and its gateway; None for one that does not run.
    """

    def __init__(
        self,
        vault: Vault,
        parts: Sequence[tuple[Experiment, Gateway | None]],
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.vault = vault
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.experiments = tuple(experiment for experiment, _ in parts)
        self._by_number = {experiment.number: gateway for experiment, gateway in parts}
        self._log = log_of("nextapp.gateway")
        self._enrolment = Enrolment(self._enrolled, self.limits, clock)
        requests = self.metrics.requests
        self._routes = Starlette(
            routes=[
                Route("/v1/enrol", count_answers(requests, "enrol", self._enrol), methods=["POST"]),
                Route("/v1/experiments", count_answers(requests, "experiments", self._listed)),
                Route("/v1/health", count_answers(requests, "health", self._health)),
                Route("/openapi.json", self._openapi),
            ],
            exception_handlers={HTTPException: http_error},
            lifespan=lambda _: self._running(),
        )

    @property
    def gateways(self) -> dict[str, Gateway | None]:
        """By the name of the experiment; None for one that does not run."""
        return {each.name: self._by_number[each.number] for each in self.experiments}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PREFIX.fullmatch(scope["path"]) if scope["type"] == "http" else None
        number = int(found[1]) if found else 0
        if found is None and scope.get("path") in _OF_ONE:
            await _named_by_number(scope["path"]).response()(scope, receive, send)
            return
        if found is None or number not in self._by_number:
            await self._routes(scope, receive, send)
            return
        gateway = self._by_number[number]
        if gateway is None:
            await no_storage().response()(scope, receive, send)
            return
        path = "/v1" + found[2]
        await gateway({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for gateway in self._by_number.values():
                if gateway is not None:
                    await stack.enter_async_context(gateway.running())
            yield

    async def _enrol(self, request: Request) -> Response:
        try:
            return await self._enrolment.answer(request)
        except VaultError as error:
            self.metrics.storage.add("enrol")
            self._log.warning("storage: %s", error)
            raise no_storage() from error

    def _enrolled(self, code: str, now: float, seconds: float) -> dict[str, Any]:
        """A device of the experiment that its token says, then a use of the code.

        In this order a crash in between costs no use; the device is one that nobody has.
        """
        name = self.vault.code_name(code)
        token = secrets.token_bytes(TOKEN_BYTES)
        experiment = assign_experiment(token, self.experiments)
        gateway = self._by_number[experiment.number]
        if gateway is None:
            raise no_storage()
        gateway.vault.add_device(token, now, seconds, name)
        try:
            self.vault.use_code(code, now)
        except (BadCode, VaultError):
            gateway.vault.drop_device(token)
            raise
        return {**enrolment_words(token, now + seconds), "experiment": experiment.number}

    async def _listed(self, request: Request) -> Response:
        """How phones are divided, for anyone to see."""
        listed = [{"experiment": each.number, "share": each.share} for each in self.experiments]
        return JSONResponse({"experiments": listed}, headers={"cache-control": "no-cache"})

    async def _health(self, request: Request) -> Response:
        if await asyncio.to_thread(self.why_not_ready) is not None:
            raise Refusal(503, "storage", "no experiment can take reports now.", 10)
        return JSONResponse({"status": "ok"})

    def why_not_ready(self) -> str | None:
        """Why no report of any experiment can be taken now, or None where one can."""
        whys = []
        for name, gateway in self.gateways.items():
            why = "it does not run" if gateway is None else gateway.why_not_ready()
            if why is None:
                return None
            whys.append(f"{name}: {why}")
        return "; ".join(whys)

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(description())


def _named_by_number(path: str) -> Refusal:
    within = path.replace("/v1/", "/v1/experiments/N/")
    return Refusal(
        404,
        "not_found",
        f"this server has several experiments: ask at {within}, with the N that a phone is told "
        f"when it enrols.",
    )
