"""Parsing of times: ISO or seconds since 1970."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, tzinfo


def moment(text: str, zone: tzinfo | None = None) -> tuple[float, int]:
    """Seconds since 1970 and the UTC offset in seconds, of an ISO time or a number of seconds.

    A time without a zone is local: in ``zone``, or this machine's if that is None.

    >>> moment("2026-11-15T10:00:00+02:00")
    (1794729600.0, 7200)
    """
    try:
        when = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text.strip())
            if parsed.tzinfo is None:
                parsed = parsed.astimezone() if zone is None else parsed.replace(tzinfo=zone)
            offset = parsed.utcoffset()
            return parsed.timestamp(), 0 if offset is None else int(offset.total_seconds())
        except (ValueError, OverflowError):
            raise ValueError(
                f"a time must be like 2026-11-15T10:00:00 or in seconds since 1970, got "
                f"{text!r:.60}."
            ) from None
    if not 0 <= when < math.inf:
        raise ValueError(f"seconds since 1970 must be 0 or more, got {text!r:.60}.")
    try:
        if zone is not None:
            offset = datetime.fromtimestamp(when, UTC).astimezone(zone).utcoffset()
            return when, 0 if offset is None else int(offset.total_seconds())
        return when, time.localtime(when).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        raise ValueError(
            f"seconds since 1970 must be before the year 9999, got {text!r:.60}."
        ) from None
