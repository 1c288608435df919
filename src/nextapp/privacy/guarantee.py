"""A privacy guarantee as an object: its ε, what it covers, what it leaves out, its assumptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """ε-LDP, eq. (14), per ``per`` (such as "report"), for the parts in ``covers``.

    ``epsilon`` is infinite if there is no guarantee. ``sent_in_clear`` names what leaves the phone
    unprotected. ``assumptions`` must hold for the guarantee to be true.
    """

    epsilon: float
    per: str = "report"
    covers: tuple[str, ...] = ()
    sent_in_clear: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


SECRET_BITS = "the phone's random bits are uniform and secret"
REAL_NUMBERS = (
    "the noise is a real number, which floats only approximate (Mironov 2012): do not use on phones"
)
