"""A privacy claim as an object: what it promises and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """ε-LDP, eq. (14), of one ``per`` for what it ``covers``.

    ``epsilon`` is infinite where nothing is promised. ``sent_in_clear`` names what leaves the phone
    unprotected.
    """

    epsilon: float
    per: str = "report"
    covers: tuple[str, ...] = ()
    sent_in_clear: tuple[str, ...] = ()
