"""The privacy mechanisms of experiments on simulated phones, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nextapp.fleet.encoders import FLEET_MECHANISMS
from nextapp.privacy import Mechanism, find_class, mechanism
from nextapp.settings import unknown

NONE = "none"
"""No privacy: the gradients are sent unchanged."""


@dataclass(frozen=True)
class Form:
    """A mechanism with fixed options, for use under its own name in studies."""

    mechanism: str
    options: Mapping[str, Any] = field(default_factory=dict)
    clipped: bool = True
    words: str = ""

    @property
    def unsafe(self) -> bool:
        return find_class(self.mechanism).unsafe


PRINTED = "qharmony-printed"
_PRINTED_K = 9  # the paper: "k should be small, e.g. k < 10"
FORMS: Mapping[str, Form] = {
    "laplace": Form("laplace", words="Laplace noise after an ℓ∞ clip, as in the paper"),
    "laplace-l1": Form(
        "laplace", {"ball": "l1"}, words="Laplace noise after an ℓ1 clip, at the same ε"
    ),
    PRINTED: Form(
        "qharmony",
        {"k": _PRINTED_K, "decodes": "sum"},
        clipped=False,
        words=f"Algorithms 1 and 2 exactly as printed: no clip, k = {_PRINTED_K} (the largest "
        f"k < 10), F̄ itself used as the sum of gradients",
    ),
    "qharmony-printed-k1": Form(
        "qharmony",
        {"k": 1, "decodes": "sum"},
        clipped=False,
        words="the same with k = 1",
    ),
    "qharmony-printed-mean": Form(
        "qharmony",
        {"k": _PRINTED_K},
        clipped=False,
        words="the same with F̄ read as a mean, that is, multiplied by the number of reports",
    ),
    "qharmony": Form(
        "qharmony",
        words="clipped, with the k of least variance, and F̄ multiplied by the number of reports",
    ),
    **{
        name: Form(name)
        for name in FLEET_MECHANISMS
        if name not in ("identity", "laplace", "qharmony")
    },
}
"""All mechanisms that a study can use."""


NOISE = "-noise"
"""What is added to a mechanism's name for its control: the same reports of phones whose gradients
are zero."""


def mechanism_for_simulation(
    name: str, epsilon: float | None, n_apps: int, d: int, clips: float | Mapping[str, float]
) -> Mechanism:
    """Build one of `FORMS`, also under the name of its control by noise. Unsafe ones are allowed.

    `clips` is one clip or a clip by ball. `NONE` and identity have neither ε nor clip.
    """
    name = name.removesuffix(NOISE)
    options: dict[str, Any] = {"n_apps": n_apps, "d": d}
    if name in (NONE, "identity"):
        return mechanism("identity", **options)
    if name not in FORMS:
        raise ValueError(unknown("mechanism", name, (NONE, *FORMS)))
    form = FORMS[name]
    options |= form.options
    if "k" in options:
        options["k"] = min(options["k"], n_apps * d)
    if epsilon is not None:
        options["epsilon"] = epsilon
    if form.unsafe:
        options["allow_unsafe"] = True
    if not form.clipped:
        return mechanism(form.mechanism, **options)
    if isinstance(clips, Mapping):
        clips = clips[mechanism(form.mechanism, clip=1.0, **options).ball]
    return mechanism(form.mechanism, clip=clips, **options)
