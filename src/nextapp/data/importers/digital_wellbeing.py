"""Android: the SQLite database of Digital Wellbeing (`app_usage`)."""

from __future__ import annotations

from nextapp.data.importers.content import Content
from nextapp.data.importers.events import Event, Found

NAME = "Digital Wellbeing database"
LOOKED_FOR = "an SQLite database with the tables events and packages (Digital Wellbeing)"

_COLUMNS = {
    "events": {"timestamp", "type", "package_id"},
    "packages": {"_id", "package_name"},
}


def recognise(content: Content) -> bool:
    tables = content.tables
    return all(columns <= tables.get(table, set()) for table, columns in _COLUMNS.items())


def read(content: Content) -> Found:
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
