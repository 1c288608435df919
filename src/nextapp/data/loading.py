"""`load`: a launch log from a file in any supported format.

Supported are LSApp and the Tsinghua App Usage trace as their authors publish them, any CSV, TSV or
Parquet file with columns for user, time and app, and exports of people's own devices
(`nextapp.data.importers`). A text file is first cut into lines and then into fields, so that an
error can name the line. One row is therefore one line, and a line break inside quotes counts as an
unbalanced quote. Empty lines are skipped.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import re
import reprlib
import shlex
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
import polars as pl

from nextapp.data.importers import (
    UnreadableLog,
    check_not_foreign,
    import_file,
    list_formats,
    read_list,
)
from nextapp.data.log import Codes, LaunchLog

TimeUnit = Literal["s", "ms"]

BLOCK_BYTES = 1 << 23
MOST_COLUMNS = 1_000  # a line is cut by one regular expression, whose size is limited
LATEST_MS = 4_102_444_800_000  # 2100-01-01; times from 1970-01-01 up to it are accepted

LSAPP_HEADER = {"user_id", "session_id", "timestamp", "app_name", "event_type"}
APP_USAGE_NAME = "app_usage_trace.txt"
APP_USAGE_LINE = re.compile(rb"[^ \t]+[ \t][0-9]{14,17}(?:[ \t][^ \t\r\n]+){3}\r?\n?")
APP_USAGE_HEADER = ("user", "time", "base station", "app id", "traffic")

NUMBER = r"^[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]{1,3})?$"
DIGITS = r"^([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{0,3})$"
ISO_OF_DIGITS = "${1}-${2}-${3} ${4}:${5}:${6}.${7}0"
ISO = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[ T]"
    r"(?P<clock>(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])"
    r"(?:\.(?P<fraction>[0-9]+))?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3])(?::?(?P<minutes>[0-5][0-9]))?)?$"
)

NOT_UTF8 = "not UTF-8"
WRONG_FIELDS = "wrong number of fields"
OPEN_QUOTE = "unbalanced quote"
NO_USER = "empty user"
NO_APP = "empty app"
NO_TIME = "unreadable time"
FAR_TIME = "time out of range"
NO_PROBLEM = pl.lit(None, pl.String)


class BadRow(ValueError):
    """A row that cannot be read; the message names file, line and column."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns; None for the default: user_id, timestamp, app_name or item_id."""

    user: str | None = None
    time: str | None = None
    app: str | None = None

    def names_to_find(self) -> dict[str, tuple[str, ...]]:
        """For each of user, time and app, the possible names; the first one found is used."""
        return {
            "user": (self.user or "user_id",),
            "time": (self.time or "timestamp",),
            "app": (self.app,) if self.app else ("app_name", "item_id"),
        }


@dataclass(frozen=True)
class Importing:
    """How to read an export of a person's own device.

    ``zone`` is the time zone of local times (None: this machine's); ``leave_out`` is a file that
    lists entries that are not apps (None: the built-in list).
    """

    zone: str | None = None
    leave_out: Path | None = None


@dataclass(frozen=True)
class _Table:
    """The layout of a file. ``positions``: columns of user, time, app and, in LSApp, event."""

    file: str
    kind: str
    header: tuple[str, ...]
    positions: dict[str, int]
    separator: str = ""
    quotes: bool = False
    row_word: str = "line"

    def column(self, position: int) -> str:
        return f"column {self.header[position]}" if position < len(self.header) else "whole line"

    @property
    def field(self) -> str:
        """A regular expression for one field, including its quotes."""
        s = self.separator
        return rf'"(?:[^"]|"")*"|[^{s}"][^{s}]*|' if self.quotes else rf"[^{s}]*"


def load(
    path: str | PathLike[str],
    *,
    columns: Columns | None = None,
    time_unit: TimeUnit = "s",
    skip_bad_rows: bool = False,
    importing: Importing | None = None,
) -> LaunchLog:
    """The launches in a file, sorted by user and time; the notes say what was done.

    The format is recognised from the content (gzip, tar and Parquet by their first bytes) and, for
    the App Usage trace, also from the file name. If `columns` names a column, the file is read as a
    table. If there is a column ``event_type``, as in LSApp, only its ``Opened`` rows are launches
    (PAPER.md, R13). Codes are assigned in the order of the sorted names, so they do not depend on
    the order of the rows.

    Parameters
    ----------
    path
    columns
        Names of the columns, if they differ from the default.
    time_unit
        Unit of times given as numbers since 1970. Times may also be ISO (UTC if no offset is given)
        or the digits yyyymmddHHMMSS followed by up to three decimals of a second. Times are
        truncated to milliseconds.
    skip_bad_rows
        Leave out rows that cannot be read and count them in the notes, instead of raising `BadRow`.
    importing
        The time zone and the list of non-apps for exports of a person's own device.

    Raises
    ------
    BadRow
        For the first row that cannot be read, unless `skip_bad_rows`.
    UnreadableLog
        If the file cannot be read at all, or has no launch.
    FileNotFoundError
    """
    if time_unit not in ("s", "ms"):
        raise ValueError(f"time_unit must be 's' or 'ms', got {time_unit!r}.")
    path = Path(path)
    _check_is_file(path)
    if columns is None or columns == Columns():
        imported = _import_log(path, importing or Importing())
        if imported is not None:
            return imported
    with path.open("rb") as start:
        head = start.read(1 << 16)
    check_not_foreign(head, str(path))
    is_parquet = head.startswith(b"PAR1")
    read = _parquet_rows if is_parquet else _text_rows
    tally: Counter[str] = Counter()
    kind = ""
    parts = []
    for table, rows in read(path, columns or Columns()):
        kind = table.kind
        parts.append(_launches(rows, table, time_unit, skip_bad_rows, tally))
    if not sum(len(part) for part in parts):
        raise UnreadableLog(f"{path}: {_why_nothing_is_left(tally)}")
    rows_read = f"rows read from {path.name} as {kind}: {tally['rows']:,}"
    return _encode_names(pl.concat(parts), (rows_read, *_notes(tally)))


def _import_log(path: Path, importing: Importing) -> LaunchLog | None:
    """The log of an export of a person's own device; None if the file is not such an export."""
    left_out = None if importing.leave_out is None else read_list(importing.leave_out)
    found = import_file(path, zone=importing.zone, left_out=left_out)
    if found is None:
        return None
    launches = pl.DataFrame(
        {
            "user": [launch.user for launch in found.launches],
            "app": [launch.app for launch in found.launches],
            "ms": pl.Series(
                [int(launch.clock * 1000) for launch in found.launches], dtype=pl.Int64
            ),
        }
    )
    first = f"launches read from {path.name} as {found.format}: {len(found.launches):,}"
    return _encode_names(launches, (first, *found.notes))


def _check_is_file(path: Path) -> None:
    if path.is_dir():
        raise UnreadableLog(f"{path}: is a folder. Give the path of the log file in it.")
    if not path.exists():
        siblings = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        nearest = _nearest(path.name, siblings)
        raise FileNotFoundError(
            f"{path}: no such file. "
            + (f"Did you mean {nearest}?" if nearest else "Check the spelling of the path.")
        )


def _nearest(name: str, names: Iterable[str]) -> str | None:
    by_lower = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.4)
    return by_lower[close[0]] if close else None


# --- Text: bytes to lines to fields


def _text_rows(path: Path, columns: Columns) -> Iterator[tuple[_Table, pl.DataFrame]]:
    with _text_stream(path) as (stream, file):
        number, first = next(
            ((i, line) for i, line in enumerate(stream, start=1) if line.strip(b"\r\n")), (0, b"")
        )
        first = first.removeprefix(codecs.BOM_UTF8)
        if not first.strip(b"\r\n"):
            raise UnreadableLog(f"{file}: the file is empty. Give a log with at least one launch.")
        is_app_usage = columns == Columns() and (
            path.name.lower().removesuffix(".gz") == APP_USAGE_NAME
            or APP_USAGE_LINE.fullmatch(first) is not None
        )
        if is_app_usage:
            separator = "\t" if b"\t" in first else " "
            positions = {"user": 0, "time": 1, "app": 3}
            table = _Table(file, "App Usage", APP_USAGE_HEADER, positions, separator)
            blocks = _blocks(stream, first)
        else:
            table = _table_of_header(first, file, columns)
            blocks = _blocks(stream)
            number += 1
        for block in blocks:
            yield table, _fields(block, number, table)
            number += block.count(b"\n")


@contextmanager
def _text_stream(path: Path) -> Iterator[tuple[IO[bytes], str]]:
    """The uncompressed, unarchived bytes of a file, and their name for messages."""
    try:
        with path.open("rb") as plain:
            is_gzip = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if is_gzip else plain
            is_tar = stream.read(262)[257:] == b"ustar"
            stream.seek(0)
            if not is_tar:
                yield stream, str(path)
                return
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                member = _only_tsv(archive, path)
                while stream.read(BLOCK_BYTES):  # up to the checksum, where tarfile does not go
                    pass
                yield cast(IO[bytes], archive.extractfile(member)), f"{path} ({member.name})"
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise UnreadableLog(
            f"{path}: the archive is damaged or cut short ({error}). Fetch it again."
        ) from error


def _only_tsv(archive: tarfile.TarFile, path: Path) -> tarfile.TarInfo:
    files = [member for member in archive if member.isfile()]
    tables = [
        member
        for member in files
        if member.name.lower().endswith(".tsv")
        and not Path(member.name).name.startswith("._")  # macOS attributes, not data
    ]
    if len(tables) != 1:
        raise UnreadableLog(
            f"{path}: the archive must have one .tsv file, got {len(tables)} among "
            f"{_list_names(member.name for member in files)}. Unpack it and give the file you mean."
        )
    return tables[0]


def _list_names(names: Iterable[str]) -> str:
    shown = [f"{name!r:.60}" for name in names]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return (", ".join(shown[:12]) or "nothing") + more


def _blocks(stream: IO[bytes], start: bytes = b"") -> Iterator[bytes]:
    """`start` and the remaining bytes of a stream, in blocks of whole lines."""
    while block := start + stream.read(BLOCK_BYTES):
        yield block + stream.readline()
        start = b""


def _table_of_header(line: bytes, file: str, columns: Columns) -> _Table:
    try:
        text = line.decode().rstrip("\r\n")
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
    wanted = {name for names in columns.names_to_find().values() for name in names}
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
        headers.items(), key=lambda item: (len(wanted.intersection(item[1])), len(item[1]))
    )
    if len(names) > MOST_COLUMNS:
        raise UnreadableLog(
            f"{file}: a log may have up to {MOST_COLUMNS:,} columns, got {len(names):,}. Keep "
            f"those of user, time and app."
        )
    kind = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons"}[separator]
    kind = "LSApp" if set(names) >= LSAPP_HEADER else kind
    return _Table(file, kind, tuple(names), _positions(names, file, columns), separator, True)


def _positions(header: list[str], file: str, columns: Columns) -> dict[str, int]:
    """The columns of user, time, app and, if present, the event type."""
    positions = {}
    missing = []
    for role, names in columns.names_to_find().items():
        found = next((name for name in names if name in header), None)
        if found is None:
            missing.append((role, names))
        elif header.count(found) > 1:
            raise UnreadableLog(
                f"{file}: the column {found!r} occurs {header.count(found)} times in the header. "
                f"Rename or remove all but one."
            )
        else:
            positions[role] = header.index(found)
    if missing:
        free = [name for i, name in enumerate(header) if i not in positions.values()]
        remedies = [_remedy_for_missing(role, names, free) for role, names in missing]
        if len(missing) == 3:
            remedies.append("If the file has no header line, add one.")
            remedies.append(
                f"It is not an export of a device either; looked for: {list_formats()}."
            )
        raise UnreadableLog(f"{file}: the columns are {_list_names(header)}. {' '.join(remedies)}")
    if "event_type" in header and header.index("event_type") not in positions.values():
        positions["event"] = header.index("event_type")
    return positions


def _remedy_for_missing(role: str, names: tuple[str, ...], free: list[str]) -> str:
    nearest = _nearest(names[0], free)
    name = nearest or "NAME"
    return (
        f"None is {' or '.join(map(repr, names))}"
        + (f"; the nearest name is {nearest!r}" if nearest else "")
        + f". Name the column of the {role} with --{role}-column {shlex.quote(name)} "
        f"(in Python: columns=Columns({role}={name!r}))."
    )


def _fields(block: bytes, first_line: int, table: _Table) -> pl.DataFrame:
    """Whole lines cut into fields: line, raw, user, time, app, event if any, and problem."""
    if b'"' not in block:
        table = replace(table, quotes=False)  # gives the same fields, but faster
    wanted = set(table.positions.values())
    separator, field = table.separator, table.field
    line = separator.join(
        f"(?P<_{i}>{field})" if i in wanted else f"(?:{field})" for i in range(len(table.header))
    )
    rows = (
        _lines(block)
        .with_row_index("line", offset=first_line)
        .filter(pl.col("raw").bin.size() > 0)
        .with_columns(cut=pl.col("text").str.extract_groups(f"^{line}$"))
    )
    values = {role: pl.col("cut").struct.field(f"_{i}") for role, i in table.positions.items()}
    if table.quotes:
        values = {role: _unquote(value) for role, value in values.items()}
    rows = rows.select("line", "raw", "text", **values)
    if not rows["user"].null_count():
        return rows.with_columns(problem=NO_PROBLEM)
    return rows.with_columns(
        problem=pl.when(pl.col("text").is_null())
        .then(pl.lit(NOT_UTF8))
        .when(pl.col("user").is_not_null())
        .then(NO_PROBLEM)
        .when(pl.col("text").str.contains(f"^(?:{field})(?:{separator}(?:{field}))*$"))
        .then(pl.lit(WRONG_FIELDS))
        .otherwise(pl.lit(OPEN_QUOTE))
    )


def _lines(block: bytes) -> pl.DataFrame:
    """Each line as bytes (raw) and as text, which is null if the bytes are not UTF-8."""
    block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
    raw = pl.Series(block.split(b"\n"), dtype=pl.Binary)
    if _decode(block) is None:
        text = pl.Series([_decode(line) for line in raw], dtype=pl.String)
    else:
        text = raw.cast(pl.String)
    return pl.DataFrame({"raw": raw, "text": text})


def _decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _unquote(value: pl.Expr) -> pl.Expr:
    inside = value.str.slice(1, value.str.len_chars() - 2).str.replace_all('""', '"', literal=True)
    return pl.when(value.str.starts_with('"')).then(inside).otherwise(value)


# --- Parquet


def _parquet_rows(path: Path, columns: Columns) -> Iterator[tuple[_Table, pl.DataFrame]]:
    try:
        scan = pl.scan_parquet(path, glob=False)
        schema = scan.collect_schema()
        table = _Table(
            str(path),
            "LSApp in Parquet" if set(schema) >= LSAPP_HEADER else "Parquet",
            tuple(schema),
            _positions(list(schema), str(path), columns),
            row_word="row",
        )
        picked = {role: pl.col(table.header[i]) for role, i in table.positions.items()}
        rows = scan.select(**picked).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UnreadableLog(
            f"{path}: the Parquet file is damaged ({error}). Write or fetch it again."
        ) from error
    for role, dtype in rows.schema.items():
        if not (_holds_names(dtype) or (role == "time" and _holds_instants(dtype))):
            kinds = "datetimes, numbers or strings" if role == "time" else "strings or integers"
            raise UnreadableLog(
                f"{path}: column {table.header[table.positions[role]]} must have {kinds}, got "
                f"{dtype}. Convert it, or name another column with --{role}-column."
            )
    rows = rows.with_columns(
        pl.col(role).cast(pl.String)
        for role, dtype in rows.schema.items()
        if not (role == "time" and _holds_instants(dtype))
    )
    yield table, rows.with_row_index("line", offset=1).with_columns(problem=NO_PROBLEM)


def _holds_names(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype in (pl.String, pl.Categorical, pl.Enum)


def _holds_instants(dtype: pl.DataType) -> bool:
    return dtype.is_numeric() or dtype == pl.Datetime


# --- Rows to launches


def _launches(
    rows: pl.DataFrame, table: _Table, time_unit: TimeUnit, skip: bool, tally: Counter[str]
) -> pl.DataFrame:
    """The rows that are launches: user, app and ms. The others are counted in `tally`."""
    tally["rows"] += len(rows)
    if "event" in table.positions:
        of_interest = pl.col("problem").is_not_null() | (pl.col("event") == "Opened")
        n_rows = len(rows)
        rows = rows.filter(of_interest)
        tally["other events"] += n_rows - len(rows)
    rows = rows.with_columns(ms=_milliseconds(rows["time"], time_unit))
    is_blank = {
        role: pl.col(role).fill_null("").str.strip_chars() == "" for role in ("user", "app")
    }
    rows = rows.with_columns(
        problem=pl.when(pl.col("problem").is_not_null())
        .then("problem")
        .when(is_blank["user"])
        .then(pl.lit(NO_USER))
        .when(is_blank["app"])
        .then(pl.lit(NO_APP))
        .when(pl.col("ms").is_null())
        .then(pl.lit(NO_TIME))
        .when(~pl.col("ms").is_between(0, LATEST_MS))
        .then(pl.lit(FAR_TIME))
    )
    bad = rows.filter(pl.col("problem").is_not_null())
    if len(bad) and not skip:
        first = bad.head(1).with_columns(pl.col("time").cast(pl.String))
        raise BadRow(_complaint(first.row(0, named=True), table, time_unit))
    tally.update(bad["problem"])
    return rows.filter(pl.col("problem").is_null()).select("user", "app", "ms")


def _milliseconds(times: pl.Series, time_unit: TimeUnit) -> pl.Series:
    """Times as milliseconds since 1970-01-01 UTC; null if a time cannot be read."""
    if times.dtype == pl.Datetime:
        return times.dt.epoch("ms")
    if times.dtype.is_numeric():
        return _of_numbers(times, time_unit)
    texts = times.str.strip_chars().str.replace(DIGITS, ISO_OF_DIGITS)
    return _of_numbers(texts, time_unit).zip_with(texts.str.contains(NUMBER), _of_iso(texts))


def _of_numbers(values: pl.Series, time_unit: TimeUnit) -> pl.Series:
    """Rounded to microseconds, which float64 can represent, then truncated to milliseconds."""
    microseconds = values.cast(pl.Float64, strict=False) * {"s": 1e6, "ms": 1e3}[time_unit]
    return microseconds.clip(-1e16, 1e16).round().cast(pl.Int64, strict=False) // 1000


def _of_iso(texts: pl.Series) -> pl.Series:
    seconds = pl.concat_str("day", pl.lit(" "), "clock").str.to_datetime(
        "%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False
    )
    fraction = pl.col("fraction").str.slice(0, 3).str.pad_end(3, "0")
    sign = pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
    hours, minutes, thousandths = (
        part.cast(pl.Int64).fill_null(0) for part in (pl.col("hours"), pl.col("minutes"), fraction)
    )
    ms = seconds.cast(pl.Int64) + thousandths - sign * (hours * 60 + minutes) * 60_000
    return texts.str.extract_groups(ISO).struct.unnest().select(ms).to_series()


def _complaint(row: dict[str, Any], table: _Table, time_unit: TimeUnit) -> str:
    """The error message for a row: what is wrong, where, and what to do."""
    about_line = row["problem"] in (NOT_UTF8, WRONG_FIELDS, OPEN_QUOTE)
    where, expected, got = (_line_finding if about_line else _value_finding)(row, table)
    looks_like_ms = (
        row["problem"] == FAR_TIME
        and time_unit == "s"
        and re.match(NUMBER, row["time"].strip())
        and 0 < float(row["time"]) <= LATEST_MS
    )
    hint = " It looks like milliseconds: give --time-unit ms (in Python: time_unit='ms')."
    return (
        f"{table.file}, {table.row_word} {row['line']}, {where}: expected {expected}, "
        f"got {got}.{hint if looks_like_ms else ''} Correct the {table.row_word}, or leave out "
        f"all bad rows with --skip-bad-rows (in Python: skip_bad_rows=True)."
    )


def _line_finding(row: dict[str, Any], table: _Table) -> tuple[str, str, str]:
    """The column with the problem, the expected content and the actual one, of a bad line."""
    raw: bytes = row["raw"]
    if row["problem"] == NOT_UTF8:
        fields = raw.split(table.separator.encode())
        i = next(i for i, field in enumerate(fields) if _decode(field) is None)
        return table.column(i), "text in UTF-8", _short(fields[i])
    text = raw.decode()
    field_before_another = re.compile(f"(?:{table.field}){table.separator}")
    last = start = 0
    while match := field_before_another.match(text, start):
        last, start = last + 1, match.end()
    if row["problem"] == OPEN_QUOTE:
        expected = f"a quote closed before the next {table.separator!r} or the end of the line"
        return table.column(last), expected, _short(text[start:])
    expected = f"{len(table.header)} fields separated by {table.separator!r}"
    return "whole line", expected, f"{last + 1} in {_short(text)}"


def _value_finding(row: dict[str, Any], table: _Table) -> tuple[str, str, str]:
    """The column with the problem, the expected value and the actual one."""
    role, expected = {
        NO_USER: ("user", "the name of a user"),
        NO_APP: ("app", "the name of an app"),
        NO_TIME: ("time", "a time such as 2018-01-16 06:01:05 or a number counted from 1970"),
        FAR_TIME: ("time", "a time from 1970-01-01 to 2100-01-01"),
    }[row["problem"]]
    return table.column(table.positions[role]), expected, _short(row[role])


def _short(value: str | bytes | None) -> str:
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 60
    return shortener.repr(value)


def _why_nothing_is_left(tally: Counter[str]) -> str:
    if not tally["rows"]:
        return "the file has column names but no rows. Give a log with at least one launch."
    if tally["other events"]:
        return (
            f"none of the {tally['rows']:,} rows is a launch; {'; '.join(_notes(tally))}. If every "
            f"row is a launch, remove or rename the column event_type."
        )
    return (
        f"all {tally['rows']:,} rows were bad: {'; '.join(_notes(tally))}. Load without "
        f"--skip-bad-rows to see what is wrong with the first."
    )


def _notes(tally: Counter[str]) -> list[str]:
    notes = []
    if tally["other events"]:
        notes.append(f"rows of other event types than Opened, left out: {tally['other events']:,}")
    bad = [(n, problem) for problem, n in tally.items() if problem not in ("rows", "other events")]
    if bad:
        reasons = ", ".join(f"{problem}: {n:,}" for n, problem in bad)
        notes.append(f"bad rows skipped: {sum(n for n, _ in bad):,} ({reasons})")
    return notes


def _encode_names(launches: pl.DataFrame, notes: tuple[str, ...]) -> LaunchLog:
    """A log with codes for the sorted names, and additional notes about order and repeats."""
    users, user = _codes(launches["user"])
    apps, app = _codes(launches["app"])
    time = launches["ms"].to_numpy()
    by_user = np.argsort(user, kind="stable")
    backwards = (np.diff(user[by_user]) == 0) & (np.diff(time[by_user]) < 0)
    n_unsorted = len(np.unique(user[by_user][1:][backwards]))
    first, last = (np.datetime64(int(ms), "ms").astype("M8[s]") for ms in (time.min(), time.max()))
    notes += (f"times (UTC): {first} to {last}",)
    if n_unsorted:
        notes += (f"users whose rows had to be sorted by time: {n_unsorted:,}",)
    n_repeated = len(time) - pl.DataFrame({"user": user, "app": app, "time": time}).n_unique()
    if n_repeated:
        notes += (f"exact repeats of an earlier row, kept: {n_repeated:,}",)
    return LaunchLog.from_columns(user, app, time, users, apps, notes)


def _codes(values: pl.Series) -> tuple[list[str], Codes]:
    names = values.unique().sort()
    codes = values.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int32)
    return names.to_list(), codes
