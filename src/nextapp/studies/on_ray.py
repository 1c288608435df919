"""A simulated fleet on Ray: every worker has some of the shards, on this machine or another.

A worker has no state that cannot be rebuilt: its shards come from recipes, and the driver keeps
each phone's last report. A worker that dies is replaced and repeats the round for its shards, with
the same random bits and so with the same sums.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np

from nextapp.fleet.participation import Attendance
from nextapp.fleet.reporting import Sums
from nextapp.fleet.sharding import Recipe
from nextapp.privacy import Mechanism
from nextapp.studies.simulation import LocalWorld, Settings
from nextapp.wire import Broadcast

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    import ray
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "several workers need Ray: pip install 'nextapp[ray]'", name="ray"
    ) from error

TRIES = 5


class _Worker:
    """A Ray actor, in its own process."""

    def __init__(self, shards: list[Recipe], n_world: int, keep: bool, empty: bool) -> None:
        self.world = LocalWorld(shards, n_world, keep=keep, empty=empty)

    def process(self) -> int:
        """Its process id, for operators and tests."""
        return os.getpid()

    def play(
        self,
        broadcast: bytes,
        clip: float,
        settings: Settings,
        attendance: list[tuple[Any, Any]],
    ) -> tuple[Sums, dict[str, int], list[tuple[Any, Any]]]:
        for mine, (last_round, n_reports) in zip(self.world.attendance(), attendance, strict=True):
            mine.last_round[:], mine.n_reports[:] = last_round, n_reports
        sums, counts = self.world.play(
            Broadcast.from_bytes(broadcast), settings.build_mechanism(clip), settings
        )
        return sums, counts, [(a.last_round, a.n_reports) for a in self.world.attendance()]


class RayWorld:
    """Shards spread over Ray workers. Call `ray.init` first."""

    def __init__(
        self, shards: list[Recipe], n_world: int, *, keep: bool, empty: bool, workers: int
    ) -> None:
        if not 1 <= workers <= len(shards):
            raise ValueError(
                f"workers must be from 1 to the number of shards, {len(shards)}, got {workers}."
            )
        cuts = np.linspace(0, len(shards), workers + 1).astype(int)
        self._groups = [shards[first:last] for first, last in pairwise(cuts)]
        self._attendance = [
            [Attendance.fresh(shard.last - shard.first) for shard in group]
            for group in self._groups
        ]
        self._terms = (n_world, keep, empty)
        self.workers = [self._hire(number) for number in range(workers)]

    def attendance(self) -> list[Attendance]:
        return [attendance for group in self._attendance for attendance in group]

    def play(
        self, broadcast: Broadcast, mechanism: Mechanism, settings: Settings
    ) -> tuple[Sums, dict[str, int]]:
        data = ray.put(broadcast.to_bytes())
        pending = [
            self._ask(number, data, mechanism.clip, settings) for number in range(len(self.workers))
        ]
        results = [
            self._answer(number, reference, data, mechanism.clip, settings)
            for number, reference in enumerate(pending)
        ]
        counts: dict[str, int] = {}
        total: Sums | None = None
        for group, (sums, found, after) in zip(self._attendance, results, strict=True):
            total = sums if total is None else total + sums
            for mine, (last_round, n_reports) in zip(group, after, strict=True):
                mine.last_round[:], mine.n_reports[:] = last_round, n_reports
            for reason, n in found.items():
                counts[reason] = counts.get(reason, 0) + n
        if total is None:
            raise ValueError("a world has at least one worker.")
        return total, counts

    def _hire(self, number: int) -> Any:
        return ray.remote(_Worker).remote(self._groups[number], *self._terms)

    def _ask(self, number: int, data: Any, clip: float, settings: Settings) -> Any:
        attendance = [(a.last_round, a.n_reports) for a in self._attendance[number]]
        return self.workers[number].play.remote(data, clip, settings, attendance)

    def _answer(
        self, number: int, reference: Any, data: Any, clip: float, settings: Settings
    ) -> tuple[Sums, dict[str, int], list[tuple[Any, Any]]]:
        for _ in range(TRIES):
            try:
                answer: tuple[Sums, dict[str, int], list[tuple[Any, Any]]] = ray.get(reference)
            except ray.exceptions.RayActorError:
                self.workers[number] = self._hire(number)
                reference = self._ask(number, data, clip, settings)
            else:
                return answer
        raise RuntimeError(
            f"worker {number} died {TRIES} times in one round. Look at Ray's logs and at the free "
            f"memory of its machine; then run the command again: it goes on from the last round."
        )
