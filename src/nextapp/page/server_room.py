"""Monitors a running `nextapp serve` on this machine through its operator's listener.

The page shows `/metrics` and `/ready`, and, if the federation's folder is given, the privacy
accounting. It raises no alarms: those are in deploy/alerts.yml.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from nextapp.server.folders import status
from nextapp.server.operator import OPERATOR_SECRET

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERY = 1.0  # seconds between two samples
KEPT = 180  # number of samples kept
_TIMEOUT = 3.0
_ACCOUNTED_EVERY = 10.0  # seconds
_MOST_BYTES = 1 << 20
_TAKEN = ("accepted", "repeated")


class ServerWatch:
    """Samples a server once per second while somebody watches, and keeps the last minutes.

    ``url`` is the address of the operator's listener; ``folder`` the federation's, for its secret
    and accounting.
    """

    def __init__(self, url: str, folder: Path | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or parts.hostname not in LOOPBACK:
            raise ValueError(
                f"the page can only watch a server on this machine, at the address of its "
                f"operator's listener (by default http://127.0.0.1:9464); got {url!r:.80}."
            )
        self.url = f"http://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port
        self._folder = folder
        self._privacy: tuple[float, dict[str, Any]] = (0.0, {})
        self.looks: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._lock = asyncio.Lock()

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Samples of the server, without end."""
        while True:
            async with self._lock:  # several tabs share the samples
                last = self.looks[-1] if self.looks else None
                if last is None or time.time() - last["at"] >= 0.9 * EVERY:
                    self.looks.append(await asyncio.to_thread(self.look))
            yield {"server": self.url, "looks": list(self.looks)}
            await asyncio.sleep(EVERY)

    def look(self) -> dict[str, Any]:
        """The server's current counts, or the reason why it does not answer."""
        now = time.time()
        try:
            found = summary(self._get("/metrics", (200,)), now)
            ready = json.loads(self._get("/ready", (200, 503)))
        except (OSError, HTTPException, ValueError) as error:
            return {"at": now, "unreachable": f"{error!s:.200}" or type(error).__name__}
        if isinstance(ready, dict) and ready.get("why"):
            found["not_ready"] = f"{ready['why']!s:.200}"
        return {"at": now, **found, "privacy": self._accounts(now)}

    def _accounts(self, now: float) -> dict[str, Any]:
        """Privacy costs from the federation's folder, refreshed every few seconds."""
        if self._folder is not None and now - self._privacy[0] > _ACCOUNTED_EVERY:
            try:
                self._privacy = (now, status(self._folder, now).plain())
            except (OSError, ValueError, RuntimeError) as error:
                self._privacy = (now, {"why": f"{error!s:.200}"})
        return self._privacy[1]

    def _headers(self) -> dict[str, str]:
        if self._folder is None:
            return {}
        secret = (self._folder / OPERATOR_SECRET).read_text(encoding="ascii").strip()
        return {"authorization": f"Bearer {secret}"}

    def _get(self, path: str, expected: tuple[int, ...]) -> str:
        connection = HTTPConnection(self._host or "", self._port, timeout=_TIMEOUT)
        try:
            connection.request("GET", path, headers=self._headers())
            answer = connection.getresponse()
            if answer.status not in expected:
                raise ValueError(f"it answers {answer.status} to {path}.")
            return answer.read(_MOST_BYTES).decode("utf-8", "replace")
        finally:
            connection.close()


def summary(text: str, now: float) -> dict[str, Any]:
    """The values that the page shows, from the text of `/metrics`."""
    values: dict[str, float] = {}
    labelled: dict[str, dict[str, float]] = {}
    with suppress(ValueError):  # no metrics
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                if labels:
                    labelled.setdefault(name, {})[next(iter(labels.values()))] = value
                elif not math.isnan(value):
                    values[name] = value
    if not any(name.startswith("nextapp_") for name in values):
        raise ValueError("its /metrics are not from nextapp serve.")
    outcomes = labelled.get("nextapp_reports_total", {})
    refused = {name: n for name, n in outcomes.items() if name not in _TAKEN and n}
    storage = sum(labelled.get("nextapp_storage_errors_total", {}).values())
    dropped = {n: v for n, v in labelled.get("nextapp_dropped_connections_total", {}).items() if v}
    rounds = labelled.get("nextapp_rounds_total", {})
    return {
        "accepted": outcomes.get("accepted", 0),
        "refused": refused,
        "dropped": dropped,
        "storage_errors": storage,
        "rounds": rounds,
        "devices": values.get("nextapp_devices"),
        "connections": values.get("nextapp_open_connections", 0),
        "waiting": values.get("nextapp_waiting_reports", 0),
        "slow_seconds": _quantile(labelled.get("nextapp_report_seconds_bucket", {}), 0.95),
        "round": _round(values, now),
    }


def _round(values: Mapping[str, float], now: float) -> dict[str, float] | None:
    if "nextapp_round_number" not in values:
        return None
    names = ("number", "reports", "goal", "minimum", "extensions")
    found = {name: values.get(f"nextapp_round_{name}", 0.0) for name in names}
    opened = values.get("nextapp_round_opened_seconds", now)
    deadline = values.get("nextapp_round_deadline_seconds", now)
    return {**found, "left": deadline - now, "long": deadline - opened}


def _quantile(counts: Mapping[str, float], part: float) -> float | None:
    """The bound of the histogram bucket with this quantile; counts are cumulated, by bound."""
    n_all = max(counts.values(), default=0.0)
    if not n_all:
        return None
    bound = next(float(bound) for bound, count in counts.items() if count >= part * n_all)
    return None if math.isinf(bound) else bound
