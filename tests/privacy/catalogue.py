"""The mechanisms as the tests go through them, gradients to try them on, and bounds of e^ε."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from nextapp.privacy import Mechanism, mechanism

FINITE = ["harmony", "kashin", "walsh"]
SEEDED = ["walsh"]  # reports that carry a seed
REAL = [("laplace", {}), ("laplace", {"ball": "l1"})]
UNBIASED = [*((name, {}) for name in FINITE), *REAL]
ALL = [*UNBIASED, ("identity", {}), ("qharmony", {"allow_unsafe": True})]


def made(name: str, options: dict, epsilon: float = 2.0, clip: float = 2.0, **size) -> Mechanism:
    """The mechanism at a small size, unless another is named."""
    size = {"n_apps": 5, "d": 4, **size}
    if name != "identity":
        options = {"epsilon": epsilon, "clip": clip, **options}
    return mechanism(name, **size, **options)


def gradients(rng: np.random.Generator, n_apps: int = 5, d: int = 4) -> dict[str, np.ndarray]:
    """Zero, sparse, dense, at the boundary of a clip of 2, and beyond it."""
    one = np.zeros((n_apps, d))
    one[1, d // 2] = -2.0
    sparse = np.zeros((n_apps, d))
    sparse[2] = rng.normal(0, 0.4, d)
    return {
        "zero": np.zeros((n_apps, d)),
        "sparse": sparse,
        "dense": rng.normal(0, 0.2, (n_apps, d)),
        "boundary": one,
        "beyond": rng.normal(0, 50.0, (n_apps, d)),
    }


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """e^x from below and above, by the Taylor series and its remainder; an oracle of its own."""
    halvings = max(0, math.ceil(x).bit_length())
    y = x / 2**halvings  # at most 1
    total, term = Fraction(0), Fraction(1)
    for n in range(1, 40):
        total += term
        term = term * y / n
    return total ** (2**halvings), (total + 2 * term) ** (2**halvings)
