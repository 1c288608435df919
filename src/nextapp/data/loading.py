"""`read_log`: a launch log from a file in any supported format, or from synthetic phones.

Supported are LSApp and the Tsinghua App Usage trace as their authors publish them, any CSV, TSV,
JSON or Parquet file with columns for user, time and app, and exports of people's own devices.
Polars reads blocks of a table in which every row is as expected; `nextapp.data.importers.content`
reads the others line by line. Both give the same launches, which a test holds for tables of all
kinds.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import polars as pl

from nextapp.data.importers import check_not_foreign, import_file
from nextapp.data.importers import content as lines
from nextapp.data.importers.content import (
    APP_USAGE,
    APP_USAGE_HEADER,
    APP_USAGE_LINE,
    IN_MS,
    LATEST_MS,
    LSAPP_HEADER,
    ME,
    OPENINGS,
    THE_FRAME,
    Columns,
    Content,
    DateOrder,
    Row,
    TextTable,
    UnreadableLog,
    find_encoding,
)
from nextapp.data.importers.events import NotApps, left_out_notes, read_list
from nextapp.data.log import Codes, LaunchLog
from nextapp.data.times import find_zone

if TYPE_CHECKING:
    import pandas as pd

BLOCK_BYTES = 1 << 24
APP_USAGE_NAME = "app_usage_trace.txt"

NUMBER = rf"^{lines.NUMBER}$"
DIGITS = rf"^{lines.DIGITS}$"
UTC_TIME = rf"^{lines.ISO}Z?$"
ISO_OF_DIGITS = re.sub(r"\\g<(.)>", r"${\1}", lines.ISO_OF_DIGITS)
LAUNCHES = {"user": pl.String, "app": pl.String, "ms": pl.Int64, "zone": pl.Int32}


Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pd.DataFrame"

Block = tuple[TextTable, pl.DataFrame | None, Iterator[Row]]
"""Some rows: as columns if Polars could read all of them, and as an iterator of single rows."""


def read_log(
    source: str | PathLike[str] | Frame,
    *,
    seed: int = 0,
    user_column: str | None = None,
    time_column: str | None = None,
    app_column: str | None = None,
    skip_bad_rows: bool = False,
    zone: str | None = None,
    leave_out: str | PathLike[str] | None = None,
    dates: DateOrder | None = None,
) -> LaunchLog:
    """The launches in a file or of synthetic phones, sorted by user and time.

    The format is recognised from the content (gzip, tar and Parquet by their first bytes) and, for
    the App Usage trace, also from the file name. If a column is named, the file is read as a
    table. If there is a column ``event_type``, as in LSApp, only its `OPENINGS` are launches
    (PAPER.md, R13). Codes are assigned in the order of the sorted names, so they do not depend on
    the order of the rows. The notes of the log say what was done.

    Parameters
    ----------
    source
        The path of a file, - for standard input, a data frame of Polars or pandas, or
        ``synthetic:…`` as `nextapp.data.synthetic.parse` reads it.
    seed
        Of synthetic phones.
    user_column, time_column, app_column
        Names of the columns, if they differ from the default.
    skip_bad_rows
        Leave out rows that cannot be read and count them in the notes, instead of raising `BadRow`.
    dates
        The order of dates such as 3/4/2024, "day/month" or "month/day", where nothing else tells.
    zone
        The time zone of local times. None: this machine's; in tables UTC.
    leave_out
        A file that lists entries that are not apps. None: of exports of a person's own device the
        built-in list, of tables nothing.

    Raises
    ------
    BadRow
        For the first row that cannot be read, unless `skip_bad_rows`.
    UnreadableLog
        If the file cannot be read at all, or has no launch.
    FileNotFoundError
    """
    if dates not in (None, "day/month", "month/day"):
        raise ValueError(f"dates must be day/month or month/day, got {dates!r}.")
    if isinstance(source, str) and source.startswith("synthetic:"):
        from nextapp.data import synthetic  # needs SciPy

        return synthetic.make(synthetic.parse(source), seed)
    columns = Columns(user_column, time_column, app_column)
    not_apps = None if leave_out is None else read_list(leave_out)
    if not isinstance(source, str | PathLike):
        pandas = sys.modules.get("pandas")
        is_pandas = pandas is not None and isinstance(source, pandas.DataFrame)
        frame = _of_pandas(source, columns) if is_pandas else source
        if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
            raise TypeError(
                f"read_log takes a path or a data frame of Polars or pandas, got "
                f"{type(source).__name__}."
            )
        blocks = _blocks_of_frame(frame.lazy(), THE_FRAME, "a table", columns, dates)
        return _log_of_blocks(blocks, THE_FRAME, zone, not_apps, skip=skip_bad_rows)
    with as_file(source) as path:
        head = lines.first_bytes(path, 1 << 16)
        is_parquet = head.startswith(b"PAR1")
        text = Content(head, "").text
        is_table = is_parquet or lines.looks_like_table(text) or lines.is_json_lines(text)
        if not is_table:
            check_not_foreign(head, str(path))
        if columns == Columns() and not is_table:
            imported = _import_log(path, zone, not_apps, dates)
            if imported is not None:
                return imported
        if is_parquet:
            scan = pl.scan_parquet(path, glob=False)
            blocks = _blocks_of_frame(scan, str(path), "Parquet", columns, dates)
        else:
            blocks = _text_blocks(path, columns, dates)
        return _log_of_blocks(blocks, path, zone, not_apps, skip=skip_bad_rows)


@contextmanager
def as_file(source: str | PathLike[str]) -> Iterator[Path]:
    """The path, once the file is known to exist; for - a temporary file with standard input."""
    if str(source) != "-":
        lines.check_is_file(Path(source))
        yield Path(source)
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "standard input"
        path.write_bytes(sys.stdin.buffer.read())
        try:
            yield path
        except UnreadableLog as error:
            raise type(error)(str(error).replace(str(path), path.name)) from None


def _log_of_blocks(
    blocks: Iterable[Block],
    file: Path | str,
    zone: str | None,
    not_apps: NotApps | None,
    *,
    skip: bool,
) -> LaunchLog:
    local = find_zone(zone) if zone else None
    tally: Counter[str] = Counter()
    parts, kind = [], ""
    for table, frame, rows in blocks:
        kind = table.kind
        part = None if frame is None or local else _launches_at_once(frame, tally)
        if part is None:
            found = lines.launches_of_rows(rows, table, zone=local, skip=skip, tally=tally)
            part = pl.DataFrame(found, LAUNCHES, orient="row")
        parts.append(part)
    launches = pl.concat(parts) if parts else pl.DataFrame(schema=LAUNCHES)
    n_rows = len(launches)
    if n_rows:
        earliest, latest = launches.select(pl.min("ms"), last=pl.max("ms")).row(0)
        lines.check_days(earliest, latest, str(file))
    if n_rows and not_apps is not None:
        apps = [app for app in launches["app"].unique() if not not_apps.kind(app)]
        launches = launches.filter(pl.col("app").is_in(apps))
    left_out = left_out_notes(n_rows - len(launches))
    if not len(launches):
        raise UnreadableLog(
            f"{file}: {'; '.join(left_out) or lines.why_nothing_is_left(tally, str(file))}"
        )
    rows_read = f"rows read from {Path(file).name} as {kind}: {tally['rows']:,}"
    return _encode_names(launches, (rows_read, *lines.notes_on_rows(tally), *left_out))


def _import_log(
    path: Path, zone: str | None, not_apps: NotApps | None, dates: DateOrder | None
) -> LaunchLog | None:
    """The log of an export of a person's own device; None if the file is not such an export."""
    found = import_file(path, zone=zone, not_apps=not_apps, dates=dates)
    if found is None:
        return None
    rows = [
        (launch.user, launch.app, int(launch.clock * 1000), launch.zone)
        for launch in found.launches
    ]
    launches = pl.DataFrame(rows, LAUNCHES, orient="row")
    first = f"launches read from {path.name} as {found.format}: {len(found.launches):,}"
    return _encode_names(launches, (first, *found.notes))


def _launches_at_once(frame: pl.DataFrame, tally: Counter[str]) -> pl.DataFrame | None:
    """User, app and ms of the launches; None if anything in these rows is unexpected."""
    n_rows = len(frame)
    if "event" in frame.columns:
        frame = frame.filter(
            pl.col("event").str.strip_chars(" ").str.to_lowercase().is_in(OPENINGS)
        )
    if "user" not in frame.columns:
        frame = frame.with_columns(user=pl.lit(ME))
    for role in ("user", "app"):
        if frame[role].null_count() or (frame[role].str.strip_chars() == "").any():
            return None
    frame = frame.with_columns(pl.col("user", "app").str.strip_chars(" "))
    ms = _milliseconds(frame["time"])
    if ms.null_count() or not ms.is_between(0, LATEST_MS).all():
        return None
    tally.update({"rows": n_rows, "other events": n_rows - len(frame)})
    return frame.select("user", "app", ms=ms, zone=pl.lit(None, pl.Int32))


def _milliseconds(times: pl.Series) -> pl.Series:
    """Times as milliseconds since 1970-01-01 UTC; null if a time is not of a usual form."""
    if times.dtype.is_numeric():
        return _of_numbers(times)
    texts = times.str.strip_chars()
    numbers = texts.str.contains(NUMBER) & ~texts.str.contains(DIGITS)
    if numbers.all():
        return _of_numbers(texts.cast(pl.Float64, strict=False))
    texts = texts.str.replace(DIGITS, ISO_OF_DIGITS)
    if not texts.str.contains(UTC_TIME).all():
        return pl.Series([None], dtype=pl.Int64)
    days = texts.str.slice(0, 10) + " " + texts.str.slice(11, 8)
    seconds = days.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False)
    thousandths = texts.str.extract(r"\.([0-9]{1,3})").fill_null("0").str.pad_end(3, "0")
    return seconds.cast(pl.Int64) + thousandths.cast(pl.Int64)


def _of_numbers(values: pl.Series) -> pl.Series:
    """Rounded to microseconds, which float64 can represent, then truncated to milliseconds."""
    number = values.cast(pl.Float64)
    microseconds = number * (number >= IN_MS).replace_strict({True: 1e3, False: 1e6}, default=1e6)
    rounded = microseconds.clip(-1e16, 1e16).round(mode="half_to_even")
    return rounded.cast(pl.Int64, strict=False) // 1000


# --- Text


def _text_blocks(path: Path, columns: Columns, dates: DateOrder | None) -> Iterator[Block]:
    with _text_stream(path) as (stream, file):
        number, first = next(
            ((i, line) for i, line in enumerate(stream, start=1) if not lines.is_blank(line)),
            (0, b""),
        )
        first, _ = _in_utf8(first.removeprefix(codecs.BOM_UTF8))
        if not first.strip(b"\r\n"):
            raise UnreadableLog(f"{file}: the file is empty. Give a log with at least one launch.")
        is_app_usage = columns == Columns() and (
            path.name.lower().removesuffix(".gz") == APP_USAGE_NAME
            or APP_USAGE_LINE.fullmatch(first) is not None
        )
        if is_app_usage:
            separator = "\t" if b"\t" in first else " "
            places = {"user": 0, "time": 1, "app": 3}
            table = TextTable(file, APP_USAGE, APP_USAGE_HEADER, places, separator)
        else:
            table = lines.table_of_header(first, file, columns)
        if table.has_header:
            first = b""
            number += 1
        n_bytes = BLOCK_BYTES
        while block := first + stream.read(n_bytes):
            block, encoding = _in_utf8(block + stream.readline())
            if encoding != "utf-8" and encoding not in table.kind:
                table = replace(table, kind=f"{table.kind} in {encoding}")
            split = block.split(b"\n")
            if n_bytes > 0 and lines.has_dates(split):  # only all of them tell the order
                block, _ = _in_utf8(block + stream.read())
                split, n_bytes = block.split(b"\n"), 0
                table = lines.with_order(lines.rows_of_lines(split, 0, table), table, dates)
            rows = lines.rows_of_lines(split, number, table)
            yield table, _cut_at_once(block, table), rows
            number += block.count(b"\n")
            first = b""


def _in_utf8(data: bytes) -> tuple[bytes, str]:
    """A text in UTF-8, and the encoding that it had."""
    encoding = find_encoding(data)
    return data if encoding == "utf-8" else data.decode(encoding).encode(), encoding


@contextmanager
def _text_stream(path: Path) -> Iterator[tuple[IO[bytes], str]]:
    """The uncompressed, unarchived bytes of a file, and their name for messages."""
    try:
        start = lines.first_bytes(path, 4096)
        is_tar = start[257:262] == b"ustar"
        is_utf16 = not is_tar and find_encoding(start).startswith("utf-16")
        if is_utf16 or start.lstrip().startswith(b"["):
            content = Content.of_file(path).unzip()
            content = content.as_json_lines() if content.is_records else content
            yield io.BytesIO(content.text.encode()), str(path)
            return
        with path.open("rb") as plain:
            is_gzip = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if is_gzip else plain
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
            f"{lines.list_names(member.name for member in files)}. Unpack it and give the file you "
            f"mean."
        )
    return tables[0]


def _cut_at_once(block: bytes, table: TextTable) -> pl.DataFrame | None:
    """The columns of whole lines; None unless every line has the fields that it should have.

    Polars fills up lines with too few fields, so separators are counted.
    """
    if not table.separator:
        return None
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    n_lines = block.count(b"\n") + (not block.endswith(b"\n"))
    n_separators = block.count(table.separator.encode())
    odd = (table.quotes and b'"' in block) or b"\r" in block or b"\0" in block
    if odd or n_separators != n_lines * (len(table.header) - 1):
        return None
    names = [str(place) for place in range(len(table.header))]
    try:
        block.decode()
        frame = pl.read_csv(
            block,
            has_header=False,
            separator=table.separator,
            quote_char=None,
            schema=dict.fromkeys(names, pl.String),
            columns=sorted(table.positions.values()),
        )
    except (UnicodeDecodeError, pl.exceptions.PolarsError):
        return None
    if len(frame) != n_lines:
        return None
    return frame.select(pl.col(names[place]).alias(role) for role, place in table.positions.items())


# --- Parquet, data frames


def _blocks_of_frame(
    scan: pl.LazyFrame, file: str, kind: str, columns: Columns, dates: DateOrder | None
) -> Iterator[Block]:
    try:
        there = dict(_columns_in(scan.collect_schema().items()))
        kind = f"LSApp in {kind}" if set(there) >= LSAPP_HEADER else kind
        places = lines.positions(list(there), file, columns)
        table = TextTable(file, kind, tuple(there), places, row_word="row")
        picked = {role: there[table.header[place]] for role, place in places.items()}
        frame = scan.select(**picked).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UnreadableLog(
            f"{file}: the table is damaged ({error}). Write or fetch it again."
        ) from error
    for role, dtype in frame.schema.items() if len(frame) else ():
        fits = dtype.is_integer() or dtype in (pl.String, pl.Categorical, pl.Enum)
        if role == "time":
            fits |= dtype.is_numeric() or dtype in (pl.Datetime, pl.Date)
        if not fits:
            kinds = "datetimes, numbers or strings" if role == "time" else "strings or integers"
            another = lines.advice(file, f"--{role}-column", f"{role}_column=…")
            raise UnreadableLog(
                f"{file}: column {table.header[places[role]]} must have {kinds}, got {dtype}. "
                f"Convert it, or name another column with {another}."
            )
    if frame["time"].dtype.is_temporal():  # a date is its midnight
        ms = pl.col("time").cast(pl.Datetime("ms")).dt.epoch("ms")
        frame = frame.with_columns(ms / 1000)
    names = pl.col([role for role in places if role != "time"])
    times = pl.col("time") if frame["time"].dtype.is_numeric() else pl.col("time").cast(pl.String)
    frame = frame.with_columns(names.cast(pl.String), times)

    def rows() -> Iterator[Row]:
        for number, values in enumerate(frame.iter_rows(named=True), 1):
            yield Row(number, b"", **values)

    times_read = frame["time"]
    if times_read.dtype == pl.String and times_read.str.contains(r"^\s*[0-9]{1,2}[-/]").any():
        table = lines.with_order(rows(), table, dates)
    yield table, frame, rows()


def _columns_in(
    kinds: Iterable[tuple[str, Any]], outer: pl.Expr | None = None, before: str = ""
) -> Iterator[tuple[str, pl.Expr]]:
    """Every column by its name; those of a nested table by names joined with dots."""
    for name, kind in kinds:
        column = pl.col(name) if outer is None else outer.struct.field(name)
        if isinstance(kind, pl.Struct):
            yield from _columns_in(kind, column, f"{before}{name}.")
        else:
            yield f"{before}{name}", column


def _of_pandas(frame: pd.DataFrame, columns: Columns) -> pl.DataFrame:
    """The columns of user, time and app, without pyarrow; named indexes are columns."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    header = [str(name) for name in frame.columns]
    values = {}
    for place in lines.positions(header, THE_FRAME, columns).values():
        column = frame.iloc[:, place]
        values[header[place]] = column.astype(object).where(column.notna(), None).tolist()
    try:
        return pl.DataFrame(values)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise UnreadableLog(f"{THE_FRAME}: a column has values of several kinds: {error}") from None


# --- Launches to a log


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
    zone = None
    if launches["zone"].count():
        zone = launches["zone"].fill_null(0).to_numpy()
    return LaunchLog.from_columns(user, app, time, users, apps, notes, zone)


def _codes(values: pl.Series) -> tuple[list[str], Codes]:
    names = values.unique().sort()
    codes = values.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int32)
    return names.to_list(), codes
