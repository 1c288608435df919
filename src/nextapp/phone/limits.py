"""What a phone accepts from a server: bounds for every phone, limits set by its owner.

All of it is checked on the server's bytes alone, before anything private is touched, so a refusal
tells a server nothing that it did not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nextapp.names import unknown
from nextapp.privacy import MECHANISMS, Mechanism, requested_mechanism, requested_shape
from nextapp.privacy.walsh import LARGEST_D
from nextapp.settings import setting
from nextapp.wire import Broadcast, WireError

# Bounds of a broadcast. They are far from what a server needs, and keep numbers and work small:
# every command of a phone reads the broadcast anew.
MOST_BYTES = 4 << 20  # unpacked
MOST_WORDS = 1 << 18  # bytes of the header, which has the names
MOST_APPS = 1 << 14
MOST_DIMENSIONS = 1 << 7
MOST_NUMBERS = 1 << 18  # n_apps · d
LARGEST_ENTRY = 1e6  # |Q|
LAM = (1e-6, 1e6)
CLIP = (1e-9, 1e9)
LONGEST_NAME = 255
MOST_SEARCHED = 1 << 16
"""Numbers of a gradient for kashin, whose time depends on the gradient.

The work of the others is bounded by the nonzero numbers of an answer: a tenth of a second at most.
"""

OPTIONS: Mapping[str, Mapping[str, float]] = {
    "walsh": {"b": 8},
    "harmony": {"k": 64},
    "kashin": {"b": 8, "K": 8.0},
}
"""The mechanisms that a phone can report by, and the largest value of each of their options."""

PREDICTORS: Mapping[str, tuple[str, ...]] = {
    "nextapp": ("launches", "transitions"),
    "seqmf": ("gradient",),
}
"""How a phone can predict, and the questions that it answers: those whose outcome it predicts by.

nextapp  its own habits, and the crowd that launches and transitions of many phones make up
seqmf    the light scores of eq. (8), by the app vectors that gradients train
"""


class BadBroadcast(WireError):
    """A broadcast that is whole but cannot be used."""


class BeyondLimits(WireError):
    """A request that the owner of the phone does not allow."""


class NotUsed(WireError):
    """A request for what the phone does not predict by: it would spend ε for nothing."""


def read_broadcast(data: bytes) -> Broadcast:
    """The broadcast in these bytes, if a phone can use it; else a `WireError`."""
    n_words = int.from_bytes(data[:8], "little")
    if len(data) > MOST_BYTES or MOST_WORDS < n_words <= len(data):
        raise BadBroadcast(
            f"it has {len(data):,} bytes; a phone takes {MOST_BYTES:,}, of them {MOST_WORDS:,} of "
            f"names and other words."
        )
    broadcast = Broadcast.from_bytes(data)
    _check_sizes(broadcast)
    _check_names(broadcast.apps)
    vectors = broadcast.app_vectors
    largest = float(np.abs(vectors).max(initial=0.0))
    if not largest <= LARGEST_ENTRY:
        raise BadBroadcast(f"its app vectors have entries up to {largest:g}.")
    gram = broadcast.gram
    if not (gram.dtype.kind == "f" and np.isfinite(gram).all()):
        raise BadBroadcast("its gram is not finite.")
    found = np.einsum("ai,aj->ij", vectors, vectors)  # on one thread: BLAS's others spin for .1 s
    if not np.allclose(gram, found, rtol=1e-6, atol=1e-9):
        raise BadBroadcast("its gram is not that of its app vectors.")
    lam = broadcast.settings.lam
    if not LAM[0] <= lam <= LAM[1]:
        raise BadBroadcast(f"its lam must lie in {LAM[0]:g} to {LAM[1]:g}, got {lam!r}.")
    return broadcast


def _check_sizes(broadcast: Broadcast) -> None:
    n_apps, d = broadcast.n_apps, broadcast.dim
    least = 1 if broadcast.buckets is None else 0  # in its first round no bucket has a slot
    if not (least <= n_apps <= MOST_APPS and d <= MOST_DIMENSIONS and n_apps * d <= MOST_NUMBERS):
        raise BadBroadcast(
            f"it has {n_apps} apps of {d} dimensions; a phone takes {least} to {MOST_APPS} apps of "
            f"up to {MOST_DIMENSIONS}, and {MOST_NUMBERS} numbers in all."
        )


def _check_names(apps: tuple[str, ...]) -> None:
    if len(set(apps)) != len(apps):
        raise BadBroadcast("its catalogue names an app twice.")
    if any(not 0 < len(name) <= LONGEST_NAME for name in apps):
        raise BadBroadcast(f"its catalogue has names without 1 to {LONGEST_NAME} characters.")


@dataclass(frozen=True)
class Limits:
    """What the owner of a phone allows. A server's wish is a request; these decide.

    ``per_report``, ``per_day`` and ``lifetime`` are the largest ε of one report, of a UTC day and
    of the phone's life. ``hours`` must lie between two reports. ``mechanisms`` are those that the
    phone may report by.
    """

    per_report: float = setting(1.0, "Largest ε of one report.")
    per_day: float = setting(1.0, "Largest ε it may spend in a day.")
    lifetime: float = setting(1.0, "Largest ε it may spend in its life.")
    hours: float = setting(20.0, "Hours between two reports, at least.")
    mechanisms: tuple[str, ...] = (
        "walsh",
        "harmony",
    )

    def __post_init__(self) -> None:
        for name in ("per_report", "per_day", "lifetime"):
            value = getattr(self, name)
            if not 0 < value <= 1e9:
                raise ValueError(f"{name} must be an ε > 0 and at most 1e9, got {value!r}.")
        if not (math.isfinite(self.hours) and self.hours >= 0):
            raise ValueError(f"hours must be a number >= 0, got {self.hours!r}.")
        for name in self.mechanisms:
            if name not in OPTIONS:
                raise ValueError(unknown("mechanism for phones", name, OPTIONS))

    def reports_for_life(self, epsilon: float) -> int:
        """How many reports of this ε fit into a life."""
        return math.floor(self.lifetime / epsilon + 1e-9)

    def looser_than(self, other: Limits) -> list[str]:
        """The names of the limits that allow more than those of `other`."""
        names = [
            name
            for name in ("per_report", "per_day", "lifetime")
            if getattr(self, name) > getattr(other, name)
        ]
        if self.hours < other.hours:
            names.append("hours")
        if set(self.mechanisms) - set(other.mechanisms):
            names.append("mechanisms")
        return names

    def mechanism_for(self, broadcast: Broadcast, predictor: str = "nextapp") -> Mechanism:
        """The mechanism that a broadcast asks for, if the owner allows such a report.

        `BeyondLimits` where the owner does not; `NotUsed` where a phone with this `predictor` has
        nothing from it; a `WireError` where no phone would.
        """
        request = broadcast.request
        if request is None:
            raise WireError(f"the broadcast of round {broadcast.round} asks for no reports.")
        if request.question not in PREDICTORS[predictor]:
            other = next(name for name, some in PREDICTORS.items() if request.question in some)
            raise NotUsed(
                f"the server asks for {request.question}, which this phone does not predict by "
                f"(its predictor is {predictor}); a phone set up by init --predictor {other} does. "
                f"No ε was spent."
            )
        name = request.mechanism
        if name not in OPTIONS:
            what = "which no phone sends" if name in MECHANISMS else "which is not known"
            raise WireError(
                f"the server asks for {name!r}, {what}: only mechanisms that are ε-LDP, send "
                f"nothing in the clear and are drawn exactly."
            )
        if name not in self.mechanisms:
            raise BeyondLimits(
                f"the server asks for {name!r}; this phone reports by "
                f"{', '.join(self.mechanisms)} only."
            )
        if request.epsilon > self.per_report:
            raise BeyondLimits(
                f"the server asks for a report of ε = {request.epsilon:g}; this phone's limit for "
                f"one report is {self.per_report:g}."
            )
        if request.clip is not None and not CLIP[0] <= request.clip <= CLIP[1]:
            raise WireError(f"the server asks for a clip of {request.clip:g}, which is no scale.")
        for option, value in request.options.items():
            most = OPTIONS[name].get(option)
            if (
                most is None
                or isinstance(value, str)
                or not 0 < value <= most
                or (option != "K" and type(value) is not int)
            ):
                raise WireError(
                    f"the server asks for {name} with {option!s:.40} = {value!r:.40}, which this "
                    f"phone does not do."
                )
        size = math.prod(requested_shape(broadcast))
        if size > (MOST_SEARCHED if name == "kashin" else LARGEST_D):
            raise WireError(f"a report by {name} of {size:,} numbers is too much work.")
        made = requested_mechanism(broadcast)
        if made.unsafe or not made.finite_output or made.guarantee.sent_in_clear:
            raise WireError(f"{name} is not ε-LDP as it is asked for.")
        if made.guarantee.epsilon > self.per_report:
            raise BeyondLimits(f"{name} costs more than the {self.per_report:g} of a report.")
        return made
