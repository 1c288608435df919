"""A fleet's shares and reports are those of its phones one by one."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.fleet.columns import Fleet
from nextapp.fleet.frequencies import encode_reports, mean_shares, tally_reports
from nextapp.fleet.reporting import sum_reports
from nextapp.fleet.walsh import (
    encode_launches,
    encode_transitions,
    tally_launches,
    tally_transitions,
)
from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.shares import Shares, transition_shares, transition_vector
from nextapp.wire import Broadcast, ModelSettings


@pytest.fixture
def histories(rng):
    sizes = [0, 1, 2, *rng.integers(3, 60, 40).tolist()]
    return [rng.integers(0, 7, size) for size in sizes]


def fleet_of(histories, n_apps=7, first_phone=11):
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])]).astype(np.int64)
    apps = np.concatenate(histories).astype(np.int32)
    return Fleet.of_histories(starts, apps, n_apps, first_phone)


@pytest.mark.parametrize("name", ["subset", "hadamard"])
@pytest.mark.parametrize(
    ("epsilon", "options"), [(0.3, {}), (1.5, {}), (4.5, {}), (4.5, {"q": 3, "t": 4})]
)
def test_the_fleet_reports_what_its_phones_would_have_reported(
    name, epsilon, options, histories, seed
):
    if name == "hadamard" and options:
        pytest.skip("only lines have q and t")
    m = mechanism(name, epsilon=epsilon, n_apps=7, d=8, **options)
    fleet = fleet_of(histories)
    broadcast = Broadcast(3, np.zeros((7, 1)), ModelSettings())
    alone = []
    for phone, history in enumerate(histories):
        device = PhoneCore()
        for step, app in enumerate(history.tolist()):
            device.observe(app, float(step))
        device.update(broadcast)
        bits = KeyedBits(seed, 11 + phone, 3, "report")
        alone.append(m.encode(device.answer(m), bits, broadcast.round))
    assert encode_reports(fleet, m, seed, round=3) == alone
    assert np.array_equal(tally_reports(fleet, m, seed, round=3), m.tally(alone))
    some = np.arange(len(histories)) % 3 == 0
    assert encode_reports(fleet, m, seed, round=3, reporting=some) == alone[::3]
    halves = [
        tally_reports(fleet.shard(*ends), m, seed, round=3) for ends in ((0, 9), (9, len(fleet)))
    ]
    assert np.array_equal(sum(halves), m.tally(alone))


@pytest.mark.parametrize(("epsilon", "clip", "b"), [(1.0, 0.2, 8), (4.5, 1.0, 5), (8.0, 1e-9, 8)])
def test_transition_vectors_are_reported_by_a_fleet_as_by_its_phones(
    epsilon, clip, b, histories, seed
):
    m = mechanism("walsh", epsilon=epsilon, n_apps=7, d=8, clip=clip, b=b)
    fleet = fleet_of(histories)
    alone = [
        m.encode(transition_vector(history, 7), KeyedBits(seed, 11 + phone, 3, "report"), 3)
        for phone, history in enumerate(histories)
    ]
    assert encode_transitions(fleet, m, seed, round=3) == alone
    some = np.arange(len(histories)) % 3 == 0
    thirds = encode_transitions(fleet, m, seed, round=3, reporting=some)
    assert thirds == alone[::3]
    halves = [
        tally_transitions(fleet.shard(*ends), m, seed, round=3)
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
        alone.append(m.encode(answer, KeyedBits(seed, 11 + phone, 3, "report"), 3))
    assert encode_launches(fleet, m, seed, round=3) == alone
    some = np.arange(len(histories)) % 3 == 0
    assert encode_launches(fleet, m, seed, round=3, reporting=some) == alone[::3]
    assert np.array_equal(tally_launches(fleet, m, seed, round=3), m.tally(alone))
    with pytest.raises(ValueError, match="make one for the catalogue"):
        tally_launches(fleet.among(np.arange(5)), m, seed)


def test_the_mean_of_shares_is_that_of_the_phones(histories):
    by_hand = np.mean([transition_shares(each, 7, 0.3).dense() for each in histories], axis=0)
    np.testing.assert_allclose(mean_shares(fleet_of(histories), 0.3), by_hand, atol=1e-15)


def test_the_estimate_of_a_fleet_is_within_its_standard_error(histories, seed):
    """5 sigma over 56 cells: a right one fails for one seed in 30,000."""
    many = [histories[number % len(histories)] for number in range(4300)]
    fleet = fleet_of([each for each in many if len(each) > 1])
    m = mechanism("subset", epsilon=4.5, n_apps=7, d=8)
    found = m.estimate(tally_reports(fleet, m, seed), len(fleet))
    truth = mean_shares(fleet)
    error = np.sqrt(np.array([m.cell_variance(each) for each in truth.ravel()]) / len(fleet))
    assert (np.abs(found - truth).ravel() < 5 * error + 1e-9).all()


def test_what_does_not_fit_is_refused(histories):
    fleet = fleet_of(histories)
    with pytest.raises(ValueError, match="make one for the catalogue"):
        tally_reports(fleet, mechanism("subset", epsilon=1.0, n_apps=6, d=7), 0)
    with pytest.raises(ValueError, match="at least one phone"):
        mean_shares(Fleet.without_launches(0, 3))
    broadcast = Broadcast(0, np.zeros((7, 8)), ModelSettings())
    m = mechanism("subset", epsilon=1.0, n_apps=7, d=8)
    with pytest.raises(ValueError, match="reports shares, not gradients"):
        sum_reports(fleet, broadcast, m, 0, np.zeros((len(fleet), 8)), np.ones(len(fleet), bool))
