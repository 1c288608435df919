"""How far the reports of a round differ from all before: a sign of phones that lie together.

Phones that lie together must point their reports in one direction, or they cancel. Whoever wants an
app suggested points at the transitions to it, most of all from apps in wide use; so the mean of
these cells rises from one round to the next by more than noise explains. An app that is suddenly in
wide use does the same: an anomaly is a reason to look, not a proof.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nextapp.wire import Floats

SUSPICIOUS = 6.0
"""Standard errors. By chance alone one of 1,023 apps changes so much in a quarter of a million
rounds, and one of 65,536 buckets in 7,000."""


class Anomaly(NamedTuple):
    """The app, by its row of the catalogue, or the bucket that changed most, in standard errors."""

    question: str
    row: int
    errors: float

    def __str__(self) -> str:
        what = "bucket" if self.question == "launches" else "row"
        return (
            f"{what} {self.row} of the catalogue changed by {self.errors:.1f} standard errors "
            f"({self.question})"
        )


def anomaly_of_transitions(
    round: Floats, n_round: float, before: Floats, n_before: Floats, variance: float, likes: Floats
) -> Anomaly | None:
    """The app to which transitions have changed most against all rounds before.

        z(i) = Σ_j w(j) d(j, i) / √(Σ_j w(j)² σ²(j, i))
        d = round/n_round − before/n_before,   σ² = variance (1/n_round + 1/n_before)

    for w all the same, and for w as popular as the apps are. None where there is nothing before.

    Parameters
    ----------
    round, before : (n_apps, n_apps + 1), sums of reports
    n_before : (n_apps, n_apps + 1), how many reports each cell of `before` is the sum of
    variance
        That of one cell of one report.
    likes : (n_apps,)
    """
    there = n_before > 0
    if not there.any():
        return None
    since = np.maximum(n_before, 1.0)
    change = np.where(there, round / n_round - before / since, 0.0)
    noise = np.where(there, variance * (1.0 / n_round + 1.0 / since), 0.0)
    z = np.array(
        [
            (weight @ change) / np.sqrt(np.maximum(weight**2 @ noise, math.ulp(0.0)))
            for weight in (np.ones(len(likes)), likes)
        ]
    )[:, :-1]
    row = int(np.abs(z).max(axis=0).argmax())
    return Anomaly("transitions", row, float(np.abs(z[:, row]).max()))


def anomaly_of_launches(
    round: Floats, n_round: float, before: Floats, n_before: float, variance: float
) -> Anomaly | None:
    """The bucket whose share of launches has changed most; None where there is nothing before."""
    if n_before == 0 or not len(round):
        return None
    error = math.sqrt(variance * (1.0 / n_round + 1.0 / n_before))
    z = np.abs(round / n_round - before / n_before) / error
    return Anomaly("launches", int(z.argmax()), float(z.max()))
