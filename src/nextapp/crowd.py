"""The crowd: from each phone's transitions, sent under noise, to what a new phone can start from.

v (n_apps, n_apps + 1)   a phone's transitions: (j, i) is of apps i launched right after j
π (n_apps, n_apps + 1)   mean of the phones' v
σ                        standard error of one estimated entry of π

The last column of v and π is 0: reports have this shape on the wire.

The estimate of π is unbiased and most of it is noise. `shrink` gives each entry its expected value
under a distribution of the true entries that is itself fitted to all of them (empirical Bayes). How
popular an app is shows in all the entries of its row and its column, so popularity is estimated
first, and single transitions are compared with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nextapp.wire import Crowd, Floats

Longs = npt.NDArray[np.int64]

REPEATS = 0.3
"""Weight of a repeat in a `transition_vector`; any other transition has weight 1.

A phone's repeats are few large cells and would dominate its length. A round number: .2 and .35 are
as good (docs/decisions/0013-the-whole-vector.md)."""

MOST_FOLLOWERS = 64
"""Largest number of followers of an app in a `Crowd`: the most likely ones."""

LEAST_SHARE = 1e-3
"""Followers with a smaller share of their row are dropped."""

EMPHASIS = 1.5
"""Factor on the shares of a row, as long as they sum to 1 or less.

A phone trusts a new crowd little, and weighs a row by the sum of its shares. Chosen on logs of
people and on synthetic phones; 1.25 and 2 do nearly as well
(docs/decisions/0013-the-whole-vector.md)."""

LEAN = 3.0
"""Pseudo-counts of the null component (level 1, as popularity predicts) in `shrink`.

A round number: 1 and 10 change what new phones gain in HR@1, 3 and 5 by at most .002 (20,000
synthetic phones, 100 apps, ε 1 and 4.5)."""

_ITERATIONS = 60
_BREADTH = 0.11  # of a level of a law, by its size: half the way to the next
_AS_EXPECTED = 1.0  # the first of the multiples, see `LEAN`
_MULTIPLES = np.array([_AS_EXPECTED, 0.0, *np.geomspace(0.1, 0.83, 12), *np.geomspace(1.2, 10, 12)])
_PARTS = np.geomspace(0.005, 1.0, 25)
_N_SIZES, _RARELY = 15, 0.01
_BIN, _STEP = 0.2, 1.3  # transitions this much alike count as one: standard errors, popularity
_LEAST = 1e-12


# --- what one phone reports ---------------------------------------------------------------------


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
        first = np.searchsorted(self.cells, cells)
        there = np.searchsorted(self.cells, cells, "right") > first
        found = np.zeros(len(cells))
        found[there] = self.share[first[there]]
        return found


def no_shares(shape: tuple[int, int]) -> Shares:
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


# --- what a server makes of many reports --------------------------------------------------------


def crowd_from(estimate: Floats, error: float) -> Crowd:
    """P(app) and P(next | last) from an estimate of π whose entries have the standard error σ.

        share(i | j) = max(0, P(i | j) − (1 − ρ(j)^¼) U(i | j)),   i ≠ j
        share(j | j) = √ρ(j) P(j | j)
        ρ(j) = Σ_{i≠j} |P(i | j) − U(i | j)| / Σ_{i≠j} (|P(i | j) − U(i | j)| + s(i | j))

    Every row is then multiplied by `EMPHASIS`, and scaled down to a sum of 1 if it exceeds 1.

    P(i | j) is the expectation of `expected_transitions`, s its standard deviation, and U(i | j)
    the expectation from the popularity of i alone. So ρ says how surely a row differs from
    popularity. The probability that is held back is left to the phone: a little of popularity, and
    repeats, since a phone with a crowd of little else would expect the same app too often. Of every
    app only the `MOST_FOLLOWERS` likeliest followers are published. How much is held back was
    chosen on people and synthetic phones (docs/decisions/0013-the-whole-vector.md).

    P(app) is first that of `expected_popularity`, then that of the transitions found with it, with
    which they are estimated again. Repeats have the weight `REPEATS` in π.
    """
    n_apps = len(estimate)
    moves = estimate[:, :-1]
    total = max(float(moves.sum()), 2.0 * error * math.sqrt(moves.size))
    moves, error = moves / total, error / total
    likes = expected_popularity(moves, error)
    if n_apps == 1:
        return _largest_shares(likes, np.zeros((1, 1)))
    found, _ = expected_transitions(moves, error, likes)
    likes = np.maximum(found.sum(axis=0) + found.sum(axis=1), _LEAST)
    likes /= likes.sum()
    found, spread = expected_transitions(moves, error, likes)
    same = np.eye(n_apps, dtype=bool)
    others = np.where(same, 0.0, found)
    usual = np.where(same, 0.0, likes)
    usual *= (others.sum(axis=1) / usual.sum(axis=1))[:, None]
    apart = np.abs(others - usual).sum(axis=1)
    sure = apart / (apart + np.where(same, 0.0, spread).sum(axis=1))
    again = found[same] / REPEATS
    share = np.maximum(others - (1.0 - sure**0.25)[:, None] * usual, 0.0)
    share[same] = np.sqrt(sure) * again
    share /= (others.sum(axis=1) + again)[:, None]
    share *= EMPHASIS
    return _largest_shares(likes, share / np.maximum(1.0, share.sum(axis=1))[:, None])


def crowd_without_noise(shares: Floats) -> Crowd:
    """P(app) and P(next | last) of phones whose mean shares are known exactly.

    shares (n_apps, n_apps + 1): of transitions, and in the last column of launches, as
    `nextapp.fleet.walsh.mean_shares` has them.
    """
    moves, launches = shares[:, :-1], shares[:, -1]
    total = float(launches.sum())
    likes = launches / total if total > 0 else np.full(len(launches), 1.0 / len(launches))
    return _largest_shares(likes, moves / np.maximum(moves.sum(axis=1), _LEAST)[:, None])


def _largest_shares(likes: Floats, share: Floats) -> Crowd:
    """The crowd with the largest shares of each row.

    Every app keeps a little of P(app), since a phone may have any app.
    """
    starts, following, kept = [0], [np.zeros(0, np.int64)], [np.zeros(0)]
    for row in share:
        best = np.argsort(-row, kind="stable")[:MOST_FOLLOWERS]
        best = np.sort(best[row[best] >= LEAST_SHARE])
        following.append(best)
        kept.append(row[best])
        starts.append(starts[-1] + len(best))
    likes = 0.99 * likes + 0.01 / len(likes)
    return Crowd(
        likes / likes.sum(),
        np.array(starts, np.int64),
        np.concatenate(following).astype(np.int64),
        np.concatenate(kept),
    )


def expected_popularity(moves: Floats, error: float) -> Floats:
    """(n_apps,): P(app), from the sums of rows and columns of estimated transitions; Σπ is 1.

    Rows and columns differ by a phone's first and last launch only, so both estimate the same.
    Their mean is shrunk (`shrink`) towards equal shares.
    """
    n_apps = len(moves)
    seen = (moves.sum(axis=0) + moves.sum(axis=1)) / 2
    multiples = [_AS_EXPECTED, 0.0, *np.geomspace(0.03, 0.8, 15), *np.geomspace(1.2, n_apps, 25)]
    mean = 1.0 / n_apps
    levels = np.tile(mean * np.array(multiples), (n_apps, 1))
    found, _ = shrink(seen, error * math.sqrt((n_apps + 1) / 2), levels, mean=mean)
    found = np.maximum(found, _LEAST)
    return np.asarray(found / found.sum())


def expected_transitions(estimate: Floats, error: float, likes: Floats) -> tuple[Floats, Floats]:
    """(n_apps, n_apps) each: E[π(j, i)] and its standard deviation, given P(app); Σπ is 1.

    A repeat (j, j) is a part of its row; another transition is a part of its row, or a multiple of
    what the popularity of its two apps gives it. Either can also be of any size that noise reaches
    in fewer than one of a hundred crowds: σ √(2 log(100 n)) and more, for n entries.
    """
    n_apps = len(estimate)
    steps = np.rint(np.log(likes) / math.log(_STEP)).astype(np.int64)
    step, kind = np.unique(steps, return_inverse=True)
    level = _STEP**step / (_STEP**steps).sum()  # P(app), by kind
    least = error * math.sqrt(2.0 * math.log(estimate.size / _RARELY))
    largest = float(estimate.max())
    sizes = np.geomspace(least, largest, _N_SIZES) if largest > least else np.zeros(0)
    repeats, others = np.eye(n_apps, dtype=bool), ~np.eye(n_apps, dtype=bool)
    found, spread = np.empty((n_apps, n_apps)), np.empty((n_apps, n_apps))

    levels = _side_by_side(level[kind][:, None] * np.append(0.0, _PARTS), sizes)
    found[repeats], spread[repeats] = shrink(np.diagonal(estimate), error, levels)

    bins = np.rint(estimate[others] / (_BIN * error)).astype(np.int64)
    lowest, n_bins = bins.min(), np.ptp(bins) + 1
    pairs = (kind[:, None] * len(level) + kind)[others]
    alike, place, count = np.unique(
        pairs * n_bins + (bins - lowest), return_inverse=True, return_counts=True
    )
    last, following = np.divmod(alike // n_bins, len(level))
    mean = max(1.0 - float(found[repeats].sum()), 0.01) / len(place)
    expected = level[last] * level[following]
    expected *= mean * len(place) / (count @ expected)
    levels = _side_by_side(expected[:, None] * _MULTIPLES, level[last][:, None] * _PARTS, sizes)
    seen = (alike % n_bins + lowest) * (_BIN * error)
    each = shrink(seen, error, levels, count.astype(float), mean)
    found[others], spread[others] = each[0][place], each[1][place]
    return found, spread


def _side_by_side(*levels: Floats) -> Floats:
    """Columns of levels; those given as one row hold for all entries."""
    n = len(levels[0])
    return np.concatenate([np.broadcast_to(each, (n, each.shape[-1])) for each in levels], axis=1)


def shrink(
    seen: Floats,
    error: float,
    levels: Floats,
    count: Floats | None = None,
    mean: float | None = None,
) -> tuple[Floats, Floats]:
    """E[θ | x] and the standard deviation of θ, for entries x = θ + N(0, error²), `count` of each.

    The prior of θ is a mixture of normal components, one for each column of `levels` (n_entries,
    n_levels): the mean of a component is the entry's level, its standard deviation `_BREADTH` times
    that. The weights of the columns are those of maximum likelihood over all x (Robbins 1956,
    Kiefer and Wolfowitz 1956), by the EM algorithm. If `mean` is given, θ has this mean over all
    entries, and the first column, the null component, has `LEAN` pseudo-counts.
    """
    weight = np.ones(len(seen)) if count is None else count
    own = (_BREADTH * levels) ** 2
    variance = error**2 + own
    away = seen[:, None] - levels
    likelihood = -0.5 * (away**2 / variance + np.log(variance))
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    law = np.full(levels.shape[1], 1.0 / levels.shape[1])
    size = weight @ levels / weight.sum()
    for _ in range(_ITERATIONS):
        law = (weight / (likelihood @ law)) @ likelihood * law
        if mean is not None:
            law[0] += LEAN
            law = _with_mean(law / law.sum(), size / mean)
        law /= law.sum()
    posterior = likelihood * law
    posterior /= posterior.sum(axis=1, keepdims=True)
    at = levels + own / variance * away  # E[θ | x, level]
    expected = (posterior * at).sum(axis=1)
    square = (posterior * ((at - expected[:, None]) ** 2 + own / variance * error**2)).sum(axis=1)
    return expected, np.sqrt(square)


def _with_mean(law: Floats, size: Floats) -> Floats:
    """The law p that maximises Σ law log p among those with Σ p size = 1.

    p = law/(1 + t(size − 1)),   t such that the mean is 1
    """
    beyond = size - 1.0
    low, high = -1.0 / beyond.max(), -1.0 / beyond.min()
    for _ in range(40):
        t = (low + high) / 2
        if law @ (beyond / (1.0 + t * beyond)) > 0:
            low = t
        else:
            high = t
    found: Floats = law / (1.0 + t * beyond)
    return found
