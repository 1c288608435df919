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

from nextapp.fleet.columns import Recipe
from nextapp.fleet.participation import Attendance
from nextapp.fleet.reporting import Sums
from nextapp.privacy import Mechanism
from nextapp.studies.simulation import LocalWorld, Settings, join_parts
from nextapp.wire import Broadcast

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    import ray
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "several workers need Ray: pip install 'nextapp[ray]'", name="ray"
    ) from error

TRIES = 5

Columns = list[tuple[Any, Any]]  # of each shard: last round and number of reports of every phone
Answer = tuple[Sums, dict[str, int], Columns]


class _Worker:
    """A Ray actor, in its own process."""

    def __init__(self, settings: Settings, shards: list[Recipe]) -> None:
        self.world = LocalWorld(settings, shards)

    def process(self) -> int:
        """Its process id, for operators and tests."""
        return os.getpid()

    def sum_reports(self, broadcast: bytes, clip: float, attendance: Columns) -> Answer:
        for mine, (last_round, n_reports) in zip(self.world.attendance(), attendance, strict=True):
            mine.last_round[:], mine.n_reports[:] = last_round, n_reports
        mechanism = self.world.settings.build_mechanism(clip)
        sums, counts = self.world.sum_reports(Broadcast.from_bytes(broadcast), mechanism)
        return sums, counts, [(a.last_round, a.n_reports) for a in self.world.attendance()]


class RayWorld:
    """Shards spread over Ray workers, a processor each. Call `ray.init` first."""

    def __init__(self, settings: Settings, workers: int) -> None:
        shards = settings.recipes()
        if not 1 <= workers <= len(shards):
            raise ValueError(
                f"workers must be from 1 to the number of shards, {len(shards)}, got {workers}."
            )
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        processors = int(found.get("CPU", 0))
        if workers > processors:
            raise ValueError(
                f"Ray has {processors} processors and a worker needs one, got {workers} workers: "
                f"ask for fewer, or add machines by ray start --address."
            )
        cuts = np.linspace(0, len(shards), workers + 1).astype(int)
        self.settings = settings
        self._groups = [shards[first:last] for first, last in pairwise(cuts)]
        self._attendance = [
            [Attendance.fresh(shard.last - shard.first) for shard in group]
            for group in self._groups
        ]
        self.workers = [self._hire(number) for number in range(workers)]

    def attendance(self) -> list[Attendance]:
        return [attendance for group in self._attendance for attendance in group]

    def sum_reports(
        self, broadcast: Broadcast, mechanism: Mechanism
    ) -> tuple[Sums, dict[str, int]]:
        data = ray.put(broadcast.to_bytes())
        pending = [self._ask(number, data, mechanism.clip) for number in range(len(self.workers))]
        parts = []
        for number, reference in enumerate(pending):
            sums, outcomes, after = self._answer(number, reference, data, mechanism.clip)
            parts.append((sums, outcomes))
            for mine, (last_round, n_reports) in zip(self._attendance[number], after, strict=True):
                mine.last_round[:], mine.n_reports[:] = last_round, n_reports
        return join_parts(parts)

    def _hire(self, number: int) -> Any:
        one = ray.remote(num_cpus=1)(_Worker)  # so that Ray spreads them over its machines
        return one.remote(self.settings, self._groups[number])

    def _ask(self, number: int, data: Any, clip: float) -> Any:
        attendance = [(a.last_round, a.n_reports) for a in self._attendance[number]]
        return self.workers[number].sum_reports.remote(data, clip, attendance)

    def _answer(self, number: int, reference: Any, data: Any, clip: float) -> Answer:
        for _ in range(TRIES):
            try:
                answer: Answer = ray.get(reference)
            except ray.exceptions.RayActorError:
                self.workers[number] = self._hire(number)
                reference = self._ask(number, data, clip)
            else:
                return answer
        raise RuntimeError(
            f"worker {number} died {TRIES} times in one round. Look at Ray's logs and at the free "
            f"memory of its machine; then run the command again: it continues after the last round."
        )
