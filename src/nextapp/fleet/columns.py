"""`Fleet`: many phones as columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.data.log import LaunchLog

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Shorts = npt.NDArray[np.int16]
Mask = npt.NDArray[np.bool_]

MOST_APPS = np.iinfo(np.int16).max


@dataclass(frozen=True, eq=False)
class Fleet:
    """What the equations need of each phone's history, column by column.

    Phone u of the fleet has number ``first_phone + u`` in the world, which keys its bits whatever
    the shard. Its own apps are ``apps[app_starts[u]:app_starts[u + 1]]``, ascending, with launch
    ``counts``; its distinct transitions are ``transition_starts[u]:transition_starts[u + 1]``, from
    the own app at position ``previous`` to that at ``following``, each seen ``times``.
    """

    n_apps: int
    app_starts: Longs
    apps: Ints
    counts: Ints
    transition_starts: Longs
    previous: Shorts
    following: Shorts
    times: Ints
    first_phone: int = 0

    def __len__(self) -> int:
        return len(self.app_starts) - 1

    @property
    def n_bytes(self) -> int:
        """Of all columns."""
        return sum(
            column.nbytes
            for column in (
                self.app_starts, self.apps, self.counts, self.transition_starts,
                self.previous, self.following, self.times,
            )
        )  # fmt: skip

    @classmethod
    def of_histories(cls, starts: Longs, apps: Ints, n_apps: int, first_phone: int = 0) -> Fleet:
        """Phones from their launches in order: phone u's are ``apps[starts[u]:starts[u + 1]]``."""
        if len(apps) and (apps.min() < 0 or apps.max() >= n_apps):
            raise ValueError(
                f"apps are numbered 0 to {n_apps - 1} here, got {apps.min()} to {apps.max()}."
            )
        n_phones = len(starts) - 1
        n_own, n_transitions = np.zeros(n_phones, np.int64), np.zeros(n_phones, np.int64)
        in_ranges(
            n_phones, lambda lo, hi: _sizes(lo, hi, starts, apps, n_apps, n_own, n_transitions)
        )
        if n_own.max(initial=0) > MOST_APPS:
            raise ValueError(
                f"a phone of a fleet has at most {MOST_APPS:,} different apps, got {n_own.max():,}."
            )
        app_starts = np.concatenate([[0], np.cumsum(n_own)])
        transition_starts = np.concatenate([[0], np.cumsum(n_transitions)])
        own, counts = np.empty(app_starts[-1], np.int32), np.empty(app_starts[-1], np.int32)
        previous = np.empty(transition_starts[-1], np.int16)
        following, times = np.empty_like(previous), np.empty(len(previous), np.int32)
        in_ranges(
            n_phones,
            lambda lo, hi: _fill(
                lo,
                hi,
                starts,
                apps,
                n_apps,
                app_starts,
                own,
                counts,
                transition_starts,
                previous,
                following,
                times,
            ),
        )
        return cls(
            n_apps, app_starts, own, counts, transition_starts, previous, following, times,
            first_phone,
        )  # fmt: skip

    @classmethod
    def of_log(cls, log: LaunchLog) -> Fleet:
        """One phone a user of the log."""
        return cls.of_histories(log.starts.astype(np.int64), log.app, log.n_apps)

    @classmethod
    def without_launches(cls, n_phones: int, n_apps: int, first_phone: int = 0) -> Fleet:
        """Phones that have launched nothing: their gradients are zero."""
        none, short = np.zeros(0, np.int32), np.zeros(0, np.int16)
        starts = np.zeros(n_phones + 1, np.int64)
        return cls(n_apps, starts, none, none, starts, short, short, none, first_phone)

    def shard(self, first: int, last: int) -> Fleet:
        """Phones first to last − 1 of this fleet; they keep their numbers. Columns are views."""
        if not 0 <= first <= last <= len(self):
            raise ValueError(f"a shard lies within 0 to {len(self)}, got {first} to {last}.")
        own = slice(self.app_starts[first], self.app_starts[last])
        moves = slice(self.transition_starts[first], self.transition_starts[last])
        return Fleet(
            self.n_apps,
            self.app_starts[first : last + 1] - self.app_starts[first],
            self.apps[own],
            self.counts[own],
            self.transition_starts[first : last + 1] - self.transition_starts[first],
            self.previous[moves],
            self.following[moves],
            self.times[moves],
            self.first_phone + first,
        )

    @classmethod
    def join(cls, shards: Sequence[Fleet]) -> Fleet:
        """Shards that follow each other, as one fleet."""
        for before, after in pairwise(shards):
            if after.first_phone != before.first_phone + len(before):
                raise ValueError(
                    f"shards must follow each other: phone {before.first_phone + len(before)} "
                    f"must come next, got {after.first_phone}."
                )
            if after.n_apps != before.n_apps:
                raise ValueError(
                    f"shards must share one catalogue, got {before.n_apps} and {after.n_apps} apps."
                )
        return cls(
            shards[0].n_apps,
            _join_starts(shard.app_starts for shard in shards),
            np.concatenate([shard.apps for shard in shards]),
            np.concatenate([shard.counts for shard in shards]),
            _join_starts(shard.transition_starts for shard in shards),
            np.concatenate([shard.previous for shard in shards]),
            np.concatenate([shard.following for shard in shards]),
            np.concatenate([shard.times for shard in shards]),
            shards[0].first_phone,
        )


def _join_starts(starts: Iterable[Longs]) -> Longs:
    sizes = [np.diff(column) for column in starts]
    return np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)


def in_ranges(
    n_phones: int,
    work: Callable[[int, int], object],
    threads: int | None = None,
    size: int = 4096,
) -> list[object]:
    """work(first, last) for ranges of phones, on all cores; the results in the order of the ranges.

    The ranges do not depend on the number of threads, so neither does what is summed over them.
    """
    bounds = [*range(0, n_phones, size), n_phones]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(lambda ends: work(*ends), pairwise(bounds)))


@compiled
def _sizes(
    first: int,
    last: int,
    starts: Longs,
    apps: Ints,
    n_apps: int,
    n_own: Longs,
    n_transitions: Longs,
) -> None:
    place = np.full(n_apps, -1, np.int32)
    for phone in range(first, last):
        history = apps[starts[phone] : starts[phone + 1]]
        k = 0
        for app in history:
            if place[app] < 0:
                place[app] = k
                k += 1
        n_own[phone] = k
        seen = np.zeros(k * k, np.bool_)
        distinct = 0
        for step in range(1, len(history)):
            cell = place[history[step - 1]] * k + place[history[step]]
            distinct += not seen[cell]
            seen[cell] = True
        n_transitions[phone] = distinct
        for app in history:
            place[app] = -1


@compiled
def _fill(
    first: int,
    last: int,
    starts: Longs,
    apps: Ints,
    n_apps: int,
    app_starts: Longs,
    own: Ints,
    counts: Ints,
    transition_starts: Longs,
    previous: Shorts,
    following: Shorts,
    times: Ints,
) -> None:
    launched = np.zeros(n_apps, np.int32)
    place = np.zeros(n_apps, np.int32)
    for phone in range(first, last):
        history = apps[starts[phone] : starts[phone + 1]]
        k = 0
        mine = own[app_starts[phone] : app_starts[phone + 1]]
        for app in history:
            if launched[app] == 0:
                mine[k] = app
                k += 1
            launched[app] += 1
        mine.sort()
        for i in range(k):
            place[mine[i]] = i
            counts[app_starts[phone] + i] = launched[mine[i]]
            launched[mine[i]] = 0
        table = np.zeros(k * k, np.int32)
        for step in range(1, len(history)):
            table[place[history[step - 1]] * k + place[history[step]]] += 1
        entry = transition_starts[phone]
        for cell in range(k * k):
            if table[cell] > 0:
                previous[entry] = cell // k
                following[entry] = cell % k
                times[entry] = table[cell]
                entry += 1
