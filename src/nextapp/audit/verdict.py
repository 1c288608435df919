"""All layers of the audit together: one verdict per mechanism.

    exact       ratios of the stated probabilities, on a small instance
    fit         reports against these probabilities
    black box   a lower bound on ε from reports only

The tests of the project also replay every mechanism against a second writing of its protocol, word
by word, at the sizes of a deployment (`tests/audit/replay.py`).

fails             a layer found more than ε, or reports that are not as stated
holds             no layer did, and the black box came close to ε: it could have detected a fault
holds, no power   no layer did, but the black box stayed far below ε
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nextapp.audit.layers import (
    BlackBox,
    ExactLaw,
    Fit,
    black_box,
    calibration,
    draws,
    exact,
    frequencies,
    worst_pair,
)
from nextapp.privacy import FiniteMechanism, Mechanism, mechanism
from nextapp.progress import Progress, silent
from nextapp.settings import unknown

FALSE_ALARM = 1e-3
"""False-alarm rate of the audit of one correct mechanism: half for layer 2, half for layer 3."""


@dataclass(frozen=True)
class Case:
    """A mechanism at a size at which its reports can be listed and all of ε is used.

    Only a ``share`` of the reports is drawn if drawing is slow.
    """

    name: str
    options: Mapping[str, Any]
    share: float = 1.0

    def mechanism(self, epsilon: float) -> Mechanism:
        return mechanism(self.name, epsilon=epsilon, clip=1.0, **self.options)


_TWO = {"n_apps": 1, "d": 2}
_FOUR = {"n_apps": 2, "d": 2}

CASES: Mapping[str, Case] = {
    "laplace": Case("laplace", _TWO),
    "laplace-l1": Case("laplace", {**_TWO, "ball": "l1"}),
    "harmony": Case("harmony", _FOUR),
    "kashin": Case("kashin", {**_TWO, "K": 1.0}),  # at K = 1 an axis has all coefficients at ±1
    "walsh": Case("walsh", _TWO, share=0.5),
    "qharmony": Case("qharmony", {**_FOUR, "allow_unsafe": True}),
}

EXPECTED_TO_FAIL = frozenset({"qharmony"})


def find_case(name: str) -> Case:
    if name == "identity":
        raise ValueError("identity has no privacy guarantee, so there is nothing to audit.")
    if name not in CASES:
        raise ValueError(unknown("mechanism", name, CASES))
    return CASES[name]


@dataclass(frozen=True)
class Audit:
    """The results of all layers for one mechanism."""

    mechanism: str
    epsilon: float
    exact: ExactLaw
    fit: Fit
    black_box: BlackBox
    false_alarm: float

    @property
    def holds(self) -> bool:
        return not self.caught_by

    @property
    def caught_by(self) -> tuple[str, ...]:
        """The layers that found a fault."""
        return tuple(name for name, layer in self._layers.items() if not layer.holds)

    @property
    def _layers(self) -> dict[str, ExactLaw | Fit | BlackBox]:
        return {"exact": self.exact, "fit": self.fit, "black box": self.black_box}

    @property
    def verdict(self) -> str:
        if not self.holds:
            return "fails"
        return "holds" if self.black_box.has_power else "holds, no power"

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["exact"]["tight"] = self.exact.tight
        if math.isinf(self.exact.worst):  # JSON has no infinity
            found["exact"]["worst"] = None
        for name, layer in self._layers.items():
            found[name.replace(" ", "_")]["holds"] = layer.holds
        found["black_box"]["has_power"] = self.black_box.has_power
        return found | {"verdict": self.verdict, "caught_by": list(self.caught_by)}


def audit(
    mechanism: Mechanism,
    n_reports: int,
    seed: int,
    *,
    name: str | None = None,
    progress: Progress = silent,
) -> Audit:
    """Run all layers on one small mechanism, for its ε.

    ``n_reports`` reports of each of two gradients are drawn for the black box. A correct mechanism
    fails with a probability of at most `FALSE_ALARM`.
    """
    if n_reports < 1000:
        raise ValueError(
            f"an audit needs at least 1,000 reports of each gradient, got {n_reports}."
        )
    law = exact(mechanism, seed)
    drawn = draws(mechanism, worst_pair(mechanism), n_reports, seed, progress)
    if isinstance(mechanism, FiniteMechanism):
        fit = frequencies(mechanism, max(1000, n_reports // 2), seed, FALSE_ALARM / 2)
    elif drawn.losses is not None:
        fit = calibration(drawn.losses, FALSE_ALARM / 2)
    else:
        fit = Fit("none", 1.0, 0, 0, FALSE_ALARM / 2)
    outside = black_box(mechanism.epsilon, drawn, FALSE_ALARM / 2)
    return Audit(name or mechanism.name, mechanism.epsilon, law, fit, outside, FALSE_ALARM)
