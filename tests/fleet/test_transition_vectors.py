"""Transition vectors of a fleet: their mean by hand, and the law of the estimate against bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from nextapp.fleet.columns import Fleet
from nextapp.fleet.transition_vectors import draw_estimate, mean_vector
from nextapp.fleet.walsh import tally_transitions
from nextapp.privacy import mechanism
from nextapp.shares import transition_vector

N_APPS, CLIP = 7, 0.3


@pytest.fixture
def histories(rng):
    sizes = [0, 1, 2, *rng.integers(3, 60, 20).tolist()]
    return [rng.integers(0, N_APPS, size) for size in sizes]


def fleet_of(histories, first_phone=11):
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])]).astype(np.int64)
    apps = np.concatenate(histories).astype(np.int32)
    return Fleet.of_histories(starts, apps, N_APPS, first_phone)


def test_the_mean_is_that_of_the_phones_one_by_one(histories):
    def clipped(history):
        F = transition_vector(history, N_APPS).dense()
        return F * min(1.0, CLIP / max(np.linalg.norm(F), 1e-300))

    each = np.array([clipped(history) for history in histories])
    fleet = fleet_of(histories)
    found = mean_vector(fleet, CLIP)
    np.testing.assert_allclose(found, each.mean(axis=0), atol=1e-15)
    some = np.arange(len(histories)) % 2 == 0
    found = mean_vector(fleet, CLIP, reporting=some)
    np.testing.assert_allclose(found, each[::2].mean(axis=0), atol=1e-15)
    with pytest.raises(ValueError, match="at least one phone"):
        mean_vector(fleet, CLIP, reporting=~(some | True))


def test_law_and_bits_give_the_same_distribution(rng, seed):
    """Means and variances of 56 cells and 20 directions at 5.5 sigma, shapes of 3 cells: a right
    law fails once in 15,000 seeds."""
    histories = [rng.integers(0, 4, 30), rng.integers(2, 6, 12), np.array([3])]
    fleet = fleet_of(histories)
    m = mechanism("walsh", epsilon=1.5, n_apps=N_APPS, d=N_APPS + 1, clip=CLIP, b=5)
    n = 1500

    def exact(r):
        return m.estimate(tally_transitions(fleet, m, seed, round=r, threads=1), len(fleet)).ravel()

    first = 10_000 * seed
    bits = np.array([exact(r) for r in range(first, first + n)])
    law = np.array(
        [draw_estimate(fleet, m, seed, round=r).ravel() for r in range(first, first + n)]
    )
    truth = mean_vector(fleet, CLIP).ravel()
    directions = rng.normal(size=(len(truth), 20))
    directions[:, 0] = truth / np.linalg.norm(truth)
    for left, right in ((bits, law), (bits @ directions, law @ directions)):
        middle = np.concatenate([left, right]).mean(axis=0)
        for power in (1, 2):
            a, b = (left - middle) ** power, (right - middle) ** power
            error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / n)
            assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5.5 * error).all()
    for cell in (0, int(truth.argmax()), len(truth) - 1):
        assert stats.ks_2samp(bits[:, cell], law[:, cell]).pvalue > 1e-5
    assert (np.abs(law.mean(axis=0) - truth) < 5.5 * law.std(axis=0) / math.sqrt(n)).all()


def test_a_cell_that_nobody_has_gets_the_noise_of_all_reports(histories, seed):
    """Variance clip²/(μ² M), at 5 sigma over 400 rounds."""
    fleet = fleet_of([history[history != 6] for history in histories])
    m = mechanism("walsh", epsilon=4.5, n_apps=N_APPS, d=N_APPS + 1, clip=CLIP)
    found = np.array([draw_estimate(fleet, m, seed, round=r)[6] for r in range(400)])
    due = CLIP**2 / m.mu**2 / len(fleet)
    assert (found**2).mean() == pytest.approx(due, rel=5 * math.sqrt(2 / found.size))


def test_shards_and_other_phones_do_not_change_what_a_phone_draws(histories, seed):
    """A phone alone and among others: the same own cells, but for the draw that all share."""
    m = mechanism("walsh", epsilon=4.5, n_apps=N_APPS, d=N_APPS + 1, clip=CLIP)
    fleet = fleet_of(histories)
    alone = draw_estimate(fleet.shard(5, 6), m, seed)
    masked = draw_estimate(fleet, m, seed, reporting=np.arange(len(fleet)) == 5)
    np.testing.assert_allclose(alone, masked, rtol=1e-12)


def test_another_size_is_refused(histories):
    m = mechanism("walsh", epsilon=1.0, n_apps=6, d=7, clip=CLIP)
    with pytest.raises(ValueError, match="make one for the catalogue"):
        draw_estimate(fleet_of(histories), m, 0)
