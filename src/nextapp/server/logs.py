"""A server's log: one line an event, with level and UTC, plain or as JSON; floods are held back.

No line says anything about a client: no address, no token, no report.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

Form = Literal["plain", "json"]

QUIET_SECONDS = 30.0
"""The same event is logged once in this time; then how often it came meanwhile."""


def start_log(form: Form = "plain", level: int = logging.INFO) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Plain())
    handler.addFilter(OnceInAWhile())
    logging.basicConfig(level=level, handlers=[handler], force=True)


class OnceInAWhile(logging.Filter):
    """Lets a warning through once in `seconds`, whatever its arguments, and counts the others.

    What is told below the level of a warning, such as the end of a round, always comes through.
    """

    def __init__(
        self, seconds: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._last: dict[tuple[str, str], tuple[float, int]] = {}  # when it came, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key, now = (record.name, str(record.msg)), self._clock()
        before, held_back = self._last.get(key, (-self._seconds, 0))
        if now - before < self._seconds:
            self._last[key] = (before, held_back + 1)
            return False
        self._last[key] = (now, 0)
        if held_back:
            words = record.getMessage()
            record.msg = f"{words} (and {held_back:,} like it since)"
            record.args = ()
        return True


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_when(record)} {record.levelname.lower():7} {_words(self, record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": _when(record),
                "level": record.levelname.lower(),
                "part": record.name,
                "message": _words(self, record),
            }
        )


def _when(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _words(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    words = record.getMessage()
    if record.exc_info:
        words += "\n" + formatter.formatException(record.exc_info)
    return words
