"""What a server trains: a learner takes the sum of a round's reports and publishes a broadcast.

`CrowdLearner` asks which apps are launched, and which follows which, and publishes the crowd. A
catalogue of names has a row for each. A catalogue of buckets (`nextapp.wire.Buckets`) has slots for
those that phones use most: which these are is asked first and now and then again, so that new apps
appear by themselves.

`SeqMFLearner` trains app vectors Q, one optimiser step per round:

    Q := Q − β ∂L/∂Q,   ∂L/∂Q ≈ Σ_{u in U_b} F(u) + λ Q          eqs. (11), (13)

With a privacy mechanism the sum is its estimate of the mean times the number of reports
(PAPER.md, R6). The optimisers: plain descent, momentum, Adam.

A learner is its `LearnerState` and nothing else: `state` gives it, `restore` of each class
continues from it. `write_checkpoint` and `read_checkpoint` are the one way to and from a disk.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.crowd import crowd_from
from nextapp.privacy import Mechanism, requested_mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.storage import write_atomically
from nextapp.wire import (
    Broadcast,
    Buckets,
    Crowd,
    Floats,
    ModelSettings,
    ReportRequest,
    WireError,
    model_settings_from,
    pack,
    unpack,
)

CHECKPOINT_VERSION = "3"


class LearnerState(NamedTuple):
    """Arrays and words: all that a learner is."""

    tensors: dict[str, npt.NDArray[Any]]
    words: dict[str, str]


class Learner(ABC):
    """What a server trains. ``broadcast`` is that of the current round."""

    kind: ClassVar[str]
    broadcast: Broadcast
    mechanism: Mechanism

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
    def state(self) -> LearnerState:
        """All that this learner is."""

    def _state(
        self, tensors: dict[str, npt.NDArray[Any]], words: Mapping[str, str]
    ) -> LearnerState:
        """The state with the words that every learner has."""
        common = {
            "kind": self.kind,
            "version": CHECKPOINT_VERSION,
            "round": str(self.broadcast.round),
            "settings": json.dumps(asdict(self.broadcast.settings)),
            "apps": json.dumps(self.broadcast.apps),
        }
        return LearnerState(tensors, {**common, **words})


def write_checkpoint(path: Path, state: LearnerState) -> None:
    """A crash at any instant leaves the checkpoint before it intact."""
    write_atomically(path, pack(state.tensors, state.words))


def read_checkpoint(path: Path) -> LearnerState:
    """The state in a file, or a `WireError`."""
    tensors, words = unpack(path.read_bytes())
    if words.get("version") != CHECKPOINT_VERSION:
        raise WireError(
            f"{path} is no checkpoint of this version of nextapp ({CHECKPOINT_VERSION}): it was "
            f"written by an earlier one, or is something else."
        )
    return LearnerState(tensors, words)


def check_kind(state: LearnerState, kind: str) -> None:
    if state.words.get("kind") != kind:
        raise WireError(f"expected a {kind}, got {state.words.get('kind')!r}.")


# --- SeqMF: app vectors ------------------------------------------------------------------------

OptimiserState = Mapping[str, Floats]
"""What an optimiser remembers of earlier gradients."""


Stepped = tuple[Floats, OptimiserState]


class Optimiser(NamedTuple):
    """How to follow a gradient: ``step(Q, gradient, state)`` is the next Q and the next state.

    The first state is empty.
    """

    name: str
    step: Callable[[Floats, Floats, OptimiserState], Stepped]


def sgd(rate: float) -> Optimiser:
    """Plain gradient descent, eq. (11)."""
    _check_rate(rate)
    return Optimiser(
        f"sgd(rate={rate!r})", lambda old, gradient, state: (old - rate * gradient, state)
    )


def momentum(rate: float, decay: float = 0.9) -> Optimiser:
    """SGD with momentum (Qian 1999): v := decay v + gradient, Q := Q − rate v."""
    _check_rate(rate)

    def step(old: Floats, gradient: Floats, state: OptimiserState) -> Stepped:
        velocity = decay * state.get("velocity", np.zeros_like(old)) + gradient
        return old - rate * velocity, {"velocity": velocity}

    return Optimiser(f"momentum(rate={rate!r}, decay={decay!r})", step)


def adam(rate: float, beta1: float = 0.9, beta2: float = 0.999, tiny: float = 1e-8) -> Optimiser:
    """Adam (Kingma and Ba 2014) with its bias correction as published (PAPER.md, R17)."""
    _check_rate(rate)

    def step(old: Floats, gradient: Floats, state: OptimiserState) -> Stepped:
        t = state.get("t", np.zeros(1)) + 1
        mean = beta1 * state.get("mean", np.zeros_like(old)) + (1 - beta1) * gradient
        square = beta2 * state.get("square", np.zeros_like(old)) + (1 - beta2) * gradient**2
        scaled = (mean / (1 - beta1**t)) / (np.sqrt(square / (1 - beta2**t)) + tiny)
        return old - rate * scaled, {"mean": mean, "square": square, "t": t}

    return Optimiser(f"adam(rate={rate!r}, {beta1!r}, {beta2!r}, {tiny!r})", step)


OPTIMISERS: Mapping[str, Callable[[float], Optimiser]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adam": adam,
}


def _check_rate(rate: float) -> None:
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"the learning rate must be a finite number > 0, got {rate!r}.")


def starting_vectors(n_apps: int, d: int, scale: float, seed: int) -> Floats:
    """Q at its random start: entries from N(0, scale²) (PAPER.md, R16)."""
    return KeyedBits(seed, purpose="Q").generator().normal(0.0, scale, (n_apps, d))


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
        self._optimiser_state: OptimiserState = {}

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
        old = self.broadcast
        self.broadcast = replace(old, round=old.round + 1)
        return self.broadcast

    def state(self) -> LearnerState:
        tensors = {"app_vectors": self.broadcast.app_vectors}
        tensors |= {f"optimiser.{name}": value for name, value in self._optimiser_state.items()}
        words = {"optimiser": self.optimiser.name, "mechanism": self.mechanism.name}
        if self.broadcast.request is not None:
            words["request"] = json.dumps(asdict(self.broadcast.request))
        return self._state(tensors, words)

    @classmethod
    def restore(
        cls, state: LearnerState, optimiser: Optimiser, mechanism: Mechanism
    ) -> SeqMFLearner:
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
        learner._optimiser_state = {
            name.removeprefix("optimiser."): np.array(value)
            for name, value in tensors.items()
            if name.startswith("optimiser.")
        }
        return learner


Phones = Callable[[Broadcast], Floats | None]
"""The phones of a round: an estimate (n_apps, d) of the sum of their gradients; None if nobody
reported."""


def take_step(learner: SeqMFLearner, estimate: Floats | None) -> None:
    """Close the round with what its `Phones` reported."""
    if estimate is None:
        learner.pass_over()
    else:
        learner.apply_sum(estimate)


def run_rounds(
    learner: SeqMFLearner, phones: Phones, n_rounds: int, progress: Progress = silent
) -> None:
    for done in range(n_rounds):
        take_step(learner, phones(learner.broadcast))
        progress("federated round", done + 1, n_rounds)


# --- the crowd ---------------------------------------------------------------------------------

CELLS_PER_APP = 12
"""Followers of an app that are published, on average: those with the largest P(app) P(next | app).

36 bytes per app. What more of them would add: benchmarks/broadcast_size.py.
"""

SLOTS_BY_BUCKET = 400
"""Slots of a new server whose apps are known by bucket: those with the most estimated launches.

A round number: of 2,000 apps 200 and 1,000 keep up to 5 % less of the gain (decision 13). More
slots cover more apps, but leave more cells that must be distinguished from noise."""

LIKELY, SURE = 2.5, 4.5
"""Standard errors above 0 at which a bucket gets a slot, and at which it is no noise.

Of 2^16 buckets that nobody uses 400 are above the first by chance, and none above the second in
four of five federations. A slot given to noise costs a few bytes, and may by luck be an app in use;
asking for transitions between nothing but noise would cost every phone its ε.
"""


SUSPICIOUS = 6.0
"""Standard errors. By chance alone one of 1,023 apps changes so much in a quarter of a million
rounds, and one of 65,536 buckets in 7,000."""


@dataclass(frozen=True)
class CrowdRequests:
    """What a server of the crowd asks for: transitions and, where there are buckets, launches.

    ``launches_every``: launches are asked for in the first round and then in every n-th, and in
    every round until two buckets are in use for sure. ``most_slots``: buckets that are asked
    about at the same time.
    """

    transitions: ReportRequest
    launches: ReportRequest
    launches_every: int = 5
    most_slots: int = 1023

    def __post_init__(self) -> None:
        for each in ("transitions", "launches"):
            if getattr(self, each).question != each:
                raise ValueError(f"the request for {each} asks for another question.")
        if self.launches_every < 1 or self.most_slots < 2:
            raise ValueError(
                f"launches_every must be 1 or more and most_slots 2 or more, got "
                f"{self.launches_every!r} and {self.most_slots!r}."
            )


class CrowdLearner(Learner):
    """Adds up the reports of all rounds and publishes the `Crowd` that they show.

    Parameters
    ----------
    requests
        What phones are asked for.
    catalogue
        Names, one per row; or buckets, whose first slots are those given.
    """

    kind = "nextapp crowd checkpoint"

    def __init__(
        self,
        requests: CrowdRequests,
        catalogue: Sequence[str] | Buckets,
        settings: ModelSettings | None = None,
    ) -> None:
        self.requests = requests
        self.settings = settings or ModelSettings()
        self.buckets = catalogue if isinstance(catalogue, Buckets) else None
        self.apps = () if isinstance(catalogue, Buckets) else tuple(catalogue)
        n_apps = len(self.apps) if self.buckets is None else len(self.buckets.slots)
        if n_apps > requests.most_slots:
            raise ValueError(
                f"a catalogue of {n_apps:,} apps does not fit {requests.most_slots:,} slots: "
                f"raise the number of slots, or give no list: apps are then known by bucket."
            )
        self.total = np.zeros((n_apps, n_apps + 1))
        self.n_since = np.zeros(n_apps)
        self.launches = np.zeros(0 if self.buckets is None else self.buckets.n_buckets)
        self.n_launches = 0.0
        self.anomaly: Anomaly | None = None  # of the round that was closed last
        self._mechanisms: dict[tuple[str, int], Mechanism] = {}
        self._publish(0, None)

    @property
    def n_apps(self) -> int:
        return len(self.n_since)

    @property
    def n_transitions(self) -> float:
        """Reports of transitions since the longest-held slot was given."""
        return float(self.n_since.max(initial=0.0))

    # --- rounds --------------------------------------------------------------------------------

    def apply_sum(self, total: Floats, n_reports: int) -> Broadcast:
        """Close the round with a sum of estimates of `n_reports` reports to its question."""
        request = self.broadcast.request
        self.anomaly = self._anomaly(total, n_reports)
        if request is not None and request.question == "launches":
            self.launches = self.launches + total[:, 0]
            self.n_launches += n_reports
            self._give_slots()
        else:
            self.total = self.total + total
            self.n_since = self.n_since + n_reports
        return self._publish(self.broadcast.round + 1, self.crowd())

    @property
    def note(self) -> str:
        if self.anomaly is None or self.anomaly.errors < SUSPICIOUS:
            return ""
        return f"{self.anomaly}: many phones changed, or phones lie together (docs/operate.md)."

    def _anomaly(self, total: Floats, n_reports: int) -> Anomaly | None:
        """How far the reports of the current round differ from all before."""
        made, request = self.mechanism, self.broadcast.request
        variance = made.entry_variance
        if request is not None and request.question == "launches":
            return anomaly_of_launches(
                total[:, 0], n_reports, self.launches, self.n_launches, variance
            )
        crowd = self.broadcast.crowd
        likes = np.ones(self.n_apps) if crowd is None else crowd.popularity
        return anomaly_of_transitions(
            total, n_reports, self.total, self._reports_of_cells(), variance, likes
        )

    def _reports_of_cells(self) -> Floats:
        """(n_apps, n_apps + 1): reports since both slots of a cell were given."""
        return np.column_stack([np.minimum.outer(self.n_since, self.n_since), self.n_since])

    def pass_over(self) -> Broadcast:
        self.anomaly = None
        return self._publish(self.broadcast.round + 1, self.broadcast.crowd)

    def crowd(self) -> Crowd | None:
        """The crowd of all reports so far; None before any of transitions.

        A cell counts the reports since both of its slots were given, n of N in all. It is divided
        by √(n N), not by n, so that all cells have the same noise, that of a mean of N reports:
        the shares of a new app are small until enough reports have been asked about it.
        """
        n_all = self.n_transitions
        if n_all == 0:
            return None
        estimate = self.total / np.sqrt(n_all * np.maximum(self._reports_of_cells(), 1.0))
        made = self.mechanism_for(self.requests.transitions)
        learnt = crowd_from(estimate, math.sqrt(made.entry_variance / n_all))
        return keep_largest_cells(learnt, CELLS_PER_APP).rounded()

    def _publish(self, round: int, crowd: Crowd | None) -> Broadcast:
        asked = self.requests.transitions
        if self.buckets is not None and (
            round % self.requests.launches_every == 0 or not self._can_ask_transitions()
        ):
            asked = self.requests.launches
        self.broadcast = Broadcast(
            round,
            np.zeros((self.n_apps, 0)),
            self.settings,
            self.apps,
            asked,
            crowd,
            buckets=self.buckets,
        )
        self.mechanism = self.mechanism_for(asked)
        return self.broadcast

    def mechanism_for(self, request: ReportRequest) -> Mechanism:
        """The mechanism of a request for the catalogue as it is now, built once for its size."""
        key = request.question, self.n_apps
        if key not in self._mechanisms:
            rows = np.zeros((self.n_apps, 0))
            asked = Broadcast(0, rows, self.settings, self.apps, request, buckets=self.buckets)
            self._mechanisms[key] = requested_mechanism(asked)
        return self._mechanisms[key]

    # --- rows of the catalogue -----------------------------------------------------------------

    def _resize(self, n_apps: int) -> None:
        """Add rows for further apps, which have no reports yet."""
        n_old = self.n_apps
        total = np.zeros((n_apps, n_apps + 1))
        total[:n_old, :n_old] = self.total[:, :n_old]
        total[:n_old, -1] = self.total[:, -1]
        self.total = total
        self.n_since = np.append(self.n_since, np.zeros(n_apps - n_old))

    def _launches_in_errors(self) -> Floats:
        """(n_buckets,): the estimated launches of each bucket, in standard errors above 0."""
        if self.buckets is None or self.n_launches == 0:
            return np.zeros(len(self.launches))
        made = self.mechanism_for(self.requests.launches)
        error = math.sqrt(made.entry_variance * self.n_launches)
        return np.asarray(self.launches / error)

    def _can_ask_transitions(self) -> bool:
        """Whether there are apps to ask about that are no noise."""
        return self.n_apps > 0 and int((self._launches_in_errors() >= SURE).sum()) > 1

    def _give_slots(self) -> None:
        """Give the free slots to the buckets that phones use most.

        If no slot is free, a bucket that is used more than the least used one with a slot takes its
        place, if the difference is no noise; the reports on that one are forgotten.
        """
        if self.buckets is None:
            raise RuntimeError("a catalogue of names has no slots to give.")
        standing = self._launches_in_errors()
        may = standing >= LIKELY
        slots = self.buckets.slots.copy()
        may[slots] = False
        wanted = np.flatnonzero(may)
        wanted = wanted[np.argsort(-standing[wanted], kind="stable")]
        n_free = self.requests.most_slots - len(slots)
        slots, wanted = np.append(slots, wanted[:n_free]), wanted[n_free:]
        self._resize(len(slots))
        for bucket in wanted.tolist():
            least = int(np.argmin(standing[slots]))
            if standing[bucket] - standing[slots[least]] <= LIKELY * math.sqrt(2.0):
                break
            slots[least] = bucket
            self.total[least, :] = 0.0
            self.total[:, least] = 0.0
            self.n_since[least] = 0.0
        self.buckets = replace(self.buckets, slots=slots)

    # --- state ---------------------------------------------------------------------------------

    def state(self) -> LearnerState:
        tensors: dict[str, npt.NDArray[np.generic]] = {
            "total": self.total,
            "n_since": self.n_since,
            "launches": self.launches,
        }
        words = {
            "requests": json.dumps(asdict(self.requests)),
            "n_launches": repr(self.n_launches),
        }
        if self.buckets is not None:
            tensors["slots"] = self.buckets.slots
            words["n_buckets"], words["salt"] = str(self.buckets.n_buckets), self.buckets.salt
        if self.broadcast.request is not None:
            words["question"] = self.broadcast.request.question
        return self._state(tensors, words)

    @classmethod
    def restore(cls, state: LearnerState, requests: CrowdRequests) -> CrowdLearner:
        check_kind(state, cls.kind)
        tensors, words = state
        if json.loads(words["requests"]) != json.loads(json.dumps(asdict(requests))):
            raise ValueError(
                f"the learner was saved with the requests {words['requests']}, not "
                f"{json.dumps(asdict(requests))}: give the same ones."
            )
        catalogue: Sequence[str] | Buckets = tuple(json.loads(words["apps"]))
        if "slots" in tensors:
            slots = np.array(tensors["slots"])
            catalogue = Buckets(int(words["n_buckets"]), words["salt"], slots)
        learner = cls(requests, catalogue, model_settings_from(json.loads(words["settings"])))
        learner.total = np.array(tensors["total"])
        learner.n_since = np.array(tensors["n_since"])
        learner.launches = np.array(tensors["launches"])
        learner.n_launches = float(words["n_launches"])
        learner._publish(int(words["round"]), learner.crowd())
        return learner


def keep_largest_cells(crowd: Crowd, cells_per_app: int) -> Crowd:
    """The crowd with the cells that are met most: the largest P(app) P(next | app)."""
    most = cells_per_app * crowd.n_apps
    if len(crowd.share) <= most:
        return crowd
    rows = np.repeat(np.arange(crowd.n_apps), np.diff(crowd.starts))
    weight = crowd.popularity[rows] * crowd.share
    kept = np.sort(np.argsort(-weight, kind="stable")[:most])
    counts = np.bincount(rows[kept], minlength=crowd.n_apps)
    return replace(
        crowd,
        starts=np.append(0, np.cumsum(counts)),
        following=crowd.following[kept],
        share=crowd.share[kept],
    )


# --- anomalies ---------------------------------------------------------------------------------


class Anomaly(NamedTuple):
    """The app, by its row of the catalogue, or the bucket that changed most in a round, in standard
    errors: a sign of phones that lie together.

    They must point their reports in one direction, or they cancel. Whoever wants an app suggested
    points at the transitions to it, most of all from apps in wide use; so the mean of these cells
    rises from one round to the next by more than noise explains. An app that is suddenly in wide
    use does the same: an anomaly is a reason to look, not a proof.
    """

    question: str
    row: int
    errors: float

    def __str__(self) -> str:
        what = "bucket" if self.question == "launches" else "row"
        return (
            f"{what} {self.row} of the catalogue changed by {self.errors:.1f} standard errors "
            f"({self.question})"
        )


def anomaly_of_transitions(
    round: Floats, n_round: float, before: Floats, n_before: Floats, variance: float, likes: Floats
) -> Anomaly | None:
    """The app to which transitions have changed most against all rounds before.

        z(i) = Σ_j w(j) d(j, i) / √(Σ_j w(j)² σ²(j, i))
        d = round/n_round − before/n_before,   σ² = variance (1/n_round + 1/n_before)

    for w all the same, and for w as popular as the apps are. None where there is nothing before.

    Parameters
    ----------
    round, before : (n_apps, n_apps + 1), sums of reports
    n_before : (n_apps, n_apps + 1), how many reports each cell of `before` is the sum of
    variance
        That of one cell of one report.
    likes : (n_apps,)
    """
    there = n_before > 0
    if not there.any():
        return None
    since = np.maximum(n_before, 1.0)
    change = np.where(there, round / n_round - before / since, 0.0)
    noise = np.where(there, variance * (1.0 / n_round + 1.0 / since), 0.0)
    z = np.array(
        [
            (weight @ change) / np.sqrt(np.maximum(weight**2 @ noise, math.ulp(0.0)))
            for weight in (np.ones(len(likes)), likes)
        ]
    )[:, :-1]
    row = int(np.abs(z).max(axis=0).argmax())
    return Anomaly("transitions", row, float(np.abs(z[:, row]).max()))


def anomaly_of_launches(
    round: Floats, n_round: float, before: Floats, n_before: float, variance: float
) -> Anomaly | None:
    """The bucket whose share of launches has changed most; None where there is nothing before."""
    if n_before == 0 or not len(round):
        return None
    error = math.sqrt(variance * (1.0 / n_round + 1.0 / n_before))
    z = np.abs(round / n_round - before / n_before) / error
    return Anomaly("launches", int(z.argmax()), float(z.max()))
