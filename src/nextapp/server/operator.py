"""What an operator sees of a server: its metrics, and whether it lives and is ready.

The operator's listener is kept apart from the phones' port, on loopback by default:
nobody but the operator learns how many phones there are.

    GET /live      200 while the process answers
    GET /ready     200 while a round is open and a report can be stored, else 503 and why
    GET /metrics   text for Prometheus, for those who know the secret in the server's folder

No label of a metric says anything about a client: no address, no token, no report.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import platform
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nextapp import __version__
from nextapp.server.vault import Outcome
from nextapp.storage import create_atomically

if TYPE_CHECKING:
    from nextapp.server.certificates import ServedCertificate
    from nextapp.server.gateway import Gateway

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_REFUSALS = (
    "bad_token", "unknown_key", "too_large", "bad_report",
    "wrong_round", "wrong_mechanism", "wrong_size", "out_of_range", "wrong_coins", "busy",
    "storage", "draining", "disconnected",
)  # fmt: skip

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """What a server counts. Alarms and dashboards in deploy/ name these metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reports = self._counter(
            "nextapp_reports_total", "Reports by what became of them.", "outcome",
            [*(outcome.value for outcome in Outcome), *_REFUSALS],
        )  # fmt: skip
        self.requests = Counter(
            "nextapp_requests_total", "Other requests by route and answer.", ("route", "code"),
            registry=self.registry,
        )  # fmt: skip
        for route in ("digest", "tokens"):  # alarms look whether these grow, from 0 on
            self.requests.labels(route, "200")
        self.storage = self._counter(
            "nextapp_storage_errors_total", "Times the vault refused: disk full, locked.", "where",
            ["report", "tokens", "enrol", "digests", "tick", "probe", "copies"],
        )  # fmt: skip
        self.rounds = self._counter(
            "nextapp_rounds_total", "Rounds by how they ended.", "ending",
            ["stepped", "passed_over", "extended", "stuck"],
        )  # fmt: skip
        self.anomalies = Counter(
            "nextapp_anomalies_total", "Rounds whose reports differ from all before by far.",
            registry=self.registry,
        )  # fmt: skip
        self.dropped = self._counter(
            "nextapp_dropped_connections_total", "Connections the gateway ended.", "why",
            [
                "slow", "too_many", "too_many_of_one_address", "handshake", "no_files", "long_head",
                "bad_http",
            ],
        )  # fmt: skip
        self.report_seconds = self._histogram(
            "nextapp_report_seconds",
            "From the request's head to the durable acknowledgement.",
        )
        self.commit_seconds = self._histogram("nextapp_commit_seconds", "Of one transaction.")
        self.commit_reports = self._histogram(
            "nextapp_commit_reports", "Reports in one transaction.", (1, 2, 4, 8, 16, 64, 256, 1000)
        )
        self.connections = Gauge(
            "nextapp_open_connections", "Clients connected.", registry=self.registry
        )
        Info("nextapp_build", "The version that runs.", registry=self.registry).info(
            {"version": __version__, "python": platform.python_version()}
        )
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, words: str, label: str, values: Sequence[str]) -> Counter:
        """A count for each value of a label, from 0."""
        counter = Counter(name, words, (label,), registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def _histogram(self, name: str, words: str, bounds: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(name, words, registry=self.registry, buckets=bounds)


class _Readings(Collector):
    """Gauges that are read when they are asked for: the vault, the disk, the certificate."""

    def __init__(self, gateway: Gateway, certificate: ServedCertificate | None) -> None:
        self._gateway, self._certificate = gateway, certificate

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value, words in self._values():
            yield GaugeMetricFamily(f"nextapp_{name}", words, value)

    def _values(self) -> Iterator[tuple[str, float, str]]:
        gateway = self._gateway
        yield "ready", float(gateway.why_not_ready() is None), "1 if reports can be taken."
        yield "round_open", float(gateway.is_open), "1 if phones are asked for reports."
        yield "waiting_reports", gateway.n_waiting, "Reports that wait for the disk."
        if self._certificate is not None:
            expiry = self._certificate.expires.timestamp()
            yield "certificate_expiry_seconds", expiry, "End of the certificate, since 1970."
        vault = gateway.vault
        try:
            free = shutil.disk_usage(vault.path.parent).free
            yield "disk_free_bytes", free, "Free on the vault's disk."
            files = vault.path.parent.glob(f"{vault.path.name}*")
            size = sum(file.stat().st_size for file in files)
            yield "vault_bytes", size, "Size of the vault and its log."
            yield "devices", vault.devices.count(), "Devices enrolled."
            round = vault.round()
        except OSError:  # `VaultError` is one
            gateway.metrics.storage.labels("metrics").inc()
            return
        if round is not None:
            yield "round_number", round.number, "The current round."
            yield "round_reports", round.n_reports, "Reports of the current round."
            yield "round_goal", round.goal, "Reports at which a round closes."
            yield "round_minimum", round.rules.minimum, "Reports below which it changes nothing."
            late = round.ends if math.isfinite(round.ends) else round.deadline
            yield "round_deadline_seconds", late, "When it ends or, in its grace, closes."
            yield "round_extensions", round.extensions, "Deadlines passed below the minimum."


OPERATOR_SECRET = "operator-secret"


def operator_secret(folder: Path) -> str:
    """What the operator's listener asks for, from a file in the server's folder, made once."""
    path = folder / OPERATOR_SECRET
    with suppress(FileExistsError), create_atomically(path) as draft:
        draft.write_text(secrets.token_urlsafe(24), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


class Operator(Starlette):
    """The application of the operator's listener beside the phones' one.

    A browser on the operator's machine can be led here by a website's name that resolves to this
    address. So without the secret the Host must be an address, and there are no counts.
    """

    def __init__(self, gateway: Gateway, certificate: ServedCertificate | None = None) -> None:
        secret = operator_secret(gateway.vault.path.parent)
        self._gateway, self._authorization = gateway, f"Bearer {secret}".encode()
        gateway.metrics.registry.register(_Readings(gateway, certificate))
        super().__init__(
            routes=[
                Route("/live", self._live),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
            ]
        )
        self.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or super().__call__)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").encode()
        if hmac.compare_digest(given, self._authorization):
            return None
        if not _is_address(request.headers.get("host", "")):
            words = "without the secret this server answers at its address only, not at a name."
            return JSONResponse({"error": "unknown_host", "message": words}, 421)
        if request.url.path != "/metrics":
            return None
        words = f"send 'Authorization: Bearer SECRET', that of {OPERATOR_SECRET} in its folder."
        return JSONResponse({"error": "unauthorized", "message": words}, 401)

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers={"cache-control": "no-store"})

    async def _ready(self, request: Request) -> Response:
        why = await asyncio.to_thread(self._gateway.why_not_ready)
        status = {"status": "ok"} if why is None else {"status": "not ready", "why": why}
        return JSONResponse(status, 200 if why is None else 503, {"cache-control": "no-store"})

    async def _metrics(self, request: Request) -> Response:
        text = await asyncio.to_thread(generate_latest, self._gateway.metrics.registry)
        return Response(text, 200, media_type="text/plain; version=0.0.4; charset=utf-8")


def _is_address(host: str) -> bool:
    """
    >>> [_is_address(each) for each in ("127.0.0.1:9464", "[::1]", "localhost:1", "a.example:9464")]
    [True, True, True, False]
    """
    name = re.sub(r":\d+$", "", host).strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True
