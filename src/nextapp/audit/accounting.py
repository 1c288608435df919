"""Composition of many reports of one phone, and the effect of a shuffler before the server.

For planning; the phone itself has a `Ledger`, which adds up ε. A report is ε-LDP, eq. (14), that
is with δ = 0. A total is (ε, δ) if for neighbours P and Q the hockey-stick divergence

    H(P, Q; ε) = Σ_o max(0, P(o) − e^ε Q(o))

is at most δ. Two kinds of totals::

    composed   the server links every report to its phone: the plain sum, and for δ > 0 an upper
               bound by privacy loss distributions (PLD)
    shuffled   the server sees the reports of each round without senders, one from every phone

Needs SciPy and Google's dp-accounting, of the extra ``lab``.
"""

from __future__ import annotations

import functools
import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.settings import count
from nextapp.wire import Floats

SMALLEST_DELTA = 1e-12
"""Below it dp-accounting's truncation of tails (1e-15) and its FFT rounding become visible."""

ASSUMPTIONS = (
    "each phone sends one message per round, and nothing in it or about it (address, time, length, "
    "a fixed seed) reveals the sender or links it to a message of another round",
    "whoever looks sees the reports without their senders, or only what the server publishes: a "
    "shuffler or server that can link them sees each report in full",
    "the phones counted are the honest ones of that round: a phone that does not follow the "
    "mechanism hides nobody. A server that issues tokens and collects reports can make them few, "
    "by adding phones of its own or by giving tokens to few",
    "every message is freshly randomised by a mechanism with the same epsilon and delta 0",
)
"""Assumptions of `epsilon_after_shuffling`; without them only `compose_reports` holds.

A phone can check none of them, so it promises its owner the ε of a report, never a smaller figure.
"""

DELTA = 1e-8
"""The δ of figures that are shown where nobody asked for another one."""

_TAIL = 1e-18  # truncated probability; always counted as a full privacy loss
_GRID_POINTS = 1000


@dataclass(frozen=True)
class TotalLoss:
    """The privacy loss of a phone over all its reports.

    ``shuffled_round`` and ``shuffled_total`` (one round and all rounds, each at ``delta``) and the
    ``simple_bound`` of one round hold only under the ``assumptions``; the other two totals always
    hold.
    """

    epsilon: float
    reports: int
    phones: int
    delta: float
    total_by_sum: float
    total_by_pld: float
    shuffled_round: float
    shuffled_total: float
    simple_bound: float | None
    assumptions: tuple[str, ...] = ASSUMPTIONS


def total_loss(epsilon: float, reports: int, phones: int, delta: float) -> TotalLoss:
    """All figures for `reports` rounds in which each of `phones` phones reports once."""
    return TotalLoss(
        epsilon=epsilon,
        reports=reports,
        phones=phones,
        delta=delta,
        total_by_sum=epsilon * reports,
        total_by_pld=compose_reports(epsilon, reports, delta),
        shuffled_round=epsilon_after_shuffling(epsilon, phones, delta),
        shuffled_total=epsilon_after_shuffling(epsilon, phones, delta, rounds=reports),
        simple_bound=simple_bound(epsilon, phones, delta),
    )


def compose_reports(epsilon: float, reports: int, delta: float) -> float:
    """The total ε of `reports` reports, each `epsilon`-LDP, at `delta`: never above their sum.

    For any mechanisms, even chosen adaptively, no total is larger than that of randomised response
    (Kairouz, Oh and Viswanath 2015), whose loss is +ε with probability e^ε/(1 + e^ε), else −ε. On a
    grid of step ε this is exact.
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    _check_count("reports", reports)
    q, r = _truth_and_lie(epsilon)
    by_pld = _epsilon_of_copies(np.array([r, 0.0, q]), -1, epsilon, 0.0, reports, delta)
    return min(epsilon * reports, by_pld)


def epsilon_after_shuffling(epsilon: float, phones: int, delta: float, rounds: int = 1) -> float:
    """The total ε of a phone among `phones` whose `epsilon`-LDP reports are shuffled every round.

    Feldman, McMillan and Talwar (2021), "Hiding among the clones", numeric form. With probability
    e^{−ε} the report of another phone is a clone: drawn from this phone's data or from its
    neighbour's, with equal probability. With

        C ~ Bin(phones − 1, e^{−ε}),   A ~ Bin(C, ½),   B ~ Bern(e^ε/(1 + e^ε))
        P = (A + B, C − A + 1 − B),    Q = (A + 1 − B, C − A + B)

    the shuffled reports reveal at most as much as a draw from P or Q, so the ε of one round is
    where H(P, Q; ε) = `delta`. Several rounds are composed by the PLD of (P, Q), and `delta` is for
    all rounds together. Holds only under `ASSUMPTIONS`.
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    _check_count("phones", phones)
    _check_count("rounds", rounds)
    if rounds == 1:
        return _one_round(epsilon, phones, delta)
    probabilities, lowest, step, lost = _loss_on_a_grid(epsilon, phones)
    return _epsilon_of_copies(probabilities, lowest, step, lost, rounds, delta)


def simple_bound(epsilon: float, phones: int, delta: float) -> float | None:
    """The ε of one shuffled round by a formula; None where it does not hold or is not below ε.

    Theorem 3.1 of the same paper, with e = e^ε and for phones ≥ 16 e ln(2/δ)::

        ln(1 + (e − 1)/(e + 1) · (8 √(e ln(4/δ)/phones) + 8 e/phones))

    Several times `epsilon_after_shuffling`, but it needs no library. Holds only under
    `ASSUMPTIONS`.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be a number > 0, got {epsilon!r}.")
    _check_delta(delta)
    _check_count("phones", phones)
    if epsilon > math.log(phones / (16 * math.log(2 / delta))):
        return None
    odds = math.exp(epsilon)
    noise = 8 * math.sqrt(odds * math.log(4 / delta) / phones) + 8 * odds / phones
    bound = math.log1p(math.tanh(epsilon / 2) * noise)
    return bound if bound < epsilon else None


def without_senders(epsilon: float, *phones: int) -> str:
    """What `simple_bound` says about rounds of this many phones, with its assumptions, in words."""
    shown = []
    for n in phones:
        bound = simple_bound(epsilon, n, DELTA)
        less = f"ε = {epsilon:g}, as without," if bound is None else f"ε = {bound:.2g}"
        shown.append(f"{less} among {count(n, 'honest phone')} of a round")
    return (
        f"Whoever sees only what the server publishes, or the reports without their senders, "
        f"learns from one report at most {', '.join(shown)}; a simple bound, at δ = {DELTA:g}. "
        f"A phone promises ε = {epsilon:g} all the same."
    )


def hockey_stick(at: float, epsilon: float, phones: int) -> float:
    """H(P, Q; `at`) of one shuffled round: the δ for which it is (`at`, δ)-private.

    With q = e^ε/(1 + e^ε), r = 1 − q, c clones and x the first entry of the pair,

        P(x)/Q(x) = (q x + r (c + 1 − x)) / (r x + q (c + 1 − x)),

    which increases with x: so the sum is over all x from a first one on, and consists of upper
    tails of A ~ Bin(c, ½).
    """
    binom = _lab("scipy.stats").binom
    clones, weights = _clones(epsilon, phones)
    q, r = _truth_and_lie(epsilon)
    gap, more, less = math.tanh(epsilon / 2), math.expm1(at), -math.expm1(-at)  # gap is q − r
    # P(x) > e^at Q(x)  <=>  x (q − r)(1 + e^at) > (c + 1)(q e^at − r); both sides over e^at
    share = (gap + r * less) / (gap * (2 - less))
    first = np.floor((clones + 1) * share) + 1
    # (q − r e^at) P[A + 1 >= first] + (r − q e^at) P[A >= first]
    inside = (gap - r * more) * binom.sf(first - 2, clones, 0.5)
    inside -= (gap + q * more) * binom.sf(first - 1, clones, 0.5)
    return float(weights @ np.maximum(inside, 0.0)) + 2 * _TAIL


def _one_round(epsilon: float, phones: int, delta: float) -> float:
    """The smallest ε with H(P, Q; ε) <= delta; H decreases in ε and is 0 at the local ε."""
    if hockey_stick(0.0, epsilon, phones) <= delta:
        return 0.0
    low, high = 0.0, epsilon
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if hockey_stick(middle, epsilon, phones) <= delta:
            high = middle
        else:
            low = middle
    return high


@functools.cache
def _clones(epsilon: float, phones: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Values of C and their probabilities, without `_TAIL` at either end.

    If C is large, neighbouring values are merged into the smallest of them, at most 1/20,000 less:
    fewer clones hide less, so this is an upper bound, with a relative error below 3e-5.
    """
    binom = _lab("scipy.stats").binom
    others, rate = phones - 1, math.exp(-epsilon)
    mean, variance = others * rate, others * rate * (1 - rate)
    nats = math.log(1 / _TAIL)
    reach = nats / 3 + math.sqrt(nats**2 / 9 + 2 * variance * nats)  # Bernstein: beyond it, _TAIL
    low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
    values = np.arange(low, high + 1)
    weights = binom.pmf(values, others, rate)
    starts = np.arange(0, len(values), max(1, low // 20_000))
    return values[starts], np.add.reduceat(weights, starts)


def _loss_on_a_grid(epsilon: float, phones: int) -> tuple[Floats, int, float, float]:
    """ln P/Q under P on a grid: probabilities, index of the lowest point, step, truncated mass.

    H as a function of e^ε is a chord between grid points, so exact at them and, being convex, never
    too small between them (Doroshenko et al. 2022, "Connect the dots"); where the slope of a chord
    changes, Q has that mass. The masses of P at the losses −l are those of Q at l.
    """
    step = _one_round(epsilon, phones, 4 * _TAIL) / _GRID_POINTS
    odds = np.exp(step * np.arange(_GRID_POINTS + 1))
    deltas = np.array([hockey_stick(at, epsilon, phones) for at in np.log(odds).tolist()])
    q = np.diff(np.append(np.diff(deltas) / np.diff(odds), 0.0))
    p, lost = odds[1:] * q, float(deltas[-1])
    level = 1 - lost - p.sum() - q.sum()
    return np.concatenate([q[::-1], [level], p]), -_GRID_POINTS, step, lost


def _epsilon_of_copies(
    probabilities: Floats, lowest: int, step: float, lost: float, times: int, delta: float
) -> float:
    """ε at `delta` of `times` copies of a symmetric loss given on a grid; by dp-accounting."""
    pmf = _lab("dp_accounting.pld.pld_pmf").DensePLDPmf(
        step, lowest, probabilities, lost, pessimistic_estimate=True
    )
    distribution = _lab("dp_accounting.pld.privacy_loss_distribution").PrivacyLossDistribution(pmf)
    return float(distribution.self_compose(times).get_epsilon_for_delta(delta))


def _truth_and_lie(epsilon: float) -> tuple[float, float]:
    """q = e^ε/(1 + e^ε) and r = 1 − q, both without cancellation."""
    return 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))


def _lab(module: str) -> Any:
    """A library of the lab extra, imported when it is used."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"accounting needs {module.partition('.')[0]}, which is not installed: "
            "install nextapp[lab] (docs/install.md)",
            name=error.name,
        ) from error


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon <= 100:
        raise ValueError(
            f"epsilon must be a number > 0 and at most 100, got {epsilon!r}. It is the budget of "
            f"one report; above 100, or with the mechanism 'identity', nothing is protected."
        )


def _check_delta(delta: float) -> None:
    if not SMALLEST_DELTA <= delta < 1:
        raise ValueError(
            f"delta must lie in [{SMALLEST_DELTA}, 1), got {delta!r}: choose it well below "
            f"1/(number of phones), such as 1e-6. For delta = 0 the total is the plain sum."
        )


def _check_count(name: str, count: int) -> None:
    if count != int(count) or count < 1:
        raise ValueError(f"{name} must be a whole number >= 1, got {count!r}.")
