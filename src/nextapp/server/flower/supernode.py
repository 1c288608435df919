"""A SuperNode beside a gateway: started with it, started again if it ends, stopped with it."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nextapp.server.flower import launching
from nextapp.server.flower.identity import node_number
from nextapp.server.flower.processes import Processes, end_members

LOG = logging.getLogger("nextapp.supernode")

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0
_DEACTIVATE_SECONDS = 10.0


@contextmanager
def supernode(
    data: Path, link: launching.Link, runtime_port: int, key: Path | None
) -> Iterator[Processes]:
    """The SuperNode of the gateway in `data`, for as long as the block lasts."""
    end_members(data)  # the SuperNode of a gateway that was killed
    command = launching.supernode(link, runtime_port, data, key)
    environment = launching.environment(data / "flower")
    over = threading.Event()
    with Processes(data) as processes:

        def keep() -> None:  # phones are served meanwhile
            while not over.is_set():
                _deactivate(data, link, key)
                processes.start("supernode", command, environment)
                while (code := processes.exit_code("supernode")) is None:
                    if over.wait(_LOOK_SECONDS):
                        return
                LOG.warning(
                    "the SuperNode has ended (code %d), starting it again; it said:\n%s",
                    code,
                    processes.said("supernode", 5),
                )
                over.wait(_AGAIN_SECONDS)

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield processes
        finally:
            over.set()
            keeper.join()


def _deactivate(data: Path, link: launching.Link, key: Path | None) -> None:
    """Let the SuperLink know that the node before has ended, which a killed one could not tell.

    Where it did tell, or cannot be reached, this is refused, and nothing is lost.
    """
    number = node_number(data)
    if number is None or key is None or link.authority is None:
        return
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            launching.deactivation(link, key, number),
            env=launching.environment(data / "flower"),
            check=False,
            capture_output=True,
            timeout=_DEACTIVATE_SECONDS,
        )
