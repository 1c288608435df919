"""What each mechanism has for a whole fleet: reports as columns, their sum, the mean of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.compiled_bits import stream
from nextapp.fleet.gradients import Gradients
from nextapp.privacy import Mechanism
from nextapp.privacy.mechanism import Tally
from nextapp.randomness import Words, purpose_word
from nextapp.wire import Floats

Arrays = Sequence[Any]
State = dict[str, npt.NDArray[Any]]
Kind = TypeVar("Kind", bound=Mechanism)

REPORT = np.uint64(purpose_word("report"))
# Arrays of a state that do not add: one joins by its maximum, one is the same in all shards.
LARGEST, SAME = "largest", "same"


class ShardRound(NamedTuple):
    """What is the same for all phones of a shard: Q, QᵀQ, and what their bits depend on."""

    Q: Floats
    gram: Floats
    seed: np.uint64
    first_phone: np.uint64
    number: np.uint64


@dataclass(frozen=True, eq=False)
class Totals:
    """A round of some phones, summed. ``+`` joins shards.

    ``state`` is the sum of the reports, in arrays that add (but for `LARGEST` and `SAME`): whole
    numbers where a report is made of whole numbers. ``true_sum`` (n_apps, d) is the
    sum of the clipped gradients before any noise, ``loss`` that of the phones' losses, eq. (3).
    """

    seed: int
    round: int
    n_reports: int
    state: State
    true_sum: Floats
    loss: float
    n_bytes_up: int

    def join(self, other: Self) -> Self:
        state = {name: _join(name, mine, other.state[name]) for name, mine in self.state.items()}
        return replace(
            self,
            n_reports=self.n_reports + other.n_reports,
            state=state,
            true_sum=self.true_sum + other.true_sum,
            loss=self.loss + other.loss,
            n_bytes_up=self.n_bytes_up + other.n_bytes_up,
        )


def _join(name: str, mine: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if name == SAME:
        return mine
    joined: npt.NDArray[Any] = np.maximum(mine, other) if name == LARGEST else mine + other
    return joined


@compiled
def report_bits(x: Gradients, i: int, r: ShardRound) -> Words:
    """``KeyedBits(seed, phone, round, "report")`` of the phone in row i of a block."""
    return stream(r.seed, r.first_phone + np.uint64(x.phones[i]), r.number, REPORT)


class Side(Protocol):
    """One mechanism over blocks of phones, by their bits or by the law of their sum."""

    block: int  # phones at a time, so that the work on them fits the cache
    size: int  # phones in a range, which one thread sums

    def empty(self) -> State:
        """The sum of no reports."""
        ...

    def play(self, state: State, x: Gradients, r: ShardRound) -> None:
        """Add the reports of a block to a sum."""
        ...

    def finish(self, state: State, r: ShardRound) -> State:
        """The sum over all ranges, as it is handed on."""
        ...

    def n_bytes(self, x: Gradients) -> int:
        """Bytes of the payloads of a block."""
        ...

    def mean(self, totals: Totals) -> Floats:
        """(n_apps, d): what the mechanism's ``decode`` makes of the reports summed."""
        ...


class Encoder(ABC):
    """A side that plays every phone's bits, so that there are reports."""

    block = 1024
    size = 4096
    payload_bytes: int

    @abstractmethod
    def encode(self, x: Gradients, r: ShardRound) -> Arrays:
        """The reports of a block as columns."""

    @abstractmethod
    def payloads(self, reports: Arrays) -> list[bytes]:
        """The payload of every report of a block."""

    @abstractmethod
    def empty(self) -> State: ...

    @abstractmethod
    def add(self, state: State, reports: Arrays) -> None:
        """Add the reports of a block to a sum."""

    @abstractmethod
    def mean(self, totals: Totals) -> Floats: ...

    def play(self, state: State, x: Gradients, r: ShardRound) -> None:
        self.add(state, self.encode(x, r))

    def finish(self, state: State, r: ShardRound) -> State:
        del r
        return state

    def n_bytes(self, x: Gradients) -> int:
        return len(x.phones) * self.payload_bytes


class TallyEncoder(Encoder, Generic[Kind]):
    """An encoder whose sum is the mechanism's tally, from which the mechanism estimates."""

    mechanism: Kind

    @abstractmethod
    def tally(self, state: State) -> Tally:
        """What the mechanism's own ``tally`` makes of the reports summed."""

    def mean(self, totals: Totals) -> Floats:
        return self.mechanism.estimate(self.tally(totals.state), totals.n_reports)
