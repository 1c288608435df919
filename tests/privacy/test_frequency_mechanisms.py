"""Frequency oracles: ε by enumeration, no bias, the variance stated, payloads and tallies."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from catalogue import FREQUENCY_MECHANISMS, exp_bounds

from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.privacy.frequency import FrequencyMechanism
from nextapp.privacy.hadamard import best_blocks
from nextapp.privacy.subset import best_geometry, number, points, vector, vectors
from nextapp.randomness import KeyedBits
from nextapp.shares import Shares, transition_shares
from nextapp.wire import Broadcast, ModelSettings, Report, ReportRequest, WireError

SIZES = [(1, 2), (2, 3), (4, 5), (7, 8)]
LINES = {"q": 2, "t": 3}
CASES = [
    *((name, size, {}) for name in FREQUENCY_MECHANISMS for size in SIZES),
    ("subset", (2, 3), LINES),
    ("subset", (4, 5), {"q": 3, "t": 3}),  # two blocks
    ("subset", (4, 5), {"q": 5, "t": 3}),
    ("subset", (5, 6), {"q": 3, "t": 4}),
]


def made(name, size, epsilon=2.0, **options) -> FrequencyMechanism:
    return mechanism(name, epsilon=epsilon, n_apps=size[0], d=size[1], **options)


def single_cells(size):
    """All weight on one cell: all other shares are mixtures of these; and no weight at all."""
    D = math.prod(size)
    return [*(row.reshape(size) for row in np.eye(D)), np.zeros(size)]


@pytest.mark.parametrize(("name", "size", "options"), CASES)
@pytest.mark.parametrize("epsilon", [0.1, 1.1, 4.5])
def test_no_report_is_more_than_e_to_the_epsilon_likelier_under_one_phone_than_another(
    name, size, options, epsilon
):
    m = made(name, size, epsilon, **options)
    reports = list(m.outputs())
    law = [[m.probability(report, F) for report in reports] for F in single_cells(size)]
    assert all(sum(row) == 1 for row in law)
    worst = max(max(column) / min(column) for column in zip(*law, strict=True))
    assert worst <= exp_bounds(Fraction(epsilon))[0]
    assert math.log(worst) == pytest.approx(epsilon, rel=1e-9)  # and nothing is wasted


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
@pytest.mark.parametrize("epsilon", [2.0**-32, 1e-6, 20.0, 43.0, 64.0, 5000.0])
def test_extreme_budgets_are_held_too(name, epsilon):
    m = made(name, (2, 3), epsilon)
    reports = list(m.outputs())
    law = [[m.probability(report, F) for report in reports] for F in single_cells((2, 3))]
    worst = max(max(column) / min(column) for column in zip(*law, strict=True))
    assert worst > 1
    assert worst <= exp_bounds(Fraction(min(epsilon, 64)))[1]


@pytest.mark.parametrize(("name", "size", "options"), CASES)
def test_the_expected_estimate_is_the_phones_shares(name, size, options, rng):
    """Exact: over all reports, for single cells and for a mixture."""
    m = made(name, size, 1.7, **options)
    reports = list(m.outputs())
    mixture = rng.dirichlet(np.ones(math.prod(size))).reshape(size)
    for F in [*single_cells(size)[:-1][::3], mixture]:
        expected = sum(float(m.probability(report, F)) * m.decode([report]) for report in reports)
        np.testing.assert_allclose(expected, F, atol=1e-12)


@pytest.mark.parametrize(("name", "size", "options"), CASES)
def test_the_variance_is_the_one_stated(name, size, options):
    """Exact: E‖estimate − F‖² over all reports, F even over all cells."""
    m = made(name, size, 2.0, **options)
    F = np.full(size, 1 / math.prod(size))
    found = sum(
        float(m.probability(report, F)) * float(((m.decode([report]) - F) ** 2).sum())
        for report in m.outputs()
    )
    slack = 1e-9 if m.D % m.n_blocks == 0 else 0.05  # uneven blocks come close only
    assert found == pytest.approx(m.variance, rel=slack)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.5])
def test_subset_comes_within_an_eighth_of_the_best_there_is_and_hadamard_within_double(epsilon):
    """Ye and Barg (2018): 4e^ε/(e^ε − 1)² a cell for many cells is optimal."""
    best = 4 * math.exp(epsilon) / math.expm1(epsilon) ** 2
    for n_apps in (87, 300, 2000):
        size = (n_apps, n_apps + 1)
        assert made("subset", size, epsilon).cell_variance() < 1.15 * best
        assert made("hadamard", size, epsilon).cell_variance() < 2.1 * best


@pytest.mark.parametrize(("name", "size", "options"), CASES)
def test_reports_come_as_often_as_the_law_says(name, size, options, seed):
    """Chi-squared; fails for one seed in 10,000. The mean and sd of chi² are df and √(2 df)."""
    m = made(name, size, 1.5, **options)
    F = np.zeros(size)
    F[0, 0], F[-1, -1] = 0.5, 0.2  # and 0.3 unknown
    reports = list(m.outputs())
    expected = np.array([float(m.probability(report, F)) for report in reports])
    n = 40 * len(reports)
    bits = KeyedBits(seed, purpose="often")
    seen = m.tally([m.encode(F, bits) for _ in range(n)])
    chi = float(((seen - n * expected) ** 2 / (n * expected)).sum())
    freedom = len(reports) - 1
    assert chi < freedom + 4.5 * math.sqrt(2 * freedom) + 12


@pytest.mark.parametrize(("name", "size", "options"), CASES)
def test_the_sets_are_what_the_estimate_takes_them_for(name, size, options):
    """Brute force: s outputs each, all in the cell's block, two of a block share ι s of them."""
    m = made(name, size, 2.0, **options)
    sets = []
    for cell in range(m.D):
        block, point = m._locate(cell)
        mine = {m._favoured_output(point, place) for place in range(m.n_favoured)}
        assert len(mine) == m.n_favoured
        assert max(mine) < m.block
        for output in range(m.block):
            assert m._favour(np.array([point]), output)[0] == (output in mine)
        sets.append((block, mine))
    for (block, mine), (other, theirs) in itertools.combinations(sets, 2):
        if block == other:
            assert len(mine & theirs) == m.overlap * m.n_favoured


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_counting_at_once_is_counting_one_by_one(name, rng):
    m = made(name, (6, 7), 1.0)
    tally = rng.integers(0, 1000, (m.n_blocks, m.block))
    found = m._supports(tally)
    for block, point in itertools.product(range(m.n_blocks), range(m.cells_in_block)):
        by_hand = sum(int(tally[block, m._favoured_output(point, k)]) for k in range(m.n_favoured))
        assert found[block, point] == by_hand


@pytest.mark.parametrize(("q", "t"), [(2, 4), (3, 3), (5, 2), (7, 3)])
def test_points_and_vectors_are_one_to_one(q, t):
    """Every vector but 0 is a multiple of exactly one point."""
    m = points(q, t)
    assert [number(vector(p, q, t), q) for p in range(m)] == list(range(m))
    assert np.array_equal(vectors(np.arange(m), q, t), [vector(p, q, t) for p in range(m)])
    owners = [number(list(v), q) for v in itertools.product(range(q), repeat=t) if any(v)]
    assert np.array_equal(np.bincount(owners), np.full(m, q - 1))


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_tallies_of_parts_add_up_and_the_estimate_of_the_sum_is_the_decoded_mean(name, rng):
    m = made(name, (4, 5))
    F = rng.dirichlet(np.ones(20)).reshape(4, 5)
    reports = [m.encode(F, KeyedBits(phone)) for phone in range(30)]
    total = m.tally(reports)
    assert total.dtype == np.int64
    assert np.array_equal(total, m.tally(reports[20:]) + m.tally(reports[:20][::-1]))
    assert np.array_equal(m.tally([]), np.zeros_like(total))
    assert np.array_equal(m.decode(reports), m.estimate(total, 30))
    with pytest.raises(ValueError, match="at least one"):
        m.decode([])


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_a_report_of_two_thousand_apps_is_three_bytes_and_quick_to_draw(name):
    m = made(name, (2000, 2001), 4.5)
    report = m.encode(transition_shares(np.array([5, 1999, 5]), 2000), KeyedBits(1))
    assert len(report.payload) == 3


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_sparse_shares_and_dense_ones_give_the_same_report(name, rng):
    m = made(name, (6, 7))
    shares = transition_shares(rng.integers(0, 6, 40), 6)
    for phone in range(50):
        assert m.encode(shares, KeyedBits(phone)) == m.encode(shares.dense(), KeyedBits(phone))


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_what_is_no_distribution_is_made_one_and_what_is_not_finite_is_refused(name):
    m = made(name, (2, 3))
    F = np.array([[4.0, -1.0, 0.0], [0.0, 12.0, 0.0]])
    np.testing.assert_allclose(m.apply_clip(F), [[0.25, 0, 0], [0, 0.75, 0]])
    assert m.apply_clip(np.full((2, 3), 1e308)).sum() == pytest.approx(1.0)
    for bad in (np.full((2, 3), np.nan), Shares((2, 3), np.array([0]), np.array([np.inf]))):
        with pytest.raises(ValueError, match="finite"):
            m.encode(bad, KeyedBits(0))
    with pytest.raises(ValueError, match="made for gradients of"):
        m.encode(np.zeros((3, 2)), KeyedBits(0))


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_a_payload_that_no_phone_can_have_drawn_is_refused(name):
    m = made(name, (4, 5), 1.0, **({"q": 5, "t": 3} if name == "subset" else {}))
    beyond = m.n_outputs.to_bytes(len(next(m.outputs()).payload) + 1, "little")
    for payload in (b"", beyond, b"\xff" * len(next(m.outputs()).payload)):
        if int.from_bytes(payload, "little") < m.n_outputs and payload:
            continue
        with pytest.raises(WireError):
            m.check(Report(name, 0, payload))
    with pytest.raises(WireError, match="expected a report of"):
        m.check(Report("harmony", 0, b"\0"))


def test_the_design_is_the_best_by_brute_force():
    """Over all q, t and all b: no other has a smaller variance."""
    for epsilon, D in ((0.5, 56), (2.0, 500), (4.5, 7656), (6.0, 7656)):
        chosen = mechanism("subset", epsilon=epsilon, n_apps=1, d=D)
        assert (chosen.q, chosen.t) == best_geometry(epsilon, D)
        for q, t in itertools.product((2, 3, 7, 31, 89, 97), (2, 3, 4, 5)):
            if q**t <= 1 << 20:
                other = mechanism("subset", epsilon=epsilon, n_apps=1, d=D, q=q, t=t)
                assert chosen.cell_variance() <= other.cell_variance() * (1 + 1e-9)
        assert best_blocks(epsilon, D)[1] * ((1 << best_blocks(epsilon, D)[0]) - 1) >= D


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"q": 4, "t": 3}, "prime number"),
        ({"q": 3}, "together"),
        ({"q": 251, "t": 4}, "2\\^24"),
        ({"clip": 1.0}, "subset: unknown option 'clip'\\. Known: epsilon, q, t\\."),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"n_apps": 3000, "d": 3001}, "at most 2\\^23"),
    ],
)
def test_a_mistake_in_an_oracle_is_named_with_its_remedy(options, says):
    with pytest.raises(ValueError, match=says):
        mechanism("subset", **{"epsilon": 1.0, "n_apps": 2, "d": 3, **options})


@pytest.mark.parametrize("name", FREQUENCY_MECHANISMS)
def test_a_phone_answers_an_oracle_with_its_shares(name):
    phone = PhoneCore()
    for step, app in enumerate([3, 1, 3, 1, 2]):
        phone.observe(app, 60.0 * step)
    request = ReportRequest(name, 1.5, question="transitions")
    broadcast = Broadcast(4, np.zeros((5, 2)), ModelSettings(), request=request)
    m = requested_mechanism(broadcast)
    assert (m.n_apps, m.d, m.epsilon) == (5, 6, 1.5)
    phone.update(broadcast)
    by_hand = np.zeros((5, 6))
    by_hand[3, 1], by_hand[1, 3], by_hand[1, 2] = 0.95 * 2 / 4, 0.95 / 4, 0.95 / 4
    by_hand[[3, 1, 2], 5] = 0.05 * 2 / 5, 0.05 * 2 / 5, 0.05 / 5
    np.testing.assert_allclose(phone.answer(m).dense(), by_hand, rtol=1e-15)
    assert m.encode(phone.answer(m), KeyedBits(9), 4) == m.encode(by_hand, KeyedBits(9), 4)


def test_shares_by_hand():
    """2→0, 0→2, 2→2, 2→0; launches 2 0 2 2 0; app 9 is not in the catalogue."""
    shares = transition_shares(np.array([2, 0, 9, 2, 2, 0]), 3, popularity=0.25).dense()
    assert shares[2, 0] == 0.75 * 2 / 4
    assert shares[0, 2] == shares[2, 2] == 0.75 / 4
    assert (shares[:, 3] == [0.25 * 2 / 5, 0, 0.25 * 3 / 5]).all()
    assert shares.sum() == pytest.approx(1.0)
    assert transition_shares(np.array([1]), 3, 0.25).dense().sum() == 0.25
    assert transition_shares(np.zeros(0, np.int64), 3).dense().sum() == 0.0
    with pytest.raises(ValueError, match="popularity must lie"):
        transition_shares(np.array([1]), 3, 1.5)
