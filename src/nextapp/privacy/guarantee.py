"""A privacy claim as an object: what it promises, what it leaves out, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """ε-LDP, eq. (14), of one ``per`` for what it ``covers``.

    ``epsilon`` is infinite where nothing is promised. ``sent_in_clear`` names what leaves the phone
    unprotected. ``assumptions`` is what must hold for the claim to be true.
    """

    epsilon: float
    per: str = "report"
    covers: tuple[str, ...] = ()
    sent_in_clear: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


SECRET_BITS = "the phone's bits are uniform and known to nobody else"
REAL_NUMBERS = (
    "the noise is drawn from real numbers; floats only come close (Mironov 2012), so do not use "
    "it on a phone"
)
