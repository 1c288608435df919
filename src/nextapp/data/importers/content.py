"""The bytes of a file as text, JSON or SQLite tables, with size limits, for importers."""

from __future__ import annotations

import codecs
import json
import re
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from nextapp.data.times import is_month_first

MOST_BYTES = 256 << 20
"""Largest file that is read; a person's log of many years is smaller."""

MOST_EVENTS = 5_000_000
HEAD_BYTES = 4 << 20
"""Size of the beginning of a file that is read first, to recognise the format."""

_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\x00"
_UTF8_LETTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xf4][\x80-\xbf]{2}")
_SECONDS = 60.0  # time limit of a query; a malicious database could make a query endless
_LONGEST_VALUE = 1 << 20
_LONGEST_TEXT = 1024  # bytes of a text in a query's rows: many rows may join the same long one
DateOrder = Literal["day/month", "month/day"]


_AS_CSV = "save it as CSV (in Excel or LibreOffice: File, Save As)"
_DUMPSYS_INSTEAD = "it is not read; use adb shell dumpsys usagestats > usagestats.txt instead"
_MAC_INSTEAD = "it is not read; a Mac's knowledgeC.db, if you have one, can be read"
_BIOME = "an iOS or macOS Biome file (SEGB)"
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel file", _AS_CSV),
    (b"%PDF-", "a PDF file", "export the launches as CSV instead"),
    (b"{\\rtf", "a text document (RTF)", "save it as plain text"),
    (b"\x89PNG\r\n", "a picture (PNG)", "give the log itself"),
    (b"\xff\xd8\xff", "a picture (JPEG)", "give the log itself"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it and give the file in it"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it and give the file in it"),
    (b"BZh", "a bzip2 file", "unpack it (bunzip2) and give the file in it"),
    (b"\xfd7zXZ\x00", "an xz file", "unpack it (unxz) and give the file in it"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "unpack it (unzstd) and give the file in it"),
    (b"ARROW1", "an Arrow or Feather file", "save it as Parquet or CSV"),
    (b"\x89HDF\r\n", "an HDF5 file", "save it as Parquet or CSV"),
    (b"\x80\x04\x95", "a Python pickle", "save it as Parquet or CSV"),
    (b"SEGB", _BIOME, _MAC_INSTEAD),
    (b"ABX\x00", "a binary XML file of Android", _DUMPSYS_INSTEAD),
)
_ZIP = b"PK\x03\x04"
_IN_ZIP: tuple[tuple[bytes, str, str], ...] = (
    (b"xl/work", "an Excel file", _AS_CSV),
    (b"opendocument.spreadsheet", "a spreadsheet (ODS)", _AS_CSV),
    (b"word/document", "a Word document", "save the launches as CSV"),
)


class UnreadableLog(ValueError):
    """The file cannot be read as a launch log."""


_MARKUP: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (
        re.compile(rb"<usagestats\b"),
        "a usage statistics file of an Android backup (XML)",
        _DUMPSYS_INSTEAD,
    ),
    (
        re.compile(rb"<!doctype html|<html\b", re.IGNORECASE),
        "an HTML page",
        "it is not read; if it is from Google Takeout, export My Activity again and choose JSON as "
        "its format",
    ),
)
_STATISTICS_FILE = re.compile(r"(?:.*[\\/])?1[0-9]{12}")  # named after its time, in milliseconds


def check_not_foreign(head: bytes, name: str) -> None:
    """Raise `UnreadableLog` where the first bytes are of a kind of file that is never a log."""
    start = head[:4096]
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        for pattern, what, remedy in _MARKUP:
            if pattern.search(start):
                raise UnreadableLog(f"{name}: this is {what}: {remedy}.")
    if head[52:56] == b"SEGB":
        raise UnreadableLog(f"{name}: this is {_BIOME}: {_MAC_INSTEAD}.")
    if _STATISTICS_FILE.fullmatch(name) and re.search(rb"[\x00-\x08\x0e-\x1f]", start):
        raise UnreadableLog(
            f"{name}: this looks like a usage statistics file of an Android backup (protobuf): "
            f"{_DUMPSYS_INSTEAD}."
        )
    kinds = _IN_ZIP if head.startswith(_ZIP) else _FOREIGN
    for mark, what, remedy in kinds:
        if mark in head[: 1 << 16] if kinds is _IN_ZIP else head.startswith(mark):
            raise UnreadableLog(f"{name}: this is {what}: {remedy}.")


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


def is_month_first_in(dates: Iterable[str], told: DateOrder | None, name: str) -> bool:
    """Whether M/D/Y is meant, by what the reader was told, else by the dates; never guessed."""
    if told is not None:
        return told == "month/day"
    dates = list(dates)
    found = is_month_first(dates)
    if found is None:
        raise UnreadableLog(
            f"{name}: dates such as {dates[0].split()[0]} may begin with the day or with the "
            f"month, and nothing in the file tells which. Say it: --dates day/month, or --dates "
            f"month/day (in Python: dates='day/month')."
        )
    return found


class Content:
    """The content of a file, as bytes, text, JSON or SQLite tables.

    Text may be in any of the encodings of `find_encoding`; invalid bytes are replaced. Nothing is
    written: a database is opened in memory. ``most_bytes`` holds for the unpacked content as well,
    ``most_events`` for the rows of a query. ``dates`` is the order that its dates have, if told.
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

    @classmethod
    def of_file(cls, path: Path, dates: DateOrder | None = None) -> Content:
        """The content of a file; that of standard input for the path -."""
        if str(path) == "-":
            return cls(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input", dates=dates)
        with path.open("rb") as file:
            return cls(file.read(MOST_BYTES + 1), str(path), dates=dates)

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
