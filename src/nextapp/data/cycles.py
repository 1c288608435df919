"""Cycles: a log cut in time into parts of almost equal activity, for the dynamic environment.

The paper's text wants equal numbers of active users in every cycle; its authors counted session
switches (PAPER.md, R19): with all launches of all users in order of time, a switch is a launch of
another session than the launch before it. Sessions are never cut, so a user's launches keep their
order within and across cycles.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from nextapp.data.cutting import DAY_MS, session_starts
from nextapp.data.log import Codes, Indices, LaunchLog

KINDS = ("users", "cycles", "switches", "days")


@dataclass(frozen=True)
class Cycle:
    """One cycle: its number from 1, the times of its first and last launch, and its size."""

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
        """A summary of each cycle."""
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
    """How to cut a log.

    ``users:34``      34 cycles with equal numbers of active users, as the paper's text says
    ``cycles:34``     34 cycles with equal numbers of session switches
    ``switches:9000`` a new cycle after every 9000 session switches, as in the authors' code
    ``days``          calendar days (UTC)
    """

    by: Literal["users", "cycles", "switches", "days"]
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Cycling:
        by, colon, number = text.partition(":")
        counts = number.isascii() and number.isdigit() and int(number) > 0
        if by not in KINDS or (by == "days") == bool(colon) or (by != "days" and not counts):
            raise ValueError(
                f"cycles must be 'users:34' for 34 cycles with equal numbers of active users, "
                f"'cycles:34' for 34 cycles with equal numbers of session switches, "
                f"'switches:9000' for a cycle every 9000 switches, or 'days'; got {text!r}."
            )
        return cls(by, int(number) if number else 0)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.by if self.by == "days" else f"{self.by}:{self.size}"

    def cut(self, log: LaunchLog) -> Cycles:
        """Cut a collapsed log; empty cycles are not counted.

        Each session belongs to one cycle. By days it is the day (UTC) of the session's first
        launch. Otherwise sessions are ordered by their first launches. By users, see
        `_cycles_of_equal_users`. By switches, the cycle of a session is given by the middle of its
        switches in the cumulative sum over all sessions: so the numbers of switches of two cycles
        differ by less than those of the sessions at their ends.
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
            total = int(turns.sum())
            n_cycles = max(1, round(total / self.size)) if self.by == "switches" else self.size
            if n_cycles > len(order):
                raise ValueError(
                    f"{n_cycles} cycles need at least as many sessions, but the log has "
                    f"{len(order)}: give fewer cycles."
                )
            place = np.empty(len(order), np.int64)
            if self.by == "users":
                place[order] = _cycles_of_equal_users(log.user[sessions[:-1]][order], n_cycles)
            else:
                middle = np.cumsum(turns) - turns / 2
                place[order] = np.floor(middle * (n_cycles / total)).astype(np.int64)
        _, number = np.unique(place, return_inverse=True)
        return Cycles(log, np.repeat(number, np.diff(sessions)), str(self))


def session_switches(log: LaunchLog, sessions: Indices) -> Indices:
    """(n_sessions,): the number of switches to each session, with all launches in order of time."""
    session = np.repeat(np.arange(len(sessions) - 1), np.diff(sessions))
    in_time = session[np.argsort(log.time, kind="stable")]
    begins = np.ones(len(log), bool)
    begins[1:] = in_time[1:] != in_time[:-1]
    return np.bincount(in_time[begins], minlength=len(sessions) - 1)


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
                f"or 'cycles:N'."
            )
        return np.asarray(found, np.intp)
    n_with_less = (
        bisect_left(range(n_cycles + 1), True, key=lambda n: cut(at_least, n)[-1] >= n_cycles) - 1
    )
    return np.asarray(cut(at_least, n_with_less), np.intp)
