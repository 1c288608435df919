"""Android: the CSV that the App Usage logger (AUM) exports, and others with a day and a time."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from nextapp.data.importers.content import (
    ME,
    MOST_EVENTS,
    OF_A_USER,
    Columns,
    Content,
    is_month_first_in,
    plain_name,
)
from nextapp.data.importers.events import Event, Format, Found
from nextapp.data.times import local_time

_DATE = re.compile(r"\d{1,4}\s?[-./]\s?\d{1,2}\s?[-./]\s?\d{1,4}\.?")
_TIME = re.compile(r"\D{0,8}\d{1,2}[:.]\d{2}([:.]\d{2})?\D{0,8}")
_DURATION = re.compile(r"\d{1,6}[:.]\d{2}([:.]\d{2})?")
_PACKAGE = re.compile(r"[A-Za-z]\w*(\.\w+)+")
_LETTER = re.compile(r"[^\W\d_]")
_LOOKED_AT = 20  # rows checked to recognise the format
_LONGEST_LINE = 4096


class _Places(NamedTuple):
    """Columns of the app's name, the date, the time of day, and the user where there are some."""

    app: int
    date: int
    clock: int
    user: int | None = None


def recognise(content: Content) -> bool:
    return _places(list(islice(_rows(content), _LOOKED_AT))) is not None


def _places(rows: Sequence[Sequence[str]]) -> _Places | None:
    """By the names of the columns, or if they are in another language by what the rows hold.

    There may be further columns, such as a row number or the package's name.
    """
    if not rows:
        return None
    names = [plain_name(field) for field in rows[0]]
    apps = map(plain_name, Columns().names_to_find()["app"])
    app = next((name for name in apps if name in names), None)
    if app and {"date", "time"} <= set(names):
        user = next((place for place, name in enumerate(names) if OF_A_USER.search(name)), None)
        return _Places(names.index(app), names.index("date"), names.index("time"), user)
    columns = list(zip(*(row for row in rows[1:] if len(row) == len(rows[0])), strict=True))
    if not columns or len(columns[0]) < len(rows) - 1:
        return None
    dates, clocks, durations = (
        [place for place, column in enumerate(columns) if all(map(kind.fullmatch, column))]
        for kind in (_DATE, _TIME, _DURATION)
    )
    texts = [place for place, column in enumerate(columns) if any(map(_LETTER.search, column))]
    texts = [place for place in texts if place not in clocks]
    labels = [place for place in texts if not all(map(_PACKAGE.fullmatch, columns[place]))]
    after = [place for place in clocks if dates and place > dates[0]]
    if not (texts and after and set(durations) - {after[0]}):
        return None
    return _Places((labels or texts)[0], dates[0], after[0])


def _rows(content: Content) -> Iterator[list[str]]:
    """The rows that are not empty; an invalid CSV line gives one empty field."""
    first = content.text[:_LONGEST_LINE].split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    lines = (match[0].strip("\r \ufeff") for match in re.finditer(r"[^\n]+", content.text))
    for line in islice(filter(None, lines), MOST_EVENTS):
        try:
            fields = next(csv.reader([line[:_LONGEST_LINE]], delimiter=separator), [""])
        except csv.Error:
            fields = [""]
        yield [field.strip() for field in fields]


def read(content: Content) -> Found:
    """Every row except the header and empty ones is a launch; times are local."""
    places = _places(list(islice(_rows(content), _LOOKED_AT)))
    assert places is not None, "only what `recognise` has seen is read"
    rows = list(_rows(content))[1:]
    good = [row for row in rows if len(row) > max(filter(None, places)) and row[places.app]]
    dates = [row[places.date] for row in good]
    month_first = is_month_first_in(dates, content.dates, content.name)
    events = [
        Event(
            row[places.app],
            local_time(f"{row[places.date]} {row[places.clock]}", month_first=month_first),
            user=ME if places.user is None else row[places.user],
        )
        for row in good
    ]
    return Found(events, changes_only=False, n_bad=len(rows) - len(good))


FORMAT = Format(
    "App Usage export (AUM CSV)",
    "a CSV with App name, Date, Time, Duration (App Usage)",
    recognise,
    read,
)
