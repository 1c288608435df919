"""Synthetic phones and their SeqMF gradients, for attacks and comparisons."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from nextapp.data import synthetic
from nextapp.fleet.clip import public_clips as clips_of_population
from nextapp.learners import starting_vectors
from nextapp.model import Apps, PhoneGradient, seqmf_gradient
from nextapp.names import unknown
from nextapp.privacy.mechanism import into_ball
from nextapp.wire import Broadcast, Floats, ModelSettings

SCALE = 0.1
"""Standard deviation of the app vectors before the first round, as in training."""

_STAND_INS = 300


@dataclass(frozen=True, eq=False)
class SyntheticPhones:
    """Launch histories of phones, and the broadcast of the first round."""

    histories: tuple[Apps, ...]
    broadcast: Broadcast

    @functools.cached_property
    def gradients(self) -> tuple[PhoneGradient, ...]:
        return tuple(seqmf_gradient(history, self.broadcast) for history in self.histories)

    @functools.cached_property
    def mean(self) -> Floats:
        """(n_apps, d): the mean of the gradients, not clipped."""
        total = np.zeros_like(self.broadcast.app_vectors)
        for gradient in self.gradients:
            total += gradient.dense()
        return total / len(self.gradients)


def synthetic_phones(
    n_phones: int, n_apps: int, d: int, seed: int, twin: str = "lsapp"
) -> SyntheticPhones:
    """Phones of a twin (`synthetic.PRESETS`), with a catalogue of this size."""
    if twin not in synthetic.PRESETS:
        raise ValueError(unknown("twin", twin, synthetic.PRESETS))
    log = synthetic.make(replace(synthetic.PRESETS[twin], phones=n_phones, apps=n_apps), seed)
    starts = log.starts
    histories = tuple(
        log.app[starts[user] : starts[user + 1]].astype(np.int64) for user in range(log.n_users)
    )
    return SyntheticPhones(
        tuple(history for history in histories if len(history)), first_broadcast(n_apps, d, seed)
    )


def first_broadcast(n_apps: int, d: int, seed: int) -> Broadcast:
    """A broadcast with random initial app vectors."""
    vectors = starting_vectors(n_apps, d, SCALE, seed)
    return Broadcast(0, vectors, ModelSettings())


def public_clips(n_apps: int, d: int, seed: int, twin: str = "lsapp") -> dict[str, float]:
    """A clip for each kind of ball, `nextapp.fleet.clip`: from phones of the twin, another seed."""
    population = replace(synthetic.PRESETS[twin], phones=_STAND_INS, apps=n_apps)
    return clips_of_population(population, seed + 1, first_broadcast(n_apps, d, seed + 1))


def mean_after_clip(phones: SyntheticPhones, ball: str, clip: float) -> Floats:
    """(D,): the mean of the clipped gradients, which unbiased mechanisms estimate."""
    if ball == "none":
        return phones.mean.ravel()
    total = np.zeros(phones.mean.size)
    for gradient in phones.gradients:
        total += into_ball(gradient.dense().ravel(), ball, clip)
    return clip / len(phones.gradients) * total
