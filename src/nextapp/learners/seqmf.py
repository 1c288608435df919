"""SeqMF's learner: app vectors Q, one optimiser step per round.

    Q := Q − β ∂L/∂Q,   ∂L/∂Q ≈ Σ_{u in U_b} F(u) + λ Q          eqs. (11), (13)

With a privacy mechanism the sum is its estimate of the mean times the number of reports
(PAPER.md, R6).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.learners.learner import Learner, State, check_kind
from nextapp.learners.optimisers import Optimiser, Slopes
from nextapp.privacy import Mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats, ModelSettings, ReportRequest, settings_from


def random_vectors(n_apps: int, d: int, scale: float, generator: np.random.Generator) -> Floats:
    """Q at its random start: entries from N(0, scale²) (PAPER.md, R16)."""
    if n_apps < 1 or d < 1 or not scale > 0:
        raise ValueError(
            f"n_apps and d must be 1 or more and scale > 0, got {n_apps!r}, {d!r} and {scale!r}."
        )
    return generator.normal(0.0, scale, (n_apps, d))


def starting_vectors(n_apps: int, d: int, scale: float, seed: int) -> Floats:
    """`random_vectors` of a run with this seed."""
    bits = KeyedBits(seed, round=0, purpose="Q")
    return random_vectors(n_apps, d, scale, bits.generator())


class SeqMFLearner(Learner):
    """Takes one optimiser step on Q per round along the reports, eqs. (11) and (13)."""

    kind = "nextapp seqmf checkpoint"

    def __init__(
        self,
        app_vectors: Floats,
        settings: ModelSettings,
        optimiser: Optimiser,
        mechanism: Mechanism,
        apps: tuple[str, ...] = (),
        request: ReportRequest | None = None,
    ) -> None:
        super().__init__()
        self.broadcast = Broadcast(0, app_vectors, settings, apps, request)
        self.optimiser = optimiser
        self.mechanism = mechanism
        self._slopes: Slopes = optimiser.start(app_vectors)

    def apply_sum(self, total: Floats, n_reports: int | None = None) -> Broadcast:
        """Close the round with a sum of gradients (n_apps, d) that was reduced elsewhere.

        The step does not depend on `n_reports`, of how many the sum is; other learners' do.
        """
        del n_reports
        old = self.broadcast
        slope = total + old.settings.lam * old.app_vectors
        vectors, state = self.optimiser.step(old.app_vectors, slope, self._slopes)
        if not np.isfinite(vectors).all():
            raise FloatingPointError(
                f"the step of round {old.round} gave app vectors that are not finite; the round is "
                f"unchanged. Lower the learning rate of {self.optimiser.name}."
            )
        self._slopes = state
        self.broadcast = replace(old, round=old.round + 1, app_vectors=vectors)
        return self.broadcast

    def pass_over(self) -> Broadcast:
        """Close the round without a step: nobody reported, the app vectors stay as they are."""
        old = self.broadcast
        self.broadcast = replace(old, round=old.round + 1)
        return self.broadcast

    def state(self) -> State:
        tensors = {"app_vectors": self.broadcast.app_vectors}
        tensors |= {f"optimiser.{name}": value for name, value in self._slopes.items()}
        words = {"optimiser": self.optimiser.name, "mechanism": self.mechanism.name}
        if self.broadcast.request is not None:
            words["request"] = json.dumps(asdict(self.broadcast.request))
        return self._state(tensors, words)

    @classmethod
    def restore(cls, state: State, optimiser: Optimiser, mechanism: Mechanism) -> SeqMFLearner:
        """The learner of a state; it goes on as if it had never stopped."""
        check_kind(state, cls.kind)
        tensors, words = state
        for role, name in (("optimiser", optimiser.name), ("mechanism", mechanism.name)):
            if words[role] != name:
                raise ValueError(
                    f"the learner was saved with the {role} {words[role]}, not {name}: give the "
                    f"same one, or start a new learner from its app vectors."
                )
        learner = cls(
            np.array(tensors["app_vectors"]),
            settings_from(json.loads(words["settings"])),
            optimiser,
            mechanism,
            tuple(json.loads(words["apps"])),
            ReportRequest(**json.loads(words["request"])) if "request" in words else None,
        )
        learner.broadcast = replace(learner.broadcast, round=int(words["round"]))
        learner._slopes = _tensors_under(tensors, "optimiser.")
        return learner


def _tensors_under(
    tensors: Mapping[str, npt.NDArray[Any]], prefix: str
) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removeprefix(prefix): np.array(value)
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
