"""A fleet whose columns lie on a card, and the order in which its phones are processed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.fleet.columns import Columns, Fleet, Ints, Shorts, each_range
from nextapp.fleet.gpu.card import Card

CAPACITIES = (12, 16, 20, 24, 32, 48, 64)
"""Own apps that a workspace in shared memory has room for."""


@dataclass(frozen=True)
class FleetPart:
    """Phones ``first`` to ``last`` − 1 of the order: those with at most `capacity` own apps."""

    capacity: int
    first: int
    last: int


class ResidentFleet:
    """The columns of a `Fleet` on a card; they are copied there once.

    ``order`` (n_phones,) are the phones as they are processed, by their number of own apps, and
    ``parts`` its parts: the phones that a warp shares walk in step, so they should have the same
    way to go.
    """

    def __init__(self, fleet: Fleet, card: Card) -> None:
        xp = card.xp
        self.card = card
        self.n_phones = len(fleet)
        self.n_apps = fleet.n_apps
        self.first_phone = fleet.first_phone
        self.columns = _place(fleet.columns, card)
        self.n_own = xp.diff(self.columns[0])
        most = int(self.n_own.max()) if self.n_phones else 0
        room = next((each for each in CAPACITIES if each >= most), 16 * (-(-most // 16)))
        capacities = (*(each for each in CAPACITIES if each < most), room)
        self.order = xp.argsort(self.n_own, kind="stable").astype(np.int32)
        bounds = xp.asarray(np.array(capacities))
        ends = xp.searchsorted(self.n_own[self.order], bounds, side="right")
        cuts = [0, *card.download(ends).tolist()]
        self.parts = [
            FleetPart(capacity, first, last)
            for capacity, (first, last) in zip(capacities, pairwise(cuts), strict=True)
            if last > first
        ]
        self._rooms: dict[tuple[int, str], Any] = {}

    def __len__(self) -> int:
        return self.n_phones

    def user_vectors(self, d: int, dtype: Any) -> Any:
        """Room for (n_phones, d) user vectors, the same each time."""
        key = (d, np.dtype(dtype).name)
        if key not in self._rooms:
            self._rooms.clear()
            self._rooms[key] = self.card.xp.zeros((self.n_phones, d), dtype)
        return self._rooms[key]


def _place(c: Columns, card: Card) -> tuple[Any, ...]:
    """app_starts, apps, counts, transition_starts, then the transitions as the kernels take them:
    as words, or where a word has no room for them, as three columns."""

    def copied(column: npt.NDArray[Any]) -> Any:
        def fill(first: int, last: int, part: npt.NDArray[Any]) -> None:
            part[:] = column[first:last]

        return card.upload(len(column), column.dtype, fill)

    def fill_words(first: int, last: int, part: npt.NDArray[Any]) -> None:
        def work(start: int, stop: int) -> None:
            _write_words(start, stop, first, c.previous, c.following, c.times, part)

        list(each_range(last - first, work, size=1 << 20))

    always = [copied(each) for each in (c.app_starts, c.apps, c.counts, c.transition_starts)]
    most = max(int(each.max(initial=0)) for each in (c.previous, c.following))
    if most < 1 << 8 and c.times.max(initial=0) < 1 << 16:
        words = card.upload(len(c.times), np.uint32, fill_words)
        return (*always, words, None, None, None)
    return (*always, None, *(copied(each) for each in (c.previous, c.following, c.times)))


@compiled
def _write_words(
    start: int,
    stop: int,
    first: int,
    previous: Shorts,
    following: Shorts,
    times: Ints,
    words: npt.NDArray[np.uint32],
) -> None:
    """A transition in a word: the previous app in 8 bits, the following in 8, the times in 16."""
    for e in range(start, stop):
        at = first + e
        words[e] = (
            np.uint32(previous[at]) | np.uint32(following[at]) << 8 | np.uint32(times[at]) << 16
        )
