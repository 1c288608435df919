"""At the paper's size the mechanisms rank as in privacy.md, and V forecasts the cosine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits

N_APPS, DIM, N_PHONES, N_ROUNDS = 87, 16, 292, 3


@pytest.fixture(scope="module")
def phones():
    """Sparse gradients of 20 popular apps each, with a part that all phones share."""
    rng = np.random.default_rng(5)
    popular = 1 / np.arange(1, N_APPS + 1)
    shared = rng.normal(size=(N_APPS, DIM))
    F = np.zeros((N_PHONES, N_APPS, DIM))
    for phone in F:
        apps = rng.choice(N_APPS, 20, replace=False, p=popular / popular.sum())
        weights = rng.dirichlet(np.full(20, 2.0))[:, None]
        phone[apps] = weights * (shared[apps] + 0.3 * rng.normal(size=(20, DIM)))
    return F


def simulated(phones, name, clip, **options):
    m = mechanism(name, epsilon=4.5, n_apps=N_APPS, d=DIM, clip=clip, **options)
    mean = np.mean([m.apply_clip(F) for F in phones], axis=0)
    cosines = []
    for round_ in range(N_ROUNDS):
        reports = [m.encode(F, KeyedBits(1, n, round_)) for n, F in enumerate(phones)]
        estimate = m.decode(reports)
        cosines.append(np.vdot(estimate, mean) / np.linalg.norm(estimate) / np.linalg.norm(mean))
    nmse = m.variance * clip**2 / (N_PHONES * np.vdot(mean, mean))
    return float(np.mean(cosines)), 1 / math.sqrt(1 + nmse)


def test_mechanisms_rank_as_in_privacy_md(phones):
    """Loose: a mean of 3 cosines has a standard error of about .015, the bounds are 4 of them."""
    length = float(np.median(np.linalg.norm(phones, axis=(1, 2))))
    entry = float(np.median(np.abs(phones).max(axis=(1, 2))))
    total = float(np.median(np.abs(phones).sum(axis=(1, 2))))
    found = {
        "laplace": simulated(phones, "laplace", total, ball="l1"),
        "harmony": simulated(phones, "harmony", entry),
        "kashin": simulated(phones, "kashin", length),
        "walsh": simulated(phones, "walsh", length),
    }
    for name, (cosine, forecast) in found.items():
        assert cosine == pytest.approx(forecast, abs=0.06), name
    cosines = {name: cosine for name, (cosine, _) in found.items()}
    assert cosines["walsh"] > cosines["kashin"] > max(cosines["laplace"], cosines["harmony"])
    assert cosines["walsh"] > 0.2
