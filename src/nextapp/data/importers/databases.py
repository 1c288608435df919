"""SQLite databases: knowledgeC (iOS up to 15, macOS) and Digital Wellbeing (Android)."""

from __future__ import annotations

import math

from nextapp.data.importers.content import ME, Content
from nextapp.data.importers.events import Event, Format, Found

_ZOBJECT = {"ZSTREAMNAME", "ZVALUESTRING", "ZSTARTDATE"}
_FOCUS, _USAGE = "/app/inFocus", "/app/usage"
_MAC_EPOCH = 978_307_200  # 2001-01-01 in seconds since 1970
_WELLBEING = {
    "events": {"timestamp", "type", "package_id"},
    "packages": {"_id", "package_name"},
}


def _is_knowledgec(content: Content) -> bool:
    return content.tables.get("ZOBJECT", set()) >= _ZOBJECT


def _read_knowledgec(content: Content) -> Found:
    """Rows of the stream /app/inFocus; times are seconds since 2001-01-01 UTC.

    Each other device whose rows were synced by iCloud is a separate user. Newer systems write
    /app/usage only; it is read for devices without /app/inFocus.
    """
    tables = content.tables
    zone = "ZSECONDSFROMGMT" if "ZSECONDSFROMGMT" in tables["ZOBJECT"] else "NULL"
    has_devices = "ZSOURCE" in tables["ZOBJECT"] and {"Z_PK", "ZDEVICEID"} <= tables.get(
        "ZSOURCE", set()
    )
    device = "ZSOURCE.ZDEVICEID" if has_devices else "NULL"
    join = "LEFT JOIN ZSOURCE ON ZOBJECT.ZSOURCE = ZSOURCE.Z_PK" if has_devices else ""
    rows = content.query(
        f"SELECT ZSTREAMNAME, ZVALUESTRING, ZSTARTDATE, {zone}, {device} FROM ZOBJECT {join}"
        f" WHERE ZSTREAMNAME IN ('{_FOCUS}', '{_USAGE}')"
    )
    streams: dict[str, list[Event]] = {_FOCUS: [], _USAGE: []}
    for stream, bundle, start, offset, other in rows:
        event = Event(
            bundle,
            start + _MAC_EPOCH if _is_number(start) else None,
            int(offset) if _is_number(offset) else None,
            other if isinstance(other, str) and other else ME,
        )
        streams[stream].append(event)
    in_focus = {event.user for event in streams[_FOCUS]}
    usage = [event for event in streams[_USAGE] if event.user not in in_focus]
    notes = (f"no rows of {_FOCUS} for a device, so {_USAGE} was read",) if usage else ()
    return Found([*streams[_FOCUS], *usage], changes_only=False, notes=notes)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_wellbeing(content: Content) -> bool:
    tables = content.tables
    return all(columns <= tables.get(table, set()) for table, columns in _WELLBEING.items())


def _read_wellbeing(content: Content) -> Found:
    """Events of type 1, an activity being resumed; times are milliseconds since 1970 in UTC."""
    rows = content.query(
        "SELECT package_name, timestamp FROM events JOIN packages"
        " ON events.package_id = packages._id WHERE events.type = 1"
    )
    events = [
        Event(package, when / 1000 if isinstance(when, int | float) else None)
        for package, when in rows
    ]
    return Found(events, changes_only=True)


KNOWLEDGEC = Format(
    "knowledgeC database (iOS, macOS)",
    "an SQLite database with the table ZOBJECT (knowledgeC.db)",
    _is_knowledgec,
    _read_knowledgec,
)
DIGITAL_WELLBEING = Format(
    "Digital Wellbeing database",
    "an SQLite database with the tables events and packages (Digital Wellbeing)",
    _is_wellbeing,
    _read_wellbeing,
)
