"""What a launcher suggests and what a memory manager keeps, from the chances of the next launch.

The phone, the evaluation and the memory study share these formulas. Arrays have an entry for each
candidate. `chances` are P(next launch = i) with the crowd mixed in already: leaving the open app
out before that costs hits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nextapp.wire import Floats

Whole = npt.NDArray[np.int64]

STEADY = 1.5
"""How many times as likely an app must be to take the place of one on the screen."""

KEEP_BY_CHANCE = 30.0
"""Weight of P(next = i) beside log f(i) in the order in which apps are kept in memory."""

LEAST_FREQUENCY = 1e-9  # so that the log is finite for apps never launched

NEW_APP_LAUNCHES = 10.0
"""Within this many launches the first launch of a new app comes in half of all cases."""


def next_different(chances: Floats, open_app: int) -> Floats:
    """P(next launch = i | it is not of the open app): 0 for the candidate `open_app`."""
    others = chances.copy()
    others[open_app] = 0.0
    rest = 1.0 - chances[open_app]
    if rest > 0.0:
        others /= rest
    return others


def keep_scores(frequency: Floats, chances: Floats) -> Floats:
    """log f(i) + 30·P(next = i): what is highest is kept in memory, what is lowest gives way.

    f is the faded frequency of the predictor, the share of the launches that an app had: what is
    wanted in the long run. P says what is wanted next.
    """
    scores: Floats = np.log(np.maximum(frequency, LEAST_FREQUENCY)) + KEEP_BY_CHANCE * chances
    return scores


def steady_row(shown: Whole, chances: Floats, n: int, factor: float = STEADY) -> Whole:
    """The n candidates to show, where `shown` are on the screen.

    A candidate on the screen gives way only to one that is `factor` times as likely, and what stays
    keeps its place. The free places are filled with the others, best first. Candidates without a
    chance are not shown. `shown` has -1 at places whose app is no candidate any more.
    """
    if len(shown) == 0:
        best = np.argsort(-chances, kind="mergesort")[:n]
        return best[chances[best] > 0.0]
    weighted = chances.copy()
    weighted[shown[shown >= 0]] *= factor
    best = np.argsort(-weighted, kind="mergesort")[:n]
    best = best[weighted[best] > 0.0]
    row = np.full(len(best), -1)
    new = np.ones(len(best), np.bool_)
    for place in range(min(len(best), len(shown))):
        stays = new & (best == shown[place])
        if stays.any():
            row[place] = shown[place]
            new &= ~stays
    row[row < 0] = best[new]
    return row


def chances_of_new(n_launches: Whole) -> Floats:
    """P(next = i) of apps that were installed `n_launches` ago and never launched since.

    If the first launch comes within k launches with probability k/(10 + k), an app that was not
    launched within k is the next one with probability 1/(11 + k). So a new app has a fair place at
    first, and leaves it unless it is used. Several share the chance of the latest, by the chance of
    each alone. What they have is taken from all other apps alike.
    """
    alone: Floats = 1.0 / (NEW_APP_LAUNCHES + 1.0 + n_launches)
    if len(alone) == 0:
        return alone
    together: Floats = alone * (alone.max() / alone.sum())
    return together
