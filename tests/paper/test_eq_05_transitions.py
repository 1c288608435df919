"""Eqs. (5) and (6), the transition weights S_u. The two disagree (PAPER.md, R1)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nextapp.model import transitions

A, B, C = 0, 1, 2
HISTORY = np.array([A, B, C, A, A, B, A, C])


def test_the_papers_worked_example():  # eq. (6), to the last bit
    S = transitions(HISTORY, n_apps=3)
    assert np.array_equal(S, [[1 / 4, 2 / 4, 1 / 4], [1 / 2, 0, 1 / 2], [1, 0, 0]])


def test_the_equation_as_printed():  # eq. (5) by hand: n(j→i) / n(i→·)
    S = transitions(HISTORY, n_apps=3, reading="equation")
    assert np.array_equal(S, [[1 / 4, 1 / 4, 1 / 4], [2 / 2, 0, 0], [1 / 1, 1 / 1, 0]])


def test_what_the_authors_ran():  # by hand: n(j→i) / n(·→i)
    S = transitions(HISTORY, n_apps=3, reading="authors")
    np.testing.assert_array_equal(S, [[1 / 3, 1 / 3, 1 / 3], [1, 0, 0], [1 / 2, 1 / 2, 0]])


def printed(history, n_apps):
    """Eq. (5), symbol by symbol."""
    S = np.zeros((n_apps, n_apps))
    for i in range(n_apps):
        for j in range(n_apps):
            above = sum(x == j and y == i for x, y in pairwise(history))
            below = sum(x == i for x in history[:-1])
            S[i, j] = above / below if below else 0.0
    return S


def test_equation_reading_is_eq_5_on_random_histories(rng):
    for length in (0, 1, 2, 3, 40):
        history = rng.integers(0, 5, length)
        np.testing.assert_array_equal(transitions(history, 6, "equation"), printed(history, 6))


def test_example_and_authors_readings_are_transposes_but_for_the_division(rng):
    history = rng.integers(0, 5, 60)
    example, authors = transitions(history, 5), transitions(history, 5, "authors")
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (history[:-1], history[1:]), 1)
    np.testing.assert_allclose(example * pairs.sum(1, keepdims=True), pairs)
    np.testing.assert_allclose(authors * pairs.sum(0)[:, None], pairs.T)


def test_no_reading_is_the_mf_model():
    assert not transitions(HISTORY, 3, "none").any()


@pytest.mark.parametrize("history", [[], [2]])
@pytest.mark.parametrize("reading", ["example", "equation", "authors", "none"])
def test_a_history_too_short_for_a_transition_has_none(history, reading):
    assert not transitions(history, 3, reading).any()


def test_an_app_that_only_ends_the_history_has_no_row():
    assert not transitions([A, B], 3)[B].any()


def test_errors_say_what_came():
    with pytest.raises(ValueError, match="example, equation, authors, none, got 'row'"):
        transitions(HISTORY, 3, "row")
    with pytest.raises(ValueError, match="from 0 to 1, got 0 to 2"):
        transitions(HISTORY, 2)
    with pytest.raises(ValueError, match="list of app numbers"):
        transitions([0.5, 1.0], 2)
