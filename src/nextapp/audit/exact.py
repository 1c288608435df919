"""Layer 1 of the audit: the stated output distribution of a mechanism, without sampling.

For ε-LDP, eq. (14), no report may be more than e^ε times as likely given one gradient as given
another. For every possible report the largest and the smallest probability over the extreme
gradients are compared, which covers all pairs. Mechanisms that list their reports are checked in
exact arithmetic, so a ratio above e^ε by one part in 10^18 is detected. Those with real-valued
reports are checked at reports that they draw, which can show a fault but not exclude one.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nextapp.privacy import FiniteMechanism, Mechanism
from nextapp.privacy.exact import exp_from_below
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats, Report

SEEDS = 2
"""Number of seeds that are checked if reports contain one; probabilities are conditional on it."""

DRAWN = 50
"""Number of reports drawn from every extreme gradient if reports cannot be listed."""

_ROUNDING = 1e-9  # relative rounding error of densities computed in floats
_MOST_CORNERS = 6  # 2^6 corners of the cube


@dataclass(frozen=True)
class ExactLaw:
    """The largest log-ratio found, and whether ε holds.

    ``complete``: every report was listed and each gradient's probabilities sum to exactly 1.
    ``tight``: the largest ratio is e^ε to 9 digits, so all of ε is used.
    """

    epsilon: float
    worst: float
    n_gradients: int
    n_reports: int
    complete: bool
    holds: bool

    @property
    def tight(self) -> bool:
        return self.holds and self.worst >= self.epsilon * (1 - _ROUNDING)


def exact(mechanism: Mechanism, seed: int) -> ExactLaw:
    """The largest log-ratio of report probabilities; `seed` determines what is drawn.

    All reports are listed, so `mechanism` must be small, with a few entries.
    """
    gradients = extreme_gradients(mechanism, seed)
    if isinstance(mechanism, FiniteMechanism):
        return _law_by_listing(mechanism, gradients, seed)
    return _law_by_drawing(mechanism, gradients, seed)


def extreme_gradients(mechanism: Mechanism, seed: int) -> list[Floats]:
    """Gradients on the boundary of the clip, the zero gradient, and one far outside.

    Probabilities that are affine in each entry (ℓ∞ mechanisms) are extreme at corners of the cube.
    If only the direction matters (ℓ2), the axes, the diagonals and six random directions are used,
    half of these shorter than the clip.
    """
    size = mechanism.n_apps * mechanism.d
    radius = mechanism.clip if math.isfinite(mechanism.clip) else 1.0
    axes = [sign * row for row in np.eye(size) for sign in (1.0, -1.0)]
    corners: list[Floats] = []
    if size <= _MOST_CORNERS:
        corners = [np.array(signs) for signs in itertools.product((1.0, -1.0), repeat=size)]
    if mechanism.ball == "l1":
        points = axes
    elif mechanism.ball == "l2":
        random = KeyedBits(seed, purpose="extreme").generator().normal(size=(6, size))
        random /= np.linalg.norm(random, axis=1, keepdims=True)
        random[::2] /= 2
        diagonals = [np.asarray(corner / math.sqrt(size)) for corner in corners]
        points = [*axes, *diagonals, *random]
    else:
        points = [*(corners or axes), axes[0]]
    points = [*points, np.zeros(size), 100 * points[0]]
    return [radius * point.reshape(mechanism.n_apps, mechanism.d) for point in points]


def list_reports(mechanism: FiniteMechanism, seed: int) -> list[tuple[int | None, list[Report]]]:
    """All reports of `mechanism`; if they contain a seed, all reports of each of a few seeds."""
    if not carries_seed(mechanism):
        return [(None, list(mechanism.outputs()))]
    words = KeyedBits(seed, purpose="seeds").words(SEEDS).tolist()
    return [(word, list(mechanism.outputs(seed=word))) for word in words]  # type: ignore[call-arg]


def carries_seed(mechanism: Mechanism) -> bool:
    """Whether reports contain a random seed; it is then the first word that the phone draws."""
    return "seed" in inspect.signature(mechanism.outputs).parameters


def _law_by_listing(mechanism: FiniteMechanism, gradients: Sequence[Floats], seed: int) -> ExactLaw:
    worst = Fraction(1)
    possible = complete = True
    n_reports = 0
    for _, reports in list_reports(mechanism, seed):
        n_reports += len(reports)
        law = [[mechanism.probability(report, each) for report in reports] for each in gradients]
        complete &= all(sum(row, Fraction(0)) == 1 for row in law)
        for chances in zip(*law, strict=True):
            if min(chances) > 0:
                worst = max(worst, max(chances) / min(chances))
            elif max(chances) > 0:
                possible = False
    return ExactLaw(
        mechanism.epsilon,
        math.log(worst.numerator) - math.log(worst.denominator) if possible else math.inf,
        len(gradients),
        n_reports,
        complete,
        complete and possible and worst <= exp_from_below(mechanism.epsilon),
    )


def _law_by_drawing(mechanism: Mechanism, gradients: Sequence[Floats], seed: int) -> ExactLaw:
    bits = KeyedBits(seed, purpose="exact")
    reports = [mechanism.encode(each, bits) for each in gradients for _ in range(DRAWN)]
    law = np.array([[mechanism.log_prob(report, each) for report in reports] for each in gradients])
    worst = float((law.max(axis=0) - law.min(axis=0)).max())
    return ExactLaw(
        mechanism.epsilon,
        worst,
        len(gradients),
        len(reports),
        complete=False,
        holds=worst <= mechanism.epsilon * (1 + _ROUNDING),
    )
