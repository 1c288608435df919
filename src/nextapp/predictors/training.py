"""How the app vectors of MF and SeqMF are trained; `nextapp.evaluation.seqmf` does it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nextapp.wire import ModelSettings

OPTIMISER_NAMES = ("sgd", "momentum", "adam")  # of nextapp.learners.OPTIMISERS


@dataclass(frozen=True)
class Training:
    """How the app vectors are trained.

    ``rounds`` steps on Q, each from the reports of all phones; every ``solve_every`` rounds the
    phones solve their user vectors first. Q starts at N(0, ``scale``²). When training is over, all
    phones solve their user vectors against the final Q (PAPER.md, R16).
    """

    model: ModelSettings = ModelSettings()
    dim: int = 64
    scale: float = 0.1
    optimiser: str = "adam"
    rate: float = 0.001
    rounds: int = 20
    solve_every: int = 1

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISER_NAMES:
            raise ValueError(
                f"optimiser must be one of {', '.join(OPTIMISER_NAMES)}, got {self.optimiser!r}."
            )
        if self.dim < 1 or self.rounds < 0 or self.solve_every < 1:
            raise ValueError(
                f"dim and solve_every must be 1 or more and rounds 0 or more, got "
                f"{self.dim!r}, {self.solve_every!r} and {self.rounds!r}."
            )


def frozen(training: Training) -> Training:
    """The control: Q left at its random start, user vectors solved against it."""
    return replace(training, rounds=0)


def without_sequence(training: Training) -> Training:
    """MF: no transitions in the loss, no session at inference."""
    return replace(training, model=replace(training.model, reading="none", inference="none"))


# MF needs a stronger regularisation than SeqMF: better on each of the four logs tried.
SEQMF, MF = Training(), without_sequence(Training(ModelSettings(lam=1.0)))
