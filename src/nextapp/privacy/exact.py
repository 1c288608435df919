"""Probabilities as integers, rounded so that no ratio exceeds e^ε.

A draw compares a 64-bit word with an integer threshold T, so its probability is exactly T/W with
W = 2^64. The thresholds are computed from a rational lower bound of e^ε and rounded towards more
privacy. The server uses these exact probabilities, not the formula with e^ε, so the rounding causes
no bias.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

W = 1 << 64

SMALLEST_EPSILON = 2.0**-32
_LARGEST_RATIO = 64  # in nats; 64-bit words can represent ratios up to 44.4 only
_GRID = 1 << 52


def check_epsilon(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon >= SMALLEST_EPSILON):
        raise ValueError(
            f"epsilon must be a finite number of 2^-32 or more, got {epsilon!r}. It is the budget "
            f"of one whole report; for no privacy at all use the mechanism 'identity'."
        )
    return float(epsilon)


def exp_from_below(epsilon: float, k: int = 1) -> Fraction:
    """A rational lower bound of e^(ε/k), with a relative error of at most 10^-40.

    ε is exactly the given float, and ε/k is not rounded, so k draws with this ratio compose to at
    most e^ε exactly. For ε/k above 64 the result is e^64, which is more private.
    """
    share = min(Fraction(epsilon) / k, Fraction(_LARGEST_RATIO))
    context = decimal.Context(prec=60, rounding=decimal.ROUND_FLOOR)
    exponent = context.divide(decimal.Decimal(share.numerator), decimal.Decimal(share.denominator))
    return Fraction(context.exp(exponent)) * (1 - Fraction(1, 10**50))


def response_floor(epsilon: float, k: int = 1) -> int:
    """Smallest T ≥ 1 with ((W − T)/T)^k ≤ e^ε: T/W is the smallest probability of either answer.

    It is W/(1 + e^(ε/k)) of randomised response, rounded up.
    """
    return math.ceil(W / (1 + exp_from_below(epsilon, k)))


def keep_threshold(epsilon: float, chosen: int, among: int) -> int:
    """Largest T < W for which this two-level draw satisfies e^ε.

    With probability T/W the output is uniform on ``chosen`` values that depend on the data, else
    uniform on all ``among`` values. A chosen value has probability T/(W·chosen) +
    (W − T)/(W·among), any other only the second term; the ratio is
    1 + T·among/((W − T)·chosen) ≤ e^ε.
    """
    gain = (exp_from_below(epsilon) - 1) * chosen
    return min(math.floor(W * gain / (gain + among)), W - 1)


def keep_probability(threshold: int, chosen: int, among: int, is_chosen: bool) -> Fraction:
    """The probability of one value in the draw of `keep_threshold`."""
    chance = Fraction(W - threshold, W * among)
    return chance + Fraction(threshold, W * chosen) if is_chosen else chance


def sign_threshold(x: float, floor: int = 0) -> int:
    """T with P[+1] = T/W for an entry x in [−1, 1], linear from ``floor`` at −1 to W − floor at +1.

        T = floor + ⌊(W − 2 floor) · ⌊(1 + x) 2^52⌋ / 2^53⌋

    For every float x, T stays within these bounds, which is all that ε needs. With floor = 0 this
    is random rounding of x to ±1, P[+1] = ½ + ½ x.
    """
    steps = min(max(int((1.0 + x) * _GRID), 0), 2 * _GRID)
    return floor + ((W - 2 * floor) * steps >> 53)
