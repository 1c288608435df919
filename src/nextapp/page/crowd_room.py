"""What new phones learn from a crowd, by number of phones and ε: the study of new phones.

It uses the functions of `nextapp new-phones --copies`: the sum of the reports is drawn from its
distribution, so that ten million phones cost as much as a hundred. The phones are synthetic, and a
fleet is made of copies of `BASE` of them.
"""

from __future__ import annotations

import threading
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from nextapp.audit.accounting import without_senders
from nextapp.crowd import crowd_without_noise
from nextapp.data import synthetic
from nextapp.data.cutting import collapse_repeats
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import mean_shares
from nextapp.page.catalogue import N_APPS, NAMES
from nextapp.studies.new_phones import (
    CUTOFFS,
    HEADLINE,
    NewPhone,
    hit_rates,
    learn_from_vectors,
    synthetic_phones,
    transitions_mechanism,
)
from nextapp.table import measured_mean
from nextapp.wire import Crowd, Floats

PHONES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.5, 6.0, 8.0)
BASE = 20_000  # number of synthetic phones that are copied; they define the truth
NEW = 80  # number of new phones
SHOWN = 12  # number of apps in the heat maps
_CUTOFF = CUTOFFS.index(5)


class CrowdRoom:
    """The synthetic phones, generated on first use (slow); answers are then fast and cached."""

    def __init__(self, seed: int = 0, n_base: int = BASE, n_new: int = NEW) -> None:
        self.seed = seed
        self._n_new = n_new
        self._parameters = synthetic.fleet_parameters(n_base, N_APPS)
        self._lock = threading.Lock()

    @cached_property
    def fleet(self) -> Fleet:
        log = collapse_repeats(synthetic.make(self._parameters, self.seed))
        return Fleet.of_histories(log.starts.astype(np.int64), log.app, log.n_apps)

    @cached_property
    def truth(self) -> Floats:
        """Mean shares of the crowd."""
        return mean_shares(self.fleet)

    @cached_property
    def new(self) -> list[NewPhone]:
        return synthetic_phones(self._parameters, self.seed, self._parameters.phones, self._n_new)

    @cached_property
    def shown_apps(self) -> list[int]:
        """The apps of the heat maps: the most launched ones."""
        found: list[int] = np.argsort(-self.truth[:, -1], kind="stable")[:SHOWN].tolist()
        return found

    @cached_property
    def without(self) -> Floats:
        return self._hits(None)

    @cached_property
    def open(self) -> tuple[Crowd, Floats]:
        """The crowd without privacy, and the hit rates with it."""
        crowd = crowd_without_noise(self.truth)
        return crowd, self._hits(crowd)

    def _hits(self, crowd: Crowd | None) -> Floats:
        """(n_new,): HR@5 of the new phones over the headline's launches."""
        return np.array([hit_rates(phone, crowd)[-len(CUTOFFS) + _CUTOFF] for phone in self.new])

    def answer(self, n_phones: int, epsilon: float) -> dict[str, Any]:
        """Truth, estimate and hit rates if this many phones report once with this ε."""
        if n_phones not in PHONES or epsilon not in EPSILONS:
            raise ValueError(
                f"phones must be one of {PHONES} and epsilon one of {EPSILONS}, got "
                f"{n_phones!r} and {epsilon!r}."
            )
        with self._lock:
            return self._answer(n_phones, epsilon)

    @lru_cache(maxsize=256)  # noqa: B019  (one room for the life of the process)
    def _answer(self, n_phones: int, epsilon: float) -> dict[str, Any]:
        mechanism = transitions_mechanism(epsilon, N_APPS)
        crowd = learn_from_vectors(self.fleet, epsilon, self.seed, copies=n_phones)
        open_crowd, with_open = self.open
        hits = self._hits(crowd)
        truth, estimate = self._rows(open_crowd), self._rows(crowd)
        return {
            "phones": n_phones,
            "epsilon": epsilon,
            "mechanism": mechanism.name,
            "n_bytes": mechanism.payload_bytes,
            "without_senders": without_senders(epsilon, n_phones),
            "apps": [name for name, _ in NAMES[:SHOWN]],  # most launched apps, most common names
            "truth": truth,
            "estimate": estimate,
            "likeness": _likeness(truth, estimate),
            "launches": list(HEADLINE),
            "n_new": len(self.new),
            "without": measured_mean(self.without, self.seed),
            "open": measured_mean(with_open, self.seed),
            "private": measured_mean(hits, self.seed),
            "gain": measured_mean(hits - self.without, self.seed),
            "open_gain": measured_mean(with_open - self.without, self.seed),
        }

    def _rows(self, crowd: Crowd) -> list[list[float]]:
        """P(next | last) among the apps shown."""
        apps = np.array(self.shown_apps, np.int64)
        return [
            [round(float(s), 5) for s in crowd.shares(apps, last)[0]] for last in self.shown_apps
        ]


def _likeness(truth: list[list[float]], estimate: list[list[float]]) -> float:
    """The correlation of the two maps; 0 if one of them is constant."""
    maps = np.ravel(truth), np.ravel(estimate)
    return float(np.corrcoef(*maps)[0, 1]) if all(map(np.ptp, maps)) else 0.0
