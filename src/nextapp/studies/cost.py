"""The cost of a report for the phone and the server: processor time and bytes, by mechanism.

All mechanisms encode the same gradients of the same synthetic phones, in turn, phone by phone, so
that other load of the machine affects all of them alike. The code is that of real phones
(`nextapp.privacy`), not the compiled code of a fleet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.fleet.clip import history_lengths
from nextapp.intervals import bootstrap_means, interval
from nextapp.learners import starting_vectors
from nextapp.model import seqmf_gradient
from nextapp.names import unknown
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.studies.mechanisms import FORMS, PRINTED, mechanism_for_simulation
from nextapp.wire import Broadcast, Floats, ModelSettings

REFERENCE = PRINTED


@dataclass(frozen=True)
class Cost:
    """``phones`` phones report ``repeats`` times each, for every catalogue size in ``sizes``."""

    epsilon: float = 4.5
    sizes: tuple[int, ...] = (87, 2000)
    dim: int = 64
    phones: int = 40
    repeats: int = 5
    mechanisms: tuple[str, ...] = (
        "laplace", "laplace-l1", "harmony", "kashin", PRINTED, "walsh",
    )  # fmt: skip
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.mechanisms:
            if name not in FORMS:
                raise ValueError(unknown("mechanism", name, FORMS))
        if REFERENCE not in self.mechanisms:
            raise ValueError(
                f"mechanisms must include {REFERENCE}, with which all others are compared."
            )
        if min(self.phones, self.repeats, self.dim, *self.sizes) < 1:
            raise ValueError("phones, repeats, dim and sizes must be 1 or more.")


def run(study: Cost, report: Progress = silent) -> dict[str, Any]:
    """For every size and mechanism the time per report, and its ratio to that of `REFERENCE`.

    A phone's time is the shortest of its repeats, since only other load can lengthen it; intervals
    are over phones.
    """
    found = {}
    for number, n_apps in enumerate(study.sizes):
        report(f"{n_apps} apps", number, len(study.sizes))
        found[str(n_apps)] = _measure(study, n_apps)
    return {
        "sizes": found,
        "reference": REFERENCE,
        "epsilon": study.epsilon,
        "dim": study.dim,
        "n_phones": study.phones,
        "intervals": "95 %, bootstrap over phones",
    }


def _measure(study: Cost, n_apps: int) -> dict[str, Any]:
    vectors = starting_vectors(n_apps, study.dim, 0.1, study.seed)
    broadcast = Broadcast(0, vectors, ModelSettings())
    population = replace(synthetic.LSAPP, phones=study.phones, apps=max(2, n_apps))
    starts, apps = synthetic.histories(population, study.seed, 0, study.phones)
    lengths = history_lengths(starts.tolist(), apps, broadcast)
    clips = {ball: float(np.median(each)) for ball, each in lengths.items()}
    mechanisms = {
        name: mechanism_for_simulation(name, study.epsilon, n_apps, study.dim, clips)
        for name in study.mechanisms
    }
    gradients = [
        seqmf_gradient(apps[first:last].astype(np.int64), broadcast)
        for first, last in pairwise(starts.tolist())
    ]
    shortest = {name: np.full(study.phones, np.inf) for name in mechanisms}
    reports: dict[str, list[Any]] = {name: [] for name in mechanisms}
    for repeat in range(study.repeats):
        for phone, gradient in enumerate(gradients):
            for name, mechanism in mechanisms.items():
                bits = KeyedBits(study.seed, phone, repeat, "report")
                start = time.process_time()
                report = mechanism.encode(gradient, bits)
                seconds = time.process_time() - start
                shortest[name][phone] = min(shortest[name][phone], seconds)
                if repeat == 0:
                    reports[name].append(report)
    rows = {}
    for name, mechanism in mechanisms.items():
        start = time.process_time()
        mechanism.decode(reports[name])
        decode = (time.process_time() - start) / study.phones
        rows[name] = {
            "bytes": len(reports[name][0].payload),
            "encode": _interval(shortest[name], study.seed),
            "decode": decode,
            "times": _interval(shortest[name] / shortest[REFERENCE], study.seed),
        }
    return rows


def _interval(by_phone: Floats, seed: int) -> dict[str, float]:
    low, high = interval(bootstrap_means(by_phone[:, None], seed))
    return {"mean": float(by_phone.mean()), "low": float(low[0]), "high": float(high[0])}
