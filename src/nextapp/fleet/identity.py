"""The gradients as they are, clipped or not: the fleet's form of `nextapp.privacy.identity`."""

from __future__ import annotations

import numpy as np

from nextapp.fleet.encoder import Arrays, Encoder, ShardRound, State, Totals
from nextapp.fleet.gradients import Gradients, spread_out
from nextapp.model import PhoneGradient
from nextapp.privacy.identity import Identity
from nextapp.privacy.mechanism import Gradient
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

_HEAD_BYTES = 16


class IdentityEncoder(Encoder):
    """`Identity`. Its reports sum to the sum of the clipped gradients, so it has no state."""

    def __init__(self, mechanism: Identity) -> None:
        self.mechanism = mechanism

    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        """The gradients themselves."""
        return x, r.Q

    def payloads(self, reports: Arrays) -> list[bytes]:
        x, Q = reports
        return [
            self.mechanism.encode(self._gradient(x, i, Q), KeyedBits(0)).payload
            for i in range(len(x.phones))
        ]

    def empty(self) -> State:
        return {}

    def add(self, state: State, reports: Arrays) -> None:
        pass

    def mean(self, totals: Totals) -> Floats:
        return totals.true_sum / totals.n_reports

    def n_bytes(self, x: Gradients) -> int:
        n_apps, d = self.mechanism.n_apps, self.mechanism.d
        n_own = np.diff(x.starts)
        background = (x.c0 > 0) & x.p.any(axis=1)
        if self.mechanism.ball == "none":
            n_words = n_own * (1 + d) + np.where(x.c0 > 0, n_apps + d, 0)
        else:
            n_words = np.where(background, n_apps, n_own) * (1 + d)
        return int((_HEAD_BYTES + 8 * n_words).sum())

    def _gradient(self, x: Gradients, i: int, Q: Floats) -> Gradient:
        if self.mechanism.ball != "none":
            dense = np.zeros(Q.size)
            spread_out(x, i, Q, dense)
            return self.mechanism.clip * dense.reshape(Q.shape)
        own = slice(x.starts[i], x.starts[i + 1])
        apps, c0, p = x.apps[own], float(x.c0[i]), x.p[i]
        above = x.rows[own] - c0 * np.outer(Q[apps] @ p, p)
        return PhoneGradient(apps, above, c0, p, Q)
