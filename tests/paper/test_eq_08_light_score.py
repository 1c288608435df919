"""Eq. (8), the light score at inference, and the other readings of "the latest l apps" (R7)."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.model import light_scores

Q = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
p = np.array([1.0, -1.0])


def test_by_hand():
    # q_s = q_1 + q_0 + q_1 = (5, 2); p + q_s = (6, 1)
    assert light_scores(Q, p, [1, 0, 1]).tolist() == [6.0, 13.0, 3.0]


def test_no_session_leaves_taste():
    assert light_scores(Q, p, []).tolist() == (Q @ p).tolist()


@pytest.mark.parametrize(
    ("inference", "session"),
    [
        ("mean", np.array([5.0, 2.0]) / 3),
        ("last", np.array([2.0, 1.0])),
        ("window:1", np.array([2.0, 1.0])),
        ("window:2", np.array([3.0, 1.0])),
        ("window:9", np.array([5.0, 2.0])),
        ("none", np.zeros(2)),
    ],
)
def test_other_readings(inference, session):
    np.testing.assert_allclose(light_scores(Q, p, [1, 0, 1], inference), Q @ (p + session))


@pytest.mark.parametrize("bad", ["window:0", "window:", "window:-1", "window:x", "all", ""])
def test_an_unknown_reading_is_an_error(bad):
    with pytest.raises(ValueError, match="window:l"):
        light_scores(Q, p, [0], bad)
