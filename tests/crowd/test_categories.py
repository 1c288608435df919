"""Public categories of apps: what is told of an app that few reports speak of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nextapp.crowd import (
    category_numbers,
    crowd_from,
    entry_variance,
    expected_lift,
    expected_transitions,
)
from nextapp.learners import CrowdLearner, CrowdRequests, read_checkpoint
from nextapp.settings import read_categories
from nextapp.wire import Buckets, ReportRequest

N_APPS, N_GROUPS = 60, 6
GROUPS = np.arange(N_APPS) % N_GROUPS


def world(rng) -> np.ndarray:
    """Transitions by popularity, eight times as likely to the next group as to any other."""
    likes = rng.dirichlet(np.full(N_APPS, 0.5))
    moves = np.multiply.outer(likes, likes)
    moves[(GROUPS[:, None] + 1) % N_GROUPS == GROUPS] *= 8
    np.fill_diagonal(moves, 0)
    return np.column_stack([moves / moves.sum(), np.zeros(N_APPS)])


def told(crowd) -> np.ndarray:
    matrix = np.zeros((crowd.n_apps, crowd.n_apps))
    rows = np.repeat(np.arange(crowd.n_apps), np.diff(crowd.starts))
    matrix[rows, crowd.following] = crowd.share
    return matrix


def test_the_lift_is_the_ratio_of_sums_as_far_as_single_cells_do_not_explain_it(rng):
    """By loops over all pairs of apps, hardly any noise; groups drawn by lot have no lift."""
    truth = world(rng)[:, :-1]
    likes = truth.sum(axis=0) + truth.sum(axis=1)
    seen, usual = np.zeros((N_GROUPS, N_GROUPS)), np.zeros((N_GROUPS, N_GROUPS))
    for last, following in itertools.permutations(range(N_APPS), 2):
        at = GROUPS[last], GROUPS[following]
        seen[at] += truth[last, following]
        usual[at] += likes[last] * likes[following]
    by_hand = seen / usual * usual.sum() / seen.sum()
    found = expected_lift(truth, 1e-7, likes, GROUPS)
    assert np.array_equal(found.argmax(axis=1), by_hand.argmax(axis=1))
    assert np.corrcoef(np.log(found).ravel(), np.log(by_hand).ravel())[0, 1] > 0.9
    by_lot = expected_lift(truth, 1e-7, likes, rng.permutation(GROUPS))
    assert np.abs(np.log(by_lot)).max() < np.log(2)


def test_what_noise_hides_of_every_app_its_category_tells(rng):
    """The error of the expected transitions falls by half, and stays where categories say nothing.

    Ten draws of a noise that is three times as large as a cell on average.
    """
    truth = world(rng)[:, :-1]
    likes = truth.sum(axis=0) + truth.sum(axis=1)
    likes /= likes.sum()
    error = 3.0 / N_APPS**2
    meaningless = rng.permutation(GROUPS)
    lost = []
    for _ in range(10):
        seen = truth + error * rng.normal(size=truth.shape)
        lost.append(
            [
                ((expected_transitions(seen, error, likes, 1.0, each)[0] - truth) ** 2).sum()
                for each in (None, GROUPS, meaningless)
            ]
        )
    none, with_groups, by_chance = np.sum(lost, axis=0)
    assert with_groups < 0.5 * none
    assert by_chance < 1.05 * none


def test_one_category_for_all_is_as_good_as_none(rng):
    seen = world(rng) + 1e-4 * rng.normal(size=(N_APPS, N_APPS + 1))
    plain = crowd_from(seen, 1e-4, 0.0, 0.3)
    one = crowd_from(seen, 1e-4, 0.0, 0.3, np.full(N_APPS, 7))
    assert np.array_equal(told(plain), told(one))
    assert np.array_equal(plain.popularity, one.popularity)


def test_apps_without_a_category_share_one():
    found = category_numbers(["a", "b", "c", "d"], {"b": "games", "d": "games", "z": "mail"})
    assert found[0] == found[2] != found[1] == found[3]


def test_a_category_of_one_app_is_no_error(rng):
    seen = world(rng) + 1e-4 * rng.normal(size=(N_APPS, N_APPS + 1))
    crowd = crowd_from(seen, 1e-4, 0.0, 0.3, np.arange(N_APPS))
    assert np.isfinite(crowd.share).all()


NAMES = tuple(f"app{number}" for number in range(N_APPS))
BY_NAME = {name: f"group {group}" for name, group in zip(NAMES, GROUPS.tolist(), strict=True)}


def requests(most_slots: int = N_APPS) -> CrowdRequests:
    transitions, launches = (
        ReportRequest("walsh", 1.0, 1.0, {"b": 4}, each) for each in ("transitions", "launches")
    )
    return CrowdRequests(transitions, launches, most_slots=most_slots)


def learners(**more):
    """One by name; one by bucket, whose slots are those of the same names in the same order."""
    empty = Buckets(1 << 16, "", np.zeros(0, np.int64))
    slots = np.array([empty.bucket(name) for name in NAMES])
    assert len(set(slots.tolist())) == N_APPS
    yield CrowdLearner(requests(), NAMES, **more)
    yield CrowdLearner(requests(), Buckets(1 << 16, "", slots), **more)


def fed(learner: CrowdLearner, rng) -> CrowdLearner:
    """With the sum of ten million reports, of which a cell has its noise."""
    n, made = 1e7, learner.mechanism_for(learner.requests.transitions)
    noise = np.sqrt(entry_variance(made) / n) * rng.normal(size=(N_APPS, N_APPS + 1))
    learner.total = n * (world(rng) + noise)
    learner.n_since = np.full(N_APPS, n)
    return learner


def test_categories_hold_from_the_next_round_on_by_name_or_by_bucket(seed):
    """A broadcast that phones have seen does not change: also not by a checkpoint read again."""
    crowds = []
    for plain, known in zip(learners(), learners(categories=BY_NAME), strict=True):
        with_none, with_all = (fed(each, np.random.default_rng(seed)) for each in (plain, known))
        before, wanted = with_none.crowd(), with_all.crowd()
        assert not np.array_equal(told(before), told(wanted))
        with_none.categorise(BY_NAME)
        assert np.array_equal(told(with_none.crowd()), told(before))
        asked = with_none.mechanism
        with_none.apply_sum(np.zeros((asked.n_apps, asked.d)), 1)
        assert with_none.categories == BY_NAME
        np.testing.assert_allclose(told(with_none.crowd()), told(wanted), atol=2 / 255)
        crowds.append(told(wanted))
    assert np.array_equal(*crowds)


def test_categories_are_in_the_checkpoint(tmp_path, seed):
    for number, learner in enumerate(learners(categories={"app1": "x", "app2": "x"})):
        fed(learner, np.random.default_rng(seed)).categorise(BY_NAME)
        learner.save(tmp_path / str(number))
        again = CrowdLearner.restore(read_checkpoint(tmp_path / str(number)), requests())
        assert np.array_equal(told(again.crowd()), told(learner.crowd()))
        for each in (learner, again):
            each.apply_sum(np.zeros((each.mechanism.n_apps, each.mechanism.d)), 1)
        assert again.categories == learner.categories == BY_NAME
        assert again.broadcast.to_bytes() == learner.broadcast.to_bytes()


def test_a_file_of_categories(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text('app_name,category\ncom.mail,Communication\n"com.a,b",Games\n')
    assert read_categories(path) == {"com.mail": "Communication", "com.a,b": "Games"}
    for text, says in (
        ("com.mail,Communication\n", "must begin with the line app_name,category"),
        ("app_name,category\na\n", "row 2: an app and its category"),
        ("app_name,category\na,x\na,y\n", "row 3"),
        ("app_name,category\na,\n", "row 2"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            read_categories(path)
    with pytest.raises(ValueError, match="can be read"):
        read_categories(tmp_path / "none.csv")
