from __future__ import annotations

import numpy as np
import pytest

from nextapp import model
from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet, each_range
from nextapp.fleet.rounds import Sums, sum_reports
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.privacy import mechanism
from nextapp.wire import Broadcast, ModelSettings
from slow_seqmf import phones_of_log

READINGS = ["example", "equation", "authors", "none"]


def random_log(rng, n_phones=60, n_apps=40, longest=90) -> LaunchLog:
    lengths = rng.integers(0, longest, n_phones)
    lengths[:3] = [0, 1, 2]
    user = np.repeat(np.arange(n_phones), lengths)
    own = rng.integers(0, n_apps, (n_phones, 9))
    app = own[user, rng.integers(0, 9, len(user))]
    names = [str(k) for k in range(max(n_phones, n_apps))]
    return LaunchLog.from_columns(user, app, np.arange(len(user)), names[:n_phones], names[:n_apps])


def gradients_of(fleet, broadcast, *args, **options) -> Sums:
    """The sum of the gradients, sent as they are."""
    plain = mechanism("identity", n_apps=broadcast.n_apps, d=broadcast.dim)
    return sum_reports(fleet, broadcast, plain, 0, *args, **options)


def test_a_fleet_holds_what_each_phone_counts(rng):
    log = random_log(rng)
    fleet = Fleet.of_log(log)
    c = fleet.columns
    for phone in range(len(fleet)):
        stats = model.phone_statistics(log.app[log.user == phone])
        own = slice(*c.app_starts[phone : phone + 2])
        assert c.apps[own].tolist() == stats.apps.tolist()
        assert c.counts[own].tolist() == stats.counts.tolist()
        moves = slice(*c.transition_starts[phone : phone + 2])
        assert c.previous[moves].tolist() == stats.rows.tolist()
        assert c.following[moves].tolist() == stats.columns.tolist()
        n_out = np.bincount(stats.rows, c.times[moves], minlength=len(stats.apps))
        np.testing.assert_allclose(c.times[moves] / n_out[stats.rows], stats.weights)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_the_step_is_that_of_the_phones(rng, reading, alpha):
    """User vectors, the sum of gradients and the loss, float64, to 1e-10."""
    log = random_log(rng)
    fleet = Fleet.of_log(log)
    settings = ModelSettings(lam=0.2, alpha=alpha, gamma=0.6, reading=reading)
    broadcast = Broadcast(0, rng.normal(0, 0.4, (log.n_apps, 7)), settings)
    n = len(fleet)
    user_vectors = np.zeros((n, 7))
    found = gradients_of(fleet, broadcast, user_vectors)

    expected_total, expected_loss = np.zeros_like(found.true_sum), 0.0
    Q = broadcast.app_vectors
    for user, device in enumerate(phones_of_log(log)):
        device.take(broadcast)
        np.testing.assert_allclose(user_vectors[user], device.user_vector, rtol=1e-10, atol=1e-12)
        apps = log.app[log.user == user]
        counts = np.bincount(apps, minlength=log.n_apps)
        c = model.confidence(counts, alpha, 0.6)
        a, S = (counts > 0) * 1.0, model.transitions(apps, log.n_apps, reading)
        expected_total += model.gradient(Q, device.user_vector, c, a, S)
        expected_loss += model.loss(Q, device.user_vector, c, a, S, 0.2)
    assert found.n_reports == n
    np.testing.assert_allclose(found.true_sum, expected_total, rtol=1e-10, atol=1e-10)
    assert found.loss == pytest.approx(expected_loss, rel=1e-10)

    assert np.array_equal(solve_user_vectors(fleet, broadcast), user_vectors)


def test_only_phones_that_report_count_and_an_unsolved_vector_is_taken_as_it_is(rng):
    log = random_log(rng)
    fleet = Fleet.of_log(log)
    broadcast = Broadcast(0, rng.normal(0, 0.4, (log.n_apps, 5)), ModelSettings())
    given = rng.normal(size=(len(fleet), 5))
    kept = given.copy()
    some = rng.random(len(fleet)) < 0.4
    found = gradients_of(fleet, broadcast, given, some, solving=False)
    assert np.array_equal(given, kept)
    assert found.n_reports == some.sum()
    expected = np.zeros_like(found.true_sum)
    for user in np.flatnonzero(some):
        apps = log.app[log.user == user]
        counts = np.bincount(apps, minlength=log.n_apps)
        expected += model.gradient(
            broadcast.app_vectors,
            kept[user],
            model.confidence(counts, 0.001, 1.0),
            (counts > 0) * 1.0,
            model.transitions(apps, log.n_apps),
        )
    np.testing.assert_allclose(found.true_sum, expected, rtol=1e-10, atol=1e-10)


def test_float32_is_near(rng):
    log = random_log(rng)
    fleet = Fleet.of_log(log)
    broadcast = Broadcast(0, rng.normal(0, 0.3, (log.n_apps, 8)), ModelSettings())
    totals = [
        gradients_of(fleet, broadcast, dtype=dtype).true_sum for dtype in (np.float32, np.float64)
    ]
    np.testing.assert_allclose(totals[0], totals[1], atol=1e-4)


def test_shards_are_the_fleet_and_keep_their_numbers(rng):
    fleet = Fleet.of_log(random_log(rng))
    shards = [fleet.shard(0, 7), fleet.shard(7, 7), fleet.shard(7, 40), fleet.shard(40, 60)]
    assert [shard.first_phone for shard in shards] == [0, 7, 7, 40]
    whole = Fleet.join(shards)
    for mine, theirs in zip(whole.columns, fleet.columns, strict=True):
        assert np.array_equal(mine, theirs)
    assert fleet.shard(10, 30).shard(5, 6).first_phone == 15


def test_apps_outside_the_catalogue_are_refused():
    with pytest.raises(ValueError, match="0 to 1 here, got 0 to 2"):
        Fleet.of_histories(np.array([0, 2]), np.array([0, 2], np.int32), 2)


def test_ranges_cover_everyone_once_whatever_the_threads():
    for threads in (1, 2, 5):
        ranges = list(each_range(10, lambda first, last: (first, last), 3, threads))
        assert ranges == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert list(each_range(0, lambda first, last: (first, last), 3)) == [(0, 0)]
