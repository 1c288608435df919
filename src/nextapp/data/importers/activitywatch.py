"""ActivityWatch, on Android or a desktop: its JSON export of all buckets, or of one."""

from __future__ import annotations

import re
from typing import Any

from nextapp.data.importers.content import Content
from nextapp.data.importers.events import Event, Format, Found
from nextapp.data.times import iso_time

_APPS = re.compile(r"aw-watcher-(android|window)(?!-?(unlock|web|afk|input|network))")


def recognise(content: Content) -> bool:
    return isinstance(content.json, dict) and isinstance(content.json.get("buckets"), dict)


def read(content: Content) -> Found:
    """App changes; each device is a user, named after its host.

    Only buckets of the type currentwindow, and those of the Android and window watchers, have apps;
    others (browser tabs, editors, away from keyboard) are skipped. Events with a
    duration of 0 are launches too.
    """
    events: list[Event] = []
    n_bad = 0
    passed = []
    for name, bucket in content.json["buckets"].items():
        if not isinstance(bucket, dict) or not _has_apps(name, bucket):
            passed.append(name)
            continue
        user = _device(name, bucket)
        inside = bucket.get("events")
        for event in inside if isinstance(inside, list) else ():
            read_event = _event(event, user)
            if read_event is None:
                n_bad += 1
            else:
                events.append(read_event)
    notes = (f"buckets without apps, skipped: {len(passed):,}",) if passed else ()
    return Found(events, changes_only=True, n_bad=n_bad, notes=notes)


def _has_apps(name: str, bucket: dict[str, Any]) -> bool:
    return bucket.get("type") == "currentwindow" or _APPS.match(name) is not None


def _device(name: str, bucket: dict[str, Any]) -> str:
    host = bucket.get("hostname")
    if isinstance(host, str) and host.strip() and host != "unknown":
        return host
    return re.sub(r"^aw-watcher-(?:android(?:-test)?|window)_?", "", name) or "android"


def _event(event: Any, user: str) -> Event | None:
    if not isinstance(event, dict) or not isinstance(event.get("data"), dict):
        return None
    data = event["data"]
    app, package = data.get("app"), data.get("package")
    package = package if isinstance(package, str) else ""
    app = app if isinstance(app, str) and app.strip() else package
    when = iso_time(event.get("timestamp"))
    return Event(app, when, user=user, package=package) if app and when is not None else None


FORMAT = Format("ActivityWatch export", 'JSON with "buckets" (ActivityWatch)', recognise, read)
