"""Eqs. (4) and (7), the short-term score h and the training score r."""

from __future__ import annotations

import numpy as np

from nextapp.model import scores, short_term, transitions


def test_short_term_is_the_sum_of_eq_7(rng):
    S, Q = rng.random((5, 5)), rng.normal(size=(5, 3))
    h = short_term(S, Q)
    for i in range(5):
        assert np.isclose(h[i], sum(S[i, j] * (Q[i] @ Q[j]) for j in range(5)), rtol=1e-13)


def test_short_term_is_the_diagonal_of_eq_4(rng):
    S, Q = rng.random((5, 5)), rng.normal(size=(5, 3))
    np.testing.assert_allclose(short_term(S, Q), np.diag(S @ Q @ Q.T), rtol=1e-13)


def test_by_hand():
    Q = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    S = transitions([0, 1, 1, 2], 3)  # rows: 0 -> 1; 1 -> 1/2 1, 1/2 2; 2 -> nothing
    assert short_term(S, Q).tolist() == [2.0, 0.5 * 5 + 0.5 * 3, 0.0]
    assert scores(Q, np.array([1.0, -1.0]), S).tolist() == [3.0, 1 + 4.0, -3.0]
