"""A simulated fleet on Ray: every worker has some of the shards, on this machine or another.

A worker has no state that cannot be rebuilt: its shards are made of the seed. One that dies is
replaced and repeats the round for its shards, with the same random bits and so with the same sums.
"""

from __future__ import annotations

import functools
import os
from itertools import pairwise
from typing import Any

import numpy as np
import ray

from nextapp.fleet.rounds import Sums
from nextapp.privacy import Mechanism
from nextapp.studies.simulation import LocalWorld, SimulationSettings
from nextapp.wire import Broadcast

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

TRIES = 5


class _Worker:
    """A Ray actor, in its own process."""

    def __init__(self, settings: SimulationSettings, shards: list[tuple[int, int]]) -> None:
        self.world = LocalWorld(settings, shards)

    def process(self) -> int:
        """Its process id, for operators and tests."""
        return os.getpid()

    def sum_reports(self, broadcast: bytes, clip: float) -> Sums:
        mechanism = self.world.settings.build_mechanism(clip)
        return self.world(Broadcast.from_bytes(broadcast), mechanism)


class RayWorld:
    """Shards spread over Ray workers, a processor each. Call `ray.init` first."""

    def __init__(self, settings: SimulationSettings, workers: int) -> None:
        shards = settings.bounds
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
        self.workers = [self._hire(number) for number in range(workers)]

    def __call__(self, broadcast: Broadcast, mechanism: Mechanism) -> Sums:
        data = ray.put(broadcast.to_bytes())
        pending = [self._ask(number, data, mechanism.clip) for number in range(len(self.workers))]
        parts = (
            self._answer(number, reference, data, mechanism.clip)
            for number, reference in enumerate(pending)
        )
        return functools.reduce(Sums.__add__, parts)

    def _hire(self, number: int) -> Any:
        one = ray.remote(num_cpus=1)(_Worker)  # so that Ray spreads them over its machines
        return one.remote(self.settings, self._groups[number])

    def _ask(self, number: int, data: Any, clip: float) -> Any:
        return self.workers[number].sum_reports.remote(data, clip)

    def _answer(self, number: int, reference: Any, data: Any, clip: float) -> Sums:
        for _ in range(TRIES):
            try:
                answer: Sums = ray.get(reference)
            except ray.exceptions.RayActorError:
                self.workers[number] = self._hire(number)
                reference = self._ask(number, data, clip)
            else:
                return answer
        raise RuntimeError(
            f"worker {number} died {TRIES} times in one round. Look at Ray's logs and at the free "
            f"memory of its machine; then run the command again: it continues after the last round."
        )
