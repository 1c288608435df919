"""A phone's transitions, which it can report: a sparse matrix (n_apps, n_apps + 1) >= 0.

Entry (j, i) is for apps i that were launched right after j. The last column is 0: reports have this
shape on the wire. A `transition_vector` has length 1; a phone reports the whole vector through
`walsh`. Only nonzero cells are stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nextapp.wire import Floats

REPEATS = 0.3
"""Weight of a repeat in a `transition_vector`; any other transition has weight 1.

A phone's repeats are few large cells and would dominate its length. A round number: .2 and .35 are
as good (docs/decisions/0013-the-whole-vector.md)."""


@dataclass(frozen=True, eq=False)
class Shares:
    """A sparse matrix of `shape`: `share` at the flat indices `cells` (ascending), 0 elsewhere."""

    shape: tuple[int, int]
    cells: npt.NDArray[np.int64]
    share: Floats

    def dense(self) -> Floats:
        matrix = np.zeros(self.shape)
        matrix.ravel()[self.cells] = self.share
        return matrix

    def at(self, cells: npt.NDArray[np.int64]) -> Floats:
        """The entries at these flat indices."""
        first = np.searchsorted(self.cells, cells)
        there = np.searchsorted(self.cells, cells, "right") > first
        found = np.zeros(len(cells))
        found[there] = self.share[first[there]]
        return found


def no_shares(shape: tuple[int, int]) -> Shares:
    """A matrix of zeros."""
    return Shares(shape, np.zeros(0, np.int64), np.zeros(0))


def transition_vector(history: npt.NDArray[np.integer], n_apps: int) -> Shares:
    """The transitions of one phone as a vector of length 1, from its launches, oldest first.

        v(j, i) = n(j→i)/√n(j→·),   v(j, j) = REPEATS · n(j→j)/√n(j→·),   v(j, n_apps) = 0

    divided by ‖v‖. n(j→·) counts all transitions from j. The square root is a compromise between
    n(j→i), which leaves little of the length to rarely used apps, and n(j→i)/n(j→·), which gives an
    app launched twice as much weight as any other. Transitions from or to apps outside the
    catalogue are ignored. A phone without transitions has a vector of zeros.
    """
    history = np.asarray(history, np.int64)
    known = (history >= 0) & (history < n_apps)
    moves = (history[:-1] * (n_apps + 1) + history[1:])[known[:-1] & known[1:]]
    cells, times = np.unique(moves, return_counts=True)
    last, following = np.divmod(cells, n_apps + 1)
    v = times / np.sqrt(np.bincount(last, times, minlength=n_apps)[last])
    v[last == following] *= REPEATS
    if len(v):
        v /= math.sqrt(float((v * v).sum()))
    return Shares((n_apps, n_apps + 1), cells, v)
