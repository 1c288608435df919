"""The directed embedding model against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp import directed


@pytest.fixture
def world(rng):
    Q, R = rng.normal(0, 0.7, (6, 3)), rng.normal(0, 0.7, (6, 3))
    return Q, R, directed.transitions_of(rng.integers(0, 6, 25), 6)


def test_transitions_by_hand():
    phone = directed.transitions_of(np.array([2, 0, 2, 0, 1]), 3)
    assert phone.last.tolist() == [0, 2]
    assert phone.share.tolist() == [[0, 0.25, 0.25], [0.5, 0, 0]]


def test_the_gradient_is_the_slope_of_the_loss(world, rng):
    Q, R, phone = world
    p = rng.normal(size=3)
    found = directed.gradient(Q, R, p, phone)
    for matrix, row in ((Q, 0), (R, 6)):
        for app, column in ((0, 1), (3, 2), (5, 0)):
            sides = []
            for step in (1e-6, -1e-6):
                moved = matrix.copy()
                moved[app, column] += step
                pair = (moved, R) if row == 0 else (Q, moved)
                sides.append(directed.loss(*pair, p, phone, 0.1))
            slope = (sides[0] - sides[1]) / 2e-6
            assert found[row + app, column] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_the_user_vector_is_where_the_loss_is_flat(world):
    Q, R, phone = world
    p = directed.user_vector(Q, R, phone, 0.5)
    for column in range(3):
        step = 1e-5 * np.eye(3)[column]
        up, down = (directed.loss(Q, R, p + s, phone, 0.5) for s in (step, -step))
        assert (up - down) / 2e-5 == pytest.approx(0.0, abs=1e-3)
    assert directed.loss(Q, R, p, phone, 0.5) < directed.loss(Q, R, np.zeros(3), phone, 0.5)


def test_direction_is_kept(world):
    """After training on a circle 0 → 1 → 2 → 0 the model tells it from the circle backwards."""
    Q, R, _ = world
    phone = directed.transitions_of(np.tile([0, 1, 2], 10), 6)
    for _ in range(200):
        p = directed.user_vector(Q, R, phone, 0.5)
        slope = directed.gradient(Q, R, p, phone)
        Q, R = Q - slope[:6], R - slope[6:]
    chances = directed.probabilities(Q, R, p, np.array([0, 1, 2]))
    assert chances.argmax(axis=1).tolist() == [1, 2, 0]
    assert chances[0, 1] > 5 * chances[1, 0]
