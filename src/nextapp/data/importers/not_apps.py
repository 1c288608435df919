"""The list of entries that an import leaves out: home screens, system windows, loggers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from importlib.resources import files
from pathlib import Path

KINDS = ("home", "passing", "events")
_LONGEST = 1 << 20  # largest number of characters of a list


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


def list_text() -> str:
    """The text of the built-in list."""
    return files(__package__).joinpath("not_apps.txt").read_text(encoding="utf-8")


@cache
def usual_list() -> NotApps:
    return parse_list(list_text(), "the built-in list")


def read_list(file: Path) -> NotApps:
    """The list in a file."""
    return parse_list(file.read_text(encoding="utf-8-sig"), str(file))


def parse_list(text: str, name: str) -> NotApps:
    """Patterns by part, one per line; a part starts with its name in brackets; # is a comment.

    >>> parse_list("[home]\\nmy.launcher*", "x").kind("My.Launcher2")
    'home'
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{name}: a list may have up to {_LONGEST:,} characters.")
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
