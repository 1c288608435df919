"""Ports for servers that must be started again on the same port."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

_PER_WORKER = 2000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_counter = itertools.count(os.getpid())


def fixed_port() -> int:
    """A free port of loopback that stays free while nobody listens on it.

    It is below the ports that the system gives to those who ask for any, so none of them gets it
    between two starts. Each worker of pytest has its own `_PER_WORKER` of them.
    """
    first_given = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
    first = first_given - 4000 - (worker + 1) * _PER_WORKER  # 4000 are for `launching.free_port`
    for number in itertools.islice(_counter, _PER_WORKER):
        port = first + number % _PER_WORKER
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port of this worker is free.")
