"""Integers that stand for probabilities, rounded so that no ratio can exceed e^ε.

A draw compares a 64-bit word with a whole-number threshold T, so its probability is exactly T/W
with W = 2^64. The thresholds below are computed from a rational lower bound of e^ε and rounded to
the private side. The server divides by the probabilities as drawn, not by the formula with e^ε, so
the rounding costs no bias.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

W = 1 << 64

SMALLEST_EPSILON = 2.0**-32
_LARGEST_RATIO = 64  # in nats; words of 64 bits cannot tell apart more than 44.4
_GRID = 1 << 52


def check_epsilon(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon >= SMALLEST_EPSILON):
        raise ValueError(
            f"epsilon must be a finite number of 2^-32 or more, got {epsilon!r}. It is the budget "
            f"of one whole report; for no privacy at all choose the mechanism 'identity' by name."
        )
    return float(epsilon)


def exp_from_below(epsilon: float, k: int = 1) -> Fraction:
    """A rational number just below e^(ε/k), by at most one part in 10^40.

    ε is the float as it is, and ε/k is not rounded to a float, so k draws at this ratio compose to
    at most e^ε exactly. Above 64 the result stays at e^64, which is on the private side.
    """
    share = min(Fraction(epsilon) / k, Fraction(_LARGEST_RATIO))
    context = decimal.Context(prec=60, rounding=decimal.ROUND_FLOOR)
    exponent = context.divide(decimal.Decimal(share.numerator), decimal.Decimal(share.denominator))
    return Fraction(context.exp(exponent)) * (1 - Fraction(1, 10**50))


def response_floor(epsilon: float, k: int = 1) -> int:
    """Smallest T ≥ 1 with ((W − T)/T)^k ≤ e^ε: the least probability T/W of either answer.

    It is the rounded-up W/(1 + e^(ε/k)) of randomised response.
    """
    return math.ceil(W / (1 + exp_from_below(epsilon, k)))


def keep_threshold(epsilon: float, chosen: int, among: int) -> int:
    """Largest T < W so that keeping with probability T/W, else drawing among all, holds e^ε.

    Kept means uniform on ``chosen`` values that depend on the data; else uniform on all ``among``.
    A chosen value then has probability T/(W·chosen) + (W − T)/(W·among), another one only the
    second part; their ratio is 1 + T·among/((W − T)·chosen) ≤ e^ε.
    """
    gain = (exp_from_below(epsilon) - 1) * chosen
    return min(math.floor(W * gain / (gain + among)), W - 1)


def kept(threshold: int, chosen: int, among: int, is_chosen: bool) -> Fraction:
    """The probability of one value in the draw of `keep_threshold`."""
    chance = Fraction(W - threshold, W * among)
    return chance + Fraction(threshold, W * chosen) if is_chosen else chance


def sign_threshold(x: float, floor: int = 0) -> int:
    """T with P[+1] = T/W for an entry x in [−1, 1]: from ``floor`` at −1 to W − floor at +1,
    linear.

        T = floor + ⌊(W − 2 floor) · ⌊(1 + x) 2^52⌋ / 2^53⌋

    Whatever float x is, T stays between the two ends, which is all that ε rests on. With floor = 0
    it is the rounding of x to ±1 at random, P[+1] = ½ + ½ x.
    """
    steps = min(max(int((1.0 + x) * _GRID), 0), 2 * _GRID)
    return floor + ((W - 2 * floor) * steps >> 53)
