"""Preparation of a log: collapse repeats, split or cut into cycles, cut into sessions.

The steps are done in this order. ``days:`` splits drop sessions that cross a boundary (PAPER.md,
R14); ``fraction:`` splits cut each user's launches without regard to sessions. `description` sums
up what the steps find in a log.

Cycles are parts with almost equal numbers of active users, for the dynamic environment (PAPER.md,
R19). Sessions are never cut, so a user's launches keep their order within and across cycles.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nextapp.data.log import Codes, Indices, LaunchLog, moment
from nextapp.settings import count

REPEAT_MS = 3_000
SESSION_GAP_MS = 15 * 60_000
DAY_MS = 24 * 60 * 60_000


def collapse_repeats(log: LaunchLog, *, inclusive: bool = False) -> LaunchLog:
    """The log without 3-second repeats (PAPER.md, R12).

    A launch is dropped if the row before it (dropped or not) has the same user and app and is less
    than 3 s older; with `inclusive` also if exactly 3 s older, as in the authors' code.
    """
    limit = REPEAT_MS + 1 if inclusive else REPEAT_MS
    repeat = np.zeros(len(log), bool)
    repeat[1:] = (
        (log.user[1:] == log.user[:-1])
        & (log.app[1:] == log.app[:-1])
        & (log.time[1:] - log.time[:-1] < limit)
    )
    notes = [f"{count(int(repeat.sum()), 'repeat')} within 3 s collapsed"] * bool(repeat.any())
    return log.where(~repeat, *notes)


def launches_in_window(log: LaunchLog, days: float) -> LaunchLog:
    """Each user's launches within this many days before the user's last launch; 0 keeps all."""
    if days == 0 or len(log) == 0:
        return log
    last = np.zeros(log.n_users, np.int64)
    last[log.user] = log.time  # sorted by time within a user, so the last launch wins
    return log.where(last[log.user] - log.time < days * DAY_MS)


def session_starts(log: LaunchLog) -> Indices:
    """Rows where a session starts (new user, or a gap over 15 minutes), and len(log) at the end."""
    if len(log) == 0:
        return np.zeros(1, np.intp)
    new = np.ones(len(log), bool)
    new[1:] = (log.user[1:] != log.user[:-1]) | (log.time[1:] - log.time[:-1] > SESSION_GAP_MS)
    return np.append(np.flatnonzero(new), len(log))


class TooFewDays(ValueError):
    """A split by days asks for more days than the log has."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A split log; ``part`` of a launch is 0 for train, 1 validation, 2 test, 3 none."""

    whole: LaunchLog
    part: npt.NDArray[np.integer]
    how: str

    @property
    def history(self) -> LaunchLog:
        """Train and validation: all that a model may learn from before the test."""
        return self.whole.where(self.part <= 1)


@dataclass(frozen=True)
class Split:
    """How to cut a log: ``days:222,7,14`` or ``fraction:0.8,0,0.2``."""

    by: Literal["days", "fraction"]
    train: float
    validation: float
    test: float

    def __post_init__(self) -> None:
        sizes = (self.train, self.validation, self.test)
        if any(not math.isfinite(size) or size < 0 for size in sizes) or 0 in (
            self.train,
            self.test,
        ):
            raise ValueError(
                f"a split needs a train and a test part > 0 and a validation part >= 0, "
                f"got {sizes}."
            )
        if self.by == "fraction" and sum(sizes) > 1 + 1e-9:
            raise ValueError(
                f"the fractions of a split must add up to 1 or less, got {sizes} "
                f"with the sum {sum(sizes):g}."
            )
        if self.by == "days" and any(size != int(size) for size in sizes):
            raise ValueError(f"a split by days takes whole days, got {sizes}.")

    @classmethod
    def parse(cls, text: str) -> Split:
        by, _, numbers = str(text).partition(":")
        try:
            train, validation, test = (float(number) for number in numbers.split(","))
        except ValueError:
            train = validation = test = math.nan
        if by not in ("days", "fraction") or math.isnan(train):
            raise ValueError(
                f"a split is written 'days:TRAIN,VALIDATION,TEST' or "
                f"'fraction:TRAIN,VALIDATION,TEST', for example 'days:222,7,14' or "
                f"'fraction:0.8,0,0.2'; got {text!r}."
            )
        return cls(by, train, validation, test)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.by}:{self.train:g},{self.validation:g},{self.test:g}"

    def cut(self, log: LaunchLog) -> Parts:
        """Cut a collapsed log."""
        return self._by_days(log) if self.by == "days" else self._by_fraction(log)

    def _by_fraction(self, log: LaunchLog) -> Parts:
        starts = log.starts
        n = np.diff(starts)[log.user]
        position = np.arange(len(log)) - starts[log.user]
        bounds = np.cumsum([self.train, self.validation, self.test])
        part = sum(position >= np.floor(bound * n + 1e-9) for bound in bounds)
        return Parts(log, np.asarray(part), str(self))

    def _by_days(self, log: LaunchLog) -> Parts:
        """Calendar days (UTC) from the first day of the log.

        If the log has fewer days than the split, the train part is shortened: App Usage has seven
        days, so the paper's 6/1/1 becomes 5/1/1.
        """
        if len(log) == 0:
            return Parts(log, np.zeros(0, np.intp), str(self))
        day = log.time // DAY_MS
        day = day - day.min()
        n_days = int(day.max()) + 1
        train = int(min(self.train, n_days - self.validation - self.test))
        if train < 1:
            raise TooFewDays(
                f"the split {self} leaves no day to train on: the log has {count(n_days, 'day')}."
            )
        how = (
            str(self)
            if train == self.train
            else (
                f"{self}, read as days:{train},{self.validation:g},{self.test:g}: "
                f"the log has {count(n_days, 'day')}"
            )
        )
        bounds = np.cumsum([train, self.validation, self.test])
        part = np.searchsorted(bounds, day, side="right")  # 0, 1, 2; 3 is after the test part
        session = session_starts(log)
        whole = part[session[:-1]] == part[session[1:] - 1]
        inside = np.repeat(whole, np.diff(session))
        return Parts(log, np.where(inside, part, 3), how)


@dataclass(frozen=True)
class Cycle:
    """One cycle: its number from 1, the times of its first and last launch, and its size."""

    number: int
    first: int
    last: int
    n_users: int
    n_sessions: int
    n_launches: int


@dataclass(frozen=True, eq=False)
class Cycles:
    """A log and the cycle of each of its launches, counted from 0."""

    whole: LaunchLog
    cycle: Indices
    how: str

    def __len__(self) -> int:
        return int(self.cycle.max(initial=-1)) + 1

    def before(self, cycle: int) -> LaunchLog:
        """All launches of the cycles before this one."""
        return self.whole.where(self.cycle < cycle)

    @cached_property
    def parts(self) -> tuple[Cycle, ...]:
        """A summary of each cycle."""
        sessions = session_starts(self.whole)
        owner = self.cycle[sessions[:-1]]
        found = []
        for number in range(len(self)):
            here = self.cycle == number
            time = self.whole.time[here]
            found.append(
                Cycle(
                    number + 1,
                    int(time.min()),
                    int(time.max()),
                    len(np.unique(self.whole.user[here])),
                    int((owner == number).sum()),
                    int(here.sum()),
                )
            )
        return tuple(found)


@dataclass(frozen=True)
class Cycling:
    """How to cut a log.

    ``users:34``  34 cycles with equal numbers of active users, as the paper's text says
    ``days``      calendar days (UTC); n_cycles is 0
    """

    n_cycles: int = 0

    @classmethod
    def parse(cls, text: str) -> Cycling:
        by, _, number = text.partition(":")
        if text == "days":
            return cls()
        if by != "users" or not (number.isascii() and number.isdigit() and int(number) > 0):
            raise ValueError(
                f"cycles must be 'users:34', for 34 cycles with equal numbers of active users, or "
                f"'days'; got {text!r}."
            )
        return cls(int(number))

    def __str__(self) -> str:
        return f"users:{self.n_cycles}" if self.n_cycles else "days"

    def cut(self, log: LaunchLog) -> Cycles:
        """Cut a collapsed log; empty cycles are not counted.

        Each session belongs to one cycle: by days to that of the day (UTC) of its first launch, by
        users see `_cycles_of_equal_users`, of the sessions in the order of their first launches.
        """
        sessions = session_starts(log)
        if len(log) == 0:
            return Cycles(log, np.zeros(0, np.intp), str(self))
        first = log.time[sessions[:-1]]
        if not self.n_cycles:
            place = first // DAY_MS
        else:
            order = np.argsort(first, kind="stable")
            if self.n_cycles > len(order):
                raise ValueError(
                    f"{self.n_cycles} cycles need at least as many sessions, but the log has "
                    f"{len(order)}: give fewer cycles."
                )
            place = np.empty(len(order), np.int64)
            place[order] = _cycles_of_equal_users(log.user[sessions[:-1]][order], self.n_cycles)
        _, number = np.unique(place, return_inverse=True)
        return Cycles(log, np.repeat(number, np.diff(sessions)), str(self))


def _cycles_of_equal_users(users: Codes, n_cycles: int) -> Indices:
    """The cycle of each session, given the users of the sessions in order of time.

    A cycle takes sessions until the next one would add one user too many. The limit is m users, the
    smallest for which at most `n_cycles` cycles are needed; then as many as possible of the first
    cycles get the limit m − 1, which leaves more users for the last. Lowering the limit of one
    cycle starts the later cycles earlier, but none before the old start of its predecessor: so each
    step adds at most one cycle, and exactly `n_cycles` can be reached.
    """
    owners = users.tolist()

    def cut(most: int, n_with_less: int) -> list[int]:
        cycle, seen, number = [], set[int](), 0
        for owner in owners:
            if owner not in seen:
                if len(seen) == most - (number < n_with_less):
                    number += 1
                    seen.clear()
                seen.add(owner)
            cycle.append(number)
        return cycle

    at_least = 1 + bisect_left(
        range(1, len(set(owners)) + 1), True, key=lambda most: cut(most, 0)[-1] < n_cycles
    )
    if at_least == 1:
        found = cut(1, 0)
        if found[-1] + 1 < n_cycles:
            raise ValueError(
                f"the log cannot be cut into {n_cycles} cycles with equal numbers of active users: "
                f"even with one user per cycle there are only {found[-1] + 1}. Give fewer cycles, "
                f"or 'days'."
            )
        return np.asarray(found, np.intp)
    n_with_less = (
        bisect_left(range(n_cycles + 1), True, key=lambda n: cut(at_least, n)[-1] >= n_cycles) - 1
    )
    return np.asarray(cut(at_least, n_with_less), np.intp)


def description(log: LaunchLog) -> dict[str, Any]:
    """Sizes, sessions, repeats, and activity by day and hour, after collapsing 3-second repeats."""
    clean = collapse_repeats(log)
    sessions = session_starts(clean)
    length = np.diff(sessions)
    inside = np.ones(len(clean), bool)
    inside[sessions[:-1]] = False
    again = inside.copy()
    again[1:] &= clean.app[1:] == clean.app[:-1]
    pairs = np.unique(clean.user.astype(np.int64) * clean.n_apps + clean.app)
    day = clean.time // DAY_MS
    first = int(day.min())
    days = day - first
    ahead = 0 if clean.zone is None else clean.zone
    hours = (clean.time // 1000 + ahead) // 3600 % 24
    active = np.unique(days * clean.n_users + clean.user) // clean.n_users
    return {
        "n_users": len(np.unique(clean.user)),
        "n_apps": len(np.unique(clean.app)),
        "n_launches": len(log),
        "n_launches_collapsed": len(clean),
        "commonest_apps": _commonest(log),
        "from": moment(int(clean.time.min())),
        "to": moment(int(clean.time.max())),
        "n_days": int(days.max()) + 1,
        "n_sessions": len(length),
        "sessions_per_user": _spread(np.bincount(clean.user[sessions[:-1]])),
        "launches_per_session": _spread(length),
        "apps_per_user": _spread(np.bincount(pairs // clean.n_apps)),
        "launches_per_user": _spread(np.bincount(clean.user)),
        "repeat_share": float(again.sum() / max(1, inside.sum())),
        "launches_by_day": np.bincount(days).tolist(),
        "users_by_day": np.bincount(active, minlength=int(days.max()) + 1).tolist(),
        "launches_by_hour": np.bincount(hours, minlength=24).tolist(),
        "hours_are_local": clean.zone is not None,
        "notes": list(clean.notes),
    }


def _commonest(log: LaunchLog) -> dict[str, int]:
    """The ten most launched apps, each with its launches."""
    counts = np.bincount(log.app)
    order = np.argsort(-counts, kind="stable")[:10]
    return {log.apps[app]: int(counts[app]) for app in order if counts[app]}


def _spread(counts: npt.NDArray[np.integer]) -> dict[str, float]:
    """Mean, median and largest of the counts that are not 0."""
    counts = counts[counts > 0]
    return {
        "mean": float(counts.mean()),
        "median": float(np.median(counts)),
        "largest": float(counts.max()),
    }
