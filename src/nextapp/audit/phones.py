"""Synthetic phones and their SeqMF gradients, for attacks and comparisons."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from nextapp import model
from nextapp.data import synthetic
from nextapp.model import Apps, PhoneGradient
from nextapp.names import unknown
from nextapp.privacy.mechanism import into_ball
from nextapp.randomness import KeyedBits
from nextapp.server import random_vectors
from nextapp.wire import Broadcast, Floats, ModelSettings

SCALE = 0.1
"""Standard deviation of the app vectors before the first round, as in training."""

CLIP_QUANTILE = 0.5

_STAND_INS = 300


@dataclass(frozen=True, eq=False)
class SyntheticPhones:
    """Launch histories of phones, and the broadcast of the first round that they report on."""

    histories: tuple[Apps, ...]
    broadcast: Broadcast

    @functools.cached_property
    def gradients(self) -> tuple[PhoneGradient, ...]:
        return tuple(seqmf_gradient(history, self.broadcast) for history in self.histories)

    @functools.cached_property
    def mean(self) -> Floats:
        """The mean of the gradients as they are, not clipped, (n_apps, d)."""
        total = np.zeros_like(self.broadcast.app_vectors)
        for gradient in self.gradients:
            total += gradient.dense()
        return total / len(self.gradients)


def synthetic_phones(
    n_phones: int, n_apps: int, d: int, seed: int, twin: str = "lsapp"
) -> SyntheticPhones:
    """Phones like those of a twin (`synthetic.PRESETS`), with a catalogue as large as asked for."""
    if twin not in synthetic.PRESETS:
        raise ValueError(unknown("twin", twin, synthetic.PRESETS))
    log = synthetic.make(replace(synthetic.PRESETS[twin], phones=n_phones, apps=n_apps), seed)
    starts = log.starts
    histories = tuple(
        log.app[starts[user] : starts[user + 1]].astype(np.int64) for user in range(log.n_users)
    )
    vectors = random_vectors(n_apps, d, SCALE, KeyedBits(seed, purpose="Q").generator())
    return SyntheticPhones(
        tuple(history for history in histories if len(history)),
        Broadcast(0, vectors, ModelSettings()),
    )


def seqmf_gradient(history: Apps, broadcast: Broadcast) -> PhoneGradient:
    """F(u) of a phone with this history that has solved its user vector, eqs. (10) and (12)."""
    stats = model.phone_statistics(history, broadcast.settings.reading)
    own, c, c0, h = model.phone_terms(stats, broadcast)
    p = model.phone_user_vector(own, broadcast.gram, c, c0, h, broadcast.settings.lam)
    return model.phone_gradient(stats, broadcast.app_vectors, p, c, c0, h)


def public_clips(n_apps: int, d: int, seed: int, twin: str = "lsapp") -> dict[str, float]:
    """A clip for each kind of ball: the median length of the gradients of phones that stand in.

    They are made with another seed than the phones that report, so nothing private is looked at.
    """
    stand_ins = synthetic_phones(_STAND_INS, n_apps, d, seed + 1, twin)
    flat = np.array([gradient.dense().ravel() for gradient in stand_ins.gradients])
    lengths = {
        "linf": np.abs(flat).max(axis=1),
        "l1": np.abs(flat).sum(axis=1),
        "l2": np.linalg.norm(flat, axis=1),
    }
    return {ball: float(np.quantile(each, CLIP_QUANTILE)) for ball, each in lengths.items()}


def clipped_mean(phones: SyntheticPhones, ball: str, clip: float) -> Floats:
    """The mean of the gradients after the clip, flattened: what unbiased mechanisms estimate."""
    if ball == "none":
        return phones.mean.ravel()
    total = np.zeros(phones.mean.size)
    for gradient in phones.gradients:
        total += into_ball(gradient.dense().ravel(), ball, clip)
    return clip / len(phones.gradients) * total
