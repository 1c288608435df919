"""Catalogues without a list: slots for buckets in use, growth, other requests, questions."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace

import numpy as np
import pytest

from nextapp.learners import (
    CELLS_PER_APP,
    LIKELY,
    CrowdLearner,
    CrowdRequests,
    keep_largest_cells,
    read_checkpoint,
    write_checkpoint,
)
from nextapp.privacy import requested_mechanism
from nextapp.wire import (
    Broadcast,
    Buckets,
    Crowd,
    History,
    ModelSettings,
    ReportRequest,
)

N_BUCKETS = 64


def requests(epsilon=1.0, name="walsh", clip=0.2, **more):
    return CrowdRequests(
        ReportRequest(name, epsilon, clip, question="transitions"),
        ReportRequest(name, epsilon, 1.0, question="launches"),
        **more,
    )


def empty(n_buckets=N_BUCKETS):
    return Buckets(n_buckets, "", np.zeros(0, np.int64))


def launches_of(used: dict[int, float], learner, n):
    """A sum of n reports without noise in which buckets stand at so many standard errors."""
    total = np.zeros((N_BUCKETS, 1))
    error = np.sqrt(requested_mechanism(learner.broadcast).entry_variance * n)
    for bucket, standing in used.items():
        total[bucket] = standing * error
    return total


def test_the_first_round_asks_what_is_in_use_and_every_fifth_again():
    learner = CrowdLearner(requests(), empty())
    asked = [learner.broadcast.request.question]
    learner.apply_sum(launches_of({5: 9.0, 7: 8.0}, learner, 100), 100)
    for _ in range(9):
        asked.append(learner.broadcast.request.question)
        learner.pass_over()
    assert asked == ["launches" if number % 5 == 0 else "transitions" for number in range(10)]
    assert learner.broadcast.buckets.slots.tolist() == [5, 7]
    assert learner.broadcast.app_vectors.shape == (2, 0)


def test_transitions_are_not_asked_for_before_two_buckets_are_no_noise():
    learner = CrowdLearner(requests(), empty())
    learner.apply_sum(launches_of({5: 9.0, 7: 3.0}, learner, 100), 100)
    assert learner.broadcast.buckets.slots.tolist() == [5, 7]
    assert learner.broadcast.request.question == "launches"
    learner.apply_sum(launches_of({5: 9.0, 7: 3.0}, learner, 100), 100)  # 3 √2 = 4.2
    assert learner.broadcast.request.question == "launches"
    learner.apply_sum(launches_of({5: 9.0, 7: 3.0}, learner, 100), 100)  # 3 √3 = 5.2
    assert learner.broadcast.request.question == "transitions"


def test_a_slot_keeps_its_bucket_and_the_least_used_gives_way():
    learner = CrowdLearner(requests(most_slots=3, launches_every=1), empty())
    learner.apply_sum(launches_of({5: 9.0, 7: 8.0, 9: 4.0, 11: 3.0}, learner, 100), 100)
    assert learner.buckets.slots.tolist() == [5, 7, 9]
    learner.total += np.arange(12.0).reshape(3, 4)
    learner.n_since += 50
    before = learner.total.copy()
    # 11 is now above 9, but not by more than noise; 13 is
    learner.apply_sum(launches_of({11: 2.0}, learner, 100), 100)
    assert learner.buckets.slots.tolist() == [5, 7, 9]
    learner.apply_sum(launches_of({13: 20.0}, learner, 100), 100)
    assert learner.buckets.slots.tolist() == [5, 7, 13]
    assert learner.n_since.tolist() == [50, 50, 0]
    assert np.array_equal(learner.total[:2, [0, 1, 3]], before[:2, [0, 1, 3]])
    assert not learner.total[2].any()
    assert not learner.total[:, 2].any()


def test_what_noise_gives_no_slot():
    learner = CrowdLearner(requests(launches_every=1), empty())
    learner.apply_sum(launches_of({5: 9.0, 7: LIKELY - 0.01}, learner, 100), 100)
    assert learner.buckets.slots.tolist() == [5]


def test_a_cell_is_divided_so_that_all_have_the_noise_of_the_whole(rng, monkeypatch):
    seen = []

    def spy(estimate, error):
        seen.append((estimate, error))
        n_apps = len(estimate)
        return Crowd(
            np.full(n_apps, 1 / n_apps), np.zeros(n_apps + 1, np.int64), np.zeros(0, np.int64),
            np.zeros(0),
        )  # fmt: skip

    monkeypatch.setattr("nextapp.learners.crowd_from", spy)
    learner = CrowdLearner(requests(), ("a", "b", "c"))
    learner.n_since = np.array([400.0, 400.0, 100.0])
    learner.total = rng.normal(size=(3, 4))
    learner.crowd()
    estimate, error = seen[-1]
    made = learner.mechanism_for(learner.requests.transitions)
    assert error == math.sqrt(made.entry_variance / 400)
    assert estimate[0, 1] == pytest.approx(learner.total[0, 1] / 400)
    assert estimate[0, 2] == pytest.approx(learner.total[0, 2] / 200)  # √(400 · 100)
    assert estimate[2, 3] == pytest.approx(learner.total[2, 3] / 200)
    assert estimate[1, 3] == pytest.approx(learner.total[1, 3] / 400)


def test_a_checkpoint_keeps_slots_and_both_totals(tmp_path, rng):
    learner = CrowdLearner(requests(most_slots=3), empty())
    learner.apply_sum(launches_of({5: 9.0, 7: 8.0, 9: 7.0, 11: 1.0}, learner, 100), 100)
    learner.apply_sum(rng.normal(size=(3, 4)), 100)
    write_checkpoint(tmp_path / "c", learner.state())
    again = CrowdLearner.restore(read_checkpoint(tmp_path / "c"), requests(most_slots=3))
    for each in (learner, again):
        for _ in range(4):
            total = np.full((each.mechanism.n_apps, each.mechanism.d), 0.5)
            each.apply_sum(total, 10)
    assert again.broadcast.to_bytes() == learner.broadcast.to_bytes()
    assert np.array_equal(again.launches, learner.launches)


@pytest.mark.parametrize(("n_apps", "most"), [(2000, 100_000), (10_000, 500_000)])
def test_what_a_phone_downloads_is_small(rng, n_apps, most):
    """With as many cells as are ever told, a full history, and names of 24 characters."""
    following = np.argsort(rng.random((n_apps, 200)), axis=1)[:, : 2 * CELLS_PER_APP]
    share = rng.dirichlet(np.full(following.shape[1], 0.5), n_apps)
    crowd = Crowd(
        rng.dirichlet(np.full(n_apps, 0.3)),
        np.arange(n_apps + 1) * following.shape[1],
        (np.sort(following, axis=1) * (n_apps // 200)).ravel(),
        share.ravel(),
    )
    names = tuple("".join(map(chr, row)) for row in rng.integers(97, 123, (n_apps, 12)))
    names = tuple(f"com.{name[:6]}.{name[6:]}.mobile" for name in names)
    history = History()
    for round_ in range(64):
        history = history.after(round_, b"%d" % round_)
    told = keep_largest_cells(crowd, CELLS_PER_APP)
    assert len(told.share) == CELLS_PER_APP * n_apps
    slots = rng.permutation(1 << 16)[:n_apps]
    for catalogue in ({"apps": names}, {"buckets": Buckets(1 << 16, "", slots)}):
        data = Broadcast(
            64, np.zeros((n_apps, 0)), ModelSettings(), crowd=told, history=history, **catalogue
        ).to_bytes()
        assert len(gzip.compress(data, 6)) <= most


def test_the_cells_that_are_met_most_are_told():
    crowd = Crowd(
        np.array([0.9, 0.1]), np.array([0, 2, 4]), np.array([0, 1, 0, 1]),
        np.array([0.05, 0.5, 0.6, 0.3]),
    )  # fmt: skip
    told = keep_largest_cells(crowd, 1)  # .045 and .45 in row 0, .06 and .03 in row 1: two of them
    assert told.starts.tolist() == [0, 1, 2]
    assert told.following.tolist() == [1, 0]
    assert told.share.tolist() == [0.5, 0.6]
    assert keep_largest_cells(crowd, 2) is crowd


def test_requests_must_ask_what_they_are_for():
    good = requests()
    with pytest.raises(ValueError, match="another question"):
        CrowdRequests(good.launches, good.launches)
    with pytest.raises(ValueError, match="most_slots 2 or more"):
        replace(good, most_slots=1)
    with pytest.raises(ValueError, match="does not fit"):
        CrowdLearner(requests(most_slots=2), ("a", "b", "c"))
