"""Android: the CSV files of Usage Logger, of continuous logging and of past usage."""

from __future__ import annotations

import re
from itertools import islice

from nextapp.data.importers.content import MOST_EVENTS, Content
from nextapp.data.importers.events import Event, Format, Found

_LINE = re.compile(r'"?(?P<ms>[0-9]{12,13})"?,(?P<what>.{1,400}?),?')
_CONTINUOUS = re.compile(r'"?App: (?P<app>.+?)"?')
_PAST = re.compile(r'"?(?P<app>.+?)"?,"?(?P<code>[0-9]{1,2})"?')
_RESUMED = "1"  # the code of Android's event of an app that comes to the foreground
_LOOKED_AT = 20  # rows checked to recognise the format


def recognise(content: Content) -> bool:
    rows = content.text[:8_192].split("\n")[:_LOOKED_AT]
    found = [_LINE.fullmatch(row.strip()) for row in rows[:-1] or rows if row.strip()]
    whats = [match["what"] for match in found if match is not None]
    if not whats or len(whats) < len(found):
        return False
    return all(map(_PAST.fullmatch, whats)) or any(map(_CONTINUOUS.fullmatch, whats))


def read(content: Content) -> Found:
    """Apps that came to the foreground; all else that is logged is left out."""
    events: list[Event] = []
    n_bad = n_others = 0
    for row in islice(filter(None, map(str.strip, content.text.split("\n"))), MOST_EVENTS):
        match = _LINE.fullmatch(row)
        if match is None:
            n_bad += 1
            continue
        app = _CONTINUOUS.fullmatch(match["what"]) or _PAST.fullmatch(match["what"])
        if app is None or app.groupdict().get("code", _RESUMED) != _RESUMED:
            n_others += 1
        else:
            events.append(Event(app["app"], int(match["ms"]) / 1000))
    notes = (f"events of other kinds, left out: {n_others:,}",) if n_others else ()
    return Found(events, changes_only=True, n_bad=n_bad, notes=notes)


FORMAT = Format(
    "Usage Logger export",
    "CSV of times in milliseconds and App: NAME (Usage Logger)",
    recognise,
    read,
)
