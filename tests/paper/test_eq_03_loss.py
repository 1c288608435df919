"""Eq. (3), the loss, and its two slopes: eq. (10) is where it is flat in p, eq. (12) is its
slope in Q.

The loss here is written with loops, straight from the paper, and shares no code with the package.
"""

from __future__ import annotations

import numpy as np
import pytest

from nextapp import model


def printed_loss(Q, p, c, a, S, lam):
    """½ ‖Q p + diag(S Q Qᵀ) − a‖²_C + λ/2 ‖p‖²."""
    total = 0.0
    for i in range(len(Q)):
        r = sum(Q[i, k] * p[k] for k in range(len(p)))
        for j in range(len(Q)):
            r += S[i, j] * sum(Q[i, k] * Q[j, k] for k in range(len(p)))
        total += 0.5 * c[i] * (r - a[i]) ** 2
    return total + 0.5 * lam * sum(x * x for x in p)


def random_phone(rng, n, d):
    history = rng.integers(0, max(1, n - 1), 25)
    Q = rng.normal(0, 0.7, (n, d))
    a = np.isin(np.arange(n), history).astype(float)
    c = rng.uniform(0.05, 1, n)
    return history, Q, a, c


@pytest.mark.parametrize("reading", ["example", "equation", "authors", "none"])
def test_loss_is_the_printed_one(rng, reading):
    history, Q, a, c = random_phone(rng, 6, 3)
    S = model.transitions(history, 6, reading)
    p = rng.normal(size=3)
    assert model.loss(Q, p, c, a, S, 0.3) == pytest.approx(
        printed_loss(Q, p, c, a, S, 0.3), rel=1e-12
    )


@pytest.mark.parametrize("reading", ["example", "equation", "authors", "none"])
@pytest.mark.parametrize(("n", "d"), [(3, 2), (7, 4)])
def test_gradient_is_the_slope_of_the_loss(rng, n, d, reading):  # eq. (12)
    history, Q, a, c = random_phone(rng, n, d)
    S = model.transitions(history, n, reading)
    p = rng.normal(size=d)
    F = model.gradient(Q, p, c, a, S)
    step = 1e-6
    slope = np.zeros_like(Q)
    for i in range(n):
        for k in range(d):
            up, down = Q.copy(), Q.copy()
            up[i, k] += step
            down[i, k] -= step
            slope[i, k] = printed_loss(up, p, c, a, S, 0.1) - printed_loss(down, p, c, a, S, 0.1)
    np.testing.assert_allclose(F, slope / (2 * step), atol=2e-8)


def test_user_vector_is_where_the_loss_is_flat(rng):  # eq. (10)
    history, Q, a, c = random_phone(rng, 6, 4)
    S = model.transitions(history, 6)
    p = model.user_vector(Q, c, a, model.short_term(S, Q), lam=0.2)
    here = printed_loss(Q, p, c, a, S, 0.2)
    for k in range(4):
        for step in (1e-4, -1e-4):
            there = p.copy()
            there[k] += step
            assert printed_loss(Q, there, c, a, S, 0.2) > here
            flat = (printed_loss(Q, there, c, a, S, 0.2) - here) / step
            assert abs(flat) < 1e-3
