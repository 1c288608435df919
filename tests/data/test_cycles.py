"""Cycles against plain Python: every launch once, order kept, no session torn, equal activity."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nextapp.data.cutting import Cycling, session_starts
from nextapp.data.log import LaunchLog

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def log_of(rows, n_apps=5) -> LaunchLog:
    """Rows of (user, app, time)."""
    user, app, time = zip(*rows, strict=True)
    n_users = max(user) + 1
    return LaunchLog.from_columns(
        user, app, time, [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)]
    )


def random_log(rng, n_users=9, n=900) -> LaunchLog:
    """Users who come and go, sessions that overlap."""
    rows = []
    for user in range(n_users):
        now = rng.integers(0, 3 * DAY)
        for _ in range(rng.integers(1, 2 * n // n_users)):
            now += int(rng.choice([4_000, 30_000, 5 * MINUTE, 20 * MINUTE, 9 * 60 * MINUTE]))
            rows.append((user, int(rng.integers(0, 5)), now))
    return log_of(rows)


def test_a_log_cut_by_hand():
    """Two users in turn on the first day; the second day is empty."""
    log = log_of(
        [
            (0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 3),
            (0, 2, 2 * DAY), (0, 3, 2 * DAY + 1), (1, 2, 3 * DAY),
            (0, 4, 4 * DAY), (1, 3, 5 * DAY),
        ]
    )  # fmt: skip
    days = Cycling.parse("days").cut(log)
    assert days.cycle.tolist() == [0, 0, 1, 1, 3, 0, 0, 2, 4]
    assert [part.n_sessions for part in days.parts] == [2, 1, 1, 1, 1]
    assert [part.n_users for part in days.parts] == [2, 1, 1, 1, 1]
    assert [(part.first, part.last) for part in days.parts][:2] == [(0, 3), (2 * DAY, 2 * DAY + 1)]


def test_a_session_past_midnight_is_of_the_day_it_began():
    log = log_of([(0, 0, DAY - MINUTE), (0, 1, DAY + MINUTE), (0, 2, DAY + 60 * MINUTE)])
    assert Cycling.parse("days").cut(log).cycle.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "how",
    ["users:1", "users:4", "users:13", "days"],
)
def test_every_launch_once_order_kept_no_session_torn(seed, how):
    for number in range(8):
        log = random_log(np.random.default_rng([seed, number]))
        cycles = Cycling.parse(how).cut(log)
        assert sorted(set(cycles.cycle.tolist())) == list(range(len(cycles)))
        assert sum(part.n_launches for part in cycles.parts) == len(log)
        for user in range(log.n_users):
            assert (np.diff(cycles.cycle[log.user == user]) >= 0).all()
        starts = session_starts(log)
        for first, last in itertools.pairwise(starts):
            assert len(set(cycles.cycle[first:last].tolist())) == 1
        assert len(cycles.before(1)) == (cycles.cycle == 0).sum()


def users_of(log: LaunchLog, cycles) -> list[int]:
    """Active users of every cycle, counted launch by launch."""
    active = {}
    for row in range(len(log)):
        active.setdefault(int(cycles.cycle[row]), set()).add(int(log.user[row]))
    return [len(active[number]) for number in range(len(cycles))]


def test_cycles_of_equal_users_cut_by_hand():
    """Sessions of a b a c b b c a: two users a cycle; the last has what is left."""
    log = log_of([(user, 0, place * DAY) for place, user in enumerate([0, 1, 0, 2, 1, 1, 2, 0])])
    cycles = Cycling.parse("users:3").cut(log)
    in_time = cycles.cycle[np.argsort(log.time, kind="stable")]
    assert in_time.tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    assert [part.n_users for part in cycles.parts] == [2, 2, 1]
    alone = Cycling.parse("users:7").cut(log)  # one user in each
    assert [part.n_users for part in alone.parts] == [1] * 7
    assert [part.n_sessions for part in alone.parts] == [1, 1, 1, 1, 2, 1, 1]
    with pytest.raises(ValueError, match="even with one user per cycle there are only 7"):
        Cycling.parse("users:8").cut(log)


@pytest.mark.parametrize("n", [1, 2, 5, 11, 30])
def test_every_cycle_has_as_many_users_as_the_others_but_for_one(seed, n):
    """And the last has what is left; so many users are needed for so few cycles."""
    for number in range(8):
        log = random_log(np.random.default_rng([seed, number]))
        cycles = Cycling.parse(f"users:{n}").cut(log)
        found = users_of(log, cycles)
        assert len(found) == n
        assert found == [part.n_users for part in cycles.parts]
        most = max(found)
        assert set(found[:-1]) <= {most, most - 1}
        # Fewer users in each would not do: cut by hand with one less everywhere.
        if most > 1:
            seen, needed = set(), 1
            first = session_starts(log)[:-1]
            for row in sorted(first, key=lambda row: (log.time[row], row)):
                seen.add(int(log.user[row]))
                if len(seen) > most - 1:
                    seen, needed = {int(log.user[row])}, needed + 1
            assert needed > n


@pytest.mark.parametrize(
    "text", ["33", "users", "users:0", "users:", "cycles:4", "days:3", "weeks", "-1"]
)
def test_other_spellings_are_refused_with_the_right_ones(text):
    with pytest.raises(ValueError, match="cycles must be 'users:34'"):
        Cycling.parse(text)


def test_more_cycles_than_sessions_are_refused():
    log = log_of([(0, 0, 0), (0, 1, DAY)])
    with pytest.raises(ValueError, match="3 cycles need at least as many sessions"):
        Cycling.parse("users:3").cut(log)
    assert str(Cycling.parse("users:3")) == "users:3"
    assert str(Cycling.parse("days")) == "days"
