"""Parsing of times: ISO, seconds since 1970, dates in common forms, local times without a zone.

A local time is converted to seconds since 1970 with a time zone: one given by name
(``Europe/Berlin``), or this machine's. At the end of daylight saving time one hour occurs twice;
the second one is meant if the clock goes back from one launch to the next, else the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from nextapp.settings import nearest

Zone = tzinfo | None
"""A time zone; None is this machine's."""

EARLIEST, LATEST = 0.0, 4_102_444_800.0  # 1970 to 2100
_DISORDER = 60.0  # seconds; events that are less out of order do not mean that the clock went back

_DATE = re.compile(r"(\d{1,4})\s?([-./])\s?(\d{1,2})\s?\2\s?(\d{1,4})\.?")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?")
_HALF = r"(?:[apπμ]\.?\s?[mμ]\.?|上午|下午|午前|午後|오전|오후)"  # of the day
_LOCAL = re.compile(
    rf"(\d{{1,4}}\s?([-./])\s?\d{{1,2}}\s?\2\s?\d{{1,4}}\.?)(?:[T,\s]|\bat\b)+"
    rf"({_HALF}?\s*\d{{1,2}}[:.]\d{{2}}(?:[:.]\d{{2}})?(?:[.,]\d+)?\s*{_HALF}?)",
    re.IGNORECASE,
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAMED = re.compile(
    rf"(?:[a-z]{{3,9}},?\s+)?(?:(\d{{1,2}})\s+)?({'|'.join(_MONTHS)})[a-z]*\.?(?:\s+(\d{{1,2}}),?)?\s+(\d{{4}})",
    re.IGNORECASE,
)
_AFTERNOON = re.compile(r"[pμ]\.?\s?[mμ]\.?|下午|午後|오후", re.IGNORECASE)
_MORNING = re.compile(r"[aπ]\.?\s?[mμ]\.?|上午|午前|오전", re.IGNORECASE)


def find_zone(name: str | None) -> Zone:
    """The time zone with this name; None for this machine's.

    >>> find_zone("Europe/Berlin").key
    'Europe/Berlin'
    """
    if name is None:
        return None
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        cities = {zone.rpartition("/")[2]: zone for zone in sorted(available_timezones())}
        near = nearest(name.rpartition("/")[2].replace(" ", "_"), cities, least=0.7)
        raise ValueError(
            f"a time zone must be a name like Europe/Berlin or America/New_York, or UTC; got "
            f"{name!r}." + (f" Did you mean {cities[near]}?" if near else "")
        ) from None


def time_and_offset(text: str) -> tuple[float, int]:
    """Seconds since 1970 and the UTC offset in seconds, of an ISO time or a number of seconds.

    A time without a zone is in the zone of this machine.

    >>> time_and_offset("2026-11-15T10:00:00+02:00")
    (1794729600.0, 7200)
    """
    try:
        when = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text.strip())
            if parsed.tzinfo is None:
                parsed = parsed.astimezone()
            return parsed.timestamp(), offset_of(parsed)
        except (ValueError, OverflowError):
            raise ValueError(
                f"a time must be like 2026-11-15T10:00:00 or in seconds since 1970, got "
                f"{text!r:.60}."
            ) from None
    if not 0 <= when < math.inf:
        raise ValueError(f"seconds since 1970 must be 0 or more, got {text!r:.60}.")
    try:
        return when, offset_at(when, None)
    except (OverflowError, OSError, ValueError):
        raise ValueError(
            f"seconds since 1970 must be before the year 9999, got {text!r:.60}."
        ) from None


class _Parts(NamedTuple):
    first: int
    second: int
    third: int
    mark: str


def _date_parts(text: str) -> _Parts | None:
    match = _DATE.search(text)
    if match is None:
        return None
    first, mark, second, third = match.groups()
    return _Parts(int(first), int(second), int(third), mark)


def local_time(text: str, *, month_first: bool | None) -> datetime | None:
    """The local time of a date followed by a time of day; None if the text is not that, or if
    ``month_first`` is None and would be needed.

    Dates are Y-M-D, D.M.Y, with an English month as in Jan 2, 2024, or in one order with slashes or
    hyphens: D/M/Y, or M/D/Y if ``month_first``.

    >>> local_time("1/2/24 10:00 PM", month_first=True).isoformat()
    '2024-01-02T22:00:00'
    """
    text = text.strip()
    if (named := _NAMED.match(text)) and (named[1] or named[3]):
        month = _MONTHS.index(named[2].lower()) + 1
        text = f"{named[4]}-{month}-{named[1] or named[3]}{text[named.end() :]}"
    match = _LOCAL.fullmatch(text)
    date, clock = match and _date_parts(match[1]), match and _CLOCK.search(match[3])
    if match is None or date is None or clock is None:
        return None
    if date.first > 31:
        year, month, day = date.first, date.second, date.third
    elif date.mark != "." and month_first is None:
        return None
    elif date.mark != "." and month_first:
        month, day, year = date.first, date.second, date.third
    else:
        day, month, year = date.first, date.second, date.third
    hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
    if _AFTERNOON.search(match[3]):
        hour = hour % 12 + 12
    elif _MORNING.search(match[3]):
        hour %= 12
    try:
        return datetime(year + 2000 if year < 100 else year, month, day, hour, minute, second)
    except ValueError:
        return None


def is_month_first(dates: Iterable[str]) -> bool | None:
    """Whether M/D/Y is meant, not D/M/Y; None if nothing tells.

    A number above 12 tells, else which of the two makes the file sorted.
    """
    parts = [p for p in map(_date_parts, dates) if p is not None and p.mark != "."]
    parts = [p for p in parts if p.first <= 31]
    if all(p.first == p.second for p in parts):
        return False
    days_first = sum(p.first > 12 for p in parts)
    days_second = sum(p.second > 12 for p in parts)
    if days_first != days_second:
        return days_second > days_first
    by_month = _disorder([(p.third, p.first, p.second) for p in parts])
    by_day = _disorder([(p.third, p.second, p.first) for p in parts])
    return None if by_month == by_day else by_month < by_day


def _disorder(dates: Sequence[tuple[int, int, int]]) -> int:
    """The number of steps against the prevailing order."""
    pairs = list(pairwise(dates))
    up, down = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return min(up, down)


def iso_time(text: object) -> float | None:
    """Seconds since 1970 of an ISO time, in UTC if it has no zone; None if it is not one."""
    if not isinstance(text, str) or len(text) > 64:
        return None
    try:
        when = datetime.fromisoformat(text.strip())
        return when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def clocks_of_local_times(
    times: Iterable[datetime | None], zone: Zone
) -> list[tuple[float, int] | None]:
    """Seconds since 1970 and the UTC offset in seconds, in the order given."""
    clocks: list[tuple[float, int] | None] = []
    before = EARLIEST
    for time in times:
        clock = None if time is None else _clock(time, zone, before)
        if clock is not None:
            before = clock[0]
        clocks.append(clock)
    return clocks


def _clock(time: datetime, zone: Zone, before: float) -> tuple[float, int] | None:
    if not 1971 <= time.year <= 2099:
        return None
    first, second = (_aware(time.replace(fold=fold), zone) for fold in (0, 1))
    comes_twice = second.timestamp() > first.timestamp()
    chosen = second if comes_twice and first.timestamp() < before - _DISORDER else first
    return chosen.timestamp(), offset_of(chosen)


def _aware(time: datetime, zone: Zone) -> datetime:
    return time.astimezone() if zone is None else time.replace(tzinfo=zone)


def offset_at(clock: float, zone: Zone) -> int:
    """The UTC offset in seconds at this time."""
    return offset_of(datetime.fromtimestamp(clock, UTC).astimezone(zone))


def offset_of(time: datetime) -> int:
    """The UTC offset in seconds of a time; 0 if it has no zone."""
    offset = time.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
