"""The odds by which synthetic phones draw: by hand, by drawing, and by what then happened."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2

from nextapp.compiled import compiled
from nextapp.compiled_bits import cursor, stream
from nextapp.data.cutting import session_starts
from nextapp.data.synthetic import (
    _LAUNCHES,
    APP_USAGE,
    LSAPP,
    Chances,
    Floats,
    Parameters,
    Whole,
    _crowd,
    _liked,
    _Phone,
    _spread,
    _write_bins,
    chances,
    fleet_parameters,
    make,
)

KINDS = {
    "default": Parameters(phones=540),
    "lsapp": replace(LSAPP, phones=800),
    "app-usage": replace(APP_USAGE, phones=1_500),
    "fleet": fleet_parameters(4_200, 87),
}

# Phones that launch any of their five apps, one as likely as the other.
EVEN = Parameters(
    phones=3,
    apps=5,
    days=20,
    echo=0.0,
    type_taste=0.0,
    installed=5.0,
    installed_spread=0.0,
    brings=0.0,
    installs=0.0,
    taste=0.0,
    taste_spread=0.0,
    drift=0.0,
    hour_taste=0.0,
    repeat=0.0,
    repeat_spread=0.0,
    habit=0.0,
    habit_spread=0.0,
    returning=0.0,
    own_habit=0.0,
)


def told(seed: int, **ingredients: float) -> list[Chances]:
    parameters = replace(EVEN, **ingredients)
    return list(chances(parameters, seed, range(parameters.phones)))


def sessions(phone: Chances) -> list[range]:
    new = np.flatnonzero(np.diff(phone.time, prepend=-(10**9)) > 15 * 60_000)
    return [range(*pair) for pair in pairwise([*new.tolist(), len(phone.time)])]


# ---------------------------------------------------------------- the same log


@pytest.mark.parametrize(
    ("kind", "phones", "digest"),
    [
        ("default", 20, "2c46a02a4aa17260"),
        ("lsapp", 20, "090268983053144a"),
        ("app-usage", 20, "2645b74ef3d3c2af"),
        ("fleet", 60, "5a41a2c28842b750"),
    ],
)
def test_logs_are_those_made_before_there_were_odds(kind, phones, digest):
    "Digests of earlier versions; whatever else changes, seed 7 must stay the same log."
    log = make(replace(KINDS[kind], phones=phones), 7)
    columns = log.user.tobytes() + log.app.tobytes() + log.time.tobytes()
    assert hashlib.sha256(columns).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("parameters", "digest"),
    [
        (
            Parameters(
                phones=200, apps=40, returning_depth=0.99, returning=1, drift=100, installed=400,
                installs=1, brings=1, echo=0.9,
            ),
            "ab14822543cf4497",
        ),
        (
            Parameters(
                phones=50, apps=2, installed=1, sessions=60, launches=100, pause=0, echo=0.0
            ),
            "0c7ac46b874ae424",
        ),
        (
            Parameters(
                phones=50, apps=1_000, installed=300, installed_spread=1.0, sessions=0.5,
                launches=100, launches_spread=3, pause=500, hour_taste=1, day_rhythm=1, repeat=0,
                habit=0, own_habit=1, taste=5, popularity=5,
            ),
            "b0121909c9e278f5",
        ),
        (
            Parameters(
                phones=100, apps=300, taste=0, popularity=0, drift=0, hour_taste=0, day_rhythm=0,
                repeat=0.5, repeat_spread=10, joining=5, stay=3, stay_spread=2, pause=0.01,
            ),
            "d71f4aa1731b3e34",
        ),
    ],
)  # fmt: skip
def test_logs_at_the_limits_are_those_made_before_draws_began_in_bins(parameters, digest):
    "Digests of the version that looked through all sums and took a logarithm for every pause."
    log = make(parameters, 7)
    columns = log.user.tobytes() + log.app.tobytes() + log.time.tobytes()
    assert hashlib.sha256(columns).hexdigest()[:16] == digest


@pytest.mark.parametrize("kind", KINDS)
def test_odds_come_with_the_log_they_belong_to(kind, seed):
    log = make(KINDS[kind], seed)
    last = log.n_users - 1
    for phone, one in zip((0, 5, last), chances(KINDS[kind], seed, (0, 5, last)), strict=True):
        rows = slice(*log.starts[phone : phone + 2])
        assert np.array_equal(one.apps[one.launched], log.app[rows])
        assert np.array_equal(one.time, log.time[rows])
        assert np.array_equal(one.launched[1:][one.echo[1:]], one.launched[:-1][one.echo[1:]])


def test_a_phone_that_is_not_there_is_named(seed):
    with pytest.raises(ValueError, match="phones must be from 0 to 2, got 3 to 3"):
        list(chances(EVEN, seed, [3]))


# ---------------------------------------------------------------- what then happened


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_to_happen_so_often_happens_so_often(kind, seed):
    """A million launches; false alarms once in 100,000 seeds for each of the two.

    In 20 bins of the stated chance, how often an app of the bin was launched: all bins together by
    chi-square with the covariance of a draw. And the mean surprise against its expectation.
    """
    edges = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 20)[:-1]])
    bins = np.arange(len(edges))
    expected, observed = np.zeros(len(edges)), np.zeros(len(edges))
    covariance = np.zeros((len(edges), len(edges)))
    surprise = uncertainty = n_launches = 0.0
    for phone in chances(KINDS[kind], seed, range(KINDS[kind].phones)):
        odds, launched = phone.odds[~phone.echo], phone.launched[~phone.echo]
        rows = np.arange(len(odds))
        np.testing.assert_allclose(odds.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert odds.min() >= 0
        where = np.searchsorted(edges, odds, side="right") - 1
        cells = rows[:, None] * len(bins) + where
        share = np.bincount(cells.ravel(), odds.ravel(), len(rows) * len(bins))
        share = share.reshape(len(rows), len(bins))
        expected += share.sum(axis=0)
        observed += np.bincount(where[rows, launched], minlength=len(bins))
        covariance += np.diag(share.sum(axis=0)) - share.T @ share
        information = -np.log(odds, where=odds > 0, out=np.zeros_like(odds))
        mean = (odds * information).sum(axis=1)
        surprise += (information[rows, launched] - mean).sum()
        uncertainty += ((odds * information**2).sum(axis=1) - mean**2).sum()
        n_launches += len(rows)
    assert n_launches > 900_000
    assert observed[expected == 0].sum() == 0
    enough = expected >= 25
    merged = np.concatenate([np.eye(len(bins))[enough], [~enough * 1.0]])
    gap, spread = merged @ (observed - expected), merged @ covariance @ merged.T
    far = gap @ np.linalg.pinv(spread, rcond=1e-9) @ gap
    assert far < chi2.isf(1e-5, enough.sum())
    assert abs(surprise) < 4.4 * np.sqrt(uncertainty)


# ---------------------------------------------------------------- by hand


def test_repeats_by_hand(seed):
    for phone in told(seed, repeat=0.4):
        for session in sessions(phone):
            np.testing.assert_allclose(phone.odds[session[0]], 1 / 5)
            for row in session[1:]:
                by_hand = np.full(5, 0.6 / 5)
                by_hand[phone.launched[row - 1]] += 0.4
                np.testing.assert_allclose(phone.odds[row], by_hand)


def test_habits_by_hand(seed):
    """After an app its first follower three times in four, its second once, or both are one."""
    log = make(replace(EVEN, habit=0.5, phones=3), seed)
    followed = np.zeros((5, 5))
    inside = np.setdiff1d(np.arange(1, len(log)), session_starts(log))
    np.add.at(followed, (log.app[inside - 1], log.app[inside]), 1)
    two = sorted([0.1, 0.1, 0.1, 0.1 + 0.125, 0.1 + 0.375])
    one = sorted([0.1, 0.1, 0.1, 0.1, 0.1 + 0.5])
    for phone in told(seed, habit=0.5):
        for session in sessions(phone):
            for row in session[1:]:
                found = phone.odds[row]
                by_hand = one if np.sort(found)[-2] < 0.15 else two
                np.testing.assert_allclose(np.sort(found), by_hand)
                often = followed[phone.apps[phone.launched[row - 1]]]
                assert phone.apps[found.argmax()] == often.argmax()


def test_returns_by_hand(seed):
    """One app back in 7 of 10, two back in 21 of 100 …; what is not there gives way to taste."""
    for phone in told(seed, returning=1.0, returning_depth=0.3):
        for session in sessions(phone):
            latest: list[int] = []
            for row in session:
                by_hand = np.zeros(5)
                left = 1.0
                for app in latest[1:]:
                    by_hand[app] = 0.7 * left
                    left *= 0.3
                np.testing.assert_allclose(phone.odds[row], by_hand + left / 5)
                now = int(phone.launched[row])
                latest = [now, *(app for app in latest if app != now)]


def test_a_habit_of_ones_own_is_certain(seed):
    """It may be the app itself."""
    itself = 0
    for phone in told(seed, phones=10, own_habit=1.0):
        after: dict[int, int] = {}
        for session in sessions(phone):
            np.testing.assert_allclose(phone.odds[session[0]], 1 / 5)
            for row in session[1:]:
                before, now = int(phone.launched[row - 1]), int(phone.launched[row])
                assert after.setdefault(before, now) == now
                assert phone.odds[row].tolist() == [float(k == now) for k in range(5)]
        itself += sum(before == now for before, now in after.items())
    assert itself > 0


def test_drift_changes_the_order_of_taste_alone(seed):
    by_hand = np.array([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    by_hand /= by_hand.sum()
    for phone in told(seed, taste=1.0, drift=3.0):
        np.testing.assert_allclose(np.sort(phone.odds), by_hand[::-1] + np.zeros_like(phone.odds))
        changes = (np.diff(phone.odds, axis=0) != 0).any(axis=1)
        assert 10 < changes.sum() <= 3 * 20
        openings = {session[0] for session in sessions(phone)}
        assert set(np.flatnonzero(changes) + 1) <= openings


def test_an_app_has_no_chance_before_it_arrives(seed):
    late = 0
    for phone in told(seed, installs=0.9):
        there = phone.odds > 0
        assert there[:, 0].all()  # the app liked first is there from the first day
        assert (np.diff(there.astype(int), axis=0) >= 0).all()  # none goes again
        late += (~there[0]).sum()
        n_there = there.sum(axis=1)
        # Sixteen tries for an app that is there, and then the one liked first.
        missed = (1 - n_there / 5) ** 16
        np.testing.assert_allclose(phone.odds[:, 0], (1 - missed) / n_there + missed)
    assert late > 3


# ---------------------------------------------------------------- by drawing


@compiled
def drawn_by_taste(n: int, seed: int, distaste: Floats, phone: _Phone, now: int) -> Whole:
    bits = stream(seed, 0, 0, _LAUNCHES)
    here = cursor(bits)
    counts = np.zeros(len(phone.own), np.int64)
    for _ in range(n):
        app, here = _liked(bits, here, distaste, phone, now)
        counts[app] += 1
    return counts


@pytest.mark.parametrize("hour", [3, 15])
def test_taste_by_the_hour_is_drawn_as_it_is_weighed(seed, hour):
    """Few apps have arrived and the hour is wrong for most: all sixteen tries fail now and then.

    Chi-square over 400,000 draws: false alarms once in 100,000 seeds.
    """
    crowd = _crowd(replace(EVEN, apps=12, hour_taste=1.0), seed)
    own, now = np.arange(12), hour * 3_600
    away = (hour - crowd.hour) % 24
    arrival = np.where((away > 7) & (away < 17), 0, now + 1)  # only what the hour speaks against
    taste, bins = np.cumsum(np.arange(1, 13) ** -1.0), np.empty(65, np.int64)
    _write_bins(taste, bins)
    phone = _Phone(
        own=own,
        arrival=arrival,
        repeat=crowd.repeat,
        follow=crowd.habit,
        hour=crowd.hour,
        habit=crowd.followers,
        own_habit=own,
        taste=taste,
        taste_bins=bins,
        liking=np.random.default_rng(seed).permutation(12),
        recent=np.empty(8, np.int64),
    )
    odds, n = np.zeros(12), 400_000
    _spread(odds, 1.0, crowd.distaste, phone, now)
    assert odds.sum() == pytest.approx(1, abs=1e-12)
    counts = drawn_by_taste(n, seed, crowd.distaste, phone, now)
    assert counts[odds == 0].sum() == 0
    likely = odds * n >= 10
    gaps = (counts - n * odds)[likely] ** 2 / (n * odds[likely])
    assert gaps.sum() < chi2.isf(1e-5, likely.sum())
