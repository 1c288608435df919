"""Reports by walsh of a fleet's transitions and launches are those of its phones one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from phone_reports import answers

from nextapp.crowd import Shares, transition_vector
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import mean_shares, mean_vector, tally_answers
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits


@pytest.fixture
def histories(rng):
    sizes = [0, 1, 2, *rng.integers(3, 60, 40).tolist()]
    return [rng.integers(0, 7, size) for size in sizes]


def fleet_of(histories, n_apps=7, first_phone=11):
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])]).astype(np.int64)
    apps = np.concatenate(histories).astype(np.int32)
    return Fleet.of_histories(starts, apps, n_apps, first_phone)


@pytest.mark.parametrize(("epsilon", "clip", "b"), [(1.0, 0.2, 8), (4.5, 1.0, 5), (8.0, 1e-9, 8)])
def test_transition_vectors_are_reported_by_a_fleet_as_by_its_phones(
    epsilon, clip, b, histories, seed
):
    m = mechanism("walsh", epsilon=epsilon, n_apps=7, d=8, clip=clip, b=b)
    fleet = fleet_of(histories)
    alone = [
        m.encode(transition_vector(history, 7), KeyedBits(seed, 11 + phone, 0, "report"))
        for phone, history in enumerate(histories)
    ]
    assert answers(fleet, m, "transitions", seed) == alone
    halves = [
        tally_answers(fleet.shard(*ends), m, "transitions", seed)
        for ends in ((0, 9), (9, len(fleet)))
    ]
    assert np.array_equal(sum(halves), m.tally(alone))


@pytest.mark.parametrize(("epsilon", "clip", "b"), [(1.0, 1.0, 4), (4.5, 0.3, 5), (8.0, 4.0, 8)])
def test_launches_are_reported_by_a_fleet_as_by_its_phones(epsilon, clip, b, histories, seed):
    """What `PhoneCore.launches` answers where every app has a bucket of its own."""
    m = mechanism("walsh", epsilon=epsilon, n_apps=7, d=1, clip=clip, b=b)
    fleet, alone = fleet_of(histories), []
    for phone, history in enumerate(histories):
        counts = np.bincount(history, minlength=7)
        cells = np.flatnonzero(counts)
        answer = Shares((7, 1), cells, np.sqrt(counts[cells] / max(1, len(history))))
        alone.append(m.encode(answer, KeyedBits(seed, 11 + phone, 0, "report")))
    assert answers(fleet, m, "launches", seed) == alone
    assert np.array_equal(tally_answers(fleet, m, "launches", seed), m.tally(alone))
    with pytest.raises(ValueError, match="make one for the catalogue"):
        tally_answers(fleet.among(np.arange(5)), m, "launches", seed)


def test_the_mean_of_clipped_vectors_is_that_of_the_phones(histories):
    def clipped(history):
        F = transition_vector(history, 7).dense()
        return F * min(1.0, 0.3 / max(np.linalg.norm(F), 1e-300))

    each = np.array([clipped(history) for history in histories])
    found = mean_vector(fleet_of(histories), 0.3)
    np.testing.assert_allclose(found, each.mean(axis=0), atol=1e-15)
    with pytest.raises(ValueError, match="at least one phone"):
        mean_vector(Fleet.without_launches(0, 7))


def test_the_mean_of_shares_is_that_of_the_phones(histories):
    by_hand = np.zeros((7, 8))
    for history in histories:
        for last, following in itertools.pairwise(history.tolist()):
            by_hand[last, following] += 1 / (len(history) - 1)
        for app in history.tolist():
            by_hand[app, 7] += 1 / len(history)
    by_hand /= len(histories)
    np.testing.assert_allclose(mean_shares(fleet_of(histories)), by_hand, atol=1e-15)


def test_what_does_not_fit_is_refused(histories):
    fleet, m = fleet_of(histories), mechanism("walsh", epsilon=1.0, n_apps=6, d=7, clip=1.0)
    with pytest.raises(ValueError, match="make one for the catalogue"):
        tally_answers(fleet, m, "transitions", 0)
    with pytest.raises(ValueError, match="at least one phone"):
        mean_shares(Fleet.without_launches(0, 3))
