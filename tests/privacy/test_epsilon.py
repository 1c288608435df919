"""ε-LDP, eq. (14), without sampling: every output, every pair of extreme gradients."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from catalogue import SEEDED, exp_bounds

from nextapp.privacy import FiniteMechanism, mechanism

CORNERS = ["harmony"]
SIZES = {
    "harmony": [(1, 1), (1, 3), (2, 2)],
    "kashin": [(1, 1), (1, 3), (2, 2)],
    "walsh": [(1, 2), (3, 2)],
}
CASES = [
    (name, size, options)
    for name, sizes in SIZES.items()
    for size in sizes
    for options in (
        [{"k": k} for k in range(1, math.prod(size) + 1)]
        if "harmony" in name
        else [{"kashin": {"b": 2}, "walsh": {"b": 6}}[name]]
    )
] + [("kashin", (1, 1), {"K": 1.0})]


def extreme_gradients(name, n_apps, d):
    """The corners of the cube, or many directions of the ball: ε is a maximum over these."""
    D = n_apps * d
    if name in CORNERS:
        flat = list(itertools.product((-1.0, 1.0), repeat=D))
        flat += [np.zeros(D), np.eye(D)[0], np.linspace(-3, 3, D)]
    else:
        generator = np.random.default_rng(1)
        flat = [*np.eye(D), *-np.eye(D), np.zeros(D), *generator.normal(size=(12, D)) * 9]
        flat += [*np.array(list(itertools.product((-1.0, 1.0), repeat=D)))[:16]]
    return [np.reshape(x, (n_apps, d)) for x in flat]


def worst_ratio(m, gradients):
    """The largest ratio of a report's probabilities under two gradients, exactly."""
    worst = Fraction(0)
    for seed in (0, 2**63 + 5) if m.name in SEEDED else (None,):
        reports = list(m.outputs() if seed is None else m.outputs(seed=seed))
        chances = [[m.probability(report, F) for report in reports] for F in gradients]
        assert all(sum(row) == 1 for row in chances)  # and the reports are all there are
        for column in zip(*chances, strict=True):
            worst = max(worst, max(column) / min(column))
    return worst


@pytest.mark.parametrize(("name", "size", "options"), CASES)
@pytest.mark.parametrize("epsilon", [0.1, 4.5])
def test_no_report_is_more_than_e_to_the_epsilon_likelier_under_one_gradient_than_another(
    name, size, options, epsilon
):
    n_apps, d = size
    m = mechanism(name, epsilon=epsilon, n_apps=n_apps, d=d, clip=1.0, **options)
    worst = worst_ratio(m, extreme_gradients(name, n_apps, d))
    assert worst <= exp_bounds(Fraction(epsilon))[0]
    log_worst = math.log(worst.numerator) - math.log(worst.denominator)
    if name == "kashin" and "K" not in options:  # no gradient has its coefficients at the bound
        assert log_worst > 0.3 * epsilon
    else:
        assert log_worst == pytest.approx(epsilon, rel=1e-9)  # never more, and nothing wasted


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("epsilon", [2.0**-32, 1e-6, 20.0, 43.0, 64.0, 5000.0])
def test_extreme_budgets_are_held_too(name, epsilon):
    n_apps, d = SIZES[name][0]
    few = {"b": {"kashin": 1, "walsh": 4}[name]} if name not in CORNERS else {}
    m = mechanism(name, epsilon=epsilon, n_apps=n_apps, d=d, clip=1.0, **few)
    worst = worst_ratio(m, extreme_gradients(name, n_apps, d))
    assert worst > 1
    if epsilon <= 64:
        assert worst <= exp_bounds(Fraction(epsilon))[0]
    else:
        assert math.log(worst.numerator) - math.log(worst.denominator) <= epsilon


@pytest.mark.parametrize("name", SIZES)
def test_log_prob_is_the_log_of_the_exact_probability(name, rng):
    n_apps, d = SIZES[name][-1]
    m = mechanism(name, epsilon=1.7, n_apps=n_apps, d=d, clip=1.0)
    F = rng.normal(0, 0.5, (n_apps, d))
    for report in itertools.islice(m.outputs(), 64):
        assert m.log_prob(report, F) == pytest.approx(math.log(m.probability(report, F)), rel=1e-12)


@pytest.mark.parametrize("name", [name for name in SIZES if name not in SEEDED])
def test_too_many_reports_are_not_listed(name):
    m = mechanism(name, epsilon=4.5, n_apps=87, d=16, clip=1.0)
    with pytest.raises(ValueError, match="smaller n_apps"):
        next(iter(m.outputs()))


def test_a_mechanism_of_real_numbers_has_no_list_of_its_reports():
    m = mechanism("laplace", epsilon=1.0, n_apps=1, d=1, clip=1.0)
    assert not isinstance(m, FiniteMechanism)
    assert not hasattr(m, "outputs")


@pytest.mark.parametrize("ball", ["linf", "l1"])
def test_the_density_of_laplace_changes_by_at_most_epsilon(ball, rng):
    m = mechanism("laplace", epsilon=1.3, n_apps=1, d=3, clip=2.0, ball=ball)
    ends = np.eye(3)[:1] * 2.0 if ball == "l1" else np.full((1, 3), 2.0)
    worst = 0.0
    for y in [*rng.normal(0, 20, (50, 3)), np.full(3, 99.0), np.array([99.0, 0, 0])]:
        report = m.encode(ends, _Nothing())
        report = type(report)(m.name, 0, y.astype("<f4").tobytes())
        gap = abs(m.log_prob(report, ends) - m.log_prob(report, -ends))
        assert gap <= 1.3 * (1 + 1e-12)
        worst = max(worst, gap)
    assert worst == pytest.approx(1.3, rel=1e-9)


class _Nothing:
    """Bits that are all the same: for a report whose payload does not matter."""

    def words(self, n):
        return np.full(n, 1 << 63, np.uint64)
