"""Who takes part in a round: availability, drop-out, deadlines, gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.compiled_bits import stream, uniform, word
from nextapp.fleet.columns import Fleet, Mask, in_ranges
from nextapp.randomness import purpose_word

# Share of phones that are charging, idle and on an unmetered network, by local hour of the day.
NIGHT_OWLS = (
    0.62, 0.68, 0.71, 0.72, 0.70, 0.62, 0.45, 0.28, 0.18, 0.14, 0.12, 0.11,
    0.11, 0.11, 0.11, 0.11, 0.12, 0.13, 0.14, 0.16, 0.20, 0.28, 0.40, 0.53,
)  # fmt: skip

PART = np.uint64(purpose_word("part"))
HOME = np.uint64(purpose_word("home"))

# Why a phone's report is not in the round.
REPORTS, UNAVAILABLE, TOO_SOON, DROPPED, LATE = range(5)
REASONS = ("reports", "unavailable", "too soon", "dropped", "late")


@dataclass(frozen=True)
class Participation:
    """How phones take part. The defaults are a perfect world: everyone, always.

    Parameters
    ----------
    availability
        Chance of a phone to be available, for each of the 24 hours of its local day.
    hours_per_round
        Time between two rounds; the first round starts at hour 0 of world time. Phones live in
        time zones spread over the day.
    drop_out
        Chance that a phone that started does not finish.
    typical_seconds, deadline_seconds
        A report takes a log-normal time around ``typical_seconds`` (spread by a factor e); one that
        comes after the deadline is late and lost.
    minimum_gap
        Rounds that must lie between two reports of a phone.
    """

    availability: tuple[float, ...] = (1.0,) * 24
    hours_per_round: float = 24.0
    drop_out: float = 0.0
    typical_seconds: float = 20.0
    deadline_seconds: float = math.inf
    minimum_gap: int = 0

    def __post_init__(self) -> None:
        if len(self.availability) != 24 or not all(0 <= x <= 1 for x in self.availability):
            raise ValueError(
                f"availability must be 24 chances in [0, 1], one per hour, got {self.availability}."
            )
        if not 0 <= self.drop_out < 1:
            raise ValueError(f"drop_out must lie in [0, 1), got {self.drop_out!r}.")
        for name in ("hours_per_round", "typical_seconds", "deadline_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}.")
        if self.minimum_gap < 0:
            raise ValueError(f"minimum_gap must be >= 0, got {self.minimum_gap!r}.")


@dataclass(eq=False)
class Attendance:
    """What each phone of a fleet has done so far: its last round (−1 for none) and its reports."""

    last_round: npt.NDArray[np.int32]
    n_reports: npt.NDArray[np.int32]

    @classmethod
    def fresh(cls, n_phones: int) -> Attendance:
        return cls(np.full(n_phones, -1, np.int32), np.zeros(n_phones, np.int32))

    def record(self, reporting: Mask | slice, round_: int) -> None:
        """Charge the phones that report; called before anything leaves them."""
        self.last_round[reporting] = round_
        self.n_reports[reporting] += 1


def outcomes(
    fleet: Fleet,
    settings: Participation,
    round_: int,
    seed: int,
    attendance: Attendance,
) -> npt.NDArray[np.int8]:
    """What becomes of every phone of a shard in a round: codes of `REASONS`.

    Depends on (seed, phone, round) and the phone's own past only, so shards and threads do not
    matter.
    """
    found = np.empty(len(fleet), np.int8)
    hour = round_ * settings.hours_per_round % 24.0
    availability = np.array(settings.availability)

    def work(first: int, last: int) -> None:
        _outcomes(
            first, last, fleet.first_phone, np.uint64(seed), round_, found, attendance.last_round,
            hour, availability, settings.drop_out,
            math.log(settings.deadline_seconds / settings.typical_seconds), settings.minimum_gap,
        )  # fmt: skip

    in_ranges(len(fleet), work, size=65_536)
    return found


def tally(found: npt.NDArray[np.int8]) -> dict[str, int]:
    """How many phones had each outcome."""
    counts = np.bincount(found, minlength=len(REASONS))
    return dict(zip(REASONS, counts.tolist(), strict=True))


@compiled
def _outcomes(
    first: int,
    last: int,
    first_phone: int,
    seed: Any,
    round_: int,
    found: npt.NDArray[np.int8],
    last_round: npt.NDArray[np.int32],
    hour: float,
    availability: npt.NDArray[np.float64],
    drop_out: float,
    log_patience: float,
    minimum_gap: int,
) -> None:
    for phone in range(first, last):
        home = stream(seed, np.uint64(first_phone + phone), np.uint64(0), HOME)
        local = int(hour + 24.0 * uniform(home)) % 24
        bits = stream(seed, np.uint64(first_phone + phone), np.uint64(round_), PART)
        word(bits)  # not used: without it a seed would give other rounds than before
        is_there = uniform(bits) < availability[local]
        drops = uniform(bits) < drop_out
        # a log-normal time of spread 1: late if a standard normal exceeds log(deadline / typical)
        radius = math.sqrt(-2.0 * math.log(1.0 - uniform(bits)))
        late = radius * math.cos(2.0 * math.pi * uniform(bits)) > log_patience
        if not is_there:
            found[phone] = UNAVAILABLE
        elif last_round[phone] >= 0 and round_ - last_round[phone] <= minimum_gap:
            found[phone] = TOO_SOON
        elif drops:
            found[phone] = DROPPED
        elif late:
            found[phone] = LATE
        else:
            found[phone] = REPORTS
