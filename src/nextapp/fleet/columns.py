"""`Fleet`: many phones as columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nextapp.compiled import borrowing, compiled
from nextapp.data import synthetic
from nextapp.data.log import LaunchLog

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Shorts = npt.NDArray[np.int16]
Mask = npt.NDArray[np.bool_]
Result = TypeVar("Result")

MOST_APPS = np.iinfo(np.int16).max


class Columns(NamedTuple):
    """Phones column by column, as compiled loops take them.

    Phone u's own apps are ``apps[app_starts[u]:app_starts[u + 1]]``, ascending, with launch
    ``counts``; its distinct transitions are ``transition_starts[u]:transition_starts[u + 1]``, from
    the own app at position ``previous`` to that at ``following``, each seen ``times``.
    """

    app_starts: Longs
    apps: Ints
    counts: Ints
    transition_starts: Longs
    previous: Shorts
    following: Shorts
    times: Ints


@dataclass(frozen=True, eq=False)
class Fleet:
    """What the equations need of each phone's history.

    Phone u of the fleet has number ``first_phone + u`` in the world, which keys its bits in
    every shard.
    """

    n_apps: int
    columns: Columns
    first_phone: int = 0

    def __len__(self) -> int:
        return len(self.columns.app_starts) - 1

    @classmethod
    def of_histories(cls, starts: Longs, apps: Ints, n_apps: int, first_phone: int = 0) -> Fleet:
        """Phones from their launches in order: phone u's are ``apps[starts[u]:starts[u + 1]]``."""
        if len(apps) and (apps.min() < 0 or apps.max() >= n_apps):
            raise ValueError(
                f"apps are numbered 0 to {n_apps - 1} here, got {apps.min()} to {apps.max()}."
            )
        parts = each_range(
            len(starts) - 1, lambda first, last: _count(first, last, starts, apps, n_apps), 4096
        )
        n_own, n_transitions, own, counts, previous, following, times = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        if n_own.max(initial=0) > MOST_APPS:
            raise ValueError(
                f"a phone of a fleet has at most {MOST_APPS:,} different apps, got {n_own.max():,}."
            )
        columns = Columns(
            _starts(n_own), own, counts, _starts(n_transitions), previous, following, times
        )
        return cls(n_apps, columns, first_phone)

    @classmethod
    def of_synthetic(
        cls, parameters: synthetic.Parameters, seed: int, first: int, last: int
    ) -> Fleet:
        """Synthetic phones first to last − 1; their launches are counted as they are made."""
        shards = synthetic.for_histories(
            parameters,
            seed,
            first,
            last,
            lambda begin, starts, apps: cls.of_histories(starts, apps, parameters.apps, begin),
        )
        return cls.join(shards)

    @classmethod
    def of_log(cls, log: LaunchLog) -> Fleet:
        return cls.of_histories(log.starts.astype(np.int64), log.app, log.n_apps)

    @classmethod
    def without_launches(cls, n_phones: int, n_apps: int) -> Fleet:
        """Phones that have launched nothing: their gradients are zero."""
        none, short = np.zeros(0, np.int32), np.zeros(0, np.int16)
        starts = np.zeros(n_phones + 1, np.int64)
        return cls(n_apps, Columns(starts, none, none, starts, short, short, none))

    def shard(self, first: int, last: int) -> Fleet:
        """Phones first to last − 1 of this fleet; they keep their numbers. Columns are views."""
        c = self.columns
        own = slice(c.app_starts[first], c.app_starts[last])
        moves = slice(c.transition_starts[first], c.transition_starts[last])
        columns = Columns(
            c.app_starts[first : last + 1] - own.start,
            c.apps[own],
            c.counts[own],
            c.transition_starts[first : last + 1] - moves.start,
            c.previous[moves],
            c.following[moves],
            c.times[moves],
        )
        return Fleet(self.n_apps, columns, self.first_phone + first)

    def among(self, apps: Longs) -> Fleet:
        """The same phones with these apps alone, ascending, numbered by their place among them.

        Transitions from or to other apps are gone; nothing is joined across them.
        """
        c = self.columns
        number = np.full(self.n_apps, -1, np.int32)
        number[apps] = np.arange(len(apps))
        own = number[c.apps] >= 0
        before = np.append(0, np.cumsum(own))  # how many of the apps before an entry are kept
        phone = np.repeat(np.arange(len(self)), np.diff(c.transition_starts))
        first = c.app_starts[phone]
        move = own[first + c.previous] & own[first + c.following]
        first, kept = first[move], before[first[move]]
        moves = np.append(0, np.cumsum(move))
        columns = Columns(
            before[c.app_starts],
            number[c.apps[own]],
            c.counts[own],
            moves[c.transition_starts],
            (before[first + c.previous[move]] - kept).astype(np.int16),
            (before[first + c.following[move]] - kept).astype(np.int16),
            c.times[move],
        )
        return Fleet(len(apps), columns, self.first_phone)

    @classmethod
    def join(cls, shards: Sequence[Fleet]) -> Fleet:
        """Shards that follow each other, as one fleet."""

        def column(name: str) -> npt.NDArray[Any]:
            parts = [getattr(shard.columns, name) for shard in shards]
            if name.endswith("_starts"):
                return _starts(np.concatenate([np.diff(part) for part in parts]))
            return np.concatenate(parts)

        columns = Columns(*map(column, Columns._fields))
        return cls(shards[0].n_apps, columns, shards[0].first_phone)


def _starts(sizes: Longs) -> Longs:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def cut(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """first to last in pieces of at most `size`; one piece, empty, if there is nothing."""
    return pairwise([first, *range(first + size, last, size), last])


def each_range(
    n_phones: int, work: Callable[[int, int], Result], size: int, threads: int | None = None
) -> Iterator[Result]:
    """work(first, last) for ranges of phones, on all cores; one result after the other, in order.

    The ranges do not depend on the number of threads, so neither does what is summed over them.
    """
    ranges = list(cut(0, n_phones, size))
    if threads == 1 or len(ranges) == 1:
        yield from (work(first, last) for first, last in ranges)
        return
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        yield from pool.map(lambda ends: work(*ends), ranges)


@compiled
def _count(
    first: int, last: int, starts: Longs, apps: Ints, n_apps: int
) -> tuple[Longs, Longs, Ints, Ints, Shorts, Shorts, Ints]:
    """Sizes and columns of phones first to last − 1."""
    n_own, n_transitions = np.zeros(last - first, np.int64), np.zeros(last - first, np.int64)
    room = starts[last] - starts[first] + 1  # what is written last may be one too many
    own, counts = np.empty(room, np.int32), np.empty(room, np.int32)
    previous, following = np.empty(room, np.int16), np.empty(room, np.int16)
    times = np.empty(room, np.int32)
    launched, place = np.zeros(n_apps, np.int32), np.zeros(n_apps, np.int32)
    table = np.zeros(0, np.int32)
    app, entry = 0, 0
    for phone in range(first, last):
        history = apps[starts[phone] : starts[phone + 1]]
        mine = own[app : app + _list_apps(history, launched, own[app:])]
        mine.sort()
        k = len(mine)
        if k * k > len(table):
            table = np.zeros(2 * k * k, np.int32)
        _number_apps(mine, launched, place, counts[app:])
        _tabulate(history, place, k, table)
        found = _list_transitions(k, table, previous[entry:], following[entry:], times[entry:])
        n_own[phone - first], n_transitions[phone - first] = k, found
        app, entry = app + k, entry + found
    return (
        n_own, n_transitions, own[:app].copy(), counts[:app].copy(), previous[:entry].copy(),
        following[:entry].copy(), times[:entry].copy(),
    )  # fmt: skip


@borrowing
def _list_apps(history: Ints, launched: Ints, own: Ints) -> int:
    """Write the different apps of a history in the order of their first launch; returns how many.

    And count the launches of each.
    """
    k = 0
    for app in history:
        own[k] = app  # stays if it is new
        k += launched[app] == 0
        launched[app] += 1
    return k


@borrowing
def _number_apps(own: Ints, launched: Ints, place: Ints, counts: Ints) -> None:
    """Write where in `own` an app stands, and its launches, which are 0 again."""
    for i in range(len(own)):
        place[own[i]] = i
        counts[i] = launched[own[i]]
        launched[own[i]] = 0


@borrowing
def _tabulate(history: Ints, place: Ints, k: int, table: Ints) -> None:
    for step in range(1, len(history)):
        table[place[history[step - 1]] * k + place[history[step]]] += 1


@borrowing
def _list_transitions(k: int, table: Ints, previous: Shorts, following: Shorts, times: Ints) -> int:
    """Write the transitions that were seen, and clear the table; returns how many."""
    found = 0
    for i in range(k):
        for j in range(k):
            seen = table[i * k + j]
            table[i * k + j] = 0
            previous[found], following[found], times[found] = i, j, seen  # stays if it was seen
            found += seen > 0
    return found
