"""A crowd without privacy: counts over all phones of a log, for each phone without its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.data.log import LaunchLog
from nextapp.wire import Floats

Whole = npt.NDArray[np.int64]

PAIR_WEIGHT = 3.0
"""Pseudo-launches after a pair of apps, shared as after the last app alone; docs/predictor.md."""

LEAST_PAIR = 2
"""A pair of apps with fewer launches after it is not used."""


class Tables(NamedTuple):
    """Shares of k apps after each of them, and after those pairs of them that the crowd knows."""

    share: Floats  # (k, k): row = last app
    pair_of: Whole  # (k²,): row of `pair_share` for the pair before·k + last; -1 for unknown pairs
    pair_share: Floats  # (n_pairs, k)
    support: Floats  # (n_pairs,): launches counted in the row


class OtherPhones(NamedTuple):
    """A crowd without privacy: what comes after one app, and after two.

    ``moves`` are last·n + next, ascending, with their ``share`` of all launches after last;
    ``pairs`` are (before·n + last)·n + next, ascending, with the number of ``launches`` of each.
    """

    popularity: Floats
    moves: Whole
    share: Floats
    pairs: Whole
    launches: Whole

    @property
    def n_apps(self) -> int:
        return len(self.popularity)

    def shares(
        self, apps: Whole, last: int | None, before: int | None = None
    ) -> tuple[Floats, float]:
        """As of `nextapp.predictor.CrowdView`."""
        n = self.n_apps
        if last is None or not 0 <= last < n:
            return np.zeros(len(apps)), 0.0
        known = np.where((apps >= 0) & (apps < n), apps, n)
        share = _row(self.moves, self.share, last, n)[known]
        if before is None or not 0 <= before < n:
            return share, 0.0
        launches = _row(self.pairs, self.launches, before * n + last, n)
        total = float(launches.sum())
        if total < LEAST_PAIR:
            return share, 0.0
        return (launches[known] + PAIR_WEIGHT * share) / (total + PAIR_WEIGHT), total

    def tables(self, apps: Whole, launched: Whole | None = None) -> Tables:
        """`shares` of these apps after each of them, and after all pairs of them, at once.

        With ``launched`` only pairs of those apps are included.
        """
        n, k = self.n_apps, len(apps)
        place = np.full(n, -1)
        place[apps] = np.arange(k)
        last, following = place[self.moves // n], place[self.moves % n]
        there = (last >= 0) & (following >= 0)
        share = np.zeros((k, k))
        share[last[there], following[there]] = self.share[there]

        before, last = place[self.pairs // n // n], place[self.pairs // n % n]
        there = (before >= 0) & (last >= 0)
        if launched is not None:
            asked = np.zeros(n, bool)
            asked[launched] = True
            there &= asked[self.pairs // n // n] & asked[self.pairs // n % n]
        launches, following = self.launches[there], place[self.pairs[there] % n]
        context, row = np.unique(before[there] * k + last[there], return_inverse=True)
        support = np.bincount(row, launches, minlength=len(context)).astype(np.float64)
        counts = np.zeros((len(context), k))
        here = following >= 0
        counts[row[here], following[here]] = launches[here]
        enough = support >= LEAST_PAIR
        context, support, counts = context[enough], support[enough], counts[enough]
        pair_of = np.full(k * k, -1)
        pair_of[context] = np.arange(len(context))
        pair_share = counts + PAIR_WEIGHT * share[context % max(k, 1)]
        return Tables(share, pair_of, pair_share / (support + PAIR_WEIGHT)[:, None], support)


class Pooled:
    """The counts of all phones of a log; `others` is the crowd for one of them.

    The counterpart of what `nextapp.learners.CrowdLearner` learns from private reports: each
    phone counts the same, by the share of its transitions that are j→i and of its launches that are
    of i. What comes after two apps is counted by launches; without ``pairs`` it is left out, as of
    private crowds.
    """

    def __init__(self, history: LaunchLog, *, pairs: bool = True) -> None:
        self.n_apps = history.n_apps
        self.with_pairs = pairs
        self._app = history.app.astype(np.int64)
        self._starts = history.starts
        user = history.user.astype(np.int64)
        n_each = np.bincount(user, minlength=history.n_users)
        self._n_phones = int(np.count_nonzero(n_each))
        self._launched: Floats = np.zeros(self.n_apps)
        np.add.at(self._launched, self._app, 1.0 / n_each[user])
        one = user[1:] == user[:-1]
        self._moves, where = np.unique(
            _contexts(self._app, 2, self.n_apps)[one], return_inverse=True
        )
        weight = 1.0 / (n_each[user[1:][one]] - 1)
        self._weights = np.bincount(where, weight, minlength=len(self._moves)).astype(np.float64)
        two = user[2:] == user[:-2]
        self._pairs, self._launches = np.unique(
            _contexts(self._app, 3, self.n_apps)[two], return_counts=True
        )

    def others(self, user: int) -> OtherPhones:
        """The crowd of all phones but this one; -1: of all phones."""
        own = self._app[slice(*self._starts[user : user + 2])] if user >= 0 else self._app[:0]
        launched, n_phones = self._launched.copy(), self._n_phones
        weights, launches = self._weights.copy(), self._launches.copy()
        if len(own):
            n_phones -= 1
            launched = launched - np.bincount(own, minlength=self.n_apps) / len(own)
            moves, n_each = np.unique(_contexts(own, 2, self.n_apps), return_counts=True)
            weights[np.searchsorted(self._moves, moves)] -= n_each / max(len(own) - 1, 1)
            pairs, n_each = np.unique(_contexts(own, 3, self.n_apps), return_counts=True)
            launches[np.searchsorted(self._pairs, pairs)] -= n_each
        kept = weights > _LEAST  # what is left of this phone's own is rounding
        moves, weights = self._moves[kept], weights[kept]
        row = moves // self.n_apps
        known = (launches > 0) & self.with_pairs
        popularity = np.maximum(launched, 0.0) if n_phones else np.ones(self.n_apps)
        return OtherPhones(
            popularity / popularity.sum(),
            moves,
            weights / np.bincount(row, weights, minlength=self.n_apps)[row],
            self._pairs[known],
            launches[known],
        )


_LEAST = 1e-12


def _row(
    cells: Whole, values: npt.NDArray[np.floating] | Whole, context: int, n_apps: int
) -> Floats:
    """The values of one context by app, then a 0, for apps that are not in the catalogue."""
    first = context * n_apps
    row = slice(*np.searchsorted(cells, [first, first + n_apps]).tolist())
    dense = np.zeros(n_apps + 1)
    dense[cells[row] - first] = values[row]
    return dense


def _contexts(app: Whole, length: int, n_apps: int) -> Whole:
    """A number for each sequence of `length` launches."""
    n = max(len(app) - length + 1, 0)
    number = np.zeros(n, np.int64)
    for step in range(length):
        number = number * n_apps + app[step : step + n]
    return number
