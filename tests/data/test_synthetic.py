"""Synthetic phones: what is promised of them, and each ingredient on and off.

Bounds on ingredients are wide; they held for each of the seeds 0 to 29.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime

import numpy as np
import pytest

from nextapp.data import synthetic
from nextapp.data.cutting import DAY_MS, Split, collapse_repeats, session_starts
from nextapp.data.log import LaunchLog
from nextapp.data.synthetic import APP_USAGE, LSAPP, PRESETS, Parameters, make, parse, traits
from nextapp.evaluation import find_preset
from nextapp.evaluation.revealing import exam
from nextapp.evaluation.static import evaluate
from nextapp.predictors.rivals import MFU, MRU, SR, Random, SROnDevice

# Phones with no ingredient but their own, even taste for twelve apps.
BARE = Parameters(
    phones=60,
    apps=40,
    days=20,
    sessions_spread=0.0,
    launches_spread=0.0,
    launches=10.0,
    echo=0.0,
    day_rhythm=0.0,
    popularity=0.0,
    type_taste=0.0,
    installed=12.0,
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


def _made(seed: int, **ingredients: float) -> LaunchLog:
    return make(replace(BARE, **ingredients), seed)


def _pairs(log: LaunchLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User, app and next app of all launches that follow another in their session."""
    inside = np.ones(len(log), bool)
    inside[session_starts(log)[:-1]] = False
    later = np.flatnonzero(inside)
    return log.user[later], log.app[later - 1], log.app[later]


def _held(log: LaunchLog) -> np.ndarray:
    """(n_users, n_apps): whether a phone ever launched an app."""
    held = np.zeros((log.n_users, log.n_apps), bool)
    held[log.user, log.app] = True
    return held


# ---------------------------------------------------------------- seeds and phones


def _same(first: LaunchLog, second: LaunchLog) -> bool:
    return all(
        np.array_equal(getattr(first, column), getattr(second, column))
        for column in ("user", "app", "time")
    )


@pytest.mark.parametrize("name", PRESETS)
def test_the_same_seed_gives_the_same_log_and_another_seed_another(name, seed):
    log = make(PRESETS[name], seed)
    assert _same(log, make(PRESETS[name], seed))
    assert not _same(log, make(PRESETS[name], seed + 1))


@pytest.mark.parametrize("name", PRESETS)
def test_a_phone_launches_the_same_among_ten_phones_and_among_a_thousand(name, seed):
    few = make(replace(PRESETS[name], phones=10), seed)
    many = make(replace(PRESETS[name], phones=1000), seed)
    assert _same(few, many.where(many.user < 10))


def test_a_seed_may_be_any_64_bit_number():
    assert len(make(replace(BARE, phones=2), 2**64 - 1)) > 0


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("parameters", "phones", "apps", "days", "start", "sessions"),
    [(LSAPP, 292, 87, 243, "2018-01-01", 109), (APP_USAGE, 1000, 2000, 7, "2016-04-20", 58)],
    ids=["lsapp", "app-usage"],
)
def test_a_twin_has_the_size_of_its_data(seed, parameters, phones, apps, days, start, sessions):
    "Sessions a phone within a tenth: four times their spread between seeds."
    log = make(parameters, seed)
    assert (log.n_users, log.n_apps) == (phones, apps)
    assert len(np.unique(log.user)) == phones
    midnight = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()) * 1000
    day = (log.time - midnight) // DAY_MS
    assert (day.min(), day.max()) == (0, days - 1)
    log = collapse_repeats(log, inclusive=True)
    assert (len(session_starts(log)) - 1) / phones == pytest.approx(sessions, rel=0.1)
    assert len(log) < 800_000
    assert log.users[7] == "phone-0007"
    assert log.apps[12] == "app-0012"
    assert "synthetic, not people's data" in log.notes[0]


def test_about_28_phones_of_the_lsapp_twin_are_there_to_the_end(seed):
    "Between 21 and 37: four times the spread between seeds."
    log = make(LSAPP, seed)
    assert len(log) <= 500_000
    parts = Split.parse("days:222,7,14").cut(collapse_repeats(log, inclusive=True))
    early_users, late_users = (parts.whole.user[parts.part == number] for number in (0, 2))
    assert 21 <= len(np.intersect1d(early_users, late_users)) <= 37
    early = log.time < log.time.min() + 121 * DAY_MS
    assert early.mean() > 0.55  # most of it happens in the first half


@pytest.mark.parametrize("days", [1, 2, 30])
def test_one_phone_alone_spans_all_days(seed, days):
    log = make(replace(BARE, phones=1, days=days), seed)
    assert np.ptp(log.time // DAY_MS) == days - 1


def test_a_phone_may_have_one_app_only(seed):
    log = _made(seed, installed=1.0, drift=3.0, returning=0.5, habit=0.3, own_habit=0.3)
    assert (_held(log).sum(axis=1) == 1).all()


# ---------------------------------------------------------------- ingredients, on and off


def test_repeats(seed):
    _, app, following = _pairs(_made(seed, repeat=0.0))
    assert (app == following).mean() == pytest.approx(1 / 12, abs=0.02)  # chance alone
    _, app, following = _pairs(_made(seed, repeat=0.7))
    assert (app == following).mean() == pytest.approx(0.7 + 0.3 / 12, abs=0.02)
    _, app, following = _pairs(_made(seed, repeat=1.0))
    assert (app == following).all()


def test_some_apps_are_repeated_more_than_others(seed):
    def spread(log: LaunchLog) -> float:
        _, app, following = _pairs(log)
        return float(np.std([(following[app == a] == a).mean() for a in np.unique(app)]))

    assert spread(_made(seed, repeat=0.5, repeat_spread=0.0)) < 0.05
    assert spread(_made(seed, repeat=0.5, repeat_spread=2.0)) > 0.2


def test_launches_are_logged_again_within_three_seconds(seed):
    assert len(collapse_repeats(log := _made(seed, echo=0.0), inclusive=True)) == len(log)
    log = _made(seed, echo=0.5)
    assert len(collapse_repeats(log, inclusive=True)) / len(log) == pytest.approx(2 / 3, abs=0.02)
    assert len(collapse_repeats(log)) > len(
        collapse_repeats(log, inclusive=True)
    )  # some exactly 3 s later


def test_the_habits_of_the_crowd_are_directed(seed):
    def one_way(log: LaunchLog) -> float:
        _, app, following = _pairs(log)
        counts = np.zeros((log.n_apps, log.n_apps))
        np.add.at(counts, (app, following), 1)
        return float(np.abs(counts - counts.T).sum() / (counts + counts.T).sum())

    assert one_way(_made(seed, brings=0.8, habit=0.0)) < 0.2
    assert one_way(_made(seed, brings=0.8, habit=0.8)) > 0.5


def test_the_crowd_shares_its_habits_and_a_phone_has_its_own(seed):
    def settled(log: LaunchLog, by_phone: bool) -> float:
        """How often the next app is the one that follows most often."""
        user, app, following = _pairs(log)
        group = app + by_phone * log.n_apps * user
        counts = np.zeros((group.max() + 1, log.n_apps))
        np.add.at(counts, (group, following), 1)
        return float(counts.max(axis=1).sum() / counts.sum())

    neither = _made(seed)
    crowd = _made(seed, habit=0.9, brings=0.9)
    own = _made(seed, own_habit=0.9)
    assert settled(neither, by_phone=False) < 0.1
    assert settled(crowd, by_phone=False) > 0.3
    assert settled(own, by_phone=False) < 0.5
    assert settled(own, by_phone=True) > 0.8


def test_an_app_brings_the_one_that_follows_it(seed):
    def company(log: LaunchLog) -> float:
        held = _held(log).astype(float)
        together = held.T @ held / held.sum(axis=0)[:, None]
        np.fill_diagonal(together, 0)
        return float(together.max(axis=1).mean())

    assert company(_made(seed, phones=300, brings=0.0)) < 0.5
    assert company(_made(seed, phones=300, brings=0.9)) > 0.65


def test_returns_to_the_apps_of_the_session(seed):
    def back(log: LaunchLog) -> float:
        start = np.zeros(len(log), int)
        start[session_starts(log)[:-1]] = 1
        session = np.cumsum(start)
        return float((log.app[2:] == log.app[:-2])[session[2:] == session[:-2]].mean())

    assert back(_made(seed, returning=0.0)) == pytest.approx(1 / 12, abs=0.02)
    assert back(_made(seed, returning=0.9, returning_depth=0.0)) > 0.6
    assert back(_made(seed, returning=0.9, returning_depth=0.8)) < 0.6


def test_popular_apps(seed):
    def top_share(log: LaunchLog) -> float:
        held = np.sort(_held(log).sum(axis=0))
        return float(held[-8:].sum() / held.sum())

    assert top_share(_made(seed, popularity=0.0)) < 0.3
    assert top_share(_made(seed, popularity=2.0)) > 0.45


def test_phones_of_one_type_share_apps(seed):
    def advantage(**ingredients: float) -> float:
        parameters = replace(BARE, phones=200, apps=200, popularity=1.0, types=4, **ingredients)
        held = _held(make(parameters, seed)).astype(float)
        common = held @ held.T
        kind = traits(parameters, seed).type
        same = kind[:, None] == kind
        other = ~np.eye(len(kind), dtype=bool)
        return float(common[same & other].mean() / common[~same].mean())

    assert advantage(type_taste=0.0) == pytest.approx(1, abs=0.1)
    assert advantage(type_taste=0.8) > 2


def test_activity_by_hour(seed):
    def night_share(log: LaunchLog) -> float:
        hour = log.time % DAY_MS // 3_600_000
        return float(((hour >= 1) & (hour < 7)).mean())

    assert night_share(_made(seed, day_rhythm=0.0)) == pytest.approx(0.25, abs=0.03)
    assert night_share(_made(seed, day_rhythm=1.0)) < 0.1


def test_taste_by_hour(seed):
    def change(log: LaunchLog) -> float:
        """Total variation between the apps of the morning and of the evening."""
        hour = log.time % DAY_MS // 3_600_000
        shares = [
            np.bincount(log.app[(hour >= low) & (hour < low + 6)], minlength=log.n_apps)
            for low in (6, 18)
        ]
        return float(np.abs(shares[0] / shares[0].sum() - shares[1] / shares[1].sum()).sum() / 2)

    assert change(_made(seed, hour_taste=0.0)) < 0.06
    assert change(_made(seed, hour_taste=1.0)) > 0.2


def test_taste_drifts(seed):
    def change(log: LaunchLog) -> float:
        """Total variation between a phone's first and last third, mean over phones."""
        gaps = []
        for first, stop in zip(log.starts[:-1], log.starts[1:], strict=True):
            third = (stop - first) // 3
            counts = [
                np.bincount(apps, minlength=log.n_apps) / third
                for apps in (log.app[first : first + third], log.app[stop - third : stop])
            ]
            gaps.append(np.abs(counts[0] - counts[1]).sum() / 2)
        return float(np.mean(gaps))

    assert change(_made(seed, taste=1.5, drift=0.0)) < 0.1
    assert change(_made(seed, taste=1.5, drift=5.0)) > 0.25


def test_new_apps_are_installed_over_time(seed):
    def late_share(log: LaunchLog) -> float:
        """Share of a phone's apps that it first launches in the second half of the log."""
        pair = log.user.astype(np.int64) * log.n_apps + log.app
        _, first = np.unique(pair, return_index=True)  # launches are sorted by time
        return float((log.time[first] > log.time.min() + 10 * DAY_MS).mean())

    assert late_share(_made(seed, installs=0.0)) == 0
    assert late_share(_made(seed, installs=0.8)) > 0.3


def test_phones_join_and_leave(seed):
    everyone = traits(replace(BARE, days=100), seed)
    assert (everyone.first_day == 0).all()
    assert (everyone.last_day == 99).all()
    parameters = replace(BARE, phones=1000, days=100, joining=20.0, stay=10.0, stay_spread=0.5)
    some = traits(parameters, seed)
    assert some.first_day.mean() == pytest.approx(20 - 100 / np.expm1(5) - 0.5, abs=1)
    assert np.median(some.last_day - some.first_day) == pytest.approx(10, abs=1)
    log = make(parameters, seed)
    day = log.time // DAY_MS - log.time.min() // DAY_MS
    assert np.array_equal(day[log.starts[:-1]], some.first_day)


# ---------------------------------------------------------------- the fit

PRINTED = {  # HR@1, HR@3, HR@5 in the paper's tables
    "lsapp": {
        "random": (0.089, 0.239, 0.365),
        "mru": (0.618, 0.823, 0.849),
        "mfu": (0.403, 0.669, 0.777),
        "sr": (0.610, 0.801, 0.863),
        "sr-od": (0.612, 0.824, 0.893),
    },
    "app-usage": {
        "random": (0.029, 0.093, 0.152),
        "mru": (0.393, 0.660, 0.707),
        "mfu": (0.229, 0.436, 0.546),
        "sr": (0.477, 0.664, 0.746),
        "sr-od": (0.414, 0.591, 0.659),
    },
}
SPLITS = {"lsapp": "days:222,7,14", "app-usage": "days:6,1,1"}


@pytest.mark.parametrize("name", PRESETS)
def test_the_rivals_score_on_a_twin_what_the_paper_prints(name, seed):
    "Over five seeds: 6 fives in 10,000 miss the bounds (LSApp; App Usage: none seen)."
    gaps = []
    for k in range(5):
        log = make(PRESETS[name], 5 * seed + k)
        test = exam(log, Split.parse(SPLITS[name]), find_preset("authors"))
        rivals = [Random(), MRU(), MFU(), SR(), SROnDevice()]
        scores = np.array(
            [mark.tables["all"][:, :3].mean(axis=0) for mark in evaluate(test, rivals, 0).marks]
        )
        gaps.append(scores - list(PRINTED[name].values()))
        assert np.abs(gaps[-1]).max() < 0.15  # any one seed
    gap = np.abs(np.mean(gaps, axis=0))
    assert gap.mean() <= 0.02
    assert gap.max() <= 0.05


# ---------------------------------------------------------------- parameters


def test_presets_and_overrides_are_parsed():
    assert parse("synthetic:lsapp") == LSAPP
    assert parse("synthetic:app-usage") == APP_USAGE
    assert parse("synthetic:lsapp,phones=1000") == replace(LSAPP, phones=1000)
    assert parse("synthetic:phones=5000, apps=300, days=30, taste=1.5") == Parameters(
        phones=5000, apps=300, days=30, taste=1.5
    )
    assert parse("synthetic:start=2021-02-03").start == "2021-02-03"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("synthetic", "must be written like 'synthetic:lsapp'"),
        ("synthetic:", "must be written like 'synthetic:lsapp'"),
        ("real:lsapp", "must be written like 'synthetic:lsapp'"),
        ("synthetic:lsap", "did you mean 'lsapp'"),
        ("synthetic:phone=3", "did you mean 'phones'"),
        ("synthetic:lsapp,1000", "NAME=VALUE"),
        ("synthetic:phones=3,phones=4", "given twice"),
        ("synthetic:phones=3.5", "phones must be a whole number"),
        ("synthetic:taste=much", "taste must be a number"),
        ("synthetic:repeat=1.5", "repeat must be from 0 to 1, got 1.5"),
        ("synthetic:repeat=nan", "repeat must be from 0 to 1"),
        ("synthetic:phones=0", "phones must be from 1 to"),
        ("synthetic:start=today", "YYYY-MM-DD"),
    ],
)
def test_a_mistake_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_parameter_of_the_wrong_kind_is_named():
    with pytest.raises(TypeError, match="phones must be a number"):
        Parameters(phones="many")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="apps must be a whole number"):
        Parameters(apps=2.5)  # type: ignore[arg-type]


def test_every_parameter_says_what_it_means():
    """The table of the docs is made of this."""
    assert all(each.metadata["meaning"] for each in fields(Parameters))


@pytest.mark.parametrize(
    "text", ["synthetic:phones=6", "synthetic:lsapp,phones=5,drift=0", "synthetic:phones=3,echo=0"]
)
def test_plain_python_makes_the_same_log(text):
    "Small logs are made without compiling."
    parameters = parse(text)
    crowd, phones = synthetic._crowd(parameters, 5), synthetic.traits(parameters, 5)
    arguments = (0, parameters.phones, np.uint64(5), crowd, phones, True)
    with np.errstate(all="ignore"):
        plain = synthetic._play.plain(*arguments)
    for mine, other in zip(plain, synthetic._play.machine(*arguments), strict=True):
        assert np.array_equal(mine, other)
        assert mine.dtype == other.dtype
