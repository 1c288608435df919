"""The command `nextapp`: how it starts, and how Ctrl-C ends it.

Ctrl-C is answered within two seconds by one line that says how to continue, never a traceback.
Python raises KeyboardInterrupt between two of its own steps. While a loop runs in machine code,
or is being compiled, that can take minutes; so a thread hears of the signal too, and ends the
process where it has not ended by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

STOPPED = 130  # what shells give for Ctrl-C
_PATIENCE = 0.8  # seconds before the answer
_FOR_CHILDREN = 4.0  # further seconds in which processes of its own may end without a word
_FROM_THE_START = "Nothing was kept: run the command again from the start."
_announced = threading.Event()
interrupt_was_lost = threading.Event()
"""Set where Python could not raise KeyboardInterrupt, as within LLVM; other errors follow then."""
_how_to_continue = [_FROM_THE_START]


def main() -> None:
    """Run the command; without Click, say which pip line brings it."""
    try:
        answer_ctrl_c()
        try:
            from nextapp.cli.commands import app
        except ModuleNotFoundError as error:
            sys.exit(
                f"The command needs {error.name}, which is not installed. The base install is what "
                f"a phone carries (python -m nextapp.phone). For all commands install "
                f"nextapp[lab], for a server alone nextapp[serve] (docs/install.md)"
            )
        app()
    except KeyboardInterrupt:
        say_stopped()
        sys.exit(STOPPED)


def when_stopped_say(words: str) -> None:
    """What to tell a person who stops the command from here on."""
    _how_to_continue[0] = words


def end_by_itself() -> None:
    """For a command that ends in its own time after Ctrl-C, as a server does."""
    signal.set_wakeup_fd(-1)


def answer_ctrl_c() -> None:
    """Watch for Ctrl-C from now on. To be called once, by the main thread."""
    when_stopped_say(_FROM_THE_START)
    _announced.clear()
    interrupt_was_lost.clear()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read_end,), daemon=True).start()
    shown = sys.unraisablehook

    def without_interrupts(raised: Any) -> None:
        if isinstance(raised.exc_value, KeyboardInterrupt):
            interrupt_was_lost.set()
        else:
            shown(raised)

    sys.unraisablehook = without_interrupts


def say_stopped() -> None:
    """One line on standard error, once."""
    if _announced.is_set():
        return
    _announced.set()
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress line hides it
    print(f"{show_cursor}\nstopped. {_how_to_continue[0]}", file=sys.stderr, flush=True)


def _watch(read_end: int) -> None:
    while True:
        if os.read(read_end, 1) == bytes([signal.SIGINT]):
            time.sleep(_PATIENCE)
            say_stopped()
            if "multiprocessing.popen_spawn_posix" in sys.modules:
                time.sleep(_FOR_CHILDREN)
            os._exit(STOPPED)
