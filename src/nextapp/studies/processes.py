"""Worker processes that must not outlive the command that started them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

_POLL_SECONDS = 0.5


def end_with(parent: int) -> None:
    """End this process soon after the process `parent` has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def received(connection: Connection) -> Iterator[Any]:
    """What the process at the other end sends, until it sends None or has ended."""
    try:
        while (sent := connection.recv()) is not None:
            yield sent
    except EOFError:
        return


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, which a terminal sends to all of them.

    The process that starts them hears it at the end of the block: a start that was interrupted
    would leave a child that finds half of what it was sent.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "pthread_sigmask") or not on_main_thread:  # Windows has no masks
        yield
        return
    heard = threading.Event()
    # Children inherit the mask. It does not keep another thread from taking the signal, upon which
    # Python would interrupt this one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    answer = signal.signal(signal.SIGINT, lambda *_: heard.set())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, answer)
    if heard.is_set():
        raise KeyboardInterrupt
