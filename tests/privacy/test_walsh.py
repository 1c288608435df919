"""walsh: its codewords by hand, exact alignments, and how near it is to Gaussian codewords.

That ε holds, the payload, the coins and the tally are tested with all other mechanisms.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats

from nextapp.crowd import Shares, transition_vector
from nextapp.model import PhoneGradient
from nextapp.privacy import mechanism
from nextapp.privacy.walsh import (
    L,
    Walsh,
    hadamard_matrix,
    order_statistics,
    philox,
    places,
    rows_and_signs,
    sign_bits,
    walsh_transform,
)
from nextapp.randomness import KeyedBits, purpose_word

word = st.integers(0, 2**64 - 1)


def made(n_apps: int, d: int, epsilon: float = 4.5, clip: float = 1.0, b: int = 8) -> Walsh:
    found = mechanism("walsh", epsilon=epsilon, n_apps=n_apps, d=d, clip=clip, b=b)
    assert isinstance(found, Walsh)
    return found


# --- the parts of a codeword, each by its definition ---------------------------------------------


def place_by_hand(i: int, n: int) -> int:
    for multiplier in (2654435761, 2246822519):
        i = i * multiplier % 2**n
        i ^= i >> -(-n // 2)
    return i


def sign_by_hand(v: int) -> int:
    """Brillhart and Morton: −1 for every pair of neighbouring ones in the binary number."""
    digits = f"{v:b}"
    return math.prod(-1 for pair in itertools.pairwise(digits) if pair == ("1", "1"))


def walsh_by_hand(r: int, v: int) -> int:
    return (-1) ** f"{r & v:b}".count("1")


def codeword_by_hand(seed: int, j: int, D: int) -> list[int]:
    """√L g_j at entries 0 … D, from the words of NumPy's Philox."""
    n = D.bit_length()
    stream = np.random.Philox(key=np.array([seed, purpose_word("walsh")], np.uint64))
    words = [int(word) for word in stream.random_raw(32 + j + 1)]
    entries = [0] * (D + 1)
    for part in range(64):
        row = words[part // 2] >> 32 * (part % 2) & 0xFFFFFFFF
        low, turn = j % 2**n, part % n
        row = row % 2**n ^ (low << turn | low >> n - turn) % 2**n
        sign = 1 if words[32 + j] >> part & 1 else -1
        for i in range(D + 1):
            v = place_by_hand(i, n)
            entries[i] += sign * sign_by_hand(v) * walsh_by_hand(row, v)
    return entries


@pytest.mark.parametrize("n", range(1, 15))
def test_every_place_is_taken_once(n):
    found = places(np.arange(1 << n), n)
    assert found.tolist() == [place_by_hand(i, n) for i in range(1 << n)]
    assert sorted(found.tolist()) == list(range(1 << n))


def test_signs_are_the_sequence_of_rudin_and_shapiro():
    """By its recursion: a(2v) = a(v), a(4v + 1) = a(v), a(4v + 3) = −a(2v + 1)."""
    a = [1, 1]
    for v in range(2, 4096):
        a.append(a[v // 2] if v % 2 == 0 else a[v // 4] if v % 4 == 1 else -a[v // 2])
    assert [-1 if odd else 1 for odd in sign_bits(np.arange(4096, dtype=np.uint32))] == a
    assert [sign_by_hand(v) for v in range(4096)] == a


@pytest.mark.parametrize("bits", range(13))
def test_the_transform_is_the_product_with_hadamards_matrix(bits, rng):
    values = rng.integers(-(2**30), 2**30, (3, 1 << bits)).astype(float)
    assert np.array_equal(walsh_transform(values), values @ linalg.hadamard(1 << bits))
    if bits <= 6:
        assert np.array_equal(hadamard_matrix(bits), linalg.hadamard(1 << bits))
        by_hand = [[walsh_by_hand(r, v) for v in range(1 << bits)] for r in range(1 << bits)]
        assert np.array_equal(hadamard_matrix(bits), by_hand)


@given(st.integers(0, 2**64 - 1), st.integers(0, 255), st.integers(1, 40))
def test_a_report_is_decoded_to_its_codeword(seed, j, D):
    m = made(1, D, clip=3.0)
    (report,) = (r for r in m.outputs(seed=seed) if r.payload[8] == j)
    by_hand = np.array(codeword_by_hand(seed, j, D)[:D]) / math.sqrt(L)
    np.testing.assert_allclose(m.decode([report])[0], 3.0 / m.mu * by_hand, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("D", "b"), [(1, 8), (2, 1), (3, 8), (20, 3), (63, 8), (64, 8), (200, 2), (200, 8)]
)
def test_alignments_are_exact_and_see_the_codewords_that_the_server_sees(D, b, rng):
    m = made(1, D, b=b)
    long = rng.normal(size=D)
    for x in (long / np.linalg.norm(long), long / (9 * D), np.eye(1, D)[0], np.zeros(D)):
        whole = [round(entry * 2**22) for entry in x.tolist()]
        whole.append(round(math.sqrt(max(0.0, 1 - float(x[x != 0] @ x[x != 0]))) * 2**22))
        found = m._alignments(x[None], 12345)
        for j in {0, 1, m.m // 2, m.m - 1}:
            codeword = codeword_by_hand(12345, j, D)
            assert found[j] == sum(a * b for a, b in zip(codeword, whole, strict=True))


@pytest.mark.parametrize(("n_apps", "n_cells"), [(3, 5), (87, 40), (300, 700), (2000, 400)])
def test_few_entries_give_what_all_of_them_give(n_apps, n_cells, rng):
    """The two ways to the same whole numbers: folded, or by one transform of all places."""
    m = made(n_apps, n_apps + 1)
    v = places(np.sort(rng.choice(m.D, n_cells, replace=False)), m.n)
    x = rng.integers(-(2**22), 2**22, n_cells).astype(float)
    rows = rng.integers(0, m.N, L).astype(np.uint32)
    assert np.array_equal(m._few(v, x, rows), m._all(v, x, rows))


@given(word, word, st.integers(0, 2**40))
def test_philox_is_that_of_numpy(key0, key1, counter):
    numpy = np.random.Philox(
        key=np.array([key0, key1], np.uint64), counter=np.array([counter, 0, 0, 0], np.uint64)
    )
    ours = philox(
        np.array([counter + 1, counter + 2], np.uint64),
        np.array(key0, np.uint64),
        np.array(key1, np.uint64),
    )
    assert ours.ravel().tolist() == numpy.random_raw(8).tolist()


@given(st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=40), st.floats(1e-300, 1e300))
def test_the_completed_vector_has_length_one_whatever_comes(entries, clip):
    """What is held against the codewords: the entries and the completing one, in whole units."""
    m = made(1, len(entries), clip=clip)
    spread = []
    m._few = m._all = lambda v, x, rows: spread.append(x) or np.zeros((m.m, L))
    m._alignments(np.array([entries]), 1)
    assert np.linalg.norm(spread[0] / 2**22) == pytest.approx(1.0, abs=2e-6)


# --- what a phone may hand over -------------------------------------------------------------------


def test_shares_gradients_and_arrays_of_the_same_content_give_the_same_report(rng):
    m = made(40, 41, clip=0.2)
    shares = transition_vector(rng.integers(0, 9, 60), 40)
    apps = np.array([3, 7, 30])
    rows = rng.normal(size=(3, 41))
    rows[1, 5:] = 0.0
    gradient = PhoneGradient(apps, rows, 0.0, np.zeros(41), np.ones((40, 41)))
    for number in range(30):
        for given_ in (shares, gradient):
            reports = [m.encode(F, KeyedBits(1, number)) for F in (given_, given_.dense())]
            assert reports[0] == reports[1]


@pytest.mark.parametrize(
    "given_",
    [
        Shares((5, 6), np.array([3]), np.array([math.nan])),
        Shares((5, 6), np.array([3, 4]), np.array([0.5, math.inf])),
        Shares((6, 7), np.array([3]), np.array([0.5])),
        PhoneGradient(np.array([1]), np.full((1, 6), math.nan), 0.0, np.zeros(6), np.ones((5, 6))),
    ],
)
def test_what_is_not_finite_or_of_another_size_is_refused(given_):
    with pytest.raises(ValueError, match=r"must be finite|gradients of"):
        made(5, 6).encode(given_, KeyedBits(0))


def test_a_phone_of_a_long_catalogue_makes_no_dense_array(rng, monkeypatch):
    """2,000 apps have four million cells; a phone has hundreds."""

    def refuse(self):
        raise AssertionError("made dense")

    monkeypatch.setattr(Shares, "dense", refuse)
    m = made(2000, 2001)
    report = m.encode(transition_vector(rng.integers(0, 2000, 400), 2000), KeyedBits(0))
    assert len(report.payload) == 9


# --- the law -------------------------------------------------------------------------------------


def test_no_crossing_of_a_phones_apps_is_a_place_of_three_others():
    """Places of 30 apps' cells: as many XOR to 0 by fours as random places would, not 13 times.

    Before they are scattered the four cells of any two rows and two columns do.
    """
    rng = np.random.default_rng(0)
    n_apps, n = 1023, 20
    apps = np.sort(rng.choice(n_apps, 30, replace=False))
    cells = (apps[:, None] * (n_apps + 1) + apps).ravel()

    def fours(v):
        first, second = np.triu_indices(len(v), 1)
        _, counts = np.unique(v[first] ^ v[second], return_counts=True)
        return float((counts * (counts - 1)).sum()) / len(first) ** 2 * 2**n

    assert fours(cells.astype(np.uint32)) > 8
    assert fours(places(cells, n)) == pytest.approx(1.0, abs=0.05)


def best_means(m: Walsh, F, n_seeds: int, seed: int) -> np.ndarray:
    """For many seeds the mean alignment of the k best codewords, in units of 1."""
    found = []
    for word in KeyedBits(seed, purpose="seeds").words(n_seeds).tolist():
        s = m._alignments(F, word)
        found.append(np.sort(s)[-m.k :].mean() / (math.sqrt(L) * 2**22))
    return np.array(found)


@pytest.mark.parametrize("epsilon", [1.0, 4.5])
def test_the_alignments_of_a_single_entry_are_tosses_of_64_coins(epsilon, seed):
    """The worst case, exactly: binomial order statistics; 5 standard errors.

    Less than .5 % from the Gaussian ones that μ is made of.
    """
    m = made(2000, 2001, epsilon)
    one = Shares((2000, 2001), np.array([123_456]), np.array([1.0]))
    found = best_means(m, one, 2000, seed)
    at_least = stats.binom.sf(np.arange(L), L, 0.5)  # more than t heads
    counts = np.arange(m.m + 1)
    capped = [np.minimum(counts, m.k) @ stats.binom.pmf(counts, m.m, p) for p in at_least]
    tosses = (2 * sum(capped) / m.k - L) / math.sqrt(L)
    assert abs(found.mean() - tosses) <= 5 * found.std() / math.sqrt(len(found))
    gaussian = sum(order_statistics(m.m)[: m.k]) / m.k
    assert abs(tosses / gaussian - 1) < 0.005


def phone_of(kind: str, n_apps: int) -> Shares:
    """Cells of one phone: two, three, or as many as 20 apps leave in 400 launches."""
    shape, rng = (n_apps, n_apps + 1), np.random.default_rng(7)
    if kind == "typical":
        apps = rng.choice(n_apps, 20, replace=False)
        weights = 1 / np.arange(1, 21)
        return transition_vector(rng.choice(apps, 400, p=weights / weights.sum()), n_apps)
    n = {"two": 2, "three": 3}[kind]
    cells = np.sort(rng.choice(n_apps * (n_apps + 1), n, replace=False))
    return Shares(shape, cells, np.full(n, 1.0))


@pytest.mark.parametrize("epsilon", [1.0, 4.5])
@pytest.mark.parametrize("kind", ["two", "three", "typical"])
@pytest.mark.parametrize("n_apps", [20, 2000])
def test_alignments_are_ranked_as_gaussian_ones_would_be(epsilon, kind, n_apps, seed):
    """Within half a per cent and 5 standard errors of the order statistics that μ is made of."""
    m = made(n_apps, n_apps + 1, epsilon, clip=0.13)
    found = best_means(m, phone_of(kind, n_apps), 1500, seed)
    gaussian = sum(order_statistics(m.m)[: m.k]) / m.k
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - gaussian) <= 0.005 * gaussian + 5 * error


@pytest.mark.parametrize("kind", ["two", "typical"])
@pytest.mark.parametrize("epsilon", [1.0, 4.5])
def test_the_reports_of_a_long_catalogue_average_to_the_clipped_shares(kind, epsilon, seed):
    """2,000 apps: own cells and some others, mean and variance, 5 standard errors for each of
    hundreds: a right mechanism fails once in 5,000 seeds."""
    n = 1500
    m = made(2000, 2001, epsilon, clip=0.13)
    shares = phone_of(kind, 2000)
    x = shares.share * min(1.0, 0.13 / np.linalg.norm(shares.share))
    reports = [m.encode(shares, KeyedBits(seed, number)) for number in range(n)]
    seeds, j = m._parts(reports)
    rows, signs = rows_and_signs(seeds, j, m.n)
    others = np.random.default_rng(1).choice(m.D, 200, replace=False)
    cells = np.append(shares.cells, np.setdiff1d(others, shares.cells))
    truth = np.append(x, np.zeros(len(cells) - len(x)))
    v = places(cells, m.n)
    odd = np.bitwise_count(rows[:, :, None] & v.astype(np.int64)) % 2
    each = np.where(sign_bits(v), -1, 1) * (signs[:, :, None] * (1 - 2.0 * odd)).sum(axis=1)
    each *= m.clip / (m.mu * math.sqrt(L))
    error = each.std(axis=0) / math.sqrt(n)
    assert (np.abs(each.mean(axis=0) - truth) <= 5 * error + 0.005 * truth).all()
    far = each[:, len(x) :]
    assert (far**2).mean() == pytest.approx((m.clip / m.mu) ** 2, rel=5 * math.sqrt(2 / far.size))
    mean = m.decode(reports).ravel()[cells]
    np.testing.assert_allclose(mean, each.mean(axis=0), rtol=1e-9, atol=1e-12)


def test_entries_are_uncorrelated_over_all_rows():
    """Exact: over every row ρ the product of two entries of a Walsh function sums to 0."""
    n = 6
    v = places(np.arange(1 << n), n)
    signs = np.where(sign_bits(v), -1.0, 1.0)
    by_row = linalg.hadamard(1 << n)[:, v] * signs
    assert np.array_equal(by_row.T @ by_row, (1 << n) * np.eye(1 << n))
