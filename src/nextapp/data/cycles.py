"""Cycles: a log cut along time into parts of almost equal activity, for the dynamic environment.

Activity is counted in session switches (PAPER.md, R19): put all launches of all users in the order
of time; wherever a launch is of another session than the one before it, a turn of its session
begins. Sessions are never torn, so a user's launches keep their order within and across cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from nextapp.data.cutting import DAY_MS, session_starts
from nextapp.data.log import Indices, LaunchLog

KINDS = ("cycles", "switches", "days")


@dataclass(frozen=True)
class Cycle:
    """One cycle: its number, counted from 1, the times of its first and last launch, its size."""

    number: int
    first: int
    last: int
    n_users: int
    n_sessions: int
    n_launches: int
    n_switches: int


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
        """What each cycle holds."""
        sessions = session_starts(self.whole)
        owner = self.cycle[sessions[:-1]]
        turns = session_switches(self.whole, sessions)
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
                    int(turns[owner == number].sum()),
                )
            )
        return tuple(found)


@dataclass(frozen=True)
class Cycling:
    """How to cut: ``cycles:33``, every ``switches:9000`` session switches, or by ``days``."""

    by: Literal["cycles", "switches", "days"]
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Cycling:
        by, colon, number = text.partition(":")
        counts = number.isascii() and number.isdigit() and int(number) > 0
        if by not in KINDS or (by == "days") == bool(colon) or (by != "days" and not counts):
            raise ValueError(
                f"cycles are written 'cycles:33' for a number of cycles of almost equal activity, "
                f"'switches:9000' for one every so many session switches, or 'days'; got {text!r}."
            )
        return cls(by, int(number) if number else 0)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.by if self.by == "days" else f"{self.by}:{self.size}"

    def cut(self, log: LaunchLog) -> Cycles:
        """Cut a collapsed log; cycles in which nothing starts are left out of the count.

        A session is wholly of one cycle. By days (UTC) it is that of its first launch. Else
        sessions stand in the order of their first launches, and each goes where the middle of its
        switches lies in the sum over all: so the switches of a cycle differ from the others' by
        less than those of the two sessions at its ends.
        """
        sessions = session_starts(log)
        if len(log) == 0:
            return Cycles(log, np.zeros(0, np.intp), str(self))
        first = log.time[sessions[:-1]]
        if self.by == "days":
            place = first // DAY_MS
        else:
            order = np.argsort(first, kind="stable")
            turns = session_switches(log, sessions)[order]
            middle = np.cumsum(turns) - turns / 2
            total = int(turns.sum())
            n_cycles = self.size if self.by == "cycles" else max(1, round(total / self.size))
            if n_cycles > len(order):
                raise ValueError(
                    f"{n_cycles} cycles need as many sessions or more; the log has {len(order)}. "
                    f"Ask for fewer cycles."
                )
            place = np.empty(len(order), np.int64)
            place[order] = np.floor(middle * (n_cycles / total)).astype(np.int64)
        _, number = np.unique(place, return_inverse=True)
        return Cycles(log, np.repeat(number, np.diff(sessions)), str(self))


def session_switches(log: LaunchLog, sessions: Indices) -> Indices:
    """(n_sessions,): in how many turns each session went on, among all others in time."""
    session = np.repeat(np.arange(len(sessions) - 1), np.diff(sessions))
    in_time = session[np.argsort(log.time, kind="stable")]
    begins = np.ones(len(log), bool)
    begins[1:] = in_time[1:] != in_time[:-1]
    return np.bincount(in_time[begins], minlength=len(sessions) - 1)
