"""When a round ends: a goal, a deadline and a minimum. No clock and no I/O; time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum


class Verdict(Enum):
    """What becomes of a round at this moment."""

    WAIT = "wait"
    CLOSE = "close"  # enough reports: no more are taken, and the learner takes a step
    EXTEND = "extend"  # past the deadline and below the minimum: nothing changes, it stays open


@dataclass(frozen=True)
class RoundRules:
    """A round closes at ``goal`` reports, or at its deadline with ``minimum`` or more.

    A round below the minimum at its deadline changes nothing: it stays open with the reports it
    has for another ``seconds``, so that no phone has spent its ε in vain.
    """

    goal: int
    minimum: int
    seconds: float

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.goal:
            raise ValueError(
                f"a round needs 1 <= minimum <= goal, got minimum {self.minimum!r} and goal "
                f"{self.goal!r}."
            )
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"a round's seconds must be a number > 0, got {self.seconds!r}.")

    def open_round(self, number: int, now: float) -> Round:
        return Round(number, opened=now, deadline=now + self.seconds)

    def verdict(self, round: Round, now: float) -> Verdict:
        if round.n_reports >= self.goal:
            return Verdict.CLOSE
        if now < round.deadline and round.deadline - now <= self.seconds:
            return Verdict.WAIT
        return Verdict.CLOSE if round.n_reports >= self.minimum else Verdict.EXTEND

    def extend_round(self, round: Round, now: float) -> Round:
        return replace(round, deadline=now + self.seconds, extensions=round.extensions + 1)


@dataclass(frozen=True)
class Round:
    """A round as it stands. Times are seconds since 1970; ``closed`` rounds take no reports.

    A deadline further away than a whole round can only come from a clock that was set back: it
    counts as passed.
    """

    number: int
    opened: float
    deadline: float
    n_reports: int = 0
    extensions: int = 0
    closed: bool = False
