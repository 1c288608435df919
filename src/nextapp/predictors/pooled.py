"""What all phones of a log know together, without any privacy; each phone is told by the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nextapp.data.log import LaunchLog
from nextapp.wire import Crowd, Floats

Whole = npt.NDArray[np.int64]

PAIR_WEIGHT = 3.0  # launches that what comes after the last app weighs, after two; docs/predictor.md
LEAST_PAIR = 2  # launches after two apps that are needed to tell of them


@dataclass(frozen=True)
class PairCrowd(Crowd):
    """A crowd that also knows what comes after two apps.

    ``pairs`` are (before·n + last)·n + next, ascending, ``launches`` how many there were.
    """

    pairs: Whole
    launches: Whole

    def shares(self, apps: Whole, last: int | None, before: int | None) -> tuple[Floats, float]:
        share, _ = super().shares(apps, last, before)
        n = self.n_apps
        if last is None or before is None or not (0 <= last < n and 0 <= before < n):
            return share, 0.0
        first = (before * n + last) * n
        row = slice(*np.searchsorted(self.pairs, [first, first + n]))
        total = float(self.launches[row].sum())
        if total < LEAST_PAIR:
            return share, 0.0
        dense = np.zeros(n + 1)
        dense[self.pairs[row] - first] = self.launches[row]
        known = np.where((apps >= 0) & (apps < n), apps, n)
        return (dense[known] + PAIR_WEIGHT * share) / (total + PAIR_WEIGHT), total

    def pairs_of(self, apps: Whole) -> Iterator[tuple[int, int]]:
        """Places in `apps` of the two apps, before and last, for all that can be told of."""
        context = self.pairs // self.n_apps
        place = np.full(self.n_apps, -1)
        place[apps] = np.arange(len(apps))
        before, last = place[context // self.n_apps], place[context % self.n_apps]
        there = (before >= 0) & (last >= 0)
        found, where = np.unique(before[there] * len(apps) + last[there], return_inverse=True)
        total = np.bincount(where, self.launches[there], minlength=len(found))
        for pair in found[total >= LEAST_PAIR].tolist():
            yield divmod(pair, len(apps))


class Pooled:
    """The counts of all phones of a log; `others` is what one of them is told.

    The counterpart of what `nextapp.crowd.CrowdServer` learns from private reports: each phone
    counts the same, by the share of its transitions that are j→i and of its launches that are of i.
    What comes after two apps is counted by launches; without ``pairs`` it is left out.
    """

    def __init__(self, history: LaunchLog, *, pairs: bool = True) -> None:
        self.n_apps = history.n_apps
        self.with_pairs = pairs
        self._app = history.app.astype(np.int64)
        self._starts = history.starts
        user = history.user.astype(np.int64)
        n_each = np.bincount(user, minlength=history.n_users)
        self._n_phones = int(np.count_nonzero(n_each))
        self._launched = np.bincount(self._app, 1.0 / n_each[user], minlength=self.n_apps)
        one = user[1:] == user[:-1]
        self._moves, where = np.unique(_contexts(self._app, 2, self.n_apps)[one], return_inverse=True)
        weight = 1.0 / (n_each[user[1:][one]] - 1)
        self._weights = np.bincount(where, weight, minlength=len(self._moves)).astype(np.float64)
        two = user[2:] == user[:-2]
        self._pairs, self._launches = np.unique(
            _contexts(self._app, 3, self.n_apps)[two], return_counts=True
        )

    def others(self, user: int) -> PairCrowd:
        """What all phones but this one know; -1 leaves out none."""
        own = self._app[slice(*self._starts[user : user + 2])] if user >= 0 else self._app[:0]
        launched, n_phones = self._launched.copy(), self._n_phones
        weights, launches = self._weights.copy(), self._launches.copy()
        if len(own):
            n_phones -= 1
            launched -= np.bincount(own, minlength=self.n_apps) / len(own)
            moves, n_each = np.unique(_contexts(own, 2, self.n_apps), return_counts=True)
            weights[np.searchsorted(self._moves, moves)] -= n_each / max(len(own) - 1, 1)
            pairs, n_each = np.unique(_contexts(own, 3, self.n_apps), return_counts=True)
            launches[np.searchsorted(self._pairs, pairs)] -= n_each
        told = weights > _LEAST  # what is left of this phone's own is rounding
        moves, weights = self._moves[told], weights[told]
        row = moves // self.n_apps
        known = (launches > 0) & self.with_pairs
        popularity = np.maximum(launched, 0.0) if n_phones else np.ones(self.n_apps)
        return PairCrowd(
            popularity / popularity.sum(),
            np.searchsorted(row, np.arange(self.n_apps + 1)).astype(np.int64),
            moves % self.n_apps,
            weights / np.bincount(row, weights, minlength=self.n_apps)[row],
            self._pairs[known],
            launches[known],
        )


_LEAST = 1e-12


def pooled(history: LaunchLog) -> Pooled:
    """What all phones of a log know together."""
    return Pooled(history)


def pooled_without_pairs(history: LaunchLog) -> Pooled:
    """`pooled`, of the last app alone: what private crowds can tell."""
    return Pooled(history, pairs=False)


def _contexts(app: Whole, length: int, n_apps: int) -> Whole:
    """A number for every `length` launches in a row."""
    n = max(len(app) - length + 1, 0)
    number = np.zeros(n, np.int64)
    for step in range(length):
        number = number * n_apps + app[step : step + n]
    return number
