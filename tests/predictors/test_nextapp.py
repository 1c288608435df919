"""The compiled predictor against the plain one, and that it never looks ahead."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from habits_scores import scores_of
from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, evaluate, exam, find_preset, mark
from nextapp.predictor import DEFAULT, Habits, without
from nextapp.predictors.nextapp import NextApp
from nextapp.predictors.pooled import Pooled
from nextapp.predictors.rivals import MFU, MRU, SROnDevice


def made(rng, n_users=4, n_each=150, n_apps=14, spread=1.2) -> LaunchLog:
    user = np.repeat(np.arange(n_users), n_each)
    app = rng.zipf(spread, n_users * n_each) % n_apps
    pauses = rng.choice([20_000, 90_000, 2_000_000], (n_users, n_each), p=[0.6, 0.2, 0.2])
    time = (1_500_000_000_000 + np.cumsum(pauses, axis=1)).ravel()
    return LaunchLog.from_columns(
        user, app, time, [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)]
    )


def one_by_one(test, questions, weights=DEFAULT, crowd=None) -> np.ndarray:
    """The scores of a `Habits` for every phone, asked and told launch by launch."""
    history, found = test.history, []
    for v, user in enumerate(questions.users.tolist()):
        phone = Habits(weights)
        phone.crowd = crowd.others(user) if isinstance(crowd, Pooled) else crowd
        own = questions.candidates[slice(*questions.candidate_starts[v : v + 2])]
        mine = history.user == user
        for app, when in zip(history.app[mine], history.time[mine] / 1000, strict=True):
            phone.observe(int(app), float(when))
        for s in np.flatnonzero(questions.session_user == v):
            for number, row in enumerate(range(*questions.session_starts[s : s + 2])):
                when = questions.times[row] / 1000
                found.append(scores_of(phone, own) if number else scores_of(phone, own, when))
                phone.observe(int(own[questions.launches[row]]), when)
    return np.concatenate(found)


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.usefixtures("form")
def test_the_compiled_form_is_the_plain_one_to_the_twelfth_digit(rng, preset, crowded):
    test = exam(made(rng), Split.parse("fraction:0.6,0,0.4"), find_preset(preset))
    predictor = NextApp(crowd=Pooled if crowded else None)
    predictor.fit(test.history)
    for chunk in test.chunks:
        np.testing.assert_allclose(
            predictor.score(chunk.questions),
            one_by_one(test, chunk.questions, crowd=predictor.crowd),
            rtol=1e-12,
            atol=1e-12,
        )


@pytest.mark.usefixtures("form")
def test_the_same_where_phones_weigh_the_crowd_each_in_its_way(rng):
    """Half of the phones go round one circle now and then, the others round another."""
    n_users, n_each, n_apps = 6, 240, 8
    apps = rng.integers(0, n_apps, (n_users, n_each))
    for user, walk in enumerate(apps):
        for step in range(1, n_each):
            if rng.random() < 0.4:
                walk[step] = (walk[step - 1] + (1 if user < 4 else 3)) % n_apps
    log = LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each), apps.ravel(),
        np.tile(1_500_000_000_000 + 60_000 * np.arange(n_each), n_users),
        [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)],
    )  # fmt: skip
    test = exam(log, Split.parse("fraction:0.8,0,0.2"), find_preset("authors"))
    predictor = NextApp(crowd=Pooled)
    predictor.fit(test.history)
    gates = []
    for user in range(n_users):
        phone = Habits()
        phone.crowd = predictor.crowd.others(user)
        for app, time in zip(log.app[log.user == user], log.time[log.user == user], strict=True):
            phone.observe(int(app), time / 1000)
        gates.append(phone._state.gate[0, 0])
    assert min(gates[:4]) > max(gates[4:])  # those like most of the crowd listen more
    for chunk in test.chunks:
        expected = one_by_one(test, chunk.questions, crowd=predictor.crowd)
        np.testing.assert_allclose(
            predictor.score(chunk.questions), expected, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(
    "ingredient", ["recency", "transitions", "lesson", "adaptation", "again", "longer", "place"]
)
def test_the_same_with_ingredients_switched_off(rng, ingredient):
    test = exam(made(rng, 2, 90), Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    predictor = NextApp(without(ingredient), crowd=Pooled)
    predictor.fit(test.history)
    for chunk in test.chunks:
        expected = one_by_one(test, chunk.questions, without(ingredient), predictor.crowd)
        np.testing.assert_allclose(
            predictor.score(chunk.questions), expected, rtol=1e-12, atol=1e-12
        )


def test_the_same_where_apps_and_contexts_give_way(rng):
    """More apps and more contexts than are kept."""
    log = made(rng, 1, 2500, 320, spread=1.01)
    log = LaunchLog(
        log.user, rng.integers(0, 320, 2500).astype(np.int32), log.time, log.users, log.apps
    )
    test = exam(log, Split.parse("fraction:0.98,0,0.02"), find_preset("paper"))
    predictor = NextApp()
    predictor.fit(test.history)
    for chunk in test.chunks:
        expected = one_by_one(test, chunk.questions)
        np.testing.assert_allclose(
            predictor.score(chunk.questions), expected, rtol=1e-12, atol=1e-12
        )


def test_nothing_of_a_launch_is_known_before_it(rng):
    """Other launches in the last tenth leave all scores before them as they were."""
    log = made(rng, 1, 200)
    late = 180
    app = log.app.copy()
    app[late:] = np.roll(app[late:], 1)
    other = LaunchLog(log.user, app, log.time, log.users, log.apps)
    split, preset = Split.parse("fraction:0.5,0,0.5"), find_preset("paper")
    scores = []
    for which in (log, other):
        test = exam(which, split, preset)
        predictor = NextApp()
        predictor.fit(test.history)
        (chunk,) = test.chunks
        cells = predictor.score(chunk.questions).reshape(len(test.rows), -1)
        scores.append(cells[test.rows <= late])
    assert len(scores[0]) > 20
    assert np.array_equal(*scores)


@pytest.mark.parametrize("split", ["fraction:0.6,0,0.4", "days:1,0,1"])
def test_phones_see_every_launch_after_their_history_once(rng, split):
    """Those asked are the rows after the history, sessions of one launch too."""
    log = made(rng, 5, 60)
    log = replace(log, time=log.time + np.repeat(rng.integers(0, 3, 5) * 40_000_000, 60))
    test = exam(log, Split.parse(split), find_preset("paper"))
    whole, seen = test.whole, []
    for chunk in test.chunks:
        questions = chunk.questions
        assert np.array_equal(whole.time[chunk.rows], questions.times)
        for s, v in enumerate(questions.session_user.tolist()):
            own = questions.candidates[slice(*questions.candidate_starts[v : v + 2])]
            asked = slice(*questions.session_starts[s : s + 2])
            pairs = zip(own[questions.launches[asked]], questions.times[asked], strict=True)
            seen += [(int(questions.users[v]), *pair) for pair in pairs]
    expected = []
    for user in test.users.tolist():
        rows = np.flatnonzero(whole.user == user)
        known = test.history.time[test.history.user == user]
        after = rows[whole.time[rows] > (known.max() if len(known) else -1)]
        expected += [(user, whole.app[row], whole.time[row]) for row in after]
    assert seen == expected
    assert (np.diff(test.sessions) == 1).any()


@pytest.mark.parametrize("left_out", [-1, 2])
def test_pooled_is_the_mean_over_the_other_phones(rng, left_out):
    log = made(rng, 6, 40, 9)
    crowd = Pooled(log).others(left_out)
    phones = [user for user in range(6) if user != left_out]
    popularity, moves, pairs = Counter(), Counter(), Counter()
    for user in phones:
        apps = log.app[log.user == user].tolist()
        for app in apps:
            popularity[app] += 1 / len(apps) / len(phones)
        for pair in pairwise(apps):
            moves[pair] += 1 / (len(apps) - 1)
        pairs.update(zip(apps, apps[1:], apps[2:], strict=False))
    np.testing.assert_allclose(crowd.popularity, [popularity[app] for app in range(9)])
    everything = np.arange(9)
    one = np.zeros((9, 9))
    for last in range(9):
        total = sum(moves[last, app] for app in range(9))
        if total:
            one[last] = [moves[last, app] / total for app in range(9)]
        share, told = crowd.shares(everything, last, None)
        np.testing.assert_allclose(share, one[last], atol=1e-12)
        assert told == 0.0
    for before in range(9):
        for last in range(9):
            counts = np.array([pairs[before, last, app] for app in range(9)])
            share, told = crowd.shares(everything, last, before)
            if counts.sum() < 2:
                counts = np.zeros(9)
            assert told == counts.sum()
            expected = (counts + 3 * one[last]) / (told + 3) if told else one[last]
            np.testing.assert_allclose(share, expected, atol=1e-12)


def test_a_phone_is_never_told_what_only_it_does(rng):
    """One phone alone goes 0, 1, 2: its own crowd does not know, that of the others does."""
    app = np.array([3, 4] * 10 + [0, 1, 2] * 10 + [3, 4] * 10, np.int32)
    user = np.repeat([0, 1, 2], [20, 30, 20]).astype(np.int32)
    log = LaunchLog(user, app, np.arange(70) * 60_000, ("a", "b", "c"), tuple("vwxyz"))
    apps = np.arange(5)
    assert Pooled(log).others(1).shares(apps, 1, 0)[0].sum() == 0.0
    assert Pooled(log).others(0).shares(apps, 1, 0)[0][2] == pytest.approx(1.0)


def test_it_beats_the_simple_rivals(seed):
    """On phones like those of the paper's twins; the gap is some ten standard errors."""
    log = read_log("synthetic:app-usage,phones=60", seed=seed)
    test = exam(log, Split.parse("fraction:0.8,0,0.2"), find_preset("honest"))
    result = evaluate(test, [NextApp(), MRU(), MFU(), SROnDevice()], seed=0)
    for rival in ("mru", "mfu", "sr-od"):
        assert result.difference("nextapp", rival)["HR@5"]["low"] > 0.03


def test_goals_on_the_real_logs(real_logs):
    """HR@1 ≥ .40 and HR@5 ≥ .85 on EPM, .77 and .93 on Schonlau; preset paper, last fifth."""
    for file, first, fifth in (("epm.csv.gz", 0.40, 0.85), ("schonlau.csv.gz", 0.77, 0.93)):
        test = exam(
            read_log(str(real_logs / file), seed=0),
            Split.parse("fraction:0.8,0,0.2"),
            find_preset("paper"),
        )
        predictor = NextApp(crowd=Pooled)
        predictor.fit(test.history)
        figures = dict(zip(METRICS, mark(test, predictor)["all"].mean(axis=0), strict=True))
        assert figures["HR@1"] >= first
        assert figures["HR@5"] >= fifth
