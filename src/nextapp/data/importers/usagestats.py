"""Android: the text of `adb shell dumpsys usagestats`."""

from __future__ import annotations

import re
from datetime import datetime

from nextapp.data.importers.content import MOST_EVENTS, Content, is_month_first_in
from nextapp.data.importers.events import Event, Format, Found
from nextapp.data.times import local_time

_LINE = re.compile(
    r'^[ \t]*time="(?P<time>[^"\n]{4,60})"[ \t]+type=(?P<type>[A-Z0-9_]{1,60})'
    r"[ \t]+package=(?P<package>[^\s]{1,300})|^[ \t]*user=(?P<user>[0-9]{1,6})[ \t\r]*$"
    r"|^[ \t]*(?P<section>In-memory \w+ stats|Last 24 hour events)",
    re.MULTILINE,
)
_LAUNCHES = ("ACTIVITY_RESUMED", "MOVE_TO_FOREGROUND", "1")


def recognise(content: Content) -> bool:
    return any(match["time"] or match["section"] for match in _LINE.finditer(content.text))


def read(content: Content) -> Found:
    """The resumed activities of each user of the phone.

    A phone prints the events of the last 24 hours and, before Android 10, also those of the day,
    week and month. If sections overlap in time, the events of the first section are used.
    """
    sections: list[tuple[str, list[tuple[str, str]]]] = [("0", [])]
    n_events = 0
    for match in _LINE.finditer(content.text):
        if match["user"] is not None:
            sections.append((match["user"], []))
        elif match["section"] is not None:
            sections.append((sections[-1][0], []))
        elif match["type"] in _LAUNCHES and n_events < MOST_EVENTS:
            sections[-1][1].append((match["time"], match["package"]))
            n_events += 1
    texts = [time for _, section in sections for time, _ in section]
    month_first = is_month_first_in(texts, content.dates, content.name)
    known: dict[str, tuple[datetime, datetime]] = {}
    events: list[Event] = []
    n_bad = 0
    for user, section in sections:
        read_here = []
        for text, package in section:
            when = local_time(text, month_first=month_first)
            n_bad += when is None
            if when is not None and not _within(when, known.get(user)):
                read_here.append(Event(package, when, user=user))
        if read_here:
            times = [event.when for event in read_here if isinstance(event.when, datetime)]
            first, last = known.get(user, (times[0], times[0]))
            known[user] = min(first, *times), max(last, *times)
            events += read_here
    notes = () if n_events else ("it has no event of an app moving to the foreground",)
    return Found(events, changes_only=True, n_bad=n_bad, notes=notes)


def _within(when: datetime, span: tuple[datetime, datetime] | None) -> bool:
    return span is not None and span[0] <= when <= span[1]


FORMAT = Format(
    "Android usage statistics (adb shell dumpsys usagestats)",
    'lines time="…" type=ACTIVITY_RESUMED package=… (adb shell dumpsys usagestats)',
    recognise,
    read,
)
