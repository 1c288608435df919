"""Worker processes that must not outlive the command that started them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_POLL_SECONDS = 0.5


def end_with(parent: int) -> None:
    """End this process soon after the process `parent` has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, which a terminal sends to all of them.

    The process that started them does, at the end of the block if it came inside, and ends them.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
