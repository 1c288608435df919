"""The content of a file: as text, as JSON, as SQLite tables, and as a table of launches by lines.

The readers of phones and of the page, with only the standard library. `nextapp.data.loading` reads
most tables faster, and gives the rest to the reader here, which names bad rows.

One row is one line, so that an error can name it: a line break inside quotes counts as an
unbalanced quote. Empty lines are skipped. Times are seconds or milliseconds since 1970, the digits
yyyymmddHHMMSS with up to three decimals of a second, ISO, or a date such as 1/2/24 or 01.02.2024
and a time of day; a time without a zone is UTC.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import reprlib
import shlex
import sqlite3
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nextapp.data.times import is_month_first, local_time, offset_at, offset_of
from nextapp.settings import nearest

MOST_BYTES = 256 << 20
"""Largest file that is read; a person's log of many years is smaller."""

MOST_EVENTS = 5_000_000
"""Most launches of a person that are read."""

_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\x00"
_UTF8_LETTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xf4][\x80-\xbf]{2}")
_SECONDS = 60.0  # time limit of a query; a malicious database could make a query endless
_LONGEST_VALUE = 1 << 20
_LONGEST_TEXT = 1024  # bytes of a text in a query's rows: many rows may join the same long one
DateOrder = Literal["day/month", "month/day"]


THE_FRAME = "the data frame"
"""What stands for the name of a file in messages about one."""


class UnreadableLog(ValueError):
    """The file cannot be read as a launch log."""


def advice(file: str, option: str, argument: str) -> str:
    """The option of commands, and the argument of `read_log`: frames come to that alone."""
    return argument if file == THE_FRAME else f"{option} (in Python: {argument})"


def check_no_address(path: Path) -> None:
    """A path made of an address has lost a slash."""
    if re.match("[a-z]{2,}:/", str(path)):
        raise UnreadableLog(
            f"{str(path).replace(':/', '://', 1)}: is an address. Nothing is fetched here: "
            f"download the file, and give its path."
        )


def check_is_file(path: Path) -> None:
    check_no_address(path)
    if path.is_dir():
        raise UnreadableLog(f"{path}: is a folder. Give the path of the log file in it.")
    if not path.exists():
        siblings = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        kind, colon, rest = path.name.partition(":")
        made = nearest(kind, ["synthetic"], least=0.7) if colon else None
        near = f"{made}:{rest}" if made else nearest(path.name, siblings)
        raise FileNotFoundError(
            f"{path}: no such file. "
            + (f"Did you mean {near}?" if near else "Check the spelling of the path.")
        )


def first_bytes(path: Path, n: int) -> bytes:
    """Those of a file, unpacked if it is gzip."""
    with path.open("rb") as file:
        start = file.read(n)
    try:
        is_packed = start.startswith(_GZIP)
        return zlib.decompressobj(wbits=31).decompress(start, n) if is_packed else start
    except zlib.error:
        return start


def find_encoding(data: bytes) -> str:
    """UTF-16 by its mark or its zero bytes; UTF-8; Windows-1252 where no letter is in UTF-8."""
    start = data[:4096]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if start.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(start) > 1 and start[first::2].count(0) > 0.4 * len(start):
            return encoding
    if data.isascii() or _UTF8_LETTER.search(data):
        return "utf-8"
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "utf-8"
    return "cp1252"


def is_month_first_in(dates: Iterable[str], given: DateOrder | None, name: str) -> bool:
    """Whether M/D/Y is meant, by the ``given`` order, else by the dates; never guessed."""
    if given is not None:
        return given == "month/day"
    dates = list(dates)
    found = is_month_first(dates)
    if found is None:
        raise UnreadableLog(
            f"{name}: dates such as {dates[0].split()[0]} may begin with the day or with the "
            f"month, and nothing in the file tells which. Say it: "
            + advice(name, "--dates day/month, or --dates month/day", "dates='day/month'")
            + "."
        )
    return found


class Content:
    """The content of a file, as bytes, text, JSON or SQLite tables.

    Text may be in any of the encodings of `find_encoding`; invalid bytes are replaced. Nothing is
    written: a database is opened in memory. ``most_bytes`` holds for the unpacked content as well,
    ``most_events`` for the rows of a query. ``dates`` is the order that its dates have.
    ``notes`` say what beside the file was not read.
    """

    def __init__(
        self,
        data: bytes,
        name: str,
        most_bytes: int = MOST_BYTES,
        most_events: int = MOST_EVENTS,
        dates: DateOrder | None = None,
    ) -> None:
        if len(data) > most_bytes:
            raise UnreadableLog(
                f"{name}: a file may have up to {most_bytes >> 20} MiB, but this one has more. "
                f"Export a shorter period."
            )
        self.data = data
        self.name = name
        self.most_bytes, self.most_events = most_bytes, most_events
        self.dates = dates
        self.notes: tuple[str, ...] = ()

    @classmethod
    def of_file(cls, path: Path, dates: DateOrder | None = None) -> Content:
        """The content of a file; that of standard input for the path -."""
        if str(path) == "-":
            return cls(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input", dates=dates)
        check_is_file(path)
        with path.open("rb") as file:
            content = cls(file.read(MOST_BYTES + 1), str(path), dates=dates)
        log = path.with_name(path.name + "-wal")
        if content.is_database and log.exists() and log.stat().st_size:
            note = f"{log.name} next to the database was not read: its launches are missing"
            content.notes = (note,)
        return content

    def unzip(self) -> Content:
        """The unpacked content of a gzip file, up to `most_bytes`; else the content itself."""
        if not self.data.startswith(_GZIP):
            return self
        unpack = zlib.decompressobj(wbits=31)
        try:
            data = unpack.decompress(self.data, self.most_bytes + 1)
        except zlib.error as error:
            raise UnreadableLog(f"{self.name}: the gzip file is damaged ({error}).") from error
        if not unpack.eof and len(data) <= self.most_bytes:
            raise UnreadableLog(f"{self.name}: the gzip file is damaged (it is incomplete).")
        return Content(data, self.name, self.most_bytes, self.most_events, self.dates)

    @cached_property
    def encoding(self) -> str:
        return find_encoding(self.data)

    @cached_property
    def text(self) -> str:
        return self.data.decode(self.encoding, "replace").removeprefix("\ufeff")

    @cached_property
    def first_letter(self) -> str:
        """The first character that is not a space."""
        return self.text[:4096].lstrip()[:1]

    @cached_property
    def json(self) -> Any:
        """The parsed JSON; None if the text is not JSON."""
        if self.first_letter not in ("{", "["):
            return None
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UnreadableLog(
                f"{self.name}: the file starts like JSON but is not valid ({why:.120}). It may be "
                f"incomplete: export it again."
            ) from None

    @property
    def is_records(self) -> bool:
        """Whether it is a JSON list of objects."""
        return isinstance(self.json, list) and len(self.json) > 0 and isinstance(self.json[0], dict)

    def as_json_lines(self) -> Content:
        """The objects of a JSON list, each in a line."""
        lines = (json.dumps(record) for record in self.json)
        data = "\n".join(lines).encode("utf-8", "replace")
        return Content(data, self.name, self.most_bytes, self.most_events, self.dates)

    @property
    def is_database(self) -> bool:
        return self.data.startswith(_SQLITE)

    @cached_property
    def tables(self) -> dict[str, set[str]]:
        """The column names of the SQLite database's ordinary tables, by table."""
        if not self.is_database:
            return {}
        found = {}
        with closing(self._open()) as database, _readable(self.name):
            rows = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 LIMIT 2000"
            )
            for (table,) in rows.fetchall():
                columns = database.execute("SELECT name FROM pragma_table_info(?)", (table,))
                found[str(table)] = {str(column) for (column,) in columns.fetchmany(2000)}
        return found

    def query(self, sql: str) -> Iterator[Sequence[Any]]:
        """The rows of a query on the database, at most `most_events`, within a time limit.

        Long texts are cut, blobs are None.
        """
        with closing(self._open()) as database, _readable(self.name):
            end = time.monotonic() + _SECONDS
            database.set_progress_handler(lambda: time.monotonic() > end, 100_000)
            for n, row in enumerate(database.execute(sql)):
                if n >= self.most_events:
                    raise UnreadableLog(
                        f"{self.name}: a log may have up to {self.most_events:,} events, got more."
                    )
                yield [None if isinstance(value, bytes) else value for value in row]

    def _open(self) -> sqlite3.Connection:
        data = self.data
        if len(data) >= 100 and data[18:20] == b"\x02\x02":  # write-ahead logging needs a file
            data = data[:18] + b"\x01\x01" + data[20:]
        database = sqlite3.connect(":memory:")
        try:
            with _readable(self.name):
                database.deserialize(data)
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA query_only = ON")
                database.text_factory = lambda value: value[:_LONGEST_TEXT].decode(
                    "utf-8", "replace"
                )
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """SQLite's errors as one `UnreadableLog`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise UnreadableLog(
            f"{name}: the SQLite database is damaged or too slow to read ({error!s:.120}). Copy it "
            f"again while no program writes to it."
        ) from None


# --- Tables, line by line

Value = str | int | float | None

ME = "me"
"""The user's name in what has only one person."""

MOST_COLUMNS = 1_000
LATEST_MS = 4_102_444_800_000  # 2100-01-01; times from 1970-01-01 up to it are accepted
IN_MS = (
    1e11  # numbers from this on are milliseconds, of 1973; as seconds they were of the year 5138
)

LSAPP_HEADER = {"user_id", "session_id", "timestamp", "app_name", "event_type"}
APP_USAGE_LINE = re.compile(rb"[^ \t]+[ \t][0-9]{14,17}(?:[ \t][^ \t\r\n]+){3}\r?\n?")
APP_USAGE_HEADER = ("user", "time", "base station", "app id", "traffic")
OPENINGS = ("opened", "1", "move_to_foreground", "activity_resumed")
"""Launches in a column of events, in small letters: as LSApp and Android name them."""

NUMBER = r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]{1,3})?"
DIGITS = r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{0,3})"
ISO_OF_DIGITS = r"\g<1>-\g<2>-\g<3> \g<4>:\g<5>:\g<6>.\g<7>0"
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
ISO = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T]{CLOCK}"
ZONE = r"Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
_STAMP = re.compile(rf"({ISO}) ?(?:({ZONE})|(UTC|GMT))?")
_SLASHED = re.compile(r"\s*[0-9]{1,2}([-/])[0-9]{1,2}\1")
_SLASHED_FIELD = re.compile(rb"(?:^|[,;|\t\"]) ?[0-9]{1,2}([-/])[0-9]{1,2}\1[0-9]{2,4}[ T,]")
OF_A_USER = re.compile("user|uid|person|participant|subject|device|phone|owner|imei")
_TELLING = {
    "user": {"user", "who", "person", "participant", "subject", "device", "owner"},
    "time": {"time", "timestamp", "datetime", "date", "ts", "when", "at", "start"},
    "app": {"app", "item", "package", "bundle", "application", "what"},
}
"""Words in the names of columns, by what they tell."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEPARATORS = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons", "|": "CSV with bars"}
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\"?sep=.\"?\s*)?")

APP_USAGE, JSON_LINES = "App Usage", "JSON lines"
_A_TIME = "a time such as 2018-01-16 06:01:05, or seconds or ms since 1970"
NOT_UTF8 = "not UTF-8"
NOT_JSON = "not a JSON object"
WRONG_FIELDS = "wrong number of fields"
OPEN_QUOTE = "unbalanced quote"
NO_USER = "empty user"
NO_APP = "empty app"
NO_TIME = "unreadable time"
FAR_TIME = "time out of range"


class BadRow(UnreadableLog):
    """A row that cannot be read; the message names file, line and column."""


_NAMES_OF_APPS = ("app_name", "item_id", "app", "application", "package_name", "package")


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
            "app": (self.app,) if self.app else _NAMES_OF_APPS,
        }


@dataclass(frozen=True)
class TextTable:
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

    @property
    def has_header(self) -> bool:
        return self.kind not in (APP_USAGE, JSON_LINES)

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
    names, wanted = names_at(start), Columns().names_to_find()
    return all(_place_of(wanted[role], names) is not None for role in ("time", "app"))


def names_at(start: str) -> list[str]:
    """The names of columns with which a text begins, if it is a table."""
    first = _first_line(start)
    separator = max(_SEPARATORS, key=first.count)
    try:
        return list(_json_line(first) or next(csv.reader([first], delimiter=separator), []))
    except csv.Error:
        return []


def is_json_lines(start: str) -> bool:
    """Whether a text begins with a line that is a JSON object by itself, and no export of others.

    >>> is_json_lines('{"at": 1, "meta": {"app": "Mail"}}'), is_json_lines('{"buckets": {}}')
    (True, False)
    """
    record = _json_line(_first_line(start))
    return bool(record) and not any(name.startswith("buckets") for name in record or ())


def _first_line(text: str) -> str:
    lines = (line.strip("\ufeff\r") for line in text.split("\n"))
    return next((line for line in lines if not is_blank(line.encode("utf-8", "replace"))), "")


def is_blank(line: bytes) -> bool:
    """Whether a line before the header tells no names: an empty one, or the sep=; of Excel."""
    return _BLANK.fullmatch(line) is not None


def _json_line(line: str) -> dict[str, Any] | None:
    """The values of a JSON object by name, those within another by names joined with dots.

    >>> _json_line('{"at": 1, "meta": {"app": "Mail"}}')
    {'at': 1, 'meta.app': 'Mail'}
    """
    try:
        record = json.loads(line) if line.startswith("{") else None
        return None if record is None else dict(_flat(record))
    except (ValueError, RecursionError):
        return None


def _flat(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


# --- Header


def table_of_header(line: bytes, file: str, columns: Columns) -> TextTable:
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
    record = _json_line(text)
    if record is not None:
        names = list(record)
        return TextTable(file, JSON_LINES, tuple(names), positions(names, file, columns))
    wanted = {plain_name(name) for names in columns.names_to_find().values() for name in names}
    try:
        headers = {
            separator: [name.strip() for name in next(csv.reader([text], delimiter=separator))]
            for separator in _SEPARATORS
        }
    except csv.Error as error:
        raise UnreadableLog(
            f"{file}: the first line is not a header ({error}). Save the log as CSV, TSV or "
            f"Parquet."
        ) from error
    separator, names = max(
        headers.items(),
        key=lambda item: (len(wanted.intersection(map(plain_name, item[1]))), len(item[1])),
    )
    if len(names) > MOST_COLUMNS:
        raise UnreadableLog(
            f"{file}: a log may have up to {MOST_COLUMNS:,} columns, got {len(names):,}. Keep "
            f"those of user, time and app."
        )
    kind = "LSApp" if set(names) >= LSAPP_HEADER else _SEPARATORS[separator]
    found = positions(names, file, columns)
    return TextTable(file, kind, tuple(names), found, separator, True)


def with_order(rows: Iterable[Row], table: TextTable, given: DateOrder | None) -> TextTable:
    """The table with the order of day and month in the dates of its rows."""
    times = (str(row.time) for row in rows if row.problem is None)
    dates = filter(_SLASHED.match, times)
    return replace(table, month_first=is_month_first_in(dates, given, table.file))


def has_dates(lines: Sequence[bytes]) -> bool:
    """Whether the first of these lines have dates whose order of day and month must be found."""
    return any(map(_SLASHED_FIELD.search, lines[:100]))


def positions(header: list[str], file: str, columns: Columns) -> dict[str, int]:
    """The columns of time, app and, if present, user and event type.

    Without a column of users all rows are of one person, unless another column may name them.
    """
    if not header:
        raise UnreadableLog(f"{file}: there are no columns. Give a log with at least one launch.")
    found = {}
    missing = []
    for role, names in columns.names_to_find().items():
        place = _place_of(names, header)
        if place is not None:
            same = header.count(header[place])
            if same > 1:
                raise UnreadableLog(
                    f"{file}: the column {header[place]!r} occurs {same} times in the header. "
                    f"Rename or remove all but one."
                )
            found[role] = place
        elif role != "user" or columns.user or any(map(OF_A_USER.search, map(str.lower, header))):
            missing.append((role, names))
    if missing:
        free = [name for i, name in enumerate(header) if i not in found.values()]
        remedies = [_remedy_for_missing(file, role, names, free) for role, names in missing]
        if file != THE_FRAME:
            remedies.append("For a phone and the page, nextapp data convert takes such options.")
        if len(missing) >= 2 and file != THE_FRAME:
            from nextapp.data.importers import list_formats  # which imports this module

            remedies.append(f"If it has no header line, add one. Looked for: {list_formats()}.")
        what = "not recognised: the columns" if len(missing) > 1 else "the columns"
        raise UnreadableLog(f"{file}: {what} are {list_names(header)}. {' '.join(remedies)}")
    if len(set(found.values())) < len(found):
        got = list_names(header[place] for place in found.values())
        raise UnreadableLog(
            f"{file}: user, time and app must be different columns, got {got}. Name the others."
        )
    event = _place_of(("event_type",), header)
    if event is not None and event not in found.values():
        found["event"] = event
    return found


def _remedy_for_missing(file: str, role: str, names: tuple[str, ...], free: list[str]) -> str:
    words = {name: set(re.split(r"[\W_]+", name.lower())) for name in free}
    others = set().union(*(words_of for other, words_of in _TELLING.items() if other != role))
    close = next((name for name in free if words[name] & _TELLING[role]), None)
    close = close or nearest(names[0], [name for name in free if not words[name] & others])
    name = close or "NAME"
    return (
        f"None is {' or '.join(map(repr, names[:2]))}"
        + (f"; the nearest name is {close!r}" if close else "")
        + f". Name the column of the {role} with "
        + advice(file, f"--{role}-column {shlex.quote(name)}", f"{role}_column={name!r}")
        + "."
    )


def _place_of(names: tuple[str, ...], header: Sequence[str]) -> int | None:
    """The first column with one of these names, as it stands or in other letters and spaces."""
    plain = [plain_name(name) for name in header]
    if len(names) > 1 and {"date", "time"} <= set(plain):  # a time in two columns is none of them
        names = tuple(name for name in names if name not in ("date", "time"))
    for name in names:
        if name in header:
            return header.index(name)
        if plain_name(name) in plain:
            return plain.index(plain_name(name))
    return None


def plain_name(name: str) -> str:
    """
    >>> plain_name("App Name"), plain_name("app_name")
    ('appname', 'appname')
    """
    return re.sub(r"[\W_]", "", name.lower())


def list_names(names: Iterable[str]) -> str:
    shown = [f"{name!r:.60}" for name in names]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return (", ".join(shown[:12]) or "nothing") + more


# --- Lines to rows


def rows_of_lines(lines: Iterable[bytes], first_number: int, table: TextTable) -> Iterator[Row]:
    """The rows of these lines; the first has this number."""
    for number, line in enumerate(lines, first_number):
        raw = line.removesuffix(b"\r")
        if raw:
            yield _row(number, raw, table)


def _row(number: int, raw: bytes, table: TextTable) -> Row:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Row(number, raw, problem=NOT_UTF8)
    if table.kind == JSON_LINES:
        record = _json_line(text)
        if record is None:
            return Row(number, raw, problem=NOT_JSON)
        values = {role: record.get(table.header[at]) for role, at in table.positions.items()}
        return Row(number, raw, **{role: _plain_value(role, each) for role, each in values.items()})
    fields = text.split(table.separator)
    if table.quotes and '"' in text:
        try:
            fields = next(csv.reader([text], delimiter=table.separator, strict=True))
        except csv.Error:
            return Row(number, raw, problem=OPEN_QUOTE)
    if len(fields) != len(table.header):
        return Row(number, raw, problem=WRONG_FIELDS)
    return Row(number, raw, **{role: fields[at] for role, at in table.positions.items()})


def _plain_value(role: str, value: Any) -> Any:
    """A value of a JSON line: a number only for times, nothing for lists and tables."""
    if value is None or isinstance(value, list | dict):
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if role == "time" and is_number else str(value)


# --- Rows to launches


def launches_of_rows(
    rows: Iterable[Row],
    table: TextTable,
    *,
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
        event = (row.event or "").strip(" ").lower()
        if problem is None and "event" in table.positions and event not in OPENINGS:
            tally["other events"] += 1
            continue
        if problem is None:
            if "user" in table.positions and not (row.user or "").strip():
                problem = NO_USER
            elif not (row.app or "").strip():
                problem = NO_APP
            else:
                problem, ms, offset = milliseconds(row.time, zone, month_first=table.month_first)
        if problem is None:
            yield Launch((row.user or ME).strip(" "), (row.app or "").strip(" "), ms, offset)
        elif skip:
            tally[problem] += 1
        else:
            remedy = f"Correct the {table.row_word}"
            if skip is not None:
                skipping = advice(table.file, "--skip-bad-rows", "skip_bad_rows=True")
                remedy += f", or leave out all bad rows with {skipping}"
            complaint = _complaint(row._replace(problem=problem), table)
            raise BadRow(f"{complaint} {remedy}.")


def milliseconds(
    time: Value, zone: tzinfo | None, *, month_first: bool | None = None
) -> tuple[str | None, int, int | None]:
    """What is wrong with a time, if anything; milliseconds since 1970; the zone's offset."""
    text, offset = "" if time is None else str(time).strip(), None
    if isinstance(time, str) and re.fullmatch(DIGITS, text):
        text = re.sub(DIGITS, ISO_OF_DIGITS, text)
    instant = None
    if isinstance(time, str) and (parts := _STAMP.fullmatch(text)):
        try:
            instant = datetime.fromisoformat(parts[1] + ("Z" if parts[3] else parts[2] or ""))
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
        number = float(text)
        microseconds = number * (1e3 if number >= IN_MS else 1e6)
        ms = round(min(max(microseconds, -1e16), 1e16)) // 1000
    else:
        return NO_TIME, 0, None
    if not 0 <= ms <= LATEST_MS:
        return FAR_TIME, ms, None
    return None, ms, offset_at(ms / 1000, zone) if offset is None and zone else offset


def why_nothing_is_left(tally: Counter[str], file: str) -> str:
    """Of a table, by what its rows were."""
    if not tally["rows"]:
        return "there are column names but no rows. Give a log with at least one launch."
    if tally["other events"]:
        return (
            f"none of the {tally['rows']:,} rows is a launch; {'; '.join(notes_on_rows(tally))}. "
            f"If every row is a launch, remove or rename the column event_type."
        )
    skipping = advice(file, "--skip-bad-rows", "skip_bad_rows=True")
    return (
        f"all {tally['rows']:,} rows were bad: {'; '.join(notes_on_rows(tally))}. Without "
        f"{skipping} it is said what is wrong with the first."
    )


def notes_on_rows(tally: Counter[str]) -> list[str]:
    """What was left out of a table, and why."""
    notes = []
    if tally["other events"]:
        notes.append(f"rows of other events than openings, left out: {tally['other events']:,}")
    bad = [(n, problem) for problem, n in tally.items() if problem not in ("rows", "other events")]
    if bad:
        reasons = ", ".join(f"{problem}: {n:,}" for n, problem in bad)
        notes.append(f"bad rows skipped: {sum(n for n, _ in bad):,} ({reasons})")
    return notes


def check_days(first_ms: float, last_ms: float, file: str) -> None:
    """Raise `UnreadableLog` where all times of a log are the days that a spreadsheet counts."""
    if first_ms > 36_526_000 and last_ms < 73_051_000:  # days of 2000 to 2100 as seconds
        raise UnreadableLog(
            f"{file}: as seconds since 1970 all times are on its first day, "
            f"{first_ms / 1000:.2f} to {last_ms / 1000:.2f}: a spreadsheet counts days like this. "
            f"Give the column a format with date and time there, and save the file again."
        )


def _complaint(row: Row, table: TextTable) -> str:
    """The error message for a row: what is wrong, where, and what to do."""
    about_line = row.problem in (NOT_UTF8, NOT_JSON, WRONG_FIELDS, OPEN_QUOTE)
    where, expected, got = (_line_finding if about_line else _value_finding)(row, table)
    return f"{table.file}, {table.row_word} {row.number}, {where}: expected {expected}, got {got}."


def _line_finding(row: Row, table: TextTable) -> tuple[str, str, str]:
    """The column with the problem, the expected content and the actual one, of a bad line."""
    if row.problem == NOT_JSON:
        return "whole line", "a JSON object", _short(row.line.decode())
    if row.problem == NOT_UTF8:
        fields = row.line.split(table.separator.encode() or None)
        i = next(
            i for i, field in enumerate(fields) if field.decode(errors="ignore").encode() != field
        )
        return table.column(i), "text in UTF-8", _short(fields[i])
    text = row.line.decode()
    s = re.escape(table.separator)
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


def _value_finding(row: Row, table: TextTable) -> tuple[str, str, str]:
    """The column with the problem, the expected value and the actual one."""
    role, expected = {
        NO_USER: ("user", "the name of a user"),
        NO_APP: ("app", "the name of an app"),
        NO_TIME: ("time", _A_TIME),
        FAR_TIME: ("time", "a time from 1970-01-01 to 2100-01-01"),
    }[row.problem or ""]
    return table.column(table.positions[role]), expected, _short(getattr(row, role))


def _short(value: Value | bytes) -> str:
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 60
    return shortener.repr(value)
