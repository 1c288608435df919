"""The mechanism that an experiment on simulated phones reports through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nextapp.privacy import MECHANISMS, Mechanism, mechanism

NONE = "none"
"""No privacy: the gradients as they are."""


def simulated_mechanism(
    name: str, epsilon: float | None, n_apps: int, d: int, clips: float | Mapping[str, float]
) -> Mechanism:
    """A mechanism by name, with a clip or with that of its ball; simulations may use unsafe ones.

    `NONE` and identity have neither ε nor clip.
    """
    options: dict[str, Any] = {"n_apps": n_apps, "d": d}
    if name in (NONE, "identity"):
        return mechanism("identity", **options)
    if epsilon is not None:
        options["epsilon"] = epsilon
    if name in MECHANISMS and MECHANISMS[name].unsafe:
        options["allow_unsafe"] = True
    if isinstance(clips, Mapping):
        clips = clips[mechanism(name, clip=1.0, **options).ball]
    return mechanism(name, clip=clips, **options)
