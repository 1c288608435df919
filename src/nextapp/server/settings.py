"""What an operator decides about a federation: checked on creation, kept beside its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nextapp.learners import (
    OPTIMISERS,
    CrowdLearner,
    CrowdRequests,
    Learner,
    LearnerState,
    Optimiser,
    SeqMFLearner,
    starting_vectors,
)
from nextapp.privacy import MECHANISMS, FiniteMechanism, mechanism
from nextapp.privacy.walsh import Walsh, fewest_bits
from nextapp.server.vault import RoundRules
from nextapp.settings import check_keys, setting, settings_from, unknown
from nextapp.storage import write_atomically
from nextapp.wire import Buckets, ModelSettings, ReportRequest, model_settings_from

CHANGEABLE = ("goal", "minimum", "deadline", "grace")
"""May change between two starts, or by `folders.change`."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "crowd": {"mechanism": "walsh", "epsilon": 1.0},
    "seqmf": {},
}
"""What may be learnt, and the defaults that go with it.

crowd: what follows what, for phones that predict by their habits. ε 1 is what phones allow for a
report, a day and a life unless their owners say otherwise.
seqmf: the paper's app vectors. What a report is and what it costs has no default there.
"""

ANSWER_NORM = 1.0
"""The ℓ2 norm of what a phone tells of its launches or transitions, so the clip of the crowd."""


@dataclass(frozen=True)
class FederationSettings:
    """A federation.

    ``deadline`` is how many seconds a round is open; ``goal``, ``minimum`` and ``grace`` as in
    `RoundRules`. These four may change between two starts; goal and deadline follow from the number
    of phones where they are None. The others are fixed with the first start: what is
    learnt and the privacy of the reports depend on them. `settings_of` knows the `DEFAULTS`.

    ``learn`` is crowd or seqmf. The crowd: ``buckets`` and ``salt`` make the catalogue where no
    list is given, ``slots`` is how many apps are asked about (`SLOTS_BY_BUCKET` on a new server
    whose apps are known by bucket), ``launches_every`` as in `CrowdRequests`. SeqMF: ``clip``,
    ``dim`` and all after it.
    """

    HEADING: ClassVar[str] = "What is learnt"

    mechanism: str = setting(text="Privacy mechanism. Default: walsh; none for seqmf.")
    epsilon: float = setting(text="ε of one report. Default: 1; none for seqmf.")
    learn: str = setting("crowd", "crowd or seqmf, the paper's app vectors.")
    clip: float | None = setting(None, "Bound on the norm of a gradient, for seqmf.")
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    goal: int | None = setting(None, "Reports at which a round ends. Default: one per phone.")
    minimum: int = setting(100, "Reports that it needs. Default: half of --goal, or 100.")
    deadline: float | None = setting(None, "Seconds until it ends. Default: 1 to 30 days.")
    grace: float = setting(300.0, "Extra seconds for reports drawn before its end.")
    buckets: int = 1 << 16
    salt: str = ""
    slots: int = setting(1023, "Apps that the crowd is asked about. Default: 1023; 400 by hash.")
    launches_every: int = 5
    dim: int = setting(16, "Length of an app vector.")
    scale: float = 0.1
    seed: int = setting(0, "Random seed of the first app vectors.")
    optimiser: str = "adam"
    rate: float = setting(0.01, "Learning rate of the optimiser.")
    model: ModelSettings = ModelSettings()

    def __post_init__(self) -> None:
        if self.learn not in DEFAULTS:
            raise ValueError(unknown("thing to learn", self.learn, DEFAULTS))
        if self.optimiser not in OPTIMISERS:
            raise ValueError(unknown("optimiser", self.optimiser, OPTIMISERS))
        if self.mechanism not in MECHANISMS:
            raise ValueError(unknown("mechanism", self.mechanism, MECHANISMS))
        self.rules.open_round(0, 0.0)
        if self.learn == "crowd":
            requests = self.requests
            Buckets(self.buckets, self.salt, np.zeros(0, np.int64))
            self._mechanism(self.slots, self.slots + 1, requests.transitions.clip)
            self._mechanism(self.buckets, 1, requests.launches.clip)
        else:
            self._optimiser()
            self._mechanism(1, self.dim, self.clip)

    @property
    def rules(self) -> RoundRules:
        return RoundRules(self.goal, self.minimum, self.deadline, self.grace)

    @property
    def requests(self) -> CrowdRequests:
        """What phones are asked by a server of the crowd."""
        if self.clip is not None:
            raise ValueError(
                "the crowd needs no clip, what phones tell has length 1: leave it out."
            )
        transitions, launches = (
            ReportRequest(self.mechanism, self.epsilon, ANSWER_NORM, dict(self.options), question)
            for question in ("transitions", "launches")
        )
        return CrowdRequests(transitions, launches, self.launches_every, self.slots)

    def new_learner(self, apps: tuple[str, ...] | None) -> Learner:
        """Round 0 of what is learnt, for the apps of a list; None: the crowd needs no list."""
        if self.learn == "crowd":
            empty = Buckets(self.buckets, self.salt, np.zeros(0, np.int64))
            return CrowdLearner(self.requests, empty if apps is None else apps, self.model)
        if apps is None:
            raise ValueError(
                "app vectors need a catalogue: --apps FILE with one app name a line, or --apps N "
                "for apps that are known by number."
            )
        request = ReportRequest(self.mechanism, self.epsilon, self.clip, dict(self.options))
        return SeqMFLearner(
            starting_vectors(len(apps), self.dim, self.scale, self.seed),
            self.model,
            self._optimiser(),
            self._mechanism(len(apps), self.dim, self.clip),
            apps,
            request,
        )

    def restored_learner(self, state: LearnerState) -> Learner:
        if self.learn == "crowd":
            return CrowdLearner.restore(state, self.requests)
        n_apps, d = state.tensors["app_vectors"].shape
        return SeqMFLearner.restore(state, self._optimiser(), self._mechanism(n_apps, d, self.clip))

    def _optimiser(self) -> Optimiser:
        return OPTIMISERS[self.optimiser](self.rate)

    def _mechanism(self, n_apps: int, d: int, clip: float | None) -> FiniteMechanism:
        radius = {} if clip is None else {"clip": clip}
        try:
            made = mechanism(
                self.mechanism, n_apps=n_apps, d=d, epsilon=self.epsilon, **radius, **self.options
            )
        except TypeError as error:
            raise ValueError(str(error)) from error
        if not isinstance(made, FiniteMechanism):
            raise ValueError(
                f"phones do not report by {self.mechanism}: choose a mechanism with finitely many "
                f"outputs, such as walsh or harmony."
            )
        return made

    def write(self, path: Path) -> None:
        """With a checksum."""
        values = asdict(self)
        values["sha256"] = _checksum(values)
        write_atomically(path, (json.dumps(values, indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> FederationSettings:
        """As they were written; values of another hand have no checksum, and are checked alike."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            written = values.pop("sha256", None)
            intact = written in (None, _checksum(values))
            found = settings_of(values)
        except (AttributeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        if not intact:
            raise ValueError(
                f"{path} is not what was written there. Restore it from a backup; if you have "
                f"changed it, take its line sha256 out."
            )
        return found


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def settings_of(values: Mapping[str, Any]) -> FederationSettings:
    """From plain values, as a TOML file or an options' table gives them, over the `DEFAULTS`."""
    check_keys(values, [each.name for each in fields(FederationSettings)])
    learn = values.get("learn", "crowd")
    if learn not in DEFAULTS:
        raise ValueError(unknown("thing to learn", str(learn), DEFAULTS))
    values = {**DEFAULTS[learn], **values}
    for needed in ("mechanism", "epsilon"):
        if needed not in values:
            raise ValueError(
                f"the settings name no {needed}: give --{needed}. It decides what a phone gives "
                f"away and has no default."
            )
    settings = settings_from(FederationSettings, values, {"model": model_settings_from})
    if learn == "crowd" and "options" not in values and settings.mechanism == Walsh.name:
        settings = replace(settings, options={"b": fewest_bits(settings.epsilon)})
    return settings


def change_settings(before: FederationSettings, given: Mapping[str, Any]) -> FederationSettings:
    """The settings of an existing federation, with those given that may change."""
    wanted = settings_of({**asdict(before), **given})
    for key, old in asdict(before).items():
        new = asdict(wanted)[key]
        if new != old and key not in CHANGEABLE:
            raise ValueError(
                f"this federation was started with {key} = {old!r}, not {new!r}, and what it has "
                f"learnt depends on that. {', '.join(CHANGEABLE)} may change; for another {key} "
                f"begin anew in another folder."
            )
    return wanted
