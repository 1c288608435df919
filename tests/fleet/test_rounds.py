"""A round of a fleet against the same phones and server one by one."""

from __future__ import annotations

import numpy as np
import pytest

from all_reports import apply_reports
from nextapp.data import synthetic
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import (
    cosine,
    estimate_sum,
    fleet_phones,
    sum_reports,
    training_phones,
    zero_phones,
)
from nextapp.learners import SeqMFLearner, run_rounds, sgd
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import ModelSettings
from slow_seqmf import phones_of_log

N_APPS, DIM, LAM, RATE = 30, 4, 0.3, 0.1
PLAIN = mechanism("identity", n_apps=N_APPS, d=DIM)


def new_server(vectors):
    return SeqMFLearner(vectors, ModelSettings(lam=LAM, alpha=0.01), sgd(RATE), PLAIN)


@pytest.mark.parametrize("kind", ["fleet", "training"])
def test_three_rounds_are_those_of_devices_and_a_server(rng, seed, kind):
    log = synthetic.make(synthetic.fleet_parameters(12, N_APPS, days=1), seed)
    start, devices = rng.normal(0, 0.3, (N_APPS, DIM)), phones_of_log(log)
    slow, fast = new_server(start), new_server(start)
    fleet = Fleet.of_log(log)
    told = fleet_phones(fleet, PLAIN, seed) if kind == "fleet" else training_phones(fleet, DIM, 1)
    for _ in range(3):
        reports = []
        for device in devices:
            device.take(slow.broadcast)
            reports.append(PLAIN.encode(device.gradient(), KeyedBits(0), slow.broadcast.round))
        apply_reports(slow, reports)
        run_rounds(fast, told, 1)
    assert fast.broadcast.round == 3
    close = {"fleet": 1e-4, "training": 1e-10}[kind]  # float32 and float64
    np.testing.assert_allclose(
        fast.broadcast.app_vectors, slow.broadcast.app_vectors, rtol=close, atol=close
    )


def test_a_round_without_reports_changes_nothing_and_one_of_zeros_only_shrinks(rng, seed):
    start = rng.normal(0, 0.3, (N_APPS, DIM))
    server = new_server(start)
    phones = fleet_phones(Fleet.without_launches(0, N_APPS), PLAIN, seed)
    assert phones(server.broadcast) is None
    run_rounds(server, phones, 1)
    assert server.broadcast.round == 1
    assert np.array_equal(server.broadcast.app_vectors, start)
    run_rounds(server, zero_phones, 1)
    assert server.broadcast.round == 2
    np.testing.assert_allclose(server.broadcast.app_vectors, (1 - RATE * LAM) * start, rtol=1e-15)


def test_the_cosine_of_a_sum_to_the_true_one(rng, seed):
    fleet = Fleet.of_log(synthetic.make(synthetic.fleet_parameters(12, N_APPS, days=1), seed))
    sums = sum_reports(fleet, new_server(np.ones((N_APPS, DIM))).broadcast, PLAIN, seed)
    assert cosine(estimate_sum(sums, PLAIN), sums.true_sum) == pytest.approx(1.0)
    ones = np.ones((2, 2))
    assert cosine(ones, -3 * ones) == pytest.approx(-1.0)
    assert cosine(ones, np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(0.5)
    assert cosine(ones, np.zeros((2, 2))) is None
