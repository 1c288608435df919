"""Eq. (2), the n best among the candidates."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.model import top


def test_best_first():
    assert top(np.array([0.1, 0.5, 0.3]), 2).tolist() == [1, 2]


def test_only_candidates_are_named_and_fewer_than_n_give_fewer():
    assert top(np.array([9.0, 0.5, 0.3, 7.0]), 5, candidates=[2, 1]).tolist() == [1, 2]


def test_equal_scores_keep_the_order_of_the_candidates():
    assert top(np.array([1.0, 1.0, 1.0]), 3, candidates=[2, 0, 1]).tolist() == [2, 0, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_an_error(bad):
    with pytest.raises(ValueError, match="finite"):
        top(np.array([1.0, bad]), 1)


def test_n_must_be_positive():
    with pytest.raises(ValueError, match="1 or more"):
        top(np.array([1.0]), 0)
