"""What a phone does to its gradient before it leaves: mechanisms and their guarantees.

A mechanism has two sides, ``encode`` (phone) and ``decode`` (server), one file each::

    from nextapp.privacy import mechanism
    m = mechanism("identity", n_apps=87, d=16)
    report = m.encode(F, bits, round=0)
    mean = m.decode([report])
    m.guarantee
"""

from __future__ import annotations

from nextapp.privacy.guarantee import Guarantee
from nextapp.privacy.identity import Identity
from nextapp.privacy.mechanism import Mechanism

__all__ = ["Guarantee", "Identity", "Mechanism", "mechanism"]


def mechanism(name: str, *, n_apps: int, d: int) -> Mechanism:
    """The mechanism of this name for gradients of shape (n_apps, d)."""
    if name == "identity":
        return Identity(n_apps, d)
    raise ValueError(f"unknown mechanism {name!r}; known: identity.")
