"""SeqMF as it is measured: trained by compiled rounds over the phones of a log.

A test compares them with rounds of `PhoneCore`, as phones run them (float64, 1e-9).
"""

from __future__ import annotations

import numpy as np

from nextapp.data.cutting import launches_in_window
from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import training_phones
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.learners import run_rounds
from nextapp.predictors.factorised import SeqMF, build_learner
from nextapp.predictors.training import MF, SEQMF, Training, frozen
from nextapp.progress import Progress, silent


class LabSeqMF(SeqMF):
    """`SeqMF`, trained by compiled rounds.

    With a ``window``, each phone learns only from this many days before its last launch, the t of
    the paper's H_u^(t).
    """

    def __init__(
        self,
        training: Training,
        seed: int,
        name: str = "seqmf",
        progress: Progress = silent,
        *,
        window: float = 0.0,
    ) -> None:
        super().__init__(training, seed, name)
        self.progress = progress
        self.window = window

    def fit(self, history: LaunchLog) -> None:
        self.start(history)
        self.train(self.training.rounds)

    def start(self, history: LaunchLog) -> None:
        """Begin with Q at its random start; `train` continues."""
        self._fleet = Fleet.of_log(launches_in_window(history, self.window))
        self._phones = training_phones(self._fleet, self.training.dim, self.training.solve_every)
        self._server = build_learner(self.training, history.n_apps, self.seed)

    def train(self, n_rounds: int) -> None:
        """Run further rounds; then all phones solve their user vectors against the new Q."""
        run_rounds(self._server, self._phones, n_rounds, self.progress)
        broadcast = self._server.broadcast
        self.app_vectors = broadcast.app_vectors
        self.user_vectors = solve_user_vectors(self._fleet, broadcast)
        if not np.isfinite(self.user_vectors).all():
            raise FloatingPointError(
                f"user vectors are not finite after round {broadcast.round}: lower the learning "
                f"rate."
            )


def build_seqmf(
    name: str,
    seed: int,
    progress: Progress = silent,
    *,
    seqmf: Training = SEQMF,
    mf: Training = MF,
    window: float = 0.0,
) -> LabSeqMF:
    """One of `nextapp.predictors.FEDERATED`, not trained yet."""
    trainings = {"mf": mf, "seqmf": seqmf, "seqmf-frozen": frozen(seqmf)}
    return LabSeqMF(trainings[name], seed, name, progress, window=window)
