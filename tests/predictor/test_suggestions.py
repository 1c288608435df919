"""The formulas of suggestions against their definitions, written out in another way."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextapp.predictor import chances_of_new, keep_scores, next_different, steady_row

chances_of_apps = st.lists(st.integers(1, 1000), min_size=1, max_size=12).map(
    lambda counts: np.array(counts) / (sum(counts) + 7)  # the rest is of apps never launched
)


@given(st.data(), st.lists(st.integers(0, 50), min_size=2, max_size=8))
def test_the_next_different_app_has_its_share_of_the_changes(data, counts):
    """Launches counted: of those that were not of the open app, how many were of this one."""
    n = sum(counts) + 3  # three of them were of apps never launched before
    open_app = data.draw(st.integers(0, len(counts) - 1))
    others = next_different(np.array(counts) / n, open_app)
    changes = n - counts[open_app]
    exact = [Fraction(0 if i == open_app else count, changes) for i, count in enumerate(counts)]
    assert others == pytest.approx([float(each) for each in exact])


def test_where_only_the_open_app_can_come_nothing_else_has_a_chance():
    assert next_different(np.array([1.0, 0.0]), 0).tolist() == [0.0, 0.0]


def row_by_exchanges(shown, chances, n, factor):
    """The row by single exchanges: the best one outside for the worst one inside, until no app
    outside is `factor` times as likely as one inside."""
    row = [app for app in shown if app >= 0]
    outside = sorted(set(range(len(chances))) - set(row), key=lambda app: -chances[app])
    row += [-1] * (n - len(row))
    on_screen = set(shown)
    for place in range(n):
        if row[place] < 0 and outside:
            row[place] = outside.pop(0)
    while outside:
        from_before = [app for app in row if app in on_screen]
        if not from_before:
            break
        worst = min(from_before, key=lambda app: chances[app])
        if chances[outside[0]] <= factor * chances[worst]:
            break
        row[row.index(worst)] = outside.pop(0)
    return {app for app in row if app >= 0}


@given(st.data(), chances_of_apps, st.sampled_from([1.0, 1.5, 2.0, 7.0]))
def test_a_row_changes_as_by_single_exchanges(data, chances, factor):
    chances = chances + np.arange(len(chances)) * 1e-9  # no two alike
    n = data.draw(st.integers(1, 6))
    apps = data.draw(st.permutations(range(len(chances))))
    shown = apps[: data.draw(st.integers(0, n))]
    row = steady_row(np.array(shown, np.int64), chances, n, factor).tolist()
    assert len(row) == len(set(row)) == min(n, len(chances))
    assert set(row) == row_by_exchanges(shown, chances, n, factor)
    for place, app in enumerate(shown):
        if app in row and place < len(row):
            assert row[place] == app
    newcomers = [chances[app] for app in row if app not in shown]
    assert newcomers == sorted(newcomers, reverse=True)


def test_a_place_whose_app_was_opened_goes_to_the_best_of_the_others():
    shown = np.array([4, -1, 2])
    chances = np.array([0.3, 0.1, 0.25, 0.0, 0.22])
    assert steady_row(shown, chances, 3, 2.0).tolist() == [4, 0, 2]


def test_an_app_without_a_chance_has_no_place():
    assert steady_row(np.array([1, 0]), np.array([0.4, 0.0, 0.2]), 3).tolist() == [2, 0]


def test_with_nothing_on_the_screen_the_row_is_best_first():
    assert steady_row(np.zeros(0, np.int64), np.array([0.1, 0.5, 0.2]), 2).tolist() == [1, 2]


@given(chances_of_apps)
def test_what_is_kept_is_wanted_often_or_next(chances):
    frequency = chances[::-1]
    expected = [math.log(f) + 30 * p for f, p in zip(frequency, chances, strict=True)]
    assert keep_scores(frequency, chances) == pytest.approx(expected)


def test_the_chance_of_a_new_app_is_that_of_its_first_launch_being_next():
    """1 − P(none within k + 1 launches) / P(none within k); half come within ten launches."""
    for k in range(0, 200, 7):
        unused = [1 - Fraction(n, 10 + n) for n in (k, k + 1)]
        assert chances_of_new(np.array([k]))[0] == pytest.approx(float(1 - unused[1] / unused[0]))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=100))
def test_new_apps_share_the_chance_of_the_latest(launches_since):
    together = chances_of_new(np.array(launches_since))
    assert together.sum() == pytest.approx(1 / (11 + min(launches_since)))
    latest = int(np.argmin(launches_since))
    assert together.max() == together[latest]


def test_without_new_apps_nothing_is_shared():
    assert len(chances_of_new(np.zeros(0, np.int64))) == 0
