"""Preparation of a log: collapse repeats, split, cut into sessions.

The steps are done in this order. ``days:`` splits drop sessions that cross a boundary (PAPER.md,
R14); ``fraction:`` splits cut each user's launches without regard to sessions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nextapp.data.log import Indices, LaunchLog

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
    return log.where(~repeat, f"{int(repeat.sum()):,} repeats within 3 s collapsed")


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
    def train(self) -> LaunchLog:
        return self.whole.where(self.part == 0)

    @property
    def validation(self) -> LaunchLog:
        return self.whole.where(self.part == 1)

    @property
    def history(self) -> LaunchLog:
        """Train and validation: all that a model may learn from before the test."""
        return self.whole.where(self.part <= 1)

    @property
    def test(self) -> LaunchLog:
        return self.whole.where(self.part == 2)


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
        by, _, numbers = text.partition(":")
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
                f"the split {self} leaves no day to train on: the log has {n_days} "
                f"day{'s' * (n_days > 1)}."
            )
        how = (
            str(self)
            if train == self.train
            else (
                f"{self}, read as days:{train},{self.validation:g},{self.test:g}: "
                f"the log has {n_days} days"
            )
        )
        bounds = np.cumsum([train, self.validation, self.test])
        part = np.searchsorted(bounds, day, side="right")  # 0, 1, 2; 3 is after the test part
        session = session_starts(log)
        whole = part[session[:-1]] == part[session[1:] - 1]
        inside = np.repeat(whole, np.diff(session))
        return Parts(log, np.where(inside, part, 3), how)
