"""Google Takeout: My Activity of the product Android, as JSON."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from urllib.parse import unquote

from nextapp.data.importers.content import Content, UnreadableLog
from nextapp.data.importers.events import Event, Format, Found
from nextapp.data.times import iso_time

_PACKAGE = re.compile(r"play\.google\.com/store/apps/details\?(?:[^#]*&)?id=([A-Za-z0-9_.]+)")
_APP = "\0"  # placeholder for the app's name in a title
_ENOUGH = 0.2  # share of the records that a wording needs to be read as "used"


def recognise(content: Content) -> bool:
    records = content.json
    return (
        isinstance(records, list)
        and len(records) > 0
        and all(
            isinstance(record, dict) and "title" in record and "time" in record
            for record in records[:20]
        )
    )


def read(content: Content) -> Found:
    """Records that an app was used, with the package name if any record of that app has it.

    "Used" is written in the language of the account: it is the most frequent wording with the
    app's name, and a note says which.
    """
    records = [record for record in content.json if isinstance(record, dict)]
    android = [record for record in records if _is_android(record)]
    if not android:
        raise UnreadableLog(
            f"{content.name}: this is My Activity without the product Android. Choose Android in "
            f"Takeout under My Activity."
        )
    packages: dict[str, str] = {}
    for record in android:
        package = _package(record)
        if package is not None:
            packages.setdefault(_text(record, "header"), package)
    wordings = [_wording(record) for record in android]
    used, notes = _wording_of_use(wordings)
    events = []
    for record, wording in zip(android, wordings, strict=True):
        if wording in used:
            header = _text(record, "header")
            app = _package(record) or packages.get(header) or _app_name(record)
            events.append(Event(app, iso_time(record.get("time"))))
    n_others = len(records) - len(events)
    if n_others:
        notes = (*notes, f"records that are not about using an app, left out: {n_others:,}")
    return Found(events, changes_only=False, notes=notes)


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return value.strip() if isinstance(value, str) else ""


def _is_android(record: dict[str, Any]) -> bool:
    products = record.get("products")
    return isinstance(products, list) and "Android" in products


def _package(record: dict[str, Any]) -> str | None:
    match = _PACKAGE.search(unquote(_text(record, "titleUrl")[:2000]))
    return None if match is None else match[1]


def _wording(record: dict[str, Any]) -> str:
    """The title in lower case with a placeholder for the app's name."""
    title, header = _text(record, "title")[:500].lower(), _text(record, "header").lower()
    if header and header != "android" and header in title:
        before, _, after = title.rpartition(header)
        return f"{before}{_APP}{after}"
    if title.startswith("used "):
        return f"used {_APP}"
    return title


def _app_name(record: dict[str, Any]) -> str:
    title, header = _text(record, "title"), _text(record, "header")
    if header.lower() in ("", "android") and title.lower().startswith("used "):
        return title[len("used ") :]
    return header


def _wording_of_use(wordings: list[str]) -> tuple[set[str], tuple[str, ...]]:
    """What most records say of an app, in any language: nothing is as frequent as its use."""
    named = Counter(wording for wording in wordings if _APP in wording and wording != _APP)
    used = {wording for wording, n in named.items() if n >= _ENOUGH * len(wordings)}
    shown = ", ".join(repr(wording.replace(_APP, "…").strip()) for wording in sorted(used))
    return used, ((f"titles like {shown} are read as an app being used",) if used else ())


FORMAT = Format(
    "Google Takeout, My Activity",
    "a JSON list with title, time and products (Google Takeout, My Activity)",
    recognise,
    read,
)
