"""Ports for servers that must be started again on the same port."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORTS = 8000


def fixed_port() -> int:
    """A free port of loopback that stays free while nobody listens on it.

    It is below the ports that the system gives to those who ask for any, so none of them gets it
    between two starts; and no other process of tests is given it, also of another run beside this.
    """
    first_given = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    last = first_given - 4000  # the ports above are for `launching.free_port`
    for port in range(last - _PORTS, last):
        file = os.open(Path(tempfile.gettempdir(), f"nextapp-test-port-{port}"), os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(("127.0.0.1", port))
        except OSError:
            os.close(file)
            continue
        return port  # the file stays locked until this process ends
    raise RuntimeError("no port is free.")
