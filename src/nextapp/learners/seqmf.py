"""SeqMF's learner: app vectors Q, one optimiser step per round.

    Q := Q − β ∂L/∂Q,   ∂L/∂Q ≈ Σ_{u in U_b} F(u) + λ Q          eqs. (11), (13)

With a privacy mechanism the sum is its estimate of the mean times the number of reports
(PAPER.md, R6). The optimisers: plain descent, momentum, Adam.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.learners import Learner, State, check_kind
from nextapp.privacy import Mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats, ModelSettings, ReportRequest, model_settings_from

OptimiserState = Mapping[str, Floats]
"""What an optimiser remembers of earlier gradients."""


class Optimiser(NamedTuple):
    """How to follow a gradient.

    ``start(Q)`` gives a state, ``step(Q, gradient, state)`` the next Q and the next state.
    """

    name: str
    start: Callable[[Floats], OptimiserState]
    step: Callable[[Floats, Floats, OptimiserState], tuple[Floats, OptimiserState]]


def sgd(rate: float) -> Optimiser:
    """Plain gradient descent, eq. (11)."""
    _check_rate(rate)

    def step(
        vectors: Floats, gradient: Floats, state: OptimiserState
    ) -> tuple[Floats, OptimiserState]:
        return vectors - rate * gradient, state

    return Optimiser(f"sgd(rate={rate!r})", lambda vectors: {}, step)


def momentum(rate: float, decay: float = 0.9) -> Optimiser:
    """SGD with momentum (Qian 1999): v := decay v + gradient, Q := Q − rate v."""
    _check_rate(rate)

    def start(vectors: Floats) -> OptimiserState:
        return {"velocity": np.zeros_like(vectors)}

    def step(
        vectors: Floats, gradient: Floats, state: OptimiserState
    ) -> tuple[Floats, OptimiserState]:
        velocity = decay * state["velocity"] + gradient
        return vectors - rate * velocity, {"velocity": velocity}

    return Optimiser(f"momentum(rate={rate!r}, decay={decay!r})", start, step)


def adam(rate: float, beta1: float = 0.9, beta2: float = 0.999, tiny: float = 1e-8) -> Optimiser:
    """Adam (Kingma and Ba 2014) with its bias correction as published (PAPER.md, R17)."""
    _check_rate(rate)

    def start(vectors: Floats) -> OptimiserState:
        return {"mean": np.zeros_like(vectors), "square": np.zeros_like(vectors), "t": np.zeros(1)}

    def step(
        vectors: Floats, gradient: Floats, state: OptimiserState
    ) -> tuple[Floats, OptimiserState]:
        t = state["t"] + 1
        mean = beta1 * state["mean"] + (1 - beta1) * gradient
        square = beta2 * state["square"] + (1 - beta2) * gradient**2
        scaled = (mean / (1 - beta1**t)) / (np.sqrt(square / (1 - beta2**t)) + tiny)
        return vectors - rate * scaled, {"mean": mean, "square": square, "t": t}

    return Optimiser(f"adam(rate={rate!r}, {beta1!r}, {beta2!r}, {tiny!r})", start, step)


OPTIMISERS: Mapping[str, Callable[[float], Optimiser]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adam": adam,
}


def _check_rate(rate: float) -> None:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"the learning rate must be a finite number > 0, got {rate!r}.")


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
        self.broadcast = Broadcast(0, app_vectors, settings, apps, request)
        self.optimiser = optimiser
        self.mechanism = mechanism
        self._optimiser_state: OptimiserState = optimiser.start(app_vectors)

    def apply_sum(self, total: Floats, n_reports: int | None = None) -> Broadcast:
        """Close the round with a sum of gradients (n_apps, d).

        The step does not depend on the number of reports; those of other learners do.
        """
        del n_reports
        old = self.broadcast
        gradient = total + old.settings.lam * old.app_vectors
        vectors, state = self.optimiser.step(old.app_vectors, gradient, self._optimiser_state)
        if not np.isfinite(vectors).all():
            raise FloatingPointError(
                f"the step of round {old.round} gave app vectors that are not finite; the round is "
                f"unchanged. Lower the learning rate of {self.optimiser.name}."
            )
        self._optimiser_state = state
        self.broadcast = replace(old, round=old.round + 1, app_vectors=vectors)
        return self.broadcast

    def pass_over(self) -> Broadcast:
        """Close the round without a step: nobody reported, the app vectors stay as they are."""
        old = self.broadcast
        self.broadcast = replace(old, round=old.round + 1)
        return self.broadcast

    def state(self) -> State:
        tensors = {"app_vectors": self.broadcast.app_vectors}
        tensors |= {f"optimiser.{name}": value for name, value in self._optimiser_state.items()}
        words = {"optimiser": self.optimiser.name, "mechanism": self.mechanism.name}
        if self.broadcast.request is not None:
            words["request"] = json.dumps(asdict(self.broadcast.request))
        return self._state(tensors, words)

    @classmethod
    def restore(cls, state: State, optimiser: Optimiser, mechanism: Mechanism) -> SeqMFLearner:
        """The learner of a state; it continues as if it had never stopped."""
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
            model_settings_from(json.loads(words["settings"])),
            optimiser,
            mechanism,
            tuple(json.loads(words["apps"])),
            ReportRequest(**json.loads(words["request"])) if "request" in words else None,
        )
        learner.broadcast = replace(learner.broadcast, round=int(words["round"]))
        learner._optimiser_state = _tensors_under(tensors, "optimiser.")
        return learner


def _tensors_under(
    tensors: Mapping[str, npt.NDArray[Any]], prefix: str
) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removeprefix(prefix): np.array(value)
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
