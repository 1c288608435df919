"""A SuperNode beside a gateway: started with it, started again if it ends, stopped with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nextapp.server.flower import launching
from nextapp.server.flower.processes import Processes, end_members

LOG = logging.getLogger("nextapp.supernode")

_AGAIN_SECONDS = 5.0


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
        processes.start("supernode", command, environment)

        def keep() -> None:
            while not over.wait(_AGAIN_SECONDS):
                code = processes.exit_code("supernode")
                if code is not None:
                    LOG.warning(
                        "the SuperNode has ended (code %d), starting it again; it said:\n%s",
                        code,
                        processes.said("supernode", 5),
                    )
                    processes.start("supernode", command, environment)

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield processes
        finally:
            over.set()
            keeper.join()
