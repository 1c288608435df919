"""The server: app vectors Q, one optimiser step a round, checkpoints.

    Q := Q − β ∂L/∂Q,   ∂L/∂Q ≈ Σ_{u in U_b} F(u) + λ Q          eqs. (11), (13)

With a privacy mechanism the sum is its estimate of the mean times the number of reports
(PAPER.md, R6).
"""

from __future__ import annotations

import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nextapp.privacy import Mechanism
from nextapp.wire import (
    Broadcast,
    Crowd,
    Floats,
    ModelSettings,
    Report,
    ReportRequest,
    WireError,
    pack,
    settings_from,
    unpack,
)

State = Mapping[str, Floats]


class Optimiser(NamedTuple):
    """How to follow a gradient.

    ``start(Q)`` gives a state, ``step(Q, gradient, state)`` the next Q and the next state.
    """

    name: str
    start: Callable[[Floats], State]
    step: Callable[[Floats, Floats, State], tuple[Floats, State]]


def sgd(rate: float) -> Optimiser:
    """Plain gradient descent, eq. (11)."""
    _check_rate(rate)

    def step(vectors: Floats, gradient: Floats, state: State) -> tuple[Floats, State]:
        return vectors - rate * gradient, state

    return Optimiser(f"sgd(rate={rate!r})", lambda vectors: {}, step)


def momentum(rate: float, decay: float = 0.9) -> Optimiser:
    """SGD with momentum (Qian 1999): v := decay v + gradient, Q := Q − rate v."""
    _check_rate(rate)

    def start(vectors: Floats) -> State:
        return {"velocity": np.zeros_like(vectors)}

    def step(vectors: Floats, gradient: Floats, state: State) -> tuple[Floats, State]:
        velocity = decay * state["velocity"] + gradient
        return vectors - rate * velocity, {"velocity": velocity}

    return Optimiser(f"momentum(rate={rate!r}, decay={decay!r})", start, step)


def adam(rate: float, beta1: float = 0.9, beta2: float = 0.999, tiny: float = 1e-8) -> Optimiser:
    """Adam (Kingma and Ba 2014) with its bias correction as published (PAPER.md, R17)."""
    _check_rate(rate)

    def start(vectors: Floats) -> State:
        return {"mean": np.zeros_like(vectors), "square": np.zeros_like(vectors), "t": np.zeros(1)}

    def step(vectors: Floats, gradient: Floats, state: State) -> tuple[Floats, State]:
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


class RoundServer(ABC):
    """What all servers do with the reports of a round: check them, keep them, add them up."""

    broadcast: Broadcast
    mechanism: Mechanism

    def __init__(self) -> None:
        self._reports: list[Report] = []

    @property
    def n_reports(self) -> int:
        """Reports collected in the round at hand."""
        return len(self._reports)

    def collect(self, report: Report) -> None:
        """Take a report for the round at hand.

        A `WireError` for one of another round or mechanism, or that no phone can have drawn.
        """
        if report.round != self.broadcast.round:
            raise WireError(
                f"the report is for round {report.round}, the round at hand is "
                f"{self.broadcast.round}: fetch the current broadcast and report again."
            )
        self.mechanism.check(report)
        self._reports.append(report)

    def step(self) -> Broadcast:
        """Close the round with what its reports tell, and publish the next broadcast."""
        if not self._reports:
            raise RuntimeError(
                f"round {self.broadcast.round} has no reports: pass_over() closes it without any."
            )
        total = len(self._reports) * self.mechanism.decode(self._reports)
        broadcast = self.step_along(total, len(self._reports))
        self._reports = []
        return broadcast

    @abstractmethod
    def step_along(self, total: Floats, n_reports: int) -> Broadcast:
        """Close the round with a sum of reports (n_apps, d) that was reduced elsewhere."""

    def _check_nothing_is_lost(self) -> None:
        if self._reports:
            raise RuntimeError(
                f"{len(self._reports)} reports of round {self.broadcast.round} are not in a step "
                f"yet and would be lost: call step() before save()."
            )


class Server(RoundServer):
    """Takes one optimiser step on Q a round along the reports, eqs. (11) and (13)."""

    def __init__(
        self,
        app_vectors: Floats,
        settings: ModelSettings,
        optimiser: Optimiser,
        mechanism: Mechanism,
        apps: tuple[str, ...] = (),
        request: ReportRequest | None = None,
        crowd: Crowd | None = None,
    ) -> None:
        super().__init__()
        self.broadcast = Broadcast(0, app_vectors, settings, apps, request, crowd)
        self.optimiser = optimiser
        self.mechanism = mechanism
        self._state = optimiser.start(app_vectors)

    def step_along(self, total: Floats, n_reports: int | None = None) -> Broadcast:
        """Close the round with a sum of gradients (n_apps, d) that was reduced elsewhere.

        The step does not depend on `n_reports`, of how many the sum is; other learners' do.
        """
        del n_reports
        old = self.broadcast
        slope = total + old.settings.lam * old.app_vectors
        vectors, state = self.optimiser.step(old.app_vectors, slope, self._state)
        if not np.isfinite(vectors).all():
            raise FloatingPointError(
                f"the step of round {old.round} gave app vectors that are not finite; the round is "
                f"unchanged. Lower the learning rate of {self.optimiser.name}."
            )
        self._state = state
        self.broadcast = replace(old, round=old.round + 1, app_vectors=vectors)
        return self.broadcast

    def pass_over(self) -> Broadcast:
        """Close the round without a step: nobody reported, the app vectors stay as they are."""
        old = self.broadcast
        self.broadcast = replace(old, round=old.round + 1)
        return self.broadcast

    def save(self, path: Path) -> None:
        """Write a checkpoint; a crash at any instant leaves the one before it intact.

        Reports of the round at hand are not part of it: they belong to their phones until the step.
        """
        self._check_nothing_is_lost()
        tensors = {"app_vectors": self.broadcast.app_vectors}
        tensors |= {f"optimiser.{name}": value for name, value in self._state.items()}
        words = {
            "kind": "nextapp checkpoint",
            "round": str(self.broadcast.round),
            "settings": json.dumps(asdict(self.broadcast.settings)),
            "apps": json.dumps(self.broadcast.apps),
            "optimiser": self.optimiser.name,
            "mechanism": self.mechanism.name,
        }
        if self.broadcast.request is not None:
            words["request"] = json.dumps(asdict(self.broadcast.request))
        if self.broadcast.crowd is not None:
            tensors |= {
                f"crowd.{name}": value for name, value in vars(self.broadcast.crowd).items()
            }
        write_atomically(path, pack(tensors, words))

    @classmethod
    def load(cls, path: Path, optimiser: Optimiser, mechanism: Mechanism) -> Server:
        """The server as it was saved; it goes on as if it had never stopped."""
        tensors, words = unpack(path.read_bytes())
        if words.get("kind") != "nextapp checkpoint":
            raise WireError(f"{path} is not a checkpoint of a nextapp server.")
        for role, name in (("optimiser", optimiser.name), ("mechanism", mechanism.name)):
            if words[role] != name:
                raise ValueError(
                    f"{path} was saved with the {role} {words[role]}, not {name}: give the same "
                    f"one, or start a new server from its app vectors."
                )
        vectors = np.array(tensors["app_vectors"])
        settings = settings_from(json.loads(words["settings"]))
        request = ReportRequest(**json.loads(words["request"])) if "request" in words else None
        apps = tuple(json.loads(words["apps"]))
        told = {
            name.removeprefix("crowd."): np.array(value)
            for name, value in tensors.items()
            if name.startswith("crowd.")
        }
        crowd = Crowd(**told) if told else None
        server = cls(vectors, settings, optimiser, mechanism, apps, request, crowd)
        server.broadcast = replace(server.broadcast, round=int(words["round"]))
        server._state = {
            name.removeprefix("optimiser."): np.array(value)
            for name, value in tensors.items()
            if name.startswith("optimiser.")
        }
        return server


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, finds either the old content or the new, whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
