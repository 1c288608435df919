"""The crowd: from the transitions of many phones, under noise, to a start for new phones.

π (n_apps, n_apps + 1)   mean of the phones' answers, laid out as in `nextapp.shares`
σ                        standard error of one estimated entry of π

The estimate of π is unbiased and most of it is noise. `shrink` gives each entry its expected value
under a law of the true entries that is itself fitted to all of them (empirical Bayes). How popular
an app is shows in all the entries of its row and its column, so that is estimated first, and single
transitions are compared with it. `crowd_from` makes the crowd of the expected values.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nextapp.privacy import Mechanism
from nextapp.shares import POPULARITY, REPEATS, check_popularity
from nextapp.wire import (
    Crowd,
    Floats,
)

Longs = npt.NDArray[np.int64]

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


def entry_variance(mechanism: Mechanism) -> float:
    """The variance of one entry of the estimate from one report, for an entry near 0."""
    return mechanism.clip**2 * mechanism.variance / mechanism.D


def crowd_from_reports(
    mechanism: Mechanism,
    estimate: Floats,
    n_reports: float,
) -> Crowd:
    """The crowd from a mechanism's estimate of π, the mean of the transition vectors."""
    error = math.sqrt(entry_variance(mechanism) / n_reports)
    return crowd_from(estimate, error, 0.0, REPEATS)


def crowd_from(
    estimate: Floats,
    error: float,
    popularity: float = POPULARITY,
    repeats: float = 1.0,
) -> Crowd:
    """P(app) and P(next | last) from an estimate of π whose entries have the standard error σ.

        share(i | j) = max(0, P(i | j) − (1 − ρ(j)^¼) U(i | j)),   i ≠ j
        share(j | j) = √ρ(j) P(j | j)
        ρ(j) = Σ_{i≠j} |P(i | j) − U(i | j)| / Σ_{i≠j} (|P(i | j) − U(i | j)| + s(i | j))

    A row is then multiplied by `EMPHASIS`, or by less if its sum would exceed 1.

    P(i | j) is what `expected_transitions` makes of the reports, s its standard deviation, and
    U(i | j) what would be expected by the popularity of i alone. So ρ is how surely the reports set
    a row apart from popularity. Two things are reduced and left to the phone: popularity, a little,
    and repeats, since a phone whose crowd knows little else expects the same app too often. Only
    the `MOST_FOLLOWERS` likeliest followers of an app are published. The reductions were chosen on
    people and synthetic phones (docs/decisions/0013-the-whole-vector.md).

    P(app) is first that of `expected_popularity`, then that of the transitions found with it, with
    which they are found again. With σ = 0 nothing is reduced. `popularity` is the part of π that is
    of launches; a repeat counts `repeats` times as much as another transition.
    """
    check_popularity(popularity)
    if error == 0:
        return _largest_shares(*_exact(estimate, popularity, repeats))
    n_apps = len(estimate)
    spoken = estimate[:, :-1] if popularity == 0 else estimate
    total = max(float(spoken.sum()), 2.0 * error * math.sqrt(spoken.size))
    estimate, error = estimate / total, error / total
    likes = expected_popularity(estimate, error, popularity)
    if popularity == 1 or n_apps == 1:
        return _largest_shares(likes, np.zeros((n_apps, n_apps)))
    moves = 1.0 - popularity
    found, _ = expected_transitions(estimate[:, :-1], error, likes, moves)
    likes = np.maximum(found.sum(axis=0) + found.sum(axis=1), _LEAST)
    likes /= likes.sum()
    found, spread = expected_transitions(estimate[:, :-1], error, likes, moves)
    same = np.eye(n_apps, dtype=bool)
    others = np.where(same, 0.0, found)
    usual = np.where(same, 0.0, likes)
    usual *= (others.sum(axis=1) / usual.sum(axis=1))[:, None]
    apart = np.abs(others - usual).sum(axis=1)
    sure = apart / (apart + np.where(same, 0.0, spread).sum(axis=1))
    again = found[same] / repeats
    share = np.maximum(others - (1.0 - sure**0.25)[:, None] * usual, 0.0)
    share[same] = np.sqrt(sure) * again
    share /= (others.sum(axis=1) + again)[:, None]
    largest = np.maximum(1.0, EMPHASIS * share.sum(axis=1))
    return _largest_shares(likes, EMPHASIS * share / largest[:, None])


def _exact(estimate: Floats, popularity: float, repeats: float) -> tuple[Floats, Floats]:
    known = np.maximum(estimate, 0.0)
    np.fill_diagonal(known, np.diagonal(known) / repeats)
    likes = known[:, :-1].sum(axis=0) if popularity == 0 else known[:, -1]
    n_apps, total = len(likes), float(likes.sum())
    likes = likes / total if total > 0 else np.full(n_apps, 1.0 / n_apps)
    rows = np.maximum(known[:, :-1].sum(axis=1), _LEAST)
    return likes, known[:, :-1] / rows[:, None]


def _largest_shares(likes: Floats, share: Floats) -> Crowd:
    """A crowd of the largest shares of each row. Every app keeps a little of P(app), since a phone
    may have any."""
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


def expected_popularity(estimate: Floats, error: float, popularity: float = POPULARITY) -> Floats:
    """(n_apps,): P(app), from the column of launches and from the sums of rows and columns.

    Rows and columns differ by a phone's first and last launch only, so all three speak of the same;
    they are weighed by their precision, then shrunk (`shrink`) towards even shares. Σπ is 1.
    """
    n_apps, transitions = len(estimate), 1.0 - popularity
    moves = (estimate[:, :-1].sum(axis=0) + estimate[:, :-1].sum(axis=1)) / 2
    spread = (n_apps + 1) / 2  # the variance of `moves`, in that of an entry
    precision = transitions**2 / spread + popularity**2
    seen = (transitions * moves / spread + popularity * estimate[:, -1]) / precision
    multiples = [_AS_EXPECTED, 0.0, *np.geomspace(0.03, 0.8, 15), *np.geomspace(1.2, n_apps, 25)]
    mean = 1.0 / n_apps
    levels = np.tile(mean * np.array(multiples), (n_apps, 1))
    found, _ = shrink(seen, error / math.sqrt(precision), levels, mean=mean)
    found = np.maximum(found, _LEAST)
    return np.asarray(found / found.sum())


def expected_transitions(
    estimate: Floats, error: float, likes: Floats, total: float
) -> tuple[Floats, Floats]:
    """(n_apps, n_apps) each: E[π(j, i)] and its standard deviation, given P(app) and Σπ = `total`.

    A repeat (j, j) is a part of its row; another transition is a part of its row, or a multiple of
    what the popularity of its two apps gives it. Either can also be of any size that noise reaches
    in fewer than one of a hundred crowds: σ √(2 log(100 n)) and more, for n entries.
    """
    n_apps = len(estimate)
    steps = np.rint(np.log(likes) / math.log(_STEP)).astype(np.int64)
    step, kind = np.unique(steps, return_inverse=True)
    level = _STEP**step / (_STEP**steps).sum()  # P(app), by kind
    row = total * level
    least = error * math.sqrt(2.0 * math.log(estimate.size / _RARELY))
    largest = float(estimate.max())
    sizes = np.geomspace(least, largest, _N_SIZES) if largest > least else np.zeros(0)
    repeats, others = np.eye(n_apps, dtype=bool), ~np.eye(n_apps, dtype=bool)
    found, spread = np.empty((n_apps, n_apps)), np.empty((n_apps, n_apps))

    levels = _side_by_side(row[kind][:, None] * np.append(0.0, _PARTS), sizes)
    found[repeats], spread[repeats] = shrink(np.diagonal(estimate), error, levels)

    bins = np.rint(estimate[others] / (_BIN * error)).astype(np.int64)
    lowest, n_bins = bins.min(), np.ptp(bins) + 1
    pairs = (kind[:, None] * len(level) + kind)[others]
    alike, place, count = np.unique(
        pairs * n_bins + (bins - lowest), return_inverse=True, return_counts=True
    )
    last, following = np.divmod(alike // n_bins, len(level))
    mean = max(total - float(found[repeats].sum()), 0.01 * total) / len(place)
    expected = row[last] * level[following]
    expected *= mean * len(place) / (count @ expected)
    levels = _side_by_side(expected[:, None] * _MULTIPLES, row[last][:, None] * _PARTS, sizes)
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
