"""What an operator decides about a federation: checked on creation, kept beside its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.learners import (
    OPTIMISERS,
    CrowdLearner,
    Learner,
    Optimiser,
    SeqMFLearner,
    State,
    random_vectors,
)
from nextapp.names import unknown
from nextapp.privacy import MECHANISMS, FrequencyMechanism, Mechanism, mechanism
from nextapp.randomness import KeyedBits
from nextapp.server.rounds import RoundRules
from nextapp.settings import check_keys, settings_from
from nextapp.storage import write_atomically
from nextapp.wire import Broadcast, ModelSettings, ReportRequest
from nextapp.wire import settings_from as model_settings_from

CHANGEABLE = ("goal", "minimum", "deadline")


@dataclass(frozen=True)
class FederationSettings:
    """A federation. What a report is and what it costs a phone has no default.

    ``deadline`` is how many seconds a round is open; ``goal`` and ``minimum`` as in `RoundRules`.
    These three may change between two starts, the others are fixed with the first: they are what
    the app vectors and the privacy of the reports rest on.
    """

    mechanism: str
    epsilon: float
    clip: float | None = None
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    goal: int = 1000
    minimum: int = 100
    deadline: float = 86_400.0
    dim: int = 16
    scale: float = 0.1
    seed: int = 0
    optimiser: str = "adam"
    rate: float = 0.01
    model: ModelSettings = ModelSettings()

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise ValueError(unknown("optimiser", self.optimiser, OPTIMISERS))
        if self.mechanism not in MECHANISMS:
            raise ValueError(unknown("mechanism", self.mechanism, MECHANISMS))
        RoundRules(self.goal, self.minimum, self.deadline)
        self._optimiser()
        self._mechanism(1, self.dim)

    @property
    def rules(self) -> RoundRules:
        return RoundRules(self.goal, self.minimum, self.deadline)

    @property
    def request(self) -> ReportRequest:
        return ReportRequest(self.mechanism, self.epsilon, self.clip, dict(self.options))

    def new_learner(self, apps: tuple[str, ...], start: Broadcast | None = None) -> Learner:
        """Round 0: of Q, or of the crowd's shares if that is what phones report.

        With a `start` its crowd is taken over, and its app vectors where they have `dim` numbers
        each; else app vectors have their random start, the same for the same seed.
        """
        if self.of_the_crowd:
            vectors = None if start is None else start.app_vectors
            return CrowdLearner(
                self._frequency_mechanism(len(apps)),
                apps,
                app_vectors=vectors,
                settings=self.model,
                options=self.options,
            )
        if start is not None and start.dim == self.dim:
            vectors = start.app_vectors
        else:
            bits = KeyedBits(self.seed, purpose="Q").generator()
            vectors = random_vectors(len(apps), self.dim, self.scale, bits)
        mechanism = self._mechanism(*vectors.shape)
        crowd = None if start is None else start.crowd
        return SeqMFLearner(
            vectors, self.model, self._optimiser(), mechanism, apps, self.request, crowd
        )

    def restored_learner(self, state: State) -> Learner:
        """The learner of a checkpoint."""
        n_apps, d = state.tensors["app_vectors"].shape
        if self.of_the_crowd:
            return CrowdLearner.restore(state, self._frequency_mechanism(n_apps))
        return SeqMFLearner.restore(state, self._optimiser(), self._mechanism(n_apps, d))

    def grown(self, broadcast: Broadcast, apps: tuple[str, ...]) -> Broadcast:
        """The broadcast with further apps after those it has: random vectors, nothing told yet."""
        n_known = broadcast.n_apps
        if apps[:n_known] != broadcast.apps:
            raise ValueError(
                f"a catalogue that goes on must begin with the {n_known:,} apps there are, in "
                f"their order; new ones come after them."
            )
        if len(apps) == n_known:
            return broadcast
        bits = KeyedBits(self.seed, round=n_known, purpose="Q").generator()
        more = random_vectors(len(apps) - n_known, broadcast.dim, self.scale, bits)
        crowd = broadcast.crowd
        if crowd is not None:
            crowd = replace(
                crowd,
                popularity=np.append(crowd.popularity, np.zeros(len(more))),
                starts=np.append(crowd.starts, np.full(len(more), crowd.starts[-1])),
            )
        vectors = np.concatenate([broadcast.app_vectors, more])
        return replace(broadcast, app_vectors=vectors, apps=apps, crowd=crowd)

    @property
    def of_the_crowd(self) -> bool:
        """Whether phones report shares of launches, not gradients."""
        return issubclass(MECHANISMS[self.mechanism], FrequencyMechanism)

    def _frequency_mechanism(self, n_apps: int) -> FrequencyMechanism:
        made = self._mechanism(n_apps, n_apps + 1)
        if not isinstance(made, FrequencyMechanism):
            raise ValueError(f"{self.mechanism} does not report shares.")
        return made

    def _optimiser(self) -> Optimiser:
        return OPTIMISERS[self.optimiser](self.rate)

    def _mechanism(self, n_apps: int, d: int) -> Mechanism:
        clip = {} if self.clip is None else {"clip": self.clip}
        try:
            made = mechanism(
                self.mechanism, n_apps=n_apps, d=d, epsilon=self.epsilon, **clip, **self.options
            )
        except TypeError as error:
            raise ValueError(str(error)) from error
        if not made.finite_output:
            raise ValueError(
                f"phones do not report by {self.mechanism}: choose a mechanism with finitely many "
                f"outputs, such as codebook or harmony."
            )
        return made

    def write(self, path: Path) -> None:
        write_atomically(path, (json.dumps(asdict(self), indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> FederationSettings:
        """As they were written; a file that was changed by hand is checked like any other."""
        try:
            return settings_of(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def settings_of(values: Mapping[str, Any]) -> FederationSettings:
    """From plain values, as a TOML file or an options' table gives them."""
    check_keys(values, [each.name for each in fields(FederationSettings)])
    for needed in ("mechanism", "epsilon"):
        if needed not in values:
            raise ValueError(
                f"the settings name no {needed}: give --{needed}. It decides what a phone gives "
                f"away and has no default."
            )
    return settings_from(FederationSettings, values, {"model": model_settings_from})


def changed(before: FederationSettings, given: Mapping[str, Any]) -> FederationSettings:
    """The settings of a federation that goes on, with those that may change as they are given."""
    wanted = settings_of({**asdict(before), **given})
    for key, old in asdict(before).items():
        new = asdict(wanted)[key]
        if new != old and key not in CHANGEABLE:
            raise ValueError(
                f"this federation was started with {key} = {old!r}, not {new!r}, and its app "
                f"vectors rest on that. {', '.join(CHANGEABLE)} may change; for another {key} "
                f"start in another folder."
            )
    return wanted
