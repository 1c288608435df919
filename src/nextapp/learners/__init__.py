"""What a server trains: a learner takes the sum of a round's reports and publishes a broadcast.

Here is what all learners do; `nextapp.learners.crowd` and `nextapp.learners.seqmf` are the two.

A learner is its `State` and nothing else: `state` gives it, `restore` of each class continues from
it. `write_checkpoint` and `read_checkpoint` are the one way to and from a disk.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy.typing as npt

from nextapp.privacy import Mechanism
from nextapp.progress import Progress, silent
from nextapp.storage import write_atomically
from nextapp.wire import Broadcast, Floats, Report, WireError, pack, unpack

CHECKPOINT_VERSION = "2"


class State(NamedTuple):
    """Arrays and words: all that a learner is."""

    tensors: dict[str, npt.NDArray[Any]]
    words: dict[str, str]


class Learner(ABC):
    """What a server trains. ``broadcast`` is that of the current round."""

    kind: ClassVar[str]
    broadcast: Broadcast
    mechanism: Mechanism

    def apply_reports(self, reports: Sequence[Report]) -> Broadcast:
        """Close the round with these reports; the next broadcast.

        A `WireError` where one is of another round or mechanism, or none that a phone can draw.
        """
        for report in reports:
            if report.round != self.broadcast.round:
                raise WireError(
                    f"the report is for round {report.round}, the current round is "
                    f"{self.broadcast.round}: fetch the current broadcast and report again."
                )
            self.mechanism.check(report)
        if not reports:
            raise RuntimeError(
                f"round {self.broadcast.round} has no reports: pass_over() closes it without any."
            )
        total = self.mechanism.total(self.mechanism.decode(reports), len(reports))
        return self.apply_sum(total, len(reports))

    @property
    def note(self) -> str:
        """What an operator should know of the round closed last; empty where there is nothing."""
        return ""

    @abstractmethod
    def apply_sum(self, total: Floats, n_reports: int) -> Broadcast:
        """Close the round with the sum of its reports (n_apps, d)."""

    @abstractmethod
    def pass_over(self) -> Broadcast:
        """Close the round without a step: what phones get stays as it is."""

    @abstractmethod
    def state(self) -> State:
        """All that this learner is."""

    def save(self, path: Path) -> None:
        """Write a checkpoint; a crash at any instant leaves the one before it intact."""
        write_checkpoint(path, self.state())

    def _state(self, tensors: dict[str, npt.NDArray[Any]], words: Mapping[str, str]) -> State:
        """The state with the words that every learner has."""
        common = {
            "kind": self.kind,
            "version": CHECKPOINT_VERSION,
            "round": str(self.broadcast.round),
            "settings": json.dumps(asdict(self.broadcast.settings)),
            "apps": json.dumps(self.broadcast.apps),
        }
        return State(tensors, {**common, **words})


@dataclass(frozen=True, eq=False)
class RoundSum:
    """An estimate (n_apps, d) of the sum of gradients in a round; None if nobody reported."""

    estimate: Floats | None


Reported = TypeVar("Reported", bound=RoundSum)


class GradientLearner(Protocol):
    """A learner that takes a step along a sum of gradients."""

    broadcast: Broadcast

    def apply_sum(self, total: Floats, /) -> object: ...

    def pass_over(self) -> object: ...


def run_round(learner: GradientLearner, phones: Callable[[Broadcast], Reported]) -> Reported:
    """The phones report on the broadcast; the learner takes a step along the sum of reports."""
    reported = phones(learner.broadcast)
    if reported.estimate is None:
        learner.pass_over()
    else:
        learner.apply_sum(reported.estimate)
    return reported


def run_rounds(
    learner: GradientLearner,
    phones: Callable[[Broadcast], RoundSum],
    n_rounds: int,
    progress: Progress = silent,
) -> None:
    """Train for `n_rounds` rounds with these phones."""
    for done in range(n_rounds):
        run_round(learner, phones)
        progress("federated round", done + 1, n_rounds)


def write_checkpoint(path: Path, state: State) -> None:
    write_atomically(path, pack(state.tensors, state.words))


def read_checkpoint(path: Path) -> State:
    """The state in a file, or a `WireError`."""
    tensors, words = unpack(path.read_bytes())
    if words.get("version") != CHECKPOINT_VERSION:
        raise WireError(
            f"{path} is no checkpoint of this version of nextapp ({CHECKPOINT_VERSION}): it was "
            f"written by an earlier one, or is something else."
        )
    return State(tensors, words)


def check_kind(state: State, kind: str) -> None:
    if state.words.get("kind") != kind:
        raise WireError(f"expected a {kind}, got {state.words.get('kind')!r}.")
