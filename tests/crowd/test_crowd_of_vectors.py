"""Vectors become a crowd: by hand, and by an eigenvector."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.crowd import LEAST_SHARE, MOST_FOLLOWERS, crowd_of_vectors


def test_rows_by_hand():
    """q = (0, log 2, log 3) and r = (0, 1, 2): scores i·j, so weights 1, 2^r, 3^r."""
    coming = np.array([[0.0], [math.log(2)], [math.log(3)]])
    before = np.array([[0.0], [1.0], [2.0]])
    crowd = crowd_of_vectors(coming, before)
    np.testing.assert_allclose(crowd.after(0), [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(crowd.after(1), [1 / 6, 2 / 6, 3 / 6])
    np.testing.assert_allclose(crowd.after(2), [1 / 14, 4 / 14, 9 / 14])
    sharper = crowd_of_vectors(coming, before, 2.0)
    np.testing.assert_allclose(sharper.after(1), [1 / 14, 4 / 14, 9 / 14])
    tasted = crowd_of_vectors(coming, before, taste=np.array([1.0]))
    np.testing.assert_allclose(tasted.after(0), [1 / 6, 2 / 6, 3 / 6])


def test_popularity_is_where_the_rows_lead(rng):
    coming, before = rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
    crowd = crowd_of_vectors(coming, before)
    rows = np.array([crowd.after(last) for last in range(7)])
    values, vectors = np.linalg.eig(rows.T)
    stays = np.real(vectors[:, np.argmax(np.real(values))])
    expected = 0.99 * stays / stays.sum() + 0.01 / 7
    np.testing.assert_allclose(crowd.popularity, expected, atol=2e-3)


@pytest.mark.parametrize("n_apps", [5, MOST_FOLLOWERS + 9])
def test_without_sharpness_nothing_is_told(rng, n_apps):
    crowd = crowd_of_vectors(rng.normal(size=(n_apps, 2)), rng.normal(size=(n_apps, 2)), 0.0)
    np.testing.assert_allclose(crowd.after(3), np.full(n_apps, 1 / n_apps))
    np.testing.assert_allclose(crowd.popularity, np.full(n_apps, 1 / n_apps))
    assert len(crowd.share) == 0


@pytest.mark.parametrize("sharpness", [0.1, 3.0])
def test_the_likeliest_followers_are_told_by_what_they_have_above_the_others(rng, sharpness):
    n_apps = MOST_FOLLOWERS + 30
    coming, before = rng.normal(size=(n_apps, 4)), rng.normal(size=(n_apps, 4))
    crowd = crowd_of_vectors(coming, before, sharpness)
    scores = sharpness * before @ coming.T
    for last in (0, n_apps - 1):
        row = slice(crowd.starts[last], crowd.starts[last + 1])
        weights = np.exp(scores[last])
        best = np.argsort(-weights)
        above = (weights - weights[best[MOST_FOLLOWERS]]) / weights.sum()
        told = sorted(i for i in best[:MOST_FOLLOWERS] if above[i] >= LEAST_SHARE)
        assert crowd.following[row].tolist() == told
        np.testing.assert_allclose(crowd.share[row], above[told])
