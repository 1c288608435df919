from __future__ import annotations

import numpy as np
import pytest

from nextapp.data.cutting import Split, collapse_repeats, session_starts
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog

HOUR = 3_600_000
DAY = 24 * HOUR


def log_of(*launches, n_users=None, n_apps=None) -> LaunchLog:
    """A log from (user, app, milliseconds)."""
    columns = np.array(launches, np.int64).reshape(-1, 3)
    n_users = n_users or int(columns[:, 0].max(initial=0)) + 1
    n_apps = n_apps or int(columns[:, 1].max(initial=0)) + 1
    return LaunchLog.from_columns(
        *columns.T, [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)]
    )


def part_of(parts, number):
    """The train, validation or test part."""
    return parts.whole.where(parts.part == number)


def test_columns_are_sorted_by_user_and_time_and_equal_times_keep_their_order():
    log = log_of((1, 0, 5), (0, 1, 9), (0, 2, 3), (0, 3, 3), (1, 4, 5))
    assert log.app.tolist() == [2, 3, 1, 0, 4]
    assert log.starts.tolist() == [0, 3, 5]


def test_an_unsorted_log_is_refused():
    with pytest.raises(ValueError, match="sorted by user"):
        LaunchLog(*np.array([[0, 0], [0, 0]], np.int32), np.array([2, 1]), ("u",), ("a",))


def test_codes_must_have_names():
    with pytest.raises(ValueError, match="codes from 0 to 0"):
        log_of((0, 5, 0), n_apps=1)


def test_columns_must_have_one_length():
    zeros = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="the same length, got 2, 2 and 3"):
        LaunchLog(zeros, zeros, np.zeros(3, np.int64), ("u",), ("a",))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_log_survives_its_file(tmp_path, ending):
    log = log_of((0, 1, 1_500_000_000_123), (1, 0, 1_500_000_000_000), (1, 2, 1_500_000_009_999))
    log.write(str(tmp_path / f"log{ending}"))
    back = read_log(tmp_path / f"log{ending}")
    assert back.to_polars().sort("user_id", "timestamp").equals(log.to_polars())


# --- collapse, R12


def test_a_repeat_within_3_seconds_collapses_whatever_came_before_it():
    # 0, 2, 4 s: each is less than 3 s after the raw row before it
    log = log_of((0, 0, 0), (0, 0, 2000), (0, 0, 4000), (0, 0, 7000), (0, 1, 7100), (0, 0, 7200))
    assert collapse_repeats(log).time.tolist() == [0, 7000, 7100, 7200]
    assert "2 repeats" in collapse_repeats(log).notes[0]


def test_exactly_3_seconds_is_the_authors_repeat_but_not_ours():
    log = log_of((0, 0, 0), (0, 0, 3000))
    assert len(collapse_repeats(log)) == 2
    assert len(collapse_repeats(log, inclusive=True)) == 1


def test_another_users_launch_is_no_repeat():
    assert len(collapse_repeats(log_of((0, 0, 0), (1, 0, 1000)))) == 2


# --- sessions


def test_a_gap_of_more_than_15_minutes_or_another_user_starts_a_session():
    quarter = 15 * 60_000
    log = log_of((0, 0, 0), (0, 1, quarter), (0, 0, 2 * quarter + 1), (1, 0, 2 * quarter + 2))
    assert session_starts(log).tolist() == [0, 2, 3, 4]
    assert session_starts(log.where(np.zeros(4, bool))).tolist() == [0]


# --- splits


@pytest.mark.parametrize("text", ["days:222,7,14", "fraction:0.8,0,0.2", "fraction:0.7,0.1,0.2"])
def test_a_split_is_written_as_it_is_read(text):
    assert str(Split.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("weeks:1,1,1", "is written"),
        ("days:1,1", "is written"),
        ("fraction:a,b,c", "is written"),
        ("days:0,1,1", "train and a test part > 0"),
        ("fraction:0.8,0,0", "train and a test part > 0"),
        ("fraction:0.9,0.1,0.1", "add up to 1 or less"),
        ("days:1.5,1,1", "whole days"),
        ("days:-1,1,1", "train and a test part > 0"),
        ("fraction:0.8,0,inf", "train and a test part > 0"),
    ],
)
def test_a_split_that_makes_no_sense_says_so(text, says):
    with pytest.raises(ValueError, match=says):
        Split.parse(text)


def test_fractions_cut_each_users_launches_at_the_floor():
    launches = [(0, 0, k) for k in range(10)] + [(1, 0, k) for k in range(7)] + [(2, 0, 0)]
    parts = Split.parse("fraction:0.8,0,0.2").cut(log_of(*launches))
    assert np.bincount(part_of(parts, 0).user, minlength=3).tolist() == [8, 5, 0]
    assert np.bincount(part_of(parts, 2).user, minlength=3).tolist() == [2, 2, 1]
    assert len(part_of(parts, 1)) == 0


@pytest.mark.parametrize("n", range(1, 60))
def test_no_launch_is_lost_or_doubled_to_rounding(n):
    parts = Split.parse("fraction:0.7,0.1,0.2").cut(log_of(*[(0, 0, k) for k in range(n)]))
    assert len(part_of(parts, 0)) == n * 7 // 10
    assert len(part_of(parts, 0)) + len(part_of(parts, 1)) == n * 8 // 10
    assert len(part_of(parts, 0)) + len(part_of(parts, 1)) + len(part_of(parts, 2)) == n


def test_days_count_from_the_first_calendar_day_and_straddling_sessions_fall_out():
    launches = [
        (0, 0, 10 * HOUR),
        (0, 1, DAY - 1000),  # a session across midnight of day 1
        (0, 0, DAY + 1000),
        (0, 1, DAY + 10 * HOUR),
        (0, 0, 2 * DAY + HOUR),
        (0, 1, 3 * DAY + HOUR),  # after the test day
    ]
    parts = Split.parse("days:1,1,1").cut(log_of(*launches))
    assert parts.part.tolist() == [0, 3, 3, 1, 2, 3]
    assert parts.history.time.tolist() == [10 * HOUR, DAY + 10 * HOUR]


def test_a_log_shorter_than_the_split_shortens_the_train_part_and_says_so():
    parts = Split.parse("days:6,1,1").cut(log_of(*[(0, 0, k * DAY) for k in range(7)]))
    assert parts.part.tolist() == [0] * 5 + [1, 2]
    assert "read as days:5,1,1" in parts.how


def test_a_log_too_short_to_train_on_is_an_error():
    with pytest.raises(ValueError, match="leaves no day to train on"):
        Split.parse("days:6,1,1").cut(log_of((0, 0, 0), (0, 0, DAY)))


def test_a_log_says_what_it_is_in_a_line_and_in_a_notebook():
    log = LaunchLog.from_columns(
        [0, 1, 1], [1, 0, 1], [0, 86_400_000, 86_461_000], ["ann", "bo<b>"], ["mail", "<i>maps"],
        ["read & cleaned"],
    )  # fmt: skip
    assert repr(log) == "<LaunchLog of 3 launches, 2 users, 2 apps, 1970-01-01 to 1970-01-02>"
    page = log._repr_html_()
    assert "3 launches, 2 users, 2 apps, 1970-01-01 to 1970-01-02" in page
    assert "<th scope=row>bo&lt;b&gt;</th><td class=words>1970-01-02 00:01:01</td>" in page
    assert "&lt;i&gt;maps" in page
    assert "<li>read &amp; cleaned</li>" in page
    empty = log.where(np.zeros(3, bool))
    assert repr(empty) == "<LaunchLog of 0 launches, 2 users, 2 apps>"
    long = LaunchLog.from_columns(
        np.zeros(1000), np.zeros(1000), np.arange(1000), ["ann"], ["mail"]
    )
    assert len(repr(long)) < 100
    assert long._repr_html_().count("<tr>") == 6  # the heading and five launches
