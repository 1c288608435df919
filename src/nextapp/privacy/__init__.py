"""Privacy mechanisms, which randomise a report before it leaves the phone, and their guarantees.

A mechanism has two sides, ``encode`` (phone) and ``decode`` (server). There is one file for each::

    from nextapp.privacy import mechanism
    m = mechanism("walsh", epsilon=4.5, n_apps=87, d=16, clip=1.0)
    report = m.encode(F, bits, round=0)   # bits: SystemBits() on a phone
    mean = m.decode([report, ...])        # estimate of the mean of the clipped gradients
    m.guarantee

Mechanisms take gradients, or `nextapp.crowd.Shares` of the same shape, which they clip; `walsh` is
designed for the shares of a large catalogue.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from nextapp.names import unknown
from nextapp.privacy.harmony import Harmony
from nextapp.privacy.identity import Identity
from nextapp.privacy.kashin import Kashin
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.mechanism import FiniteMechanism, Guarantee, Mechanism
from nextapp.privacy.qharmony import QHarmony
from nextapp.privacy.walsh import Walsh
from nextapp.wire import Broadcast, ReportRequest, WireError

__all__ = [
    "MECHANISMS",
    "FiniteMechanism",
    "Guarantee",
    "Mechanism",
    "mechanism",
    "requested_mechanism",
    "requested_shape",
]

MECHANISMS: Mapping[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (
        Identity,
        Laplace,
        Harmony,
        QHarmony,
        Kashin,
        Walsh,
    )
}


def mechanism(name: str, *, n_apps: int, d: int, **options: Any) -> Mechanism:
    """The mechanism with this name for gradients (or shares) of shape (n_apps, d).

    All except ``identity`` need ``epsilon``, the budget of one whole report; all that protect
    gradients need ``clip``. For other options see the mechanism's class.

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


def requested_mechanism(broadcast: Broadcast) -> Mechanism:
    """The mechanism that a broadcast asks phones to report with."""
    request = _request_of(broadcast)
    n_apps, d = requested_shape(broadcast)
    options: dict[str, Any] = {**request.options}
    if request.clip is not None:
        options["clip"] = request.clip
    try:
        return mechanism(request.mechanism, n_apps=n_apps, d=d, epsilon=request.epsilon, **options)
    except (TypeError, ValueError) as error:
        raise WireError(f"the broadcast asks for a report that is not possible: {error}") from error


def requested_shape(broadcast: Broadcast) -> tuple[int, int]:
    """The shape of the report that a broadcast asks for; a `WireError` if it asks for none."""
    request = _request_of(broadcast)
    if request.question == "launches":
        if broadcast.buckets is None:
            raise WireError("the broadcast asks for launches by bucket, but has no buckets.")
        return broadcast.buckets.n_buckets, 1
    if broadcast.n_apps == 0:
        raise WireError(f"the broadcast asks for {request.question}, but its catalogue is empty.")
    if request.question == "transitions":
        return broadcast.n_apps, broadcast.n_apps + 1
    if broadcast.dim == 0:
        raise WireError("the broadcast asks for a gradient, but has no app vectors.")
    return broadcast.n_apps, broadcast.dim


def _request_of(broadcast: Broadcast) -> ReportRequest:
    if broadcast.request is None:
        raise WireError(f"the broadcast of round {broadcast.round} asks for no reports.")
    return broadcast.request


_NEEDED = {
    "epsilon": "the privacy budget of one whole report. There is no default.",
    "clip": "the public radius to which gradients are clipped, a constant.",
}
