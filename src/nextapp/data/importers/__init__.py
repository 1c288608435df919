"""Importers of logs that people can export from their own devices.

They need only the standard library, since phones use them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nextapp.data.importers import (
    activitywatch,
    app_usage_csv,
    databases,
    google_takeout,
    table,
    usagestats,
)
from nextapp.data.importers.content import (
    HEAD_BYTES,
    Content,
    DateOrder,
    UnreadableLog,
    check_not_foreign,
)
from nextapp.data.importers.events import ImportedLaunch, NotApps, launches_of, usual_list
from nextapp.data.times import find_zone

FORMATS = (
    usagestats.FORMAT,
    app_usage_csv.FORMAT,
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
    return "; ".join(form.looked_for for form in FORMATS)


def import_file(
    path: Path,
    *,
    zone: str | None = None,
    not_apps: NotApps | None = None,
    dates: DateOrder | None = None,
) -> Imported | None:
    """The launches of an export of a person's device; None if the format is not known.

    Only the first `HEAD_BYTES` decide about None, so that a large table is not read twice.
    ``dates`` is the order of day and month in dates such as 3/4/2024, where nothing else tells.
    """
    with path.open("rb") as file:
        head = Content(file.read(HEAD_BYTES), str(path), dates=dates)
    check_not_foreign(head.data, head.name)
    if not (_is_only_import(head) or usagestats.recognise(head) or app_usage_csv.recognise(head)):
        return None
    content = head if len(head.data) < HEAD_BYTES else Content.of_file(path, dates)
    imported = import_content(content, zone=zone, not_apps=not_apps)
    log = path.with_name(path.name + "-wal")
    if imported is not None and content.is_database and log.exists() and log.stat().st_size:
        note = f"{log.name} next to the database was not read: its launches are missing"
        return Imported(imported.format, imported.launches, (*imported.notes, note))
    return imported


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
    check_not_foreign(content.data, content.name)
    form = next((form for form in FORMATS if form.recognise(content)), None)
    if form is None:
        if _is_only_import(content):
            raise UnreadableLog(
                f"{content.name}: not recognised.{_hint(content)} Looked for: {list_formats()}."
            )
        return None
    launches, notes = launches_of(form.read(content), where, not_apps or usual_list())
    if not launches:
        why = "; ".join(notes) or "it is empty"
        raise UnreadableLog(
            f"{content.name}: recognised as {form.name}, but it has no launch: {why}."
        )
    if not content.is_database:
        notes += _about_encoding(content)
    return Imported(form.name, launches, tuple(notes))


def read_any(
    content: Content, *, zone: str | None = None, not_apps: NotApps | None = None
) -> Imported:
    """The launches of an export of a device or of a CSV file; raises `UnreadableLog` otherwise.

    A gzip file is unpacked first.
    """
    content = content.unzip()
    if not content.data.strip():
        raise UnreadableLog(f"{content.name}: the file is empty.")
    if table.looks_like_table(content.text[:4096]):
        launches = table.read(content, find_zone(zone))
        launches.sort(key=lambda each: (each.user, each.clock))
        if not launches:
            raise UnreadableLog(f"{content.name}: the file has column names but no rows.")
        return Imported(table.NAME, launches, _about_encoding(content))
    found = import_content(content, zone=zone, not_apps=not_apps)
    if found is None:
        raise UnreadableLog(
            f"{content.name}: not recognised. Looked for: {list_formats()}; a CSV with the columns "
            f"timestamp and app_name."
        )
    return found


def _about_encoding(content: Content) -> tuple[str, ...]:
    return () if content.encoding == "utf-8" else (f"the text is read as {content.encoding}",)


def _is_only_import(content: Content) -> bool:
    """Whether these bytes cannot be a table of launches."""
    return (
        content.is_database
        or content.data.startswith(b"PK\x03\x04")
        or content.first_letter in ("{", "[", "<")
    )


def _hint(content: Content) -> str:
    if content.data.startswith(b"PK\x03\x04"):
        return " This is a ZIP archive: unpack it and give the file in it."
    if content.first_letter == "<":
        return " This is XML."
    if content.is_database:
        names = ", ".join(sorted(content.tables)[:8]) or "none"
        return f" The tables here are: {names:.200}."
    return ""
