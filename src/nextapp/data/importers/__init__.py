"""Importers of logs that people can export from their own devices.

They need only the standard library, since phones use them too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nextapp.data.importers import (
    activitywatch,
    app_usage_csv,
    databases,
    google_takeout,
    usage_logger,
    usagestats,
)
from nextapp.data.importers.content import (
    ME,
    MOST_EVENTS,
    Columns,
    Content,
    DateOrder,
    UnreadableLog,
    check_days,
    first_bytes,
    is_blank,
    is_json_lines,
    launches_of_rows,
    looks_like_table,
    notes_on_rows,
    rows_of_lines,
    table_of_header,
    why_nothing_is_left,
    with_order,
)
from nextapp.data.importers.events import (
    Format,
    ImportedLaunch,
    NotApps,
    clean_name,
    launches_of,
    left_out_notes,
    usual_list,
)
from nextapp.data.times import Zone, find_zone, offset_at

_HEAD_BYTES = 4 << 20  # of a file, read first to recognise the format
_LONGEST_HEADER = 1 << 16
_TEXTS = (usagestats.FORMAT, app_usage_csv.FORMAT, usage_logger.FORMAT)
FORMATS = (
    *_TEXTS,
    activitywatch.FORMAT,
    google_takeout.FORMAT,
    databases.DIGITAL_WELLBEING,
    databases.KNOWLEDGEC,
)


@dataclass(frozen=True)
class Imported:
    """The launches of a file, by user and time, and notes on what was done."""

    format: str
    launches: Sequence[ImportedLaunch]
    notes: tuple[str, ...]

    @property
    def users(self) -> list[str]:
        return sorted({launch.user for launch in self.launches})


def list_formats() -> str:
    """The known formats, for a message about an unknown file."""
    formats = "; ".join(form.looked_for for form in FORMATS)
    return f"{formats}; CSV or JSON lines with timestamp and app_name"


def known_format(content: Content) -> Format | None:
    check_not_foreign(content.data, content.name)
    return next((form for form in FORMATS if form.recognise(content)), None)


def import_file(
    path: Path,
    *,
    zone: str | None = None,
    not_apps: NotApps | None = None,
    dates: DateOrder | None = None,
) -> Imported | None:
    """The launches of an export of a person's device; None if the format is not known.

    Only the beginning of a text decides about None, so that a large table is not read twice.
    ``dates`` is the order of day and month in dates such as 3/4/2024, where nothing else tells.
    """
    head = Content(first_bytes(path, _HEAD_BYTES), str(path), dates=dates)
    if not (_is_no_text(head) or any(form.recognise(head) for form in _TEXTS)):
        return None
    return import_content(Content.of_file(path, dates).unzip(), zone=zone, not_apps=not_apps)


def import_content(
    content: Content, *, zone: str | None = None, not_apps: NotApps | None = None
) -> Imported | None:
    """The launches in the bytes of a file; None if the format is not known.

    Parameters
    ----------
    content
    zone
        Time zone of local times without a zone; None for this machine's.
    not_apps
        Entries that are not apps; None for the built-in list.

    Raises
    ------
    UnreadableLog
        If the format is known but the file has no launch, or if the file can be neither an export
        nor a table.
    """
    where = find_zone(zone)
    form = known_format(content)
    if form is None and _is_no_text(content) and not content.is_records:
        tables = ", ".join(sorted(content.tables)[:8]) or "none"
        hint = f" The tables here are: {tables:.200}." if content.is_database else ""
        raise UnreadableLog(f"{content.name}: not recognised.{hint} Looked for: {list_formats()}.")
    if form is None:
        return None
    launches, notes = launches_of(form.read(content), where, not_apps or usual_list())
    if not launches:
        why = "; ".join(notes) or "it is empty"
        raise UnreadableLog(
            f"{content.name}: recognised as {form.name}, but it has no launch: {why}."
        )
    return Imported(form.name, launches, (*notes, *_about(content)))


def read_any(
    content: Content, *, zone: str | None = None, not_apps: NotApps | None = None
) -> Imported:
    """The launches of an export of a device or of a table; a gzip file is unpacked first."""
    content = content.unzip()
    if not content.data.strip():
        raise UnreadableLog(f"{content.name}: the file is empty.")
    start = content.text[:_LONGEST_HEADER]
    if not looks_like_table(start) and not is_json_lines(start):
        found = import_content(content, zone=zone, not_apps=not_apps)
        if found is not None:
            return found
        content = content.as_json_lines() if content.is_records else content
    return _read_table(content, find_zone(zone), not_apps)


def _read_table(content: Content, zone: Zone, not_apps: NotApps | None) -> Imported:
    """The launches of a table; a bad row raises `BadRow`.

    ``zone`` is that of times without one; None is UTC. Where neither says how late it was for the
    person, this machine's zone does.
    """
    lines = content.text.encode().split(b"\n")
    first = next((number for number, line in enumerate(lines) if not is_blank(line)), 0)
    table = table_of_header(lines[first], content.name, Columns())
    rest = lines[first + table.has_header :]
    first += 1 + table.has_header
    table = with_order(rows_of_lines(rest, first, table), table, content.dates)
    found: list[ImportedLaunch] = []
    n_left_out, tally = 0, Counter[str]()
    rows = rows_of_lines(rest, first, table)
    for launch in launches_of_rows(rows, table, zone=zone, tally=tally):
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
        if not_apps is not None and not_apps.kind(app):
            n_left_out += 1
        else:
            found.append(ImportedLaunch(user, app, clock, offset))
    notes = left_out_notes(n_left_out)
    if not found:
        why = "; ".join(notes) or why_nothing_is_left(tally, content.name)
        raise UnreadableLog(f"{content.name}: {why}")
    clocks = [1000 * each.clock for each in found]
    check_days(min(clocks), max(clocks), content.name)
    found.sort(key=lambda each: (each.user, each.clock))
    return Imported(
        f"a table ({table.kind})", found, (*notes_on_rows(tally), *notes, *_about(content))
    )


def _about(content: Content) -> tuple[str, ...]:
    """Notes on how a file was read."""
    if content.is_database or content.encoding == "utf-8":
        return content.notes
    return (*content.notes, f"the text is read as {content.encoding}")


def _is_no_text(content: Content) -> bool:
    """Whether these bytes cannot be a table of launches in lines."""
    return content.is_database or content.first_letter in ("{", "[", "<")


# --- Files that are never a log

_AS_CSV = "save it as CSV (in Excel or LibreOffice: File, Save As)"
_DUMPSYS_INSTEAD = "it is not read; use adb shell dumpsys usagestats > usagestats.txt instead"
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (  # what such a file begins with
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel file", _AS_CSV),
    (rb"PK\x03\x04.*xl/work", "an Excel file", _AS_CSV),
    (rb"PK\x03\x04.*opendocument.spreadsheet", "a spreadsheet (ODS)", _AS_CSV),
    (rb"PK\x03\x04.*word/document", "a Word document", "save the launches as CSV"),
    (rb"PK\x03\x04", "a ZIP archive", "unpack it and give the file in it"),
    (rb"%PDF-", "a PDF file", "export the launches as CSV instead"),
    (rb"{\\rtf", "a text document (RTF)", "save it as plain text"),
    (rb"\x89PNG\r\n", "a picture (PNG)", "give the log itself"),
    (rb"\xff\xd8\xff", "a picture (JPEG)", "give the log itself"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it and give the file in it"),
    (rb"Rar!\x1a\x07", "a RAR archive", "unpack it and give the file in it"),
    (rb"BZh", "a bzip2 file", "unpack it (bunzip2) and give the file in it"),
    (rb"\xfd7zXZ\x00", "an xz file", "unpack it (unxz) and give the file in it"),
    (rb"\x28\xb5\x2f\xfd", "a Zstandard file", "unpack it (unzstd) and give the file in it"),
    (rb"ARROW1", "an Arrow or Feather file", "save it as Parquet or CSV"),
    (rb"\x89HDF\r\n", "an HDF5 file", "save it as Parquet or CSV"),
    (rb"\x80\x04\x95", "a Python pickle", "save it as Parquet or CSV"),
    (
        rb"(.{52})?SEGB",
        "an iOS or macOS Biome file (SEGB)",
        "it is not read; a Mac's knowledgeC.db, if you have one, can be read",
    ),
    (rb"ABX\x00", "a binary XML file of Android", _DUMPSYS_INSTEAD),
    (
        rb"[\xef\xbb\xbf\s]*(?=<).{0,4096}<usagestats\b",
        "a usage statistics file of an Android backup (XML)",
        _DUMPSYS_INSTEAD,
    ),
    (
        rb"(?i)[\xef\xbb\xbf\s]*(?=<).{0,4096}(<!doctype html|<html\b)",
        "an HTML page",
        "it is not read; if it is from Google Takeout, export My Activity again and choose JSON as "
        "its format",
    ),
)
_STATISTICS_FILE = re.compile(r"(?:.*[\\/])?1[0-9]{12}")  # named after its time, in milliseconds


def check_not_foreign(head: bytes, name: str) -> None:
    """Raise `UnreadableLog` where the first bytes are of a kind of file that is never a log."""
    for begin, what, remedy in _FOREIGN:
        if re.match(begin, head[: 1 << 16], re.DOTALL):
            raise UnreadableLog(f"{name}: this is {what}: {remedy}.")
    if _STATISTICS_FILE.fullmatch(name) and re.search(rb"[\x00-\x08\x0e-\x1f]", head[:4096]):
        raise UnreadableLog(
            f"{name}: this looks like a usage statistics file of an Android backup (protobuf): "
            f"{_DUMPSYS_INSTEAD}."
        )
