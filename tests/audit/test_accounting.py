"""Oracles: published tables, Kairouz, Oh and Viswanath's sum in decimal arithmetic, enumeration of
every outcome in fractions, real mechanisms enumerated, and dp-accounting's own constructions.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("scipy", reason="needs the lab extra")

from nextapp.audit import accounting
from nextapp.audit.accounting import (
    ASSUMPTIONS,
    compose_reports,
    epsilon_after_shuffling,
    hockey_stick,
    simple_bound,
    total_loss,
    without_senders,
)

needs_pld = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None,
    reason="needs dp-accounting, of nextapp[lab]",
)


def exact_composition(epsilon, reports, delta):
    """Theorem 3.3 of Kairouz, Oh and Viswanath (2015), in 60 digits: no grid, no FFT."""
    with localcontext() as context:
        context.prec = 60
        eps = Decimal(repr(epsilon))
        likelier = 1 / (1 + (-eps).exp())
        masses = [
            math.comb(reports, lies) * likelier ** (reports - lies) * (1 - likelier) ** lies
            for lies in range(reports + 1)
        ]

        def hockey(at):
            losses = [(reports - 2 * lies) * eps for lies in range(reports + 1)]
            return sum(
                m * (1 - (at - x).exp()) for m, x in zip(masses, losses, strict=True) if x > at
            )

        low, high = Decimal(0), reports * eps
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if hockey(middle) <= Decimal(repr(delta)) else (middle, high)
        return float(high)


@needs_pld
@pytest.mark.parametrize(
    ("epsilon", "reports", "by_sum", "by_pld"),
    [
        (4.5, 3, 13.5, 13.5),
        (4.5, 33, 148.5, 148.5),
        (1.1, 100, 110, 94.4),
        (0.5, 100, 50, 33.3),
        (0.1, 365, 36.5, 10.3),
    ],
)
def test_the_published_composition_table(epsilon, reports, by_sum, by_pld):
    total = compose_reports(epsilon, reports, 1e-6)
    assert epsilon * reports == pytest.approx(by_sum, rel=1e-12)
    assert total == pytest.approx(by_pld, abs=0.05)


@needs_pld
@pytest.mark.parametrize(("epsilon", "reports"), [(4.5, 3), (1.1, 100), (0.5, 100), (0.1, 365)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_the_pld_total_is_the_exact_one_and_never_below_it(epsilon, reports, delta):
    exact = exact_composition(epsilon, reports, delta)
    assert exact * (1 - 1e-12) <= compose_reports(epsilon, reports, delta) <= exact * (1 + 1e-6)


@needs_pld
@pytest.mark.parametrize(("epsilon", "reports"), [(1.1, 100), (0.5, 100), (0.1, 365)])
def test_dp_accountings_own_randomised_response_agrees_up_to_its_grid(epsilon, reports):
    """Its grid of 1e-4 rounds each loss up by at most that; ours has no rounding to do."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    noise = 2 / (1 + math.exp(epsilon))
    theirs = (
        pld.from_randomized_response(noise, 2).self_compose(reports).get_epsilon_for_delta(1e-6)
    )
    ours = compose_reports(epsilon, reports, 1e-6)
    assert ours - 1e-9 <= theirs <= ours + 1e-4 * reports


@needs_pld
def test_a_total_that_underflows_is_reported_as_the_sum():
    assert compose_reports(4.5, 1000, 1e-6) == 4500


@needs_pld
def test_one_report_is_worth_its_epsilon_less_what_delta_forgives():
    """H = q − e^ε' r for randomised response, so ε' = ln((q − δ)/r)."""
    q = math.exp(2) / (1 + math.exp(2))
    expected = math.log((q - 0.01) / (1 - q))
    assert compose_reports(2.0, 1, 0.01) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "phones", "published"),
    [
        (4.5, 292, 4.5),
        (4.5, 10**4, 0.82),
        (4.5, 10**5, 0.226),
        (4.5, 10**6, 0.066),
        (1.1, 292, 0.41),
        (1.1, 10**4, 0.061),
        (1.1, 10**5, 0.018),
        (1.1, 10**6, 0.005),
    ],
)
def test_the_published_shuffle_table(epsilon, phones, published):
    last_digit = 10.0 ** -len(str(published).partition(".")[2])
    assert epsilon_after_shuffling(epsilon, phones, 1e-6) == pytest.approx(
        published, abs=last_digit / 2
    )


def enumerated(odds, phones):
    """P and Q of Feldman, McMillan and Talwar for e^ε = odds, phone by phone, in fractions."""
    clone = Fraction(1, 2 * odds)
    choices = [((1, 0), clone), ((0, 1), clone), ((0, 0), 1 - 2 * clone)]
    first, second = Counter(), Counter()
    for others in itertools.product(choices, repeat=phones - 1):
        weight = math.prod((w for _, w in others), start=Fraction(1))
        x, y = (sum(clones[side] for clones, _ in others) for side in (0, 1))
        for law, truth in ((first, (1, 0)), (second, (0, 1))):
            law[x + truth[0], y + truth[1]] += weight * Fraction(odds, odds + 1)
            law[x + truth[1], y + truth[0]] += weight * Fraction(1, odds + 1)
    return first, second


def hockey_of(first, second, at):
    ratio = Fraction(math.exp(at))
    return sum(max(Fraction(0), mass - ratio * second[o]) for o, mass in first.items())


@pytest.mark.parametrize(("odds", "phones"), [(2, 1), (2, 2), (3, 5), (3, 8), (20, 8)])
@pytest.mark.parametrize("at", [0.0, 0.05, 0.3, 0.7])
def test_the_hockey_stick_equals_the_enumeration_of_every_outcome(odds, phones, at):
    first, second = enumerated(odds, phones)
    expected = float(hockey_of(first, second, at))
    assert hockey_stick(at, math.log(odds), phones) == pytest.approx(expected, rel=1e-12, abs=1e-17)


def test_far_in_the_tail_the_hockey_stick_keeps_nine_digits():
    """80 phones, e^ε = 3: C and A by fractions instead of every phone's choice; δ down to 1e-17."""
    first, second = Counter(), Counter()
    for c in range(80):
        many = math.comb(79, c) * Fraction(1, 3) ** c * Fraction(2, 3) ** (79 - c)
        for a in range(c + 1):
            weight = many * math.comb(c, a) * Fraction(1, 2) ** c
            for law, truth in ((first, 1), (second, 0)):
                law[a + truth, c - a + 1 - truth] += weight * Fraction(3, 4)
                law[a + 1 - truth, c - a + truth] += weight * Fraction(1, 4)
    for at in (0.2, 0.5, 0.8, 1.0):
        expected = float(hockey_of(first, second, at))
        assert hockey_stick(at, math.log(3), 80) == pytest.approx(expected, rel=1e-9, abs=1e-17)


@pytest.mark.parametrize("answers", [2, 3])
def test_no_shuffled_randomised_response_leaks_more_than_the_bound(answers):
    """Five phones answer by k-ary randomised response and their answers are counted: every input of
    the other four; the first has 0 or 1, which by symmetry stands for any pair."""
    odds, phones = 4, 5
    total = odds + answers - 1

    def counts(inputs):
        law = Counter()
        for outputs in itertools.product(range(answers), repeat=phones):
            right = sum(i == o for i, o in zip(inputs, outputs, strict=True))
            law[tuple(sorted(outputs))] += Fraction(odds**right, total**phones)
        return law

    for at in (0.1, 0.4, 0.8):
        worst = max(
            hockey_of(counts((0, *others)), counts((1, *others)), at)
            for others in itertools.combinations_with_replacement(range(answers), phones - 1)
        )
        assert 0 < float(worst) <= hockey_stick(at, math.log(odds), phones)


def exact_epsilon(laws, delta):
    """The smallest ε at which no pair of laws, in either direction, has a divergence above δ."""
    low, high = 0.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        worst = max(
            sum(
                max(0.0, float(p) - math.exp(middle) * float(q)) for p, q in zip(*pair, strict=True)
            )
            for first, second in laws
            for pair in ((first, second), (second, first))
        )
        low, high = (low, middle) if worst <= delta else (middle, high)
    return high


def every_output(odds, answers, inputs):
    """The law of the shuffled answers of k-ary randomised response, from each possible output."""
    law = Counter()
    for outputs in itertools.product(range(answers), repeat=len(inputs)):
        right = sum(i == o for i, o in zip(inputs, outputs, strict=True))
        law[tuple(sorted(outputs))] += Fraction(odds**right, (odds + answers - 1) ** len(inputs))
    return [law[o] for o in itertools.combinations_with_replacement(range(answers), len(inputs))]


@pytest.mark.parametrize(
    ("odds", "answers", "phones"), [(2, 2, 8), (3, 2, 8), (20, 2, 8), (3, 3, 5), (2, 2, 1)]
)
def test_the_shuffled_epsilon_is_never_below_the_exact_one(odds, answers, phones):
    """Every output of every input of the others; and an ε for twice the phones is caught."""
    laws = [
        [every_output(odds, answers, (own, *others)) for own in (0, 1)]
        for others in itertools.combinations_with_replacement(range(answers), phones - 1)
    ]
    for delta in (0.1, 0.01, 1e-3, 1e-5):
        exact = exact_epsilon(laws, delta)
        assert exact <= epsilon_after_shuffling(math.log(odds), phones, delta) + 1e-9
        assert simple_bound(math.log(odds), phones, delta) is None  # says nothing for so few
    if (odds, phones) == (2, 8):
        assert epsilon_after_shuffling(math.log(odds), 2 * phones, 0.1) < exact_epsilon(laws, 0.1)


@pytest.mark.parametrize(
    ("epsilon", "phones"), [(0.5, 1000), (1.0, 1000), (1.0, 4000), (2.0, 4000)]
)
def test_the_simple_bound_is_never_below_the_exact_one(epsilon, phones):
    """The number of ones of binary randomised response, by convolution; a bound for too many
    phones is caught."""
    from scipy.stats import binom

    lie = 1 / (1 + math.exp(epsilon))
    laws = []
    for ones in (0, phones // 4, phones // 2, phones - 1):
        zeros = phones - 1 - ones
        others = np.convolve(
            binom.pmf(range(ones + 1), ones, 1 - lie), binom.pmf(range(zeros + 1), zeros, lie)
        )
        laws.append([np.convolve(others, own) for own in ([1 - lie, lie], [lie, 1 - lie])])
    for delta in (1e-4, 1e-6, 1e-8):
        exact = exact_epsilon(laws, delta)
        bound = simple_bound(epsilon, phones, delta)
        numeric = epsilon_after_shuffling(epsilon, phones, delta)
        assert exact <= numeric <= bound < epsilon
        assert simple_bound(epsilon, 100 * phones, delta) < exact
        assert epsilon_after_shuffling(epsilon, 4 * phones, delta) < exact


def test_the_simple_bound_is_the_closed_form_of_the_paper():
    """Theorem 3.1 of Feldman, McMillan and Talwar (2021)."""
    assert simple_bound(1.0, 10**5, 1e-8) == pytest.approx(0.0824, abs=5e-5)
    for epsilon, phones in ((4.5, 10**6), (1.1, 10**4), (1.1, 10**6)):
        e = math.exp(epsilon)
        noise = 8 * math.sqrt(e * math.log(4 / 1e-6) / phones) + 8 * e / phones
        bound = math.log1p((e - 1) / (e + 1) * noise)
        assert simple_bound(epsilon, phones, 1e-6) == pytest.approx(bound, rel=1e-12)
        assert epsilon_after_shuffling(epsilon, phones, 1e-6) < bound


def test_the_simple_bound_says_where_it_says_nothing():
    least = math.ceil(16 * math.e * math.log(2 / 1e-8))
    assert simple_bound(1.0, least, 1e-8) < 1
    assert simple_bound(1.0, least - 1, 1e-8) is None
    assert simple_bound(0.001, 310, 1e-8) is None  # holds, but ε itself is smaller
    assert simple_bound(math.inf, 10**9, 1e-8) is None
    said = without_senders(1.0, 100, 10**5)
    assert "ε = 1, as without, among 100 honest phones of a round, ε = 0.082 among 100,000" in said
    assert "promises ε = 1 all the same" in said


def test_shuffling_never_costs_and_more_phones_hide_better():
    for epsilon in (1e-20, 0.01, 1.1, 4.5, 12.0):
        series = [
            epsilon_after_shuffling(epsilon, phones, 1e-6)
            for phones in (1, 2, 30, 10**3, 10**5, 10**7)
        ]
        assert series == sorted(series, reverse=True)
        assert 0 <= series[-1] <= series[0] <= epsilon


@needs_pld
def test_one_round_by_pld_is_the_one_round_computed_directly():
    for epsilon, phones in ((4.5, 292), (4.5, 10**4), (1.1, 292), (1.1, 3000)):
        one = accounting._epsilon_of_copies(*accounting._loss_on_a_grid(epsilon, phones), 1, 1e-6)
        direct = epsilon_after_shuffling(epsilon, phones, 1e-6)
        assert direct * (1 - 1e-9) <= one <= direct * (1 + 1e-4)


@needs_pld
def test_shuffled_rounds_agree_with_dp_accounting_fed_with_every_outcome():
    from dp_accounting.pld import privacy_loss_distribution as pld

    first, second = enumerated(3, 8)
    laws = [{o: math.log(mass) for o, mass in law.items()} for law in (second, first)]
    theirs = pld.from_two_probability_mass_functions(*laws, value_discretization_interval=1e-5)
    for rounds in (2, 10, 50):
        expected = theirs.self_compose(rounds).get_epsilon_for_delta(1e-6)
        assert epsilon_after_shuffling(math.log(3), 8, 1e-6, rounds) == pytest.approx(
            expected, rel=1e-4
        )


@needs_pld
def test_rounds_add_up_to_less_than_their_sum_and_a_lone_phone_gains_nothing():
    one, many = (epsilon_after_shuffling(1.1, 10**4, 1e-6, rounds) for rounds in (1, 100))
    assert one < many < 100 * one
    alone = epsilon_after_shuffling(1.1, 1, 1e-6, rounds=100)
    assert alone == pytest.approx(compose_reports(1.1, 100, 1e-6), rel=1e-6)


@needs_pld
def test_a_plan_holds_every_figure_and_what_the_shuffle_rests_on():
    figures = total_loss(1.1, reports=100, phones=10**4, delta=1e-6)
    assert figures.total_by_sum == pytest.approx(110)
    assert figures.total_by_pld == compose_reports(1.1, 100, 1e-6)
    assert figures.shuffled_round == epsilon_after_shuffling(1.1, 10**4, 1e-6)
    assert figures.shuffled_total == epsilon_after_shuffling(1.1, 10**4, 1e-6, rounds=100)
    assert figures.simple_bound == simple_bound(1.1, 10**4, 1e-6)
    assert figures.assumptions == ASSUMPTIONS


@pytest.mark.parametrize("module", ["scipy.stats", "dp_accounting.pld.pld_pmf"])
def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r"install nextapp\[lab\] \(docs/install.md\)"):
        total_loss(1.1, reports=2, phones=10, delta=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 101.0, math.inf, math.nan])
def test_an_epsilon_without_meaning_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a number > 0"):
        epsilon_after_shuffling(epsilon, 10, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1.0, math.nan])
def test_a_delta_that_cannot_be_computed_is_refused(delta):
    with pytest.raises(ValueError, match="delta must lie in"):
        compose_reports(1.0, 10, delta)


@pytest.mark.parametrize("phones", [0, -3, 2.5])
def test_a_count_that_is_none_is_refused(phones):
    with pytest.raises(ValueError, match="phones must be a whole number >= 1"):
        epsilon_after_shuffling(1.0, phones, 1e-6)
