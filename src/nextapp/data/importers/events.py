"""From the events of a format to launches: sorted, in UTC, without entries that are not apps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import translate
from functools import cache
from importlib.resources import files
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from nextapp.data.importers.content import ME, Content
from nextapp.data.times import (
    EARLIEST,
    LATEST,
    Zone,
    clocks_of_local_times,
    offset_at,
)

KINDS = ("home", "passing", "events")
"""The parts of a list of entries that are not apps; see `NotApps`."""

_IN_BRACKETS = re.compile(r"(?P<words>.+?)\s*[(（【\[](?P<app>.+)[)）】\]]")
_PAUSE = 900.0  # seconds
_LEAST_PAUSES, _MOST = 8, 0.75  # pauses, and the share of all, between screen off and screen on
_NEARLY_ALWAYS = 0.9  # share of the rows "screen off" that "screen on" follows
_SHOWN = 5  # names of what was left out
_LONGEST_NAME = 255
_LONGEST_LIST = 1 << 20  # characters


class Event(NamedTuple):
    """An app that moved to the foreground; ``when`` is in seconds since 1970, or a local time.

    ``zone`` is the UTC offset in seconds, if the format has it; ``package`` the app's identifier,
    if it is not its name.
    """

    app: str
    when: float | datetime | None
    zone: int | None = None
    user: str = ME
    package: str = ""


@dataclass(frozen=True)
class Found:
    """The result of an importer. ``changes_only``: repeated events of one app are one launch."""

    events: Sequence[Event]
    changes_only: bool
    n_bad: int = 0
    notes: tuple[str, ...] = ()


class Format(NamedTuple):
    """A kind of file: its name, what it is recognised by in words, and its reader."""

    name: str
    looked_for: str
    recognise: Callable[[Content], bool]
    read: Callable[[Content], Found]


class ImportedLaunch(NamedTuple):
    user: str
    app: str
    clock: float
    zone: int


def launches_of(
    found: Found, zone: Zone, not_apps: NotApps
) -> tuple[list[ImportedLaunch], list[str]]:
    """Launches by user and time, and notes on what was done."""
    n_bad = found.n_bad
    by_user: dict[str, list[Event]] = {}
    for event in found.events:
        app = clean_name(event.app)
        if app and event.when is not None:
            user = clean_name(event.user) or ME
            by_user.setdefault(user, []).append(event._replace(app=app, user=user))
        else:
            n_bad += 1
    launches: list[ImportedLaunch] = []
    out: Counter[str] = Counter()
    out_by_name: Counter[str] = Counter()
    packages = {event.app: event.package for events in by_user.values() for event in events}
    about_apps = rows_about_apps(packages)
    where = "this machine's time zone" if zone is None else f"the time zone {zone}"
    n_turned = n_same = 0
    is_local = any(isinstance(event.when, datetime) for event in found.events)
    for _, events in sorted(by_user.items()):
        turned = _is_newest_first(events)
        n_turned += turned
        timed = _add_times(events[::-1] if turned else events, zone)
        n_bad += len(events) - len(timed)
        timed.sort(key=lambda each: each.clock)
        kinds = {
            app: not_apps.kind(app) or not_apps.kind(packages[app]) or ""
            for app in {each.app for each in timed}
        }
        if not found.changes_only:
            rows = [each for each in timed if each.app not in about_apps]
            rows = [each for each in rows if kinds[each.app] in ("", "events")]
            kinds |= dict.fromkeys(screen_rows(rows), "events")
        kinds |= dict.fromkeys(about_apps, "events")
        before = None
        for seen in timed:
            kind = kinds[seen.app]
            if kind:
                out[kind] += 1
                out_by_name[about_apps.get(seen.app, seen.app)] += 1
                if kind == "home":
                    before = None
            elif found.changes_only and seen.app == before:
                n_same += 1
            else:
                before = seen.app
                launches.append(seen)
    return launches, [
        *found.notes,
        *_notes(out, out_by_name, n_same, n_bad, n_turned > 0),
        *((f"local times without a zone, read in {where}",) if is_local else ()),
    ]


def rows_about_apps(names: Collection[str]) -> dict[str, str]:
    """Names such as "Notification posted (Maps)", in any language, each with what stands for all.

    By their shape: the same words stand before the name of an app that exists by itself.

    >>> rows_about_apps(["Maps", "Vu (Maps)", "Vu (Bank)", "Clock (Google)", "Clock (Samsung)"])
    {'Vu (Maps)': 'Vu (…)', 'Vu (Bank)': 'Vu (…)'}
    """
    parts = [match for name in names if (match := _IN_BRACKETS.fullmatch(name))]
    words = {match["words"] for match in parts if match["app"] in names}.difference(names)
    return {match[0]: f"{match['words']} (…)" for match in parts if match["words"] in words}


def screen_rows(seen: Sequence[ImportedLaunch]) -> set[str]:
    """Rows on a screen or a lock that goes off and on again, in any language.

    By their shape: nearly all pauses lie between the same two rows, and the second of them nearly
    always follows the first. Rows that stand around those two in the same way are found next.
    ``seen`` are the rows in order, newest last; two names that are all there are apps.
    """
    words_of = {app: _IN_BRACKETS.sub(r"\g<words>", app) for app in {each.app for each in seen}}
    rows = [(words_of[each.app], each.clock) for each in seen]
    found: set[str] = set()
    while True:
        rows = [row for row in rows if row[0] not in found]
        n_each = Counter(words for words, _ in rows)
        pauses, after = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for (first, before), (second, then) in pairwise(rows):
            after[first, second] += 1
            pauses[first, second] += then - before > _PAUSE
        (off, on), n = next(iter(pauses.most_common(1)), (("", ""), 0))
        alike = _NEARLY_ALWAYS * max(n_each[off], n_each[on])
        least = max(_LEAST_PAUSES, _MOST * pauses.total())
        if len(n_each) < 3 or off == on or n < least or after[off, on] < alike:
            return {app for app, words in words_of.items() if words in found}
        found |= {off, on}


def clean_name(name: object) -> str:
    """A name as phones store it: printable, one line, at most 255 characters."""
    if not isinstance(name, str):
        return ""
    if len(name) <= _LONGEST_NAME and name.isprintable():  # nearly always
        return " ".join(name.split())
    letters = (letter if letter.isprintable() else " " for letter in name[: 4 * _LONGEST_NAME])
    return " ".join("".join(letters).split())[:_LONGEST_NAME].strip()


def _is_newest_first(events: Sequence[Event]) -> bool:
    times: list[Any] = [event.when for event in events]  # all numbers, or all local times
    backwards: int = sum((first > then) - (first < then) for first, then in pairwise(times))
    return backwards > 0


def _add_times(events: Sequence[Event], zone: Zone) -> list[ImportedLaunch]:
    local = [event.when if isinstance(event.when, datetime) else None for event in events]
    clocks = clocks_of_local_times(local, zone)
    timed = []
    for event, clock in zip(events, clocks, strict=True):
        if clock is not None:
            timed.append(ImportedLaunch(event.user, event.app, *clock))
        elif isinstance(event.when, float | int) and EARLIEST < event.when < LATEST:
            if event.zone is not None and abs(event.zone) <= 86_400:
                offset = event.zone
            else:
                offset = offset_at(event.when, zone)
            timed.append(ImportedLaunch(event.user, event.app, float(event.when), offset))
    return timed


def _notes(
    out: Counter[str], out_by_name: Counter[str], n_same: int, n_bad: int, turned: bool
) -> Iterable[str]:
    words = {
        "home": "home screens",
        "passing": "system windows and loggers",
        "events": "notifications, screens and other events",
    }
    parts = [f"{words[kind]}: {n:,}" for kind, n in sorted(out.items())]
    if parts:
        names = ", ".join(f"{name} {n:,}" for name, n in out_by_name.most_common(_SHOWN))
        yield f"left out, no apps (nextapp data not-apps): {', '.join(parts)}; most often {names}"
    if n_same:
        yield f"events of an app that was already open, not counted as launches: {n_same:,}"
    if n_bad:
        yield f"events without a readable app or time, left out: {n_bad:,}"
    if turned:
        yield "the file is sorted newest first; its order was reversed"


def left_out_notes(n_rows: int) -> list[str]:
    """Of rows of a table that a list names."""
    return [f"rows of entries that are listed as no apps, left out: {n_rows:,}"] if n_rows else []


# --- The list of entries that are not apps


@dataclass(frozen=True)
class NotApps:
    """Patterns of entries to leave out.

    The same app before and after a ``home`` screen counts as two launches; before and after a
    ``passing`` window (system windows, the logger itself) or other ``events`` as one.
    """

    home: re.Pattern[str]
    passing: re.Pattern[str]
    events: re.Pattern[str]

    def kind(self, app: str) -> str | None:
        """The part of the list that an app is in; None for an app to keep."""
        name = app.lower()
        for kind in KINDS:
            pattern: re.Pattern[str] = getattr(self, kind)
            if pattern.fullmatch(name):
                return kind
        return None


def not_apps_text() -> str:
    """The text of the built-in list: home screens, system windows, loggers."""
    return files(__package__).joinpath("not_apps.txt").read_text(encoding="utf-8")


@cache
def usual_list() -> NotApps:
    return parse_list(not_apps_text(), "the built-in list")


def read_list(file: str | PathLike[str]) -> NotApps:
    """The list in a file."""
    return parse_list(Path(file).read_text(encoding="utf-8-sig"), str(file))


def parse_list(text: str, name: str) -> NotApps:
    """Patterns by part, one per line; a part starts with its name in brackets; # is a comment.

    >>> parse_list("[home]\\nmy.launcher*", "x").kind("My.Launcher2")
    'home'
    """
    if len(text) > _LONGEST_LIST:
        raise ValueError(f"{name}: a list may have up to {_LONGEST_LIST:,} characters.")
    patterns: dict[str, list[str]] = {kind: [] for kind in KINDS}
    kind = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            kind = line[1:-1].strip()
            if kind not in patterns:
                raise ValueError(
                    f"{name}, line {number}: the parts are [home], [passing] and [events], got "
                    f"{line:.60}."
                )
        elif kind is None:
            raise ValueError(
                f"{name}, line {number}: the list must start with a part, such as [passing]."
            )
        else:
            patterns[kind].append(line.lower())
    return NotApps(**{kind: _one_of(lines) for kind, lines in patterns.items()})


def _one_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns) or r"(?!)")
