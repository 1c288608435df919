"""Tables of launches, line by line: CSV, TSV, LSApp and the App Usage trace as published.

The reader of phones and of the page, with only the standard library, and the one that names bad
rows. `nextapp.data.loading` reads most tables faster, and gives the rest to this one.

One row is one line, so that an error can name it: a line break inside quotes counts as an
unbalanced quote. Empty lines are skipped. Times are numbers counted from 1970, the digits
yyyymmddHHMMSS with up to three decimals of a second, ISO, or a date such as 1/2/24 or 01.02.2024
and a time of day; a time without a zone is UTC.
"""

from __future__ import annotations

import codecs
import csv
import re
import reprlib
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple

from nextapp.data.importers.content import (
    MOST_EVENTS,
    Content,
    DateOrder,
    UnreadableLog,
    is_month_first_in,
)
from nextapp.data.importers.events import ME, ImportedLaunch, clean_name
from nextapp.data.times import local_time, offset_at, offset_of
from nextapp.settings import nearest

TimeUnit = Literal["s", "ms"]
Value = str | int | float | None

NAME = "three columns (CSV)"
MOST_COLUMNS = 1_000
LATEST_MS = 4_102_444_800_000  # 2100-01-01; times from 1970-01-01 up to it are accepted

LSAPP_HEADER = {"user_id", "session_id", "timestamp", "app_name", "event_type"}
APP_USAGE_LINE = re.compile(rb"[^ \t]+[ \t][0-9]{14,17}(?:[ \t][^ \t\r\n]+){3}\r?\n?")
APP_USAGE_HEADER = ("user", "time", "base station", "app id", "traffic")

NUMBER = r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]{1,3})?"
DIGITS = r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{0,3})"
ISO_OF_DIGITS = r"\g<1>-\g<2>-\g<3> \g<4>:\g<5>:\g<6>.\g<7>0"
DAY, CLOCK = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
ISO = rf"{DAY}[ T]{CLOCK}(?:\.[0-9]+)?"
ZONE = r"Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
_SLASHED = re.compile(r"\s*[0-9]{1,2}([-/])[0-9]{1,2}\1")
_SLASHED_FIELD = re.compile(rb"(?:^|[,;\t\"]) ?[0-9]{1,2}([-/])[0-9]{1,2}\1[0-9]{2,4}[ T,]")
_OF_A_USER = re.compile("user|uid|person|participant|subject|device|phone|owner|imei")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOT_UTF8 = "not UTF-8"
WRONG_FIELDS = "wrong number of fields"
OPEN_QUOTE = "unbalanced quote"
NO_USER = "empty user"
NO_APP = "empty app"
NO_TIME = "unreadable time"
FAR_TIME = "time out of range"


class BadRow(UnreadableLog):
    """A row that cannot be read; the message names file, line and column."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns, in any case; None for the usual ones, as `names_to_find` says."""

    user: str | None = None
    time: str | None = None
    app: str | None = None

    def names_to_find(self) -> dict[str, tuple[str, ...]]:
        """For each of user, time and app, the possible names; the first one found is used."""
        return {
            "user": (self.user,) if self.user else ("user_id", "user"),
            "time": (self.time,) if self.time else ("timestamp", "datetime", "time", "date"),
            "app": (self.app,) if self.app else ("app_name", "item_id", "app", "package_name"),
        }


@dataclass(frozen=True)
class Table:
    """The layout of a file. ``positions``: columns of user, if there is one, time, app and, in
    LSApp, event. ``month_first``: dates with slashes or hyphens are M/D/Y, not D/M/Y; None: not
    known."""

    file: str
    kind: str
    header: tuple[str, ...]
    positions: dict[str, int]
    separator: str = ""
    quotes: bool = False
    row_word: str = "line"
    month_first: bool | None = None

    def column(self, position: int) -> str:
        return f"column {self.header[position]}" if position < len(self.header) else "whole line"


class Row(NamedTuple):
    """A row as found: its number, its line where it is one, and the values of the columns."""

    number: int
    line: bytes
    user: str | None = None
    time: Value = None
    app: str | None = None
    event: str | None = None
    problem: str | None = None


class Launch(NamedTuple):
    """``offset`` is that of the time zone in seconds, None where the table does not tell it."""

    user: str
    app: str
    ms: int
    offset: int | None


def looks_like_table(start: str) -> bool:
    """Whether a text begins with the usual names of columns; that of the user may be missing."""
    first = start.lstrip("\ufeff\r\n").split("\n", 1)[0].strip("\r")
    separator = max(",;\t", key=first.count)
    try:
        names = next(csv.reader([first], delimiter=separator), [])
    except csv.Error:
        return False
    wanted = Columns().names_to_find()
    return all(_place_of(role, wanted[role], names) is not None for role in ("time", "app"))


def read(content: Content, zone: tzinfo | None = None) -> list[ImportedLaunch]:
    """The launches in file order; a bad row raises `BadRow`.

    ``zone`` is that of times without one; None is UTC. Where neither says how late it was for the
    person, this machine's zone does.
    """
    lines = content.text.encode().split(b"\n")
    first = next(number for number, line in enumerate(lines) if line.strip())
    table = table_of_header(lines[first], content.name, Columns())
    table = with_order(lines[first + 1 :], table, content.dates)
    rows = rows_of_lines(lines[first + 1 :], first + 2, table)
    found: list[ImportedLaunch] = []
    for launch in launches_of_rows(rows, table, zone=zone):
        if len(found) == MOST_EVENTS:
            raise UnreadableLog(f"{content.name}: more than {MOST_EVENTS:,} launches.")
        clock = launch.ms / 1000
        offset = offset_at(clock, None) if launch.offset is None else launch.offset
        user, app = clean_name(launch.user) or ME, clean_name(launch.app)
        if not app:
            raise UnreadableLog(
                f"{content.name}: an app's name must have 1 to 255 printable characters, got "
                f"{launch.app!r:.60}."
            )
        found.append(ImportedLaunch(user, app, clock, offset))
    return found


# --- Header


def table_of_header(line: bytes, file: str, columns: Columns) -> Table:
    """The layout of a file that begins with this line."""
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UnreadableLog(
            f"{file}: the first line is not text in UTF-8. Save the log as CSV or TSV in UTF-8 "
            f"(plain, gzip or tar.gz) or as Parquet."
        ) from error
    if "\r" in text:
        raise UnreadableLog(
            f"{file}: the lines end in a lone carriage return. Save the file with Unix (\\n) or "
            f"Windows (\\r\\n) line ends."
        )
    wanted = {_plain(name) for names in columns.names_to_find().values() for name in names}
    try:
        headers = {
            separator: [name.strip() for name in next(csv.reader([text], delimiter=separator))]
            for separator in ",\t;"
        }
    except csv.Error as error:
        raise UnreadableLog(
            f"{file}: the first line is not a header ({error}). Save the log as CSV, TSV or "
            f"Parquet."
        ) from error
    separator, names = max(
        headers.items(),
        key=lambda item: (len(wanted.intersection(map(_plain, item[1]))), len(item[1])),
    )
    if len(names) > MOST_COLUMNS:
        raise UnreadableLog(
            f"{file}: a log may have up to {MOST_COLUMNS:,} columns, got {len(names):,}. Keep "
            f"those of user, time and app."
        )
    kind = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons"}[separator]
    kind = "LSApp" if set(names) >= LSAPP_HEADER else kind
    found = positions(names, file, columns)
    return Table(file, kind, tuple(names), found, separator, True)


def with_order(lines: Iterable[bytes], table: Table, told: DateOrder | None) -> Table:
    """The table with the order of day and month in the dates of its lines."""
    times = (str(row.time) for row in rows_of_lines(lines, 0, table) if row.problem is None)
    dates = filter(_SLASHED.match, times)
    return replace(table, month_first=is_month_first_in(dates, told, table.file))


def has_dates(lines: Sequence[bytes]) -> bool:
    """Whether the first of these lines have dates whose order of day and month must be found."""
    return any(map(_SLASHED_FIELD.search, lines[:100]))


def positions(header: list[str], file: str, columns: Columns) -> dict[str, int]:
    """The columns of time, app and, if present, user and event type.

    Without a column of users all rows are of one person, unless another column may name them.
    """
    found = {}
    missing = []
    for role, names in columns.names_to_find().items():
        place = _place_of(role, names, header)
        if place is not None:
            same = header.count(header[place])
            if same > 1:
                raise UnreadableLog(
                    f"{file}: the column {header[place]!r} occurs {same} times in the header. "
                    f"Rename or remove all but one."
                )
            found[role] = place
        elif role != "user" or columns.user or any(map(_OF_A_USER.search, map(str.lower, header))):
            missing.append((role, names))
    if missing:
        free = [name for i, name in enumerate(header) if i not in found.values()]
        remedies = [_remedy_for_missing(role, names, free) for role, names in missing]
        if len(missing) >= 2:
            from nextapp.data.importers import list_formats  # which imports this module

            remedies.append("If the file has no header line, add one.")
            remedies.append(
                f"It is not an export of a device either; looked for: {list_formats()}."
            )
        raise UnreadableLog(f"{file}: the columns are {list_names(header)}. {' '.join(remedies)}")
    if "event_type" in header and header.index("event_type") not in found.values():
        found["event"] = header.index("event_type")
    return found


def _remedy_for_missing(role: str, names: tuple[str, ...], free: list[str]) -> str:
    words = {name: set(re.split(r"[\W_]+", name.lower())) for name in free}
    close = next((name for name in free if words[name] & set(names)), nearest(names[0], free))
    name = close or "NAME"
    return (
        f"None is {' or '.join(map(repr, names[:2]))}"
        + (f"; the nearest name is {close!r}" if close else "")
        + f". Name the column of the {role} with --{role}-column {shlex.quote(name)} "
        f"(in Python: columns=Columns({role}={name!r}))."
    )


def _place_of(role: str, names: tuple[str, ...], header: Sequence[str]) -> int | None:
    """The first column with one of these names, as it stands or in other letters and spaces."""
    plain = [_plain(name) for name in header]
    for name in names:
        if name in header:
            return header.index(name)
        if _plain(name) in plain:
            there = plain.index(_plain(name))
            day_and_clock = role == "time" and {"date", "time"} <= set(plain)
            return None if day_and_clock and plain[there] in ("date", "time") else there
    return None


def _plain(name: str) -> str:
    """
    >>> _plain("App Name"), _plain("app_name")
    ('appname', 'appname')
    """
    return re.sub(r"[\W_]", "", name.lower())


def list_names(names: Iterable[str]) -> str:
    shown = [f"{name!r:.60}" for name in names]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return (", ".join(shown[:12]) or "nothing") + more


# --- Lines to rows


def rows_of_lines(lines: Iterable[bytes], first_number: int, table: Table) -> Iterator[Row]:
    """The rows of these lines; the first has this number."""
    for number, line in enumerate(lines, first_number):
        raw = line.removesuffix(b"\r")
        if raw:
            yield _row(number, raw, table)


def _row(number: int, raw: bytes, table: Table) -> Row:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Row(number, raw, problem=NOT_UTF8)
    fields = text.split(table.separator)
    if table.quotes and '"' in text:
        try:
            fields = next(csv.reader([text], delimiter=table.separator, strict=True))
        except csv.Error:
            return Row(number, raw, problem=OPEN_QUOTE)
    if len(fields) != len(table.header):
        return Row(number, raw, problem=WRONG_FIELDS)
    return Row(number, raw, **{role: fields[at] for role, at in table.positions.items()})


# --- Rows to launches


def launches_of_rows(
    rows: Iterable[Row],
    table: Table,
    *,
    time_unit: TimeUnit = "s",
    zone: tzinfo | None = None,
    skip: bool | None = None,
    tally: Counter[str] | None = None,
) -> Iterator[Launch]:
    """The rows that are launches; the first bad row raises `BadRow`, unless bad rows are skipped.

    ``skip`` is None where bad rows cannot be skipped. Rows, other events and problems are counted
    in ``tally``.
    """
    tally = Counter() if tally is None else tally
    for row in rows:
        tally["rows"] += 1
        problem, ms, offset = row.problem, 0, None
        if problem is None and "event" in table.positions and row.event != "Opened":
            tally["other events"] += 1
            continue
        if problem is None:
            if "user" in table.positions and not (row.user or "").strip():
                problem = NO_USER
            elif not (row.app or "").strip():
                problem = NO_APP
            else:
                problem, ms, offset = milliseconds(
                    row.time, time_unit, zone, month_first=table.month_first
                )
        if problem is None:
            yield Launch(row.user or ME, row.app or "", ms, offset)
        elif skip:
            tally[problem] += 1
        else:
            remedy = f"Correct the {table.row_word}"
            if skip is not None:
                remedy += ", or leave out all bad rows with --skip-bad-rows"
                remedy += " (in Python: skip_bad_rows=True)"
            complaint = _complaint(row._replace(problem=problem), table, time_unit)
            raise BadRow(f"{complaint} {remedy}.")


def milliseconds(
    time: Value, time_unit: TimeUnit, zone: tzinfo | None, *, month_first: bool | None = None
) -> tuple[str | None, int, int | None]:
    """What is wrong with a time, if anything; milliseconds since 1970; the zone's offset."""
    text, offset = "" if time is None else str(time).strip(), None
    if isinstance(time, str) and re.fullmatch(DIGITS, text):
        text = re.sub(DIGITS, ISO_OF_DIGITS, text)
    instant = None
    if isinstance(time, str) and re.fullmatch(f"{ISO}(?:{ZONE})?", text):
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            return NO_TIME, 0, None
    elif isinstance(time, str):
        instant = local_time(text, month_first=month_first)
    if instant is not None:
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=zone or UTC)
        else:
            offset = offset_of(instant)
        ms = (instant - _EPOCH) // timedelta(milliseconds=1)
    elif text != "nan" and (isinstance(time, int | float) or re.fullmatch(NUMBER, text)):
        # Rounded to microseconds, which a float can represent, then truncated to milliseconds.
        number = float(text) * {"s": 1e6, "ms": 1e3}[time_unit]
        ms = round(min(max(number, -1e16), 1e16)) // 1000
    else:
        return NO_TIME, 0, None
    if not 0 <= ms <= LATEST_MS:
        return FAR_TIME, ms, None
    return None, ms, offset_at(ms / 1000, zone) if offset is None and zone else offset


def _complaint(row: Row, table: Table, time_unit: TimeUnit) -> str:
    """The error message for a row: what is wrong, where, and what to do."""
    about_line = row.problem in (NOT_UTF8, WRONG_FIELDS, OPEN_QUOTE)
    where, expected, got = (_line_finding if about_line else _value_finding)(row, table)
    looks_like_ms = (
        row.problem == FAR_TIME
        and time_unit == "s"
        and re.fullmatch(NUMBER, str(row.time).strip())
        and 0 < float(str(row.time)) <= LATEST_MS
    )
    hint = " It looks like milliseconds: give --time-unit ms (in Python: time_unit='ms')."
    return (
        f"{table.file}, {table.row_word} {row.number}, {where}: expected {expected}, "
        f"got {got}.{hint if looks_like_ms else ''}"
    )


def _line_finding(row: Row, table: Table) -> tuple[str, str, str]:
    """The column with the problem, the expected content and the actual one, of a bad line."""
    if row.problem == NOT_UTF8:
        fields = row.line.split(table.separator.encode())
        i = next(i for i, field in enumerate(fields) if not _is_utf8(field))
        return table.column(i), "text in UTF-8", _short(fields[i])
    text = row.line.decode()
    s = table.separator
    one = rf'"(?:[^"]|"")*"|[^{s}"][^{s}]*|' if table.quotes else rf"[^{s}]*"
    field_before_another = re.compile(f"(?:{one}){s}")
    last = start = 0
    while match := field_before_another.match(text, start):
        last, start = last + 1, match.end()
    if row.problem == OPEN_QUOTE:
        expected = f"a quote closed before the next {table.separator!r} or the end of the line"
        return table.column(last), expected, _short(text[start:])
    expected = f"{len(table.header)} fields separated by {table.separator!r}"
    return "whole line", expected, f"{last + 1} in {_short(text)}"


def _value_finding(row: Row, table: Table) -> tuple[str, str, str]:
    """The column with the problem, the expected value and the actual one."""
    role, expected = {
        NO_USER: ("user", "the name of a user"),
        NO_APP: ("app", "the name of an app"),
        NO_TIME: ("time", "a time such as 2018-01-16 06:01:05 or a number counted from 1970"),
        FAR_TIME: ("time", "a time from 1970-01-01 to 2100-01-01"),
    }[row.problem or ""]
    return table.column(table.positions[role]), expected, _short(getattr(row, role))


def _short(value: Value | bytes) -> str:
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 60
    return shortener.repr(value)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
