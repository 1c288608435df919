from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.fleet.columns import Fleet
from nextapp.fleet.participation import (
    NIGHT_OWLS,
    REASONS,
    Attendance,
    Participation,
    outcomes,
    tally,
)

N = 20_000


def played(settings, seed, rounds=1, n=N):
    attendance = Attendance.fresh(n)
    found = []
    for round_ in range(rounds):
        found.append(outcomes(Fleet.without_launches(n, 1), settings, round_, seed, attendance))
        attendance.record(found[-1] == REASONS.index("reports"), round_)
    return found, attendance


def share(found, reason):
    return float((found == REASONS.index(reason)).mean())


def test_in_a_perfect_world_everyone_reports(seed):
    found, _ = played(Participation(), seed)
    assert tally(found[0]) == {reason: N * (reason == "reports") for reason in REASONS}


def test_shares_are_those_asked_for(seed):
    """Binomial, 20,000 phones: each bound of .02 is over 5 standard errors."""
    found, _ = played(
        Participation(availability=(0.6,) * 24, drop_out=0.1, deadline_seconds=20 * math.e),
        seed,
    )
    late = 0.5 * math.erfc(1 / math.sqrt(2))  # P(normal > 1)
    assert share(found[0], "unavailable") == pytest.approx(0.4, abs=0.02)
    assert share(found[0], "dropped") == pytest.approx(0.6 * 0.1, abs=0.02)
    assert share(found[0], "late") == pytest.approx(0.6 * 0.9 * late, abs=0.02)
    assert share(found[0], "reports") == pytest.approx(0.54 * (1 - late), abs=0.02)


def test_phones_of_all_time_zones_are_there_at_their_own_hours(seed):
    """Only phones whose local time is 3 to 4 are available: a 24th of the world, others later."""
    only_three = tuple(float(hour == 3) for hour in range(24))
    found, _ = played(Participation(availability=only_three, hours_per_round=1.0), seed, rounds=24)
    there = np.array([f == REASONS.index("reports") for f in found])
    assert (there.sum(axis=0) == 1).all()
    assert there.mean(axis=1) == pytest.approx(np.full(24, 1 / 24), abs=0.012)


def test_night_owls_are_a_day_of_chances():
    Participation(availability=NIGHT_OWLS)


def test_a_gap_must_lie_between_two_reports(seed):
    found, _ = played(Participation(minimum_gap=2), seed, rounds=7, n=50)
    reports = [bool((f == REASONS.index("reports")).all()) for f in found]
    assert reports == [True, False, False, True, False, False, True]
    assert share(found[1], "too soon") == 1.0


def test_a_shard_sees_what_the_whole_fleet_sees(seed):
    settings = Participation(availability=(0.7,) * 24, drop_out=0.2)
    whole = outcomes(Fleet.without_launches(1000, 1), settings, 5, seed, Attendance.fresh(1000))
    part = outcomes(Fleet.without_launches(400, 1, 600), settings, 5, seed, Attendance.fresh(400))
    assert np.array_equal(whole[600:], part)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"availability": (1.0,) * 23}, "24 chances"),
        ({"availability": (1.5,) * 24}, "24 chances"),
        ({"drop_out": 1.0}, "drop_out must lie"),
        ({"deadline_seconds": 0.0}, "deadline_seconds must be > 0"),
        ({"minimum_gap": -1}, "minimum_gap must be >= 0"),
    ],
)
def test_bad_settings_say_so(bad, says):
    with pytest.raises(ValueError, match=says):
        Participation(**bad)
