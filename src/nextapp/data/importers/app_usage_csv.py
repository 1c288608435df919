"""Android: the CSV that the App Usage logger (AUM) exports."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import islice

from nextapp.data.importers.content import MOST_EVENTS, Content
from nextapp.data.importers.events import Event, Format, Found
from nextapp.data.times import dates_and_clocks, unclear_dates

_HEADER = ["app name", "date", "time", "duration"]
_DATE = re.compile(r"\d{1,4}\s?[-./]\s?\d{1,2}\s?[-./]\s?\d{1,4}\.?")
_TIME = re.compile(r"\D{0,8}\d{1,2}[:.]\d{2}([:.]\d{2})?\D{0,8}")
_DURATION = re.compile(r"\d{1,6}[:.]\d{2}([:.]\d{2})?")
_LOOKED_AT = 20  # rows checked to recognise the format
_LONGEST_LINE = 4096


def recognise(content: Content) -> bool:
    """By the header, or if it is in another language by the format of the first rows."""
    rows = [[field.strip() for field in row] for row in islice(_rows(content), _LOOKED_AT)]
    if not rows:
        return False
    if [field.lower() for field in rows[0]] == _HEADER:
        return True
    return len(rows) > 1 and len(rows[0]) == 4 and all(map(_is_usage, rows[1:]))


def _is_usage(row: list[str]) -> bool:
    return (
        len(row) == 4
        and _DATE.fullmatch(row[1]) is not None
        and _TIME.fullmatch(row[2]) is not None
        and _DURATION.fullmatch(row[3]) is not None
    )


def _rows(content: Content) -> Iterator[list[str]]:
    """The rows that are not empty; an invalid CSV line gives one empty field."""
    first = content.text[:_LONGEST_LINE].split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    lines = (match[0].strip("\r \ufeff") for match in re.finditer(r"[^\n]+", content.text))
    for line in islice(filter(None, lines), MOST_EVENTS):
        try:
            yield next(csv.reader([line[:_LONGEST_LINE]], delimiter=separator), [""])
        except csv.Error:
            yield [""]


def read(content: Content) -> Found:
    """Every row except the header and bad rows is a launch; times are local."""
    rows = _rows(content)
    next(rows, None)
    names, dates, clocks = [], [], []
    n_bad = 0
    for row in rows:
        if len(row) < 3 or not row[0].strip():
            n_bad += 1
            continue
        names.append(row[0])
        dates.append(row[1])
        clocks.append(row[2])
    times = dates_and_clocks(dates, clocks)
    events = [Event(name, time) for name, time in zip(names, times, strict=True)]
    unclear = unclear_dates(dates)
    return Found(events, changes_only=False, n_bad=n_bad, notes=(unclear,) if unclear else ())


FORMAT = Format(
    "App Usage export (AUM CSV)",
    "a CSV with App name, Date, Time, Duration (App Usage)",
    recognise,
    read,
)
