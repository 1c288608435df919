"""The crowd's server: sums over rounds, checkpoints, shrinkage, and what a phone makes of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from all_reports import apply_reports
from habits_scores import scores_of
from nextapp.crowd import (
    EMPHASIS,
    LEAN,
    MOST_FOLLOWERS,
    REPEATS,
    crowd_from,
    crowd_without_noise,
    expected_popularity,
    shrink,
    transition_vector,
)
from nextapp.learners import CrowdLearner, CrowdRequests, read_checkpoint, write_checkpoint
from nextapp.phone.core import PhoneCore
from nextapp.predictor import Habits
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Crowd, Report, ReportRequest, WireError


def walsh(n_apps=4, epsilon=2.0):
    return mechanism("walsh", epsilon=epsilon, n_apps=n_apps, d=n_apps + 1, clip=1.0, b=5)


def requests(epsilon=2.0, options=None, **more):
    transitions, launches = (
        ReportRequest("walsh", epsilon, 1.0, options or {}, question)
        for question in ("transitions", "launches")
    )
    return CrowdRequests(transitions, launches, **more)


NAMES = ("a", "b", "c", "d")


def reports_of(server, histories, seed=0):
    for phone, history in enumerate(histories):
        device = PhoneCore()
        for step, app in enumerate(history):
            device.observe(int(app), float(step))
        device.take(server.broadcast)
        bits = KeyedBits(seed, phone, server.broadcast.round, "report")
        asked = requested_mechanism(server.broadcast)
        yield asked.encode(device.answer(), bits, server.broadcast.round)


def dense(crowd):
    matrix = np.zeros((crowd.n_apps, crowd.n_apps))
    matrix[np.repeat(np.arange(crowd.n_apps), np.diff(crowd.starts)), crowd.following] = crowd.share
    return matrix


def test_rounds_add_up_to_one_round_of_all_reports(rng):
    histories = [rng.integers(0, 4, 20) for _ in range(60)]
    one, many = CrowdLearner(requests(), NAMES), CrowdLearner(requests(), NAMES)
    reports = list(reports_of(one, histories))
    apply_reports(one, reports)
    for number, (first, last) in enumerate(((0, 25), (25, 40), (40, 60))):
        part = reports[first:last]
        apply_reports(many, [Report(each.mechanism, number, each.payload) for each in part])
    assert (one.broadcast.round, many.broadcast.round) == (1, 3)
    np.testing.assert_allclose(one.total, many.total, atol=1e-9)
    assert one.n_transitions == many.n_transitions == 60
    np.testing.assert_allclose(dense(one.broadcast.crowd), dense(many.broadcast.crowd), atol=1e-9)


def test_a_checkpoint_goes_on_as_if_nothing_had_happened(tmp_path, rng):
    histories = [rng.integers(0, 4, 20) for _ in range(40)]
    server = CrowdLearner(requests(), NAMES)
    apply_reports(server, list(reports_of(server, histories)))
    write_checkpoint(tmp_path / "c", server.state())
    again = CrowdLearner.restore(read_checkpoint(tmp_path / "c"), requests())
    for each in (server, again):
        apply_reports(each, list(reports_of(each, histories, seed=1)))
    assert server.broadcast.to_bytes() == again.broadcast.to_bytes()
    with pytest.raises(ValueError, match="give the same ones"):
        CrowdLearner.restore(read_checkpoint(tmp_path / "c"), requests(epsilon=3.0))
    (tmp_path / "x").write_bytes(server.broadcast.to_bytes())
    with pytest.raises(WireError, match="no checkpoint"):
        CrowdLearner.restore(read_checkpoint(tmp_path / "x"), requests())


def test_a_round_that_is_passed_over_teaches_nothing():
    server = CrowdLearner(requests(), NAMES)
    assert server.pass_over().round == 1
    assert server.broadcast.crowd is None


def test_what_the_server_publishes_travels_and_asks_for_the_next_report(rng):
    server = CrowdLearner(requests(), NAMES)
    server.apply_sum(transition_vector(rng.integers(0, 4, 50), 4).dense() * 1000, 1000)
    broadcast = Broadcast.from_bytes(server.broadcast.to_bytes())
    assert broadcast.request == server.broadcast.request
    assert (requested_mechanism(broadcast).name, requested_mechanism(broadcast).epsilon) == (
        "walsh",
        2.0,
    )
    assert np.array_equal(broadcast.crowd.share, server.broadcast.crowd.share)


def test_phones_are_told_the_options_of_the_mechanism(tmp_path):
    told = {"b": 5}
    path = tmp_path / "crowd"
    write_checkpoint(path, CrowdLearner(requests(options=told), NAMES).state())
    again = CrowdLearner.restore(read_checkpoint(path), requests(options=told))
    asked = requested_mechanism(again.broadcast)
    assert (asked.b, mechanism("walsh", epsilon=2.0, n_apps=4, d=5, clip=1.0).b) == (5, 8)


def test_without_noise_the_crowd_is_the_conditional_distribution():
    """By hand: 0→1 three times, 0→0 once, 1→0 once; 2 is never left."""
    shares = np.zeros((3, 4))
    shares[0, :2], shares[1, 0], shares[:, 3] = (0.2, 0.6), 0.15, (0.03, 0.02, 0)
    crowd = crowd_without_noise(shares)
    np.testing.assert_allclose(dense(crowd), [[0.25, 0.75, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(crowd.popularity, 0.99 * np.array([0.6, 0.4, 0]) + 0.01 / 3)


def test_no_more_followers_are_told_than_fit(rng):
    shares = rng.random((100, 101))
    crowd = crowd_without_noise(shares / shares.sum())
    assert np.diff(crowd.starts).max() == MOST_FOLLOWERS
    assert dense(crowd).sum(axis=1).max() <= 1 + 1e-9


def grid(seen, top=60.0):
    return np.tile(np.append(0.0, np.geomspace(0.05, top, 60)), (len(seen), 1))


def test_shrinking_is_the_posterior_under_the_likeliest_law():
    """By brute force: every law on a fine grid of laws, and θ summed over a fine grid of values."""
    seen, levels, breadth = np.array([-0.4, 0.2, 0.7, 2.9, 3.3]), np.array([0.5, 3.0]), 0.11
    theta = np.linspace(-2, 6, 8001)
    near = np.exp(-0.5 * ((theta - levels[:, None]) / (breadth * levels[:, None])) ** 2)
    near /= near.sum(axis=1, keepdims=True)  # (levels, θ)
    noise = np.exp(-0.5 * (seen[:, None] - theta) ** 2)  # (seen, θ)
    by_level = noise @ near.T
    laws = np.linspace(0, 1, 20_001)[:, None] * [1, -1] + [0, 1]
    law = laws[np.log(laws @ by_level.T + 1e-300).sum(axis=1).argmax()]
    posterior = noise * (law @ near)
    posterior /= posterior.sum(axis=1, keepdims=True)
    expected = posterior @ theta
    spread = np.sqrt(posterior @ theta**2 - expected**2)
    found = shrink(seen, 1.0, np.tile(levels, (5, 1)))
    np.testing.assert_allclose(found[0], expected, atol=2e-3)
    np.testing.assert_allclose(found[1], spread, atol=2e-3)


def test_a_given_mean_and_the_lean_are_kept_by_the_law():
    """By brute force over laws of three levels with the mean, entries at the first one added."""
    seen, levels, mean = np.array([0.3, 1.1, 2.4, 2.2, 6.0]), np.array([1.0, 0.0, 4.0]), 1.5
    variance = 1 + (0.11 * levels) ** 2
    by_level = np.exp(-0.5 * (seen[:, None] - levels) ** 2 / variance) / np.sqrt(variance)
    first = np.linspace(1e-6, 1, 100_001)
    last = (mean - first) / 4
    laws = np.stack([first, 1 - first - last, last], axis=1)
    laws = laws[(laws > 0).all(axis=1)]
    best = laws[(np.log(laws @ by_level.T).sum(axis=1) + LEAN * np.log(laws[:, 0])).argmax()]
    posterior = by_level * best
    posterior /= posterior.sum(axis=1, keepdims=True)
    at = levels + (0.11 * levels) ** 2 / variance * (seen[:, None] - levels)
    found, _ = shrink(seen, 1.0, np.tile(levels, (5, 1)), mean=mean)
    np.testing.assert_allclose(found, (posterior * at).sum(axis=1), atol=2e-3)
    twice, _ = shrink(seen, 1.0, np.tile(levels, (5, 1)), np.full(5, 1.0), mean)
    np.testing.assert_array_equal(found, twice)


def test_alike_entries_can_be_counted():
    seen = np.array([0.2, 3.0, 0.2, 0.2, 3.0])
    plain, _ = shrink(seen, 1.0, grid(seen))
    counted, _ = shrink(seen[:2], 1.0, grid(seen[:2]), np.array([3.0, 2.0]))
    np.testing.assert_allclose(counted, plain[:2])


def test_shrinking_is_nearly_as_good_as_knowing_the_law(rng):
    """Sparse truth, an exponential law: against its exact posterior mean, summed over θ."""
    truth = np.where(rng.random(20_000) < 0.02, rng.exponential(5.0, 20_000), 0.0)
    seen = truth + rng.normal(size=20_000)
    theta, at = np.linspace(0, 60, 3001)[1:], np.linspace(-6, 60, 2000)
    likely = np.exp(-0.5 * (at[:, None] - theta) ** 2) * (0.02 * np.exp(-theta / 5) / 5 * 0.02)
    best = likely @ theta / (likely.sum(axis=1) + 0.98 * np.exp(-0.5 * at**2))
    found, spread = shrink(seen, 1.0, grid(seen))
    ours, least = (
        float(((each - truth) ** 2).mean()) for each in (found, np.interp(seen, at, best))
    )
    assert least < ours < 1.3 * least
    assert ours < 0.1 * ((seen - truth) ** 2).mean()
    assert 0.4 < (spread**2).mean() / ours < 1.1  # it knows about how far off it is
    np.testing.assert_allclose(shrink(3.5 * seen, 3.5, 3.5 * grid(seen))[0], 3.5 * found, rtol=1e-9)


def test_shrinking_pure_noise_leaves_next_to_nothing(rng):
    """A far outlier among 20,000 may be believed, not more."""
    seen = rng.normal(size=20_000)
    found, _ = shrink(seen, 1.0, grid(seen))
    assert (found > 0.5).sum() < 5
    assert found.std() < 0.05


def test_large_entries_are_left_as_they_are():
    seen = np.concatenate([np.zeros(1000), [300.0, 500.0]])
    np.testing.assert_allclose(
        shrink(seen, 1.0, grid(seen, 600))[0][-2:], [300.0, 500.0], rtol=2e-3
    )


def world(popular, habits):
    """π where apps follow by popularity, except for habits {(j, i): P(i | j)}; and P(app)."""
    popular = np.array(popular) / np.sum(popular)
    follows = np.tile(popular, (len(popular), 1))
    for (last, following), share in habits.items():
        follows[last] *= (1 - share) / (1 - follows[last, following])
        follows[last, following] = share
    for _ in range(200):  # until the apps are as popular as those that follow make them
        popular = popular @ follows
    moves = popular[:, None] * follows
    moves[np.diag_indices_from(moves)] *= REPEATS
    return np.column_stack([moves, np.zeros(len(popular))]), popular


def test_rows_and_columns_tell_how_popular_an_app_is(rng):
    """Noise hides every transition, but not their sums."""
    truth, popular = world(np.append(np.full(5, 12.0), np.full(55, 1.0)), {})
    error = 0.003
    seen = truth[:, :-1] + error * rng.normal(size=(60, 60))
    assert truth.max() < 4 * error
    found = expected_popularity(seen / seen.sum(), error / seen.sum())
    assert found.sum() == pytest.approx(1)
    assert set(np.argsort(-found)[:5].tolist()) == set(range(5))
    assert np.abs(found - popular).sum() < 0.4 * np.abs(1 / 60 - popular).sum()


def test_a_habit_stands_out_from_what_popularity_explains(rng):
    """A world by popularity alone, and the same with two habits between apps that few have."""
    popular, error = np.append(np.full(5, 12.0), np.full(55, 1.0)), 0.0005
    habits = {(20, 40): 0.5, (30, 50): 0.5}
    for known in ({}, habits):
        truth, _ = world(popular, known)
        crowd = crowd_from(truth + error * rng.normal(size=truth.shape), error)
        matrix = dense(crowd)
        told = np.array([cell in known for cell in np.ndindex(60, 60)]).reshape(60, 60)
        assert matrix[~told].max() < 0.2
        assert all(0.2 < matrix[cell] < 0.7 for cell in known)


def test_noise_that_hides_everything_leaves_little_told(rng):
    truth, _ = world(1 / np.arange(1.0, 41.0), {(3, 4): 0.6, (0, 1): 0.4})
    for error in (0.03, 0.3, 3.0):
        matrix = dense(crowd_from(truth + error * rng.normal(size=truth.shape), error))
        assert matrix.sum(axis=1).mean() < 0.9
        assert matrix.max() < 0.3


@pytest.mark.parametrize("repeats", [REPEATS, 1.0])
def test_little_noise_changes_little(repeats, monkeypatch):
    """Repeats weigh as others do in the end. The last app is one that nobody has; what follows it
    stays unknown."""
    monkeypatch.setattr("nextapp.crowd.REPEATS", repeats)
    truth, popular = world(np.append(1 / np.arange(1.0, 20.0), 0.0), {(3, 4): 0.6, (0, 1): 0.4})
    shares = np.column_stack([truth[:, :-1], popular])
    shares[np.diag_indices(20)] /= REPEATS
    truth[np.diag_indices(20)] *= repeats / REPEATS
    exact, found = crowd_without_noise(shares), crowd_from(truth, 1e-7)
    np.testing.assert_allclose(dense(found)[:-1], dense(exact)[:-1], atol=2e-3)
    if repeats == 1:
        np.testing.assert_allclose(found.popularity, exact.popularity, atol=2e-3)


def test_a_row_is_told_with_emphasis_but_never_more_than_all_of_it(rng, monkeypatch):
    truth, _ = world(1 / np.arange(1.0, 41.0), {(3, 4): 0.6, (0, 1): 0.4})
    seen = truth + 1e-3 * rng.normal(size=truth.shape)
    loud = dense(crowd_from(seen, 1e-3))
    monkeypatch.setattr("nextapp.crowd.EMPHASIS", 1.0)
    monkeypatch.setattr("nextapp.crowd.LEAST_SHARE", 0.0)
    plain = dense(crowd_from(seen, 1e-3))
    sums = plain.sum(axis=1)
    assert sums.min() < 1 / EMPHASIS < sums.max()  # some rows are told in part, some to the end
    expected = plain * np.minimum(EMPHASIS, 1 / sums)[:, None]
    np.testing.assert_allclose(loud, np.where(expected >= 1e-3, expected, 0.0), atol=1e-12)


def test_a_row_tells_less_the_less_sure_it_is(rng):
    truth, _ = world(1 / np.arange(1.0, 41.0), {(3, 4): 0.6, (0, 1): 0.4})
    noise = rng.normal(size=truth.shape)
    told = [
        dense(crowd_from(truth + error * noise, error)).sum(axis=1).mean()
        for error in (1e-6, 1e-4, 1e-3, 1e-2)
    ]
    assert told == sorted(told, reverse=True)
    assert told[0] > 0.95


@pytest.mark.parametrize("n_apps", [1, 2, 5])
def test_any_estimate_gives_a_crowd(n_apps, rng):
    for estimate in (np.zeros((n_apps, n_apps + 1)), rng.normal(size=(n_apps, n_apps + 1))):
        assert np.isfinite(crowd_without_noise(np.abs(estimate)).share).all()
        for error in (1e-9, 0.1, 100.0):
            assert np.isfinite(crowd_from(error * estimate, error).share).all()


def test_noise_alone_is_told_as_next_to_nothing(rng):
    """Phones without launches report noise: rows come out flat."""
    m = walsh(12, 4.5)
    nothing = transition_vector(np.zeros(0, np.int64), 12)
    reports = [m.encode(nothing, KeyedBits(0, phone)) for phone in range(3000)]
    flat = dense(crowd_from(m.decode(reports), math.sqrt(m.entry_variance / 3000)))
    assert flat[~np.eye(12, dtype=bool)].max() < 0.3 * EMPHASIS
    assert flat.sum(axis=1).mean() < 0.95


def test_a_crowd_of_many_is_learnt_through_noise(rng):
    """20,000 phones that all go 0 → 1 → 2 → 0: the habit is found at ε = 4.5."""
    m = walsh(6, 4.5)
    shares = transition_vector(np.tile([0, 1, 2], 20), 6)
    tally = m.tally([m.encode(shares, KeyedBits(5, phone)) for phone in range(20_000)])
    crowd = crowd_from(m.estimate(tally, 20_000), math.sqrt(m.entry_variance / 20_000))
    matrix = dense(crowd)
    assert matrix[0, 1] > 0.8
    assert matrix[1, 2] > 0.8
    assert matrix[2, 0] > 0.8
    assert set(np.argsort(-crowd.popularity)[:3].tolist()) == {0, 1, 2}


def test_shares_by_hand():
    """What all phones do after an app, of these candidates; nothing is made to sum to 1."""
    crowd = Crowd(
        np.array([0.5, 0.3, 0.2]), np.array([0, 2, 2, 3]), np.array([1, 2, 2]),
        np.array([0.4, 0.2, 0.6]),
    )  # fmt: skip
    share, told = crowd.shares(np.array([0, 1, -1, 7, -2, -100]), 0)
    np.testing.assert_allclose(share, [0, 0.4, 0, 0, 0, 0])
    assert told == 0.0  # nothing is known of what comes after two apps
    for last in (None, 1, 9, -1):
        share, _ = crowd.shares(np.array([2, 7]), last)
        assert (share == 0).all()


def test_an_app_named_twice_in_a_row_is_refused():
    with pytest.raises(ValueError, match="name no app twice"):
        Crowd(np.array([0.5, 0.5]), np.array([0, 2, 2]), np.array([0, 0]), np.array([0.3, 0.4]))


def test_a_phone_hears_the_crowd_until_its_own_counts_take_over(rng):
    shares = np.zeros((3, 4))  # 0 and 1 in turn
    shares[0, 1], shares[1, 0], shares[:2, 3] = 0.5, 0.45, 0.025
    crowd = crowd_without_noise(shares)
    plain, told = Habits(), Habits()
    told.crowd = crowd
    candidates = np.arange(3)
    pulls = []
    for step in range(60):
        alone, heard = (scores_of(each, candidates, 60.0 * step) for each in (plain, told))
        assert np.exp(heard).sum() == pytest.approx(1.0)
        pulls.append(float(np.exp(heard[1]) - np.exp(alone[1])))
        for habits in (plain, told):
            habits.observe(0, 60.0 * step)  # never what the crowd expects after 0
    assert pulls[1] > 0.15  # trust starts below one half
    assert abs(pulls[-1]) < 0.1
    reasons = told.explain(candidates)
    scores = scores_of(told, candidates)
    assert [reason.score for reason in reasons] == pytest.approx(sorted(scores, reverse=True))
    assert any(abs(reason.speaks["crowd"]) > 0.01 for reason in reasons)
    assert math.isfinite(sum(reasons[0].speaks.values()))
