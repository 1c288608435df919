"""How a learner follows a gradient: plain descent, momentum, Adam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from nextapp.wire import Floats

Slopes = Mapping[str, Floats]
"""What an optimiser remembers of the gradients before."""


class Optimiser(NamedTuple):
    """How to follow a gradient.

    ``start(Q)`` gives a state, ``step(Q, gradient, state)`` the next Q and the next state.
    """

    name: str
    start: Callable[[Floats], Slopes]
    step: Callable[[Floats, Floats, Slopes], tuple[Floats, Slopes]]


def sgd(rate: float) -> Optimiser:
    """Plain gradient descent, eq. (11)."""
    _check_rate(rate)

    def step(vectors: Floats, gradient: Floats, state: Slopes) -> tuple[Floats, Slopes]:
        return vectors - rate * gradient, state

    return Optimiser(f"sgd(rate={rate!r})", lambda vectors: {}, step)


def momentum(rate: float, decay: float = 0.9) -> Optimiser:
    """SGD with momentum (Qian 1999): v := decay v + gradient, Q := Q − rate v."""
    _check_rate(rate)

    def start(vectors: Floats) -> Slopes:
        return {"velocity": np.zeros_like(vectors)}

    def step(vectors: Floats, gradient: Floats, state: Slopes) -> tuple[Floats, Slopes]:
        velocity = decay * state["velocity"] + gradient
        return vectors - rate * velocity, {"velocity": velocity}

    return Optimiser(f"momentum(rate={rate!r}, decay={decay!r})", start, step)


def adam(rate: float, beta1: float = 0.9, beta2: float = 0.999, tiny: float = 1e-8) -> Optimiser:
    """Adam (Kingma and Ba 2014) with its bias correction as published (PAPER.md, R17)."""
    _check_rate(rate)

    def start(vectors: Floats) -> Slopes:
        return {"mean": np.zeros_like(vectors), "square": np.zeros_like(vectors), "t": np.zeros(1)}

    def step(vectors: Floats, gradient: Floats, state: Slopes) -> tuple[Floats, Slopes]:
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
