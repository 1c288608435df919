"""The forms a phone runs equal the dense ones, on random histories and at the edges (PAPER.md,
R8)."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp import model

READINGS = ["example", "equation", "authors", "none"]


def dense(Q, history, alpha, gamma, lam, reading):
    """p and F by the dense forms of the model, which tests/paper holds to the paper."""
    n_apps = len(Q)
    counts = np.bincount(history, minlength=n_apps)
    a = (counts > 0).astype(float)
    c = model.confidence(counts, alpha, gamma)
    S = model.transitions(history, n_apps, reading)
    p = model.user_vector(Q, c, a, model.short_term(S, Q), lam)
    return p, model.gradient(Q, p, c, a, S)


def of_a_phone(Q, history, alpha, gamma, lam, reading):
    stats = model.phone_statistics(np.asarray(history, np.intp), reading)
    c, c0 = model.phone_confidence(stats, len(Q), alpha, gamma)
    own = Q[stats.apps]
    h = model.phone_short_term(stats, own)
    p = model.phone_user_vector(own, Q.T @ Q, c, c0, h, lam)
    return p, model.phone_gradient(stats, Q, p, c, c0, h).dense()


def assert_equal(Q, history, alpha, gamma, lam, reading):
    history = np.asarray(history, np.intp)
    p, F = dense(Q, history, alpha, gamma, lam, reading)
    phone_p, phone_F = of_a_phone(Q, history, alpha, gamma, lam, reading)
    size = max(1.0, np.abs(p).max())
    np.testing.assert_allclose(phone_p, p, rtol=1e-10, atol=1e-10 * size)
    np.testing.assert_allclose(phone_F, F, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(F).max()))


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("history", [[], [3], [3, 3, 3], [0, 1], [4, 0, 4, 1, 4, 4, 2]])
def test_edges(rng, history, alpha, reading):
    Q = rng.normal(0, 0.5, (6, 4))
    assert_equal(Q, history, alpha, 0.5, 0.1, reading)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_thousands_of_apps(rng, alpha, reading):
    Q = rng.normal(0, 0.3, (3000, 16))
    history = rng.choice(rng.integers(0, 3000, 20), 300)
    assert_equal(Q, history, alpha, 0.7, 0.05, reading)


def test_random_histories():
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    @hypothesis.settings(max_examples=150, deadline=None)
    @hypothesis.given(
        history=st.lists(st.integers(0, 11), max_size=40),
        more_apps=st.integers(0, 30),
        d=st.integers(1, 9),
        alpha=st.sampled_from([0.0, 0.001, 0.1, 1.0]),
        gamma=st.floats(0, 1),
        lam=st.floats(1e-3, 10),
        reading=st.sampled_from(READINGS),
        seed=st.integers(0, 2**32),
    )
    def holds(history, more_apps, d, alpha, gamma, lam, reading, seed):
        Q = np.random.default_rng(seed).normal(0, 0.5, (12 + more_apps, d))
        assert_equal(Q, history, alpha, gamma, lam, reading)

    holds()


def test_the_cost_does_not_grow_with_the_catalogue(rng):
    """A phone never touches the rows of other apps: they may be anything, even not a number."""
    history = rng.choice(50, 200)
    Q = rng.normal(size=(100_000, 8))
    stats = model.phone_statistics(history)
    gram = Q.T @ Q
    Q[50:] = np.nan
    c, c0 = model.phone_confidence(stats, len(Q), 0.5, 1.0)
    own = Q[stats.apps]
    h = model.phone_short_term(stats, own)
    p = model.phone_user_vector(own, gram, c, c0, h, 0.1)
    gradient = model.phone_gradient(stats, Q, p, c, c0, h)
    assert np.isfinite(p).all()
    assert np.isfinite(gradient.rows).all()
    assert gradient.rows.shape == (len(stats.apps), 8)
