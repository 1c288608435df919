"""A clip from private data with a privacy guarantee: a private quantile of gradient lengths.

The clip must not be computed from the phones' gradients without privacy. Either it is a public
constant, chosen before any phone has reported, or it is computed here by bisection: in every step
other phones say whether their gradient is shorter than a threshold, by randomised response (Warner
1965). A phone answers only once, so it spends the ε of one answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nextapp.privacy.exact import W, check_epsilon, response_floor
from nextapp.privacy.guarantee import SECRET_BITS, Guarantee
from nextapp.randomness import Bits, chance
from nextapp.wire import Report, WireError


class ShorterThan:
    """One phone's answer to "is your length at most this threshold?", by randomised response.

        P[true answer] = e^ε/(1 + e^ε)

    Payload: 1 byte, 0 or 1. Bits: 1 word.
    """

    name = "shorter-than"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.floor = response_floor(self.epsilon)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, per="answer", covers=("the length",), assumptions=(SECRET_BITS,)
        )

    def encode(
        self,
        length: float,
        threshold: float,
        bits: Bits,
        round: int = 0,
    ) -> Report:
        """Phone: the answer; ``round`` is the step of the bisection."""
        if math.isnan(length):
            raise ValueError("a length must be a number.")
        says_yes = chance(bits, W - self.floor if length <= threshold else self.floor)
        return Report(self.name, round, bytes([says_yes]))

    def decode(self, reports: Sequence[Report]) -> float:
        """Server: the estimated share of phones whose length is at most the threshold; unbiased."""
        if not reports:
            raise ValueError("a share needs at least one answer.")
        n_yes = 0
        for report in reports:
            if report.mechanism != self.name or report.payload not in (b"\0", b"\1"):
                raise WireError(
                    f"an answer must be a report of {self.name!r} with one byte, 0 or 1."
                )
            n_yes += report.payload[0]
        return (n_yes / len(reports) * W - self.floor) / (W - 2 * self.floor)


@dataclass(frozen=True)
class Quantile:
    """A private quantile: the length, each phone's guarantee, and how many phones answered."""

    value: float
    guarantee: Guarantee
    n_answers: int


def private_quantile(
    ask: Callable[[int, float], Sequence[Report]],
    *,
    epsilon: float,
    quantile: float = 0.5,
    low: float,
    high: float,
    steps: int = 12,
) -> Quantile:
    """A private quantile of the phones' lengths, for use as a clip.

    Bisection on a logarithmic scale between the public bounds `low` and `high`. ``ask(step,
    threshold)`` returns the `ShorterThan` answers of that step's phones; every phone may answer in
    one step only, and its ledger is charged `epsilon` for it. With n answers per step the standard
    error of the share is about c(ε)/(2√n).
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile must lie between 0 and 1, got {quantile!r}.")
    if not 0 < low < high < math.inf:
        raise ValueError(f"bounds must be public and 0 < low < high, got {low!r} and {high!r}.")
    if steps < 1:
        raise ValueError(f"steps must be 1 or more, got {steps!r}.")
    answer = ShorterThan(epsilon)
    n_answers = 0
    for step in range(steps):
        threshold = math.sqrt(low * high)
        reports = ask(step, threshold)
        n_answers += len(reports)
        if answer.decode(reports) < quantile:
            low = threshold
        else:
            high = threshold
    return Quantile(math.sqrt(low * high), answer.guarantee, n_answers)
