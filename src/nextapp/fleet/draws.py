"""The draws of `nextapp.randomness` and `nextapp.privacy` inside compiled loops, word for word."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled, wide_product
from nextapp.compiled_bits import below, word
from nextapp.fleet.columns import Longs
from nextapp.randomness import Words

_GRID = float(1 << 52)
_FULL = np.uint64(1 << 53)

# AS 241: numerator and denominator, highest power first, in the middle, the tails, far out.
MIDDLE = (
    (
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
        4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
        1.3314166789178437745e2, 3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
        2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
        4.2313330701600911252e1, 1.0,
    ),
)  # fmt: skip
TAIL = (
    (
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
        1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
        4.63033784615654529590e0, 1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
        1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
        2.05319162663775882187e0, 1.0,
    ),
)  # fmt: skip
FAR = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
        2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
        5.46378491116411436990e0, 6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
        7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
        5.99832206555887937690e-1, 1.0,
    ),
)  # fmt: skip


@compiled
def distinct(bits: Words, bound: int, out: Longs) -> None:
    """`nextapp.randomness.distinct`: as many different numbers below `bound` as `out` holds."""
    n = len(out)
    for taken in range(n):
        top = bound - n + taken
        number = below(bits, top + 1)
        place = int(np.searchsorted(out[:taken], number))
        if place < taken and out[place] == number:
            number, place = top, taken  # top is larger than all before it
        for later in range(taken, place, -1):
            out[later] = out[later - 1]
        out[place] = number


@compiled
def is_positive(drawn: Any, x: float, floor: Any) -> bool:
    """Whether a word lies below `nextapp.privacy.exact.sign_threshold`, without 65-bit numbers."""
    steps = np.uint64(min(max((1.0 + x) * _GRID, 0.0), 2.0 * _GRID))
    if floor == 0:  # the threshold is 2^11 steps, 2^64 at the most
        return bool(steps == _FULL or drawn < steps << np.uint64(11))
    span = np.uint64(0) - np.uint64(2) * floor  # 2^64 − 2 floor
    high, low = wide_product(span, steps)
    return bool(drawn < floor + (high << np.uint64(11) | low >> np.uint64(53)))


@compiled
def inside(bits: Words) -> float:
    """`nextapp.privacy.laplace.uniform`: strictly between 0 and 1; one word."""
    return (float(word(bits) >> np.uint64(11)) + 0.5) * 2.0**-53


@compiled
def normal_quantile(p: float) -> float:
    """Φ⁻¹(p): Wichura's AS 241 (1988), as in Python's ``statistics.NormalDist.inv_cdf``."""
    q = p - 0.5
    if abs(q) <= 0.425:
        return _ratio(0.180625 - q * q, MIDDLE) * q
    r = math.sqrt(-math.log(p if q <= 0.0 else 1.0 - p))
    size = _ratio(r - 1.6, TAIL) if r <= 5.0 else _ratio(r - 5.0, FAR)
    return -size if q < 0.0 else size


@compiled
def _ratio(r: float, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> float:
    above, below_ = coefficients
    top, bottom = 0.0, 0.0
    for a in above:
        top = top * r + a
    for b in below_:
        bottom = bottom * r + b
    return top / bottom
