"""Federated rounds over the phones of a log, compiled: what the lab trains with.

The same rounds as `nextapp.predictors.factorised.train`, which plays them by `Device` and
`SeqMFLearner` as they run on phones; held to it by a test (float64, 1e-9).
"""

from __future__ import annotations

import numpy as np

from nextapp.data import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import play_round, training_phones
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.learners import OPTIMISERS, SeqMFLearner, random_vectors
from nextapp.predictors import SeqMF, Training
from nextapp.predictors.factorised import ROUND
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats


class Rounds:
    """The phones of a log and a server, round after round."""

    def __init__(
        self, history: LaunchLog, training: Training, seed: int, apps: tuple[str, ...] = ()
    ) -> None:
        self.training = training
        self.fleet = Fleet.of_log(history)
        self._phones = training_phones(self.fleet, training.dim, training.solve_every)
        start = random_vectors(
            history.n_apps, training.dim, training.scale, KeyedBits(seed, purpose="Q").generator()
        )
        plain = mechanism("identity", n_apps=history.n_apps, d=training.dim)
        optimiser = OPTIMISERS[training.optimiser](training.rate)
        self._server = SeqMFLearner(start, training.model, optimiser, plain, apps)

    @property
    def broadcast(self) -> Broadcast:
        return self._server.broadcast

    def play(self) -> None:
        """One round: every ``solve_every``-th the phones solve, then the server takes a step."""
        play_round(self._server, self._phones)

    def user_vectors(self) -> Floats:
        """Those of all phones, solved against the app vectors in hand."""
        found = solve_user_vectors(self.fleet, self.broadcast)
        if not np.isfinite(found).all():
            raise FloatingPointError(
                f"round {self.broadcast.round} gives user vectors that are not finite. Lower the "
                f"learning rate."
            )
        return found


class LabSeqMF(SeqMF):
    """`SeqMF`, trained by compiled rounds."""

    def fit(self, history: LaunchLog) -> None:
        rounds = Rounds(history, self.training, self.seed)
        for done in range(self.training.rounds):
            rounds.play()
            self.progress(ROUND, done + 1, self.training.rounds)
        self.take(rounds)

    def take(self, rounds: Rounds) -> None:
        """Predict with what these rounds have come to."""
        self.app_vectors = rounds.broadcast.app_vectors
        self.user_vectors = rounds.user_vectors()
