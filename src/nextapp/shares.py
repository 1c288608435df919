"""What a phone can say of itself in one cell: how often an app came after another, or at all.

A phone's shares are a matrix (n_apps, n_apps + 1) of numbers >= 0 that sum to 1 or less:

    (j, i)        i was launched right after j
    (j, n_apps)   j was launched at all

Only the cells that a phone knows of are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nextapp.wire import Floats

POPULARITY = 0.05
"""How much of a phone's weight speaks of launches; the rest speaks of transitions."""


@dataclass(frozen=True, eq=False)
class Shares:
    """A matrix of `shape` that is 0 but in `cells`, flat and ascending, where it is `share`."""

    shape: tuple[int, int]
    cells: npt.NDArray[np.int64]
    share: Floats

    def dense(self) -> Floats:
        matrix = np.zeros(self.shape)
        matrix.ravel()[self.cells] = self.share
        return matrix


def transition_shares(
    history: npt.NDArray[np.integer], n_apps: int, popularity: float = POPULARITY
) -> Shares:
    """The shares of one phone from its launches in order; apps beyond the catalogue are left out.

        share(j, i)      = (1 − popularity) · n(j→i) / n(·→·)
        share(j, n_apps) = popularity · n(j) / n(·)

    So a cell drawn by its share is one transition of the phone, each as likely as the other, or
    one launch. A phone of one launch has no transitions, and shares that sum to `popularity`.
    """
    check_popularity(popularity)
    history = np.asarray(history, np.int64)
    history = history[(history >= 0) & (history < n_apps)]
    moves, times = np.unique(history[:-1] * (n_apps + 1) + history[1:], return_counts=True)
    apps, launches = np.unique(history, return_counts=True)
    cells = np.concatenate([moves, apps * (n_apps + 1) + n_apps])
    share = np.concatenate(
        [
            (1.0 - popularity) * (times / max(1, len(history) - 1)),
            popularity * (launches / max(1, len(history))),
        ]
    )
    order = np.argsort(cells)
    return Shares((n_apps, n_apps + 1), cells[order], share[order])


def check_popularity(popularity: float) -> None:
    if not 0 <= popularity <= 1:
        raise ValueError(
            f"popularity must lie in [0, 1], got {popularity!r}: it is how much of a phone's "
            f"weight speaks of launches, and the rest speaks of transitions."
        )
