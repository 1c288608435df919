"""What a phone does to its gradient before it leaves: mechanisms and their guarantees.

A mechanism has two sides, ``encode`` (phone) and ``decode`` (server), one file each::

    from nextapp.privacy import mechanism
    m = mechanism("codebook", epsilon=4.5, n_apps=87, d=16, clip=1.0)
    report = m.encode(F, bits, round=0)   # bits: SystemBits() on a phone
    mean = m.decode([report, ...])        # estimate of the mean of the clipped gradients
    m.guarantee

`subset` and `hadamard` are frequency oracles: they report `nextapp.shares.Shares`, not gradients,
and need no clip.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from nextapp.names import unknown
from nextapp.privacy.codebook import Codebook
from nextapp.privacy.duchi import Duchi
from nextapp.privacy.frequency import FrequencyMechanism
from nextapp.privacy.guarantee import Guarantee
from nextapp.privacy.hadamard import Hadamard
from nextapp.privacy.harmony import Harmony
from nextapp.privacy.hybrid import Hybrid
from nextapp.privacy.identity import Identity
from nextapp.privacy.kashin import Kashin
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.mechanism import FiniteMechanism, Mechanism
from nextapp.privacy.piecewise import Piecewise
from nextapp.privacy.privunit import PrivUnit
from nextapp.privacy.qharmony import QHarmony
from nextapp.privacy.qharmony_paper import QHarmonyPaper
from nextapp.privacy.quantile import Quantile, ShorterThan, private_quantile
from nextapp.privacy.simhash import SimHash
from nextapp.privacy.subset import Subset
from nextapp.wire import Broadcast, WireError

__all__ = [
    "FREQUENCY_MECHANISMS",
    "MECHANISMS",
    "FiniteMechanism",
    "FrequencyMechanism",
    "Guarantee",
    "Mechanism",
    "Quantile",
    "ShorterThan",
    "mechanism",
    "private_quantile",
    "requested",
]

MECHANISMS: Mapping[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (
        Identity,
        Laplace,
        Duchi,
        Harmony,
        QHarmony,
        QHarmonyPaper,
        Piecewise,
        Hybrid,
        Kashin,
        SimHash,
        PrivUnit,
        Codebook,
        Subset,
        Hadamard,
    )
}
FREQUENCY_MECHANISMS: Mapping[str, type[FrequencyMechanism]] = {
    name: kind for name, kind in MECHANISMS.items() if issubclass(kind, FrequencyMechanism)
}


def mechanism(name: str, *, n_apps: int, d: int, **options: Any) -> Mechanism:
    """The mechanism of this name for gradients (or shares) of shape (n_apps, d).

    All but ``identity`` need ``epsilon``, the budget of one whole report; all that protect
    gradients need ``clip``. Other options are those of the mechanism's class.

    >>> mechanism("harmony", epsilon=4.5, n_apps=87, d=16, clip=1.0).guarantee.epsilon
    4.5
    """
    if name not in MECHANISMS:
        raise ValueError(unknown("mechanism", name, MECHANISMS))
    kind = MECHANISMS[name]
    parameters = inspect.signature(kind).parameters
    known = {word: parameters[word] for word in parameters if word not in ("n_apps", "d")}
    for option in options:
        if option not in known:
            raise ValueError(f"{name}: {unknown('option', option, known)}")
    for word, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and word not in options:
            raise ValueError(f"{name} needs {word}: {_NEEDED[word]}")
    return kind(n_apps=n_apps, d=d, **options)


def requested(broadcast: Broadcast) -> Mechanism:
    """The mechanism that a broadcast asks phones to report with."""
    request = broadcast.request
    if request is None:
        raise WireError(f"the broadcast of round {broadcast.round} asks for no reports.")
    options: dict[str, Any] = {**request.options}
    if request.clip is not None:
        options["clip"] = request.clip
    try:
        return mechanism(
            request.mechanism,
            n_apps=broadcast.n_apps,
            d=broadcast.n_apps + 1 if request.mechanism in FREQUENCY_MECHANISMS else broadcast.dim,
            epsilon=request.epsilon,
            **options,
        )
    except (TypeError, ValueError) as error:
        raise WireError(f"the broadcast asks for a report that cannot be made: {error}") from error


_NEEDED = {
    "epsilon": "the privacy budget of one whole report. There is no default.",
    "clip": "the public radius to which gradients are clipped, a constant or a private_quantile.",
}
