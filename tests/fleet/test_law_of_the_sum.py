"""The sum drawn from its law against the sum of reports drawn one by one.

Statistical tests have their false-alarm rate beside them; the seed can be swept.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from scipy import stats

from nextapp.compiled import compiled
from nextapp.compiled_bits import stream
from nextapp.fleet.columns import Fleet
from nextapp.fleet.encoders import UNIT, SumOfWalsh, _draw_lean, has_law, normal_table
from nextapp.fleet.rounds import sum_reports
from nextapp.privacy import mechanism
from nextapp.privacy.walsh import order_statistics
from nextapp.wire import Broadcast, ModelSettings

N_APPS, DIM = 10, 3
ROUNDS = 1200
LEANING = {
    "walsh": {"epsilon": 1.5, "clip": 0.3, "b": 5},
    "walsh b=8": {"epsilon": 4.5, "clip": 0.3, "b": 8},
}
LAPLACE = {
    "laplace": {"epsilon": 2.0, "clip": 0.1},
    "laplace l1": {"epsilon": 2.0, "clip": 0.3, "ball": "l1"},
}
ALL = LEANING | LAPLACE
CASES = [(name, alpha) for name in ALL for alpha in (0.0, 0.5) if name in LAPLACE or alpha == 0]


def made(name: str):
    return mechanism(name.partition(" ")[0], n_apps=N_APPS, d=DIM, **ALL[name])


def few_phones(rng: np.random.Generator, n_phones: int) -> Fleet:
    """Phones with 4 apps each among the first 8 apps; app 0 is everyone's, 8 and 9 no one's."""
    own = np.array([np.append(0, rng.choice(np.arange(1, 8), 3, False)) for _ in range(n_phones)])
    apps = np.concatenate([row[rng.integers(0, 4, 25)] for row in own]).astype(np.int32)
    return Fleet.of_histories(np.arange(n_phones + 1, dtype=np.int64) * 25, apps, N_APPS)


class Rounds:
    """The means of many rounds of the same phones, as rows of n_apps · d."""

    def __init__(self, rng: np.random.Generator, n_phones: int, alpha: float) -> None:
        self.fleet = few_phones(rng, n_phones)
        vectors = rng.normal(0, 0.6, (N_APPS, DIM))
        self.settings = ModelSettings(lam=0.1, alpha=alpha)
        self.broadcast = Broadcast(0, vectors, self.settings)
        self.user_vectors = np.zeros((n_phones, DIM))
        self.everyone = np.ones(n_phones, bool)
        self.sums(mechanism("identity", n_apps=N_APPS, d=DIM), 0, solving=True)

    def sums(self, kind, number: int, *, law: bool = False, solving: bool = False):
        broadcast = Broadcast(number, self.broadcast.app_vectors, self.settings)
        return sum_reports(
            self.fleet, broadcast, kind, 0, self.user_vectors, self.everyone,
            law=law, solving=solving, threads=1,
        )  # fmt: skip

    def means(self, kind, seed: int, *, law: bool = False) -> np.ndarray:
        first = 1_000_000 * seed + (500_000 if law else 0)
        rounds = range(first, first + ROUNDS)
        return np.array([self.sums(kind, r, law=law).mean(kind).ravel() for r in rounds])


def sigmas(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """By how many standard errors the means of the columns differ."""
    error = np.sqrt(left.var(axis=0) / len(left) + right.var(axis=0) / len(right))
    return np.abs(left.mean(axis=0) - right.mean(axis=0)) / error


@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_law_and_bits_give_the_same_distribution(rng, seed, name, alpha):
    """Means and variances of all entries and of 24 directions, at 5.5 sigma; shapes of 4 entries.

    All tests of one case together fail once in 15,000 seeds for a correct law.
    """
    rounds, kind = Rounds(rng, 5, alpha), made(name)
    exact, law = rounds.means(kind, seed), rounds.means(kind, seed, law=True)
    truth = rounds.sums(kind, 0).true_sum.ravel()
    directions = rng.normal(size=(N_APPS * DIM, 24))
    directions[:, 0] = truth / np.linalg.norm(truth)
    directions[:, 1] = np.repeat(rounds.broadcast.app_vectors[:, 0], DIM)
    pairs = [(exact, law), (exact @ directions, law @ directions)]
    for left, right in pairs:
        assert sigmas(left, right).max() < 5.5
        middle = np.concatenate([left, right]).mean(axis=0)
        assert sigmas((left - middle) ** 2, (right - middle) ** 2).max() < 5.5
    everyones, no_ones = 0, 9 * DIM + 1
    for entry in (everyones, everyones + 1, 3 * DIM, no_ones):
        assert stats.ks_2samp(exact[:, entry], law[:, entry]).pvalue > 1e-5


@pytest.mark.parametrize("name", LEANING)
def test_the_noise_of_one_phone_is_orthogonal_to_its_gradient(rng, seed, name):
    """Cov = factor² (I − x xᵀ + Var[t] x xᵀ), every entry of it, at 6 sigma: once in 10^6 seeds."""
    rounds, kind = Rounds(rng, 1, 0.0), made(name)
    x = rounds.sums(kind, 0).true_sum.ravel() / kind.clip
    factor = kind.clip / kind.mu
    y = rounds.means(kind, seed, law=True) / factor
    square = _mean_square_of_lean(kind, seed)
    mean = x / (factor / kind.clip)  # E[t] x
    second = np.eye(len(x)) - np.outer(x, x) + square * np.outer(x, x)
    products = y[:, :, None] * y[:, None, :]
    error = products.std(axis=0) / math.sqrt(ROUNDS)
    assert (
        np.abs(products.mean(axis=0) - second) < 6 * error + 0.01 * np.abs(np.outer(x, x))
    ).all()
    assert (np.abs(y.mean(axis=0) - mean) < 6 * y.std(axis=0) / math.sqrt(ROUNDS)).all()


@compiled
def _leans(law_, seed: int, n: int):
    bits = stream(seed, 0, 0, 0)
    t = np.empty(n)
    for i in range(n):
        t[i] = _draw_lean(law_, bits)
    return t


def _mean_square_of_lean(kind, seed: int) -> float:
    return float((_leans(SumOfWalsh(kind).lean, seed, 200_000) ** 2).mean())


def _leans_by_definition(kind, rng: np.random.Generator, n: int) -> np.ndarray:
    """t from whole sets of codewords."""
    kept = rng.random(n) < kind.threshold / 2**64
    s = -np.sort(-rng.normal(size=(n, kind.m)), axis=1)  # descending
    rank = np.where(kept, rng.integers(0, kind.k, n), rng.integers(0, kind.m, n))
    return s[np.arange(n), rank]


@pytest.mark.parametrize("name", LEANING)
def test_the_lean_has_the_law_of_its_definition(rng, seed, name):
    "False alarms: once in 10^6 seeds."
    kind = made(name)
    t = _leans(SumOfWalsh(kind).lean, seed, 50_000)
    assert stats.ks_2samp(t, _leans_by_definition(kind, rng, 50_000)).pvalue > 1e-6


@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_the_law_does_not_depend_on_threads_or_shards(rng, name, alpha):
    rounds, kind = Rounds(rng, 40, alpha), made(name)
    vectors, n = rounds.user_vectors, 40

    def sums(first: int, last: int, threads: int):
        return sum_reports(
            rounds.fleet.shard(first, last), rounds.broadcast, kind, 7, vectors[first:last],
            np.ones(last - first, bool), law=True, threads=threads,
        )  # fmt: skip

    whole = sums(0, n, 1).mean(kind)
    assert np.array_equal(sums(0, n, 3).mean(kind), whole)
    joined = sums(0, 13, 1) + sums(13, 13, 1) + sums(13, n, 2)
    scale = np.abs(whole).max()
    np.testing.assert_allclose(joined.mean(kind), whole, rtol=1e-12, atol=1e-12 * scale)


def test_phones_that_have_every_app_leave_nothing_to_draw_together(rng):
    rounds, kind = Rounds(rng, 3, 0.0), made("walsh")
    apps = np.tile(np.arange(N_APPS, dtype=np.int32), 3)
    rounds.fleet = Fleet.of_histories(np.arange(4, dtype=np.int64) * N_APPS, apps, N_APPS)
    sums = rounds.sums(kind, 0, law=True)
    factor = kind.clip / kind.mu / 3
    np.testing.assert_allclose(sums.mean(kind), factor * sums.state["sum"], rtol=1e-12, atol=1e-14)


def test_where_the_sum_has_no_law_every_report_is_simulated(rng):
    rounds = Rounds(rng, 20, 0.1)
    unsafe = {"allow_unsafe": True}
    for name, more in (("harmony", {}), ("kashin", {}), ("qharmony", unsafe)):
        kind = mechanism(name, epsilon=1.0, clip=0.1, n_apps=N_APPS, d=DIM, **more)
        exact, law = rounds.sums(kind, 3), rounds.sums(kind, 3, law=True)
        assert np.array_equal(exact.mean(kind), law.mean(kind))


def test_where_gradients_are_dense_walsh_has_no_cheap_law(rng):
    assert [has_law("walsh", alpha) for alpha in (0.0, 0.3)] == [True, False]
    rounds, kind = Rounds(rng, 3, 0.3), made("walsh")
    exact, law = rounds.sums(kind, 0), rounds.sums(kind, 0, law=True)
    assert np.array_equal(exact.mean(kind), law.mean(kind))


def test_the_table_of_normal_numbers_is_what_it_was():
    """Golden: sums drawn from their law depend on it."""
    table = normal_table()
    digest = hashlib.sha256(table.astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("b4c1bb04da15e8e3")
    assert np.array_equal(table, -table[::-1])
    assert (np.diff(table) >= 0).all()


def test_order_statistics_of_the_table_are_those_of_a_gaussian():
    """The i-th best of 256 entries is in the slice of a Beta quantile: within 1e-5."""
    m = 256
    table = normal_table() / UNIT
    edges = np.arange(65537) / 65536
    gaussian = order_statistics(m)
    for i in (1, 2, 5, 12, 40, 128):
        share = np.diff(stats.beta.cdf(edges, m - i + 1, i))
        assert share @ table == pytest.approx(gaussian[i - 1], rel=1e-5)
