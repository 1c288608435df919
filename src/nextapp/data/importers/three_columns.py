"""A CSV file with the columns timestamp and app_name, and user_id if there are several people.

`nextapp.data.load` reads more kinds of tables and has better messages about bad rows; this module
is for phones and the page, and needs only the standard library.
"""

from __future__ import annotations

import csv
from datetime import tzinfo

from nextapp.data.importers.content import MOST_EVENTS, Content, UnreadableLog
from nextapp.data.importers.events import ME, ImportedLaunch, clean_name
from nextapp.data.moments import moment

NAME = "three columns (CSV)"
_NAMES = ("app_name", "item_id")


def recognise(content: Content) -> bool:
    header = _header(content)
    return "timestamp" in header and any(name in header for name in _NAMES)


def _header(content: Content) -> list[str]:
    first = content.text[:4096].lstrip("\ufeff\r\n").split("\n", 1)[0]
    try:
        row = next(csv.reader([first.strip("\r")], delimiter=_separator(first)), [])
    except csv.Error:
        return []
    return [name.strip() for name in row]


def _separator(line: str) -> str:
    return max(",;\t", key=line.count)


def read(content: Content, zone: tzinfo | None = None) -> list[ImportedLaunch]:
    """The launches in file order; a bad row raises `UnreadableLog` with its line number.

    ``zone`` is that of times without one; None is this machine's.
    """
    header = _header(content)
    app_column = header.index(next(name for name in _NAMES if name in header))
    time_column = header.index("timestamp")
    user_column = header.index("user_id") if "user_id" in header else None
    text = content.text.lstrip("\ufeff\r\n")
    rows = csv.reader(text.splitlines(), delimiter=_separator(text[:4096].split("\n", 1)[0]))
    launches: list[ImportedLaunch] = []
    try:
        next(rows)
        for row in rows:
            if row:
                _check_row(row, len(header), len(launches))
                user = ME if user_column is None else clean_name(row[user_column]) or ME
                app = _app_name(row[app_column])
                launches.append(ImportedLaunch(user, app, *moment(row[time_column], zone)))
    except (ValueError, csv.Error) as error:
        raise UnreadableLog(f"{content.name}, line {rows.line_num}: {error!s:.200}") from None
    return launches


def _check_row(row: list[str], n_columns: int, n_launches: int) -> None:
    if len(row) != n_columns:
        raise ValueError(f"expected {n_columns} fields, got {len(row)}")
    if n_launches >= MOST_EVENTS:
        raise ValueError(f"more than {MOST_EVENTS:,} launches")


def _app_name(text: str) -> str:
    app = clean_name(text)
    if not app:
        raise ValueError(
            f"an app's name must have 1 to 255 printable characters, got {text!r:.60}."
        )
    return app
