"""The crowd's learner: adds up reports of shares and publishes what they tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nextapp.crowd import learnt_crowd
from nextapp.learners.learner import Learner, State, check_kind
from nextapp.privacy import FrequencyMechanism
from nextapp.shares import POPULARITY, check_popularity
from nextapp.wire import Broadcast, Crowd, Floats, ModelSettings, ReportRequest, settings_from


class CrowdLearner(Learner):
    """Adds up reports of shares over all rounds and publishes what they tell as a `Crowd`.

    The app vectors of its broadcasts are those given,
    untouched; without any they are zeros.
    """

    kind = "nextapp crowd checkpoint"
    mechanism: FrequencyMechanism

    def __init__(
        self,
        mechanism: FrequencyMechanism,
        apps: tuple[str, ...] = (),
        *,
        app_vectors: Floats | None = None,
        settings: ModelSettings | None = None,
        popularity: float = POPULARITY,
        options: Mapping[str, int | float | str] | None = None,
    ) -> None:
        super().__init__()
        n_apps = mechanism.n_apps
        if mechanism.d != n_apps + 1:
            raise ValueError(
                f"the shares of {n_apps} apps have {n_apps + 1} columns, the mechanism was made "
                f"for {mechanism.d}: give it d = n_apps + 1."
            )
        check_popularity(popularity)
        self.mechanism = mechanism
        self.popularity = popularity
        self.options = dict(options or {})  # what phones must be told to make the same mechanism
        request = ReportRequest(mechanism.name, mechanism.epsilon, options=self.options)
        vectors = np.zeros((n_apps, 1)) if app_vectors is None else app_vectors
        self.broadcast = Broadcast(0, vectors, settings or ModelSettings(), apps, request)
        self.total = np.zeros((n_apps, n_apps + 1))
        self.n_reports_in_all = 0

    def apply_sum(self, total: Floats, n_reports: int) -> Broadcast:
        """Close the round with a sum of estimates (n_apps, n_apps + 1) of `n_reports` reports."""
        self.total = self.total + total
        self.n_reports_in_all += n_reports
        return self._next(self.crowd())

    def pass_over(self) -> Broadcast:
        """Close the round without any reports."""
        return self._next(self.broadcast.crowd)

    def crowd(self) -> Crowd:
        """What all reports so far tell."""
        n = self.n_reports_in_all
        if n == 0:
            raise RuntimeError("a crowd needs at least one report.")
        return learnt_crowd(self.mechanism, self.total / n, n, self.popularity)

    def _next(self, crowd: Crowd | None) -> Broadcast:
        old = self.broadcast
        self.broadcast = replace(old, round=old.round + 1, crowd=crowd)
        return self.broadcast

    def state(self) -> State:
        words = {
            "mechanism": repr(self.mechanism),
            "options": json.dumps(self.options),
            "popularity": repr(self.popularity),
            "n_reports": str(self.n_reports_in_all),
        }
        tensors = {"app_vectors": self.broadcast.app_vectors, "total": self.total}
        return self._state(tensors, words)

    @classmethod
    def restore(cls, state: State, mechanism: FrequencyMechanism) -> CrowdLearner:
        """The learner of a state; it goes on as if it had never stopped."""
        check_kind(state, cls.kind)
        tensors, words = state
        if words["mechanism"] != repr(mechanism):
            raise ValueError(
                f"the learner was saved with the mechanism {words['mechanism']}, not "
                f"{mechanism!r}: give the same one."
            )
        learner = cls(
            mechanism,
            tuple(json.loads(words["apps"])),
            app_vectors=np.array(tensors["app_vectors"]),
            settings=settings_from(json.loads(words["settings"])),
            popularity=float(words["popularity"]),
            options=json.loads(words["options"]),
        )
        learner.total = np.array(tensors["total"])
        learner.n_reports_in_all = int(words["n_reports"])
        crowd = learner.crowd() if learner.n_reports_in_all else None
        learner.broadcast = replace(learner.broadcast, round=int(words["round"]), crowd=crowd)
        return learner
