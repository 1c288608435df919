from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest
from scipy import stats

from nextapp.randomness import KeyedBits, distinct


class Given:
    """Words that a test chose."""

    def __init__(self, *words):
        self._words = list(words)

    def words(self, n):
        taken, self._words = self._words[:n], self._words[n:]
        return np.array(taken, np.uint64)


@pytest.mark.parametrize(("n", "bound"), [(0, 1), (0, 0), (1, 1), (5, 5), (3, 10**15)])
def test_distinct_numbers_are_distinct_and_in_range(n, bound, seed):
    numbers = distinct(KeyedBits(seed), n, bound)
    assert len(set(numbers)) == n
    assert numbers == sorted(numbers)
    assert all(0 <= number < bound for number in numbers)


def test_every_set_is_equally_likely(seed):
    """Chi-squared: a correct draw fails once in a million seeds."""
    drawn = collections.Counter(tuple(distinct(KeyedBits(seed, n), 2, 5)) for n in range(5000))
    counts = [drawn[pair] for pair in itertools.combinations(range(5), 2)]
    assert sum(counts) == 5000
    assert stats.chisquare(counts).pvalue > 1e-6


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="not 3 different"):
        distinct(KeyedBits(0), 3, 2)
