"""What an operator's own listener answers: metrics, and whether the server lives and is ready.

It is kept apart from the phones' port and listens on loopback unless told otherwise: nobody but the
operator learns how many phones there are.

    GET /live      200 while the process answers
    GET /ready     200 while a report can be stored, else 503 and why
    GET /metrics   text for Prometheus
    GET /suspects  devices whose reports were refused as no phone would make them, and how often
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shutil
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nextapp import __version__
from nextapp.server.certificates import ServedCertificate
from nextapp.server.gateway import Gateway
from nextapp.server.metrics import Gauge, Metric, exposition

_START = time.time()
_MOST_SUSPECTS = 100


class Operator(Starlette):
    """The application of the operator's listener beside the phones' one."""

    def __init__(self, gateway: Gateway, certificate: ServedCertificate | None = None) -> None:
        self._gateway = gateway
        self._certificate = certificate
        super().__init__(
            routes=[
                Route("/live", self._live),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
                Route("/suspects", self._suspects),
            ]
        )

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers={"cache-control": "no-store"})

    async def _ready(self, request: Request) -> Response:
        why = await asyncio.to_thread(self._gateway.why_not_ready)
        status = {"status": "ok"} if why is None else {"status": "not ready", "why": why}
        return JSONResponse(status, 200 if why is None else 503, {"cache-control": "no-store"})

    async def _suspects(self, request: Request) -> Response:
        found = self._gateway.suspects.most_common(_MOST_SUSPECTS)
        return JSONResponse({"suspects": found})

    async def _metrics(self, request: Request) -> Response:
        lines = [
            *exposition(await asyncio.to_thread(self._found)),
            "# HELP nextapp_build_info The version that runs.",
            "# TYPE nextapp_build_info gauge",
            f'nextapp_build_info{{version="{__version__}",python="{platform.python_version()}"}} 1',
        ]
        return Response(
            "\n".join(lines) + "\n", 200, media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    def _found(self) -> list[Metric]:
        gateway, metrics = self._gateway, self._gateway.metrics
        ready = gateway.why_not_ready() is None
        return [
            *metrics.of_reports(),
            *metrics.of_requests(),
            *gateway.gauges(),
            *_vault_gauges(gateway.vault.path),
            Gauge("nextapp_ready", float(ready), "1 if reports can be taken."),
            *metrics.of_connections(),
            *process_gauges(gateway.vault.path),
            *_certificate_gauges(self._certificate),
        ]


def process_gauges(vault: Path) -> list[Gauge]:
    """Of this process and of the disk that the vault is on; by the names Prometheus clients use."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    found = [
        Gauge("process_start_time_seconds", _START, "When the process started, since 1970."),
        Gauge(
            "process_cpu_seconds_total",
            used.ru_utime + used.ru_stime,
            "Processor time used.",
            "counter",
        ),
        Gauge("process_max_fds", float(n_files), "Files that may be open."),
    ]
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        n_open = len(os.listdir("/proc/self/fd"))
        n_bytes = float(pages * os.sysconf("SC_PAGE_SIZE"))
        found.append(Gauge("process_resident_memory_bytes", n_bytes, "Memory in use."))
        found.append(Gauge("process_open_fds", float(n_open), "Open files."))
    except OSError:
        pass  # not Linux: Prometheus does without
    try:
        free = float(shutil.disk_usage(vault.parent).free)
        found.append(Gauge("nextapp_disk_free_bytes", free, "Free on the disk of the vault."))
    except OSError:
        pass
    return found


def _vault_gauges(vault: Path) -> list[Gauge]:
    try:
        size = sum(file.stat().st_size for file in vault.parent.glob(f"{vault.name}*"))
    except OSError:
        return []
    return [Gauge("nextapp_vault_bytes", float(size), "Size of the vault and its log.")]


def _certificate_gauges(certificate: ServedCertificate | None) -> list[Gauge]:
    """Of what phones are shown, which is not what lies on the disk until it is taken from there."""
    if certificate is None:
        return []
    return [
        Gauge(
            "nextapp_certificate_expiry_seconds",
            certificate.expires.timestamp(),
            "When the certificate that phones are shown expires, since 1970.",
        )
    ]
