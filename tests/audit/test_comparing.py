"""The forecast against the formula by hand, and against simulated rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.audit.attacks import synthetic_phones
from nextapp.audit.comparing import (
    build_mechanisms,
    compare,
    forecast,
    mean_after_clip,
    mean_report,
)
from nextapp.fleet.rounds import cosine
from nextapp.privacy import mechanism


@pytest.fixture(scope="module")
def phones():
    return synthetic_phones(292, 87, 16, seed=0)


def test_the_formula_by_hand():
    harmony = mechanism("harmony", epsilon=4.5, n_apps=87, d=16, clip=2.0)
    c = (math.exp(2.25) + 1) / (math.exp(2.25) - 1)
    noise = 1392**2 * c**2 / 2 * (2 / 0.5) ** 2  # V C²/‖μ‖², of one report
    found = forecast(harmony, 0.5, 292)
    assert found.noise == pytest.approx(noise / 292)
    assert found.cosine == pytest.approx(1 / math.sqrt(1 + noise / 292))
    assert found.phones_needed == math.ceil(noise)
    assert forecast(harmony, 0.5, found.phones_needed).cosine == pytest.approx(0.7071, abs=1e-4)


def test_a_run_that_cannot_learn_is_told_so_in_plain_words():
    walsh = mechanism("walsh", epsilon=4.5, n_apps=87, d=16, clip=1.0)
    assert "learns almost nothing" in forecast(walsh, 0.2, 292).warning
    assert "12," in forecast(walsh, 0.2, 292).warning  # thousand phones needed
    assert "learns slowly" in forecast(walsh, 0.2, 4000).warning
    assert forecast(walsh, 0.2, 100_000).warning is None
    plain = mechanism("identity", n_apps=87, d=16)
    assert forecast(plain, 0.2, 1).warning is None


def test_senseless_sizes_are_refused():
    walsh = mechanism("walsh", epsilon=4.5, n_apps=87, d=16, clip=1.0)
    with pytest.raises(ValueError, match="length of the mean gradient"):
        forecast(walsh, 0.0, 292)
    with pytest.raises(ValueError, match="n_phones"):
        forecast(walsh, 1.0, 0)


@pytest.mark.parametrize("name", ["laplace-l1", "harmony", "kashin", "walsh"])
def test_the_forecast_noise_is_that_of_simulated_rounds_within_15_percent(name, phones):
    """87 apps, 292 phones, ε 4.5."""
    each = build_mechanisms([name], 87, 16, 4.5, seed=0)[name]
    target = mean_after_clip(phones, each.ball, each.clip)
    foretold = forecast(each, float(np.linalg.norm(target)), 292)
    n_rounds = 8
    errors = []
    for number in range(n_rounds):
        estimate = mean_report(each, phones.gradients, 292, 0, number)
        errors.append(((estimate - target) ** 2).sum() / (target**2).sum())
    assert np.mean(errors) == pytest.approx(foretold.noise, rel=0.15)


@pytest.mark.parametrize(("name", "n_phones"), [("kashin", 4000), ("walsh", 2000)])
def test_the_forecast_cosine_is_that_of_a_simulated_round_within_15_percent(name, n_phones, phones):
    each = build_mechanisms([name], 87, 16, 4.5, seed=0)[name]
    length = float(np.linalg.norm(mean_after_clip(phones, each.ball, each.clip)))
    estimate = mean_report(each, phones.gradients, n_phones, 0, 0)
    foretold = forecast(each, length, n_phones).cosine
    assert cosine(estimate, phones.mean.ravel()) == pytest.approx(foretold, rel=0.15)


def test_the_forecast_holds_for_a_large_catalogue_and_a_small_epsilon():
    """2,000 apps, 100 phones, ε 1.1: noise within 15 %."""
    phones = synthetic_phones(100, 2000, 16, seed=0)
    each = build_mechanisms(["walsh"], 2000, 16, 1.1, seed=0)["walsh"]
    target = mean_after_clip(phones, each.ball, each.clip)
    estimate = mean_report(each, phones.gradients, 100, 0, 0)
    foretold = forecast(each, float(np.linalg.norm(target)), 100)
    error = ((estimate - target) ** 2).sum() / (target**2).sum()
    assert error == pytest.approx(foretold.noise, rel=0.15)


def test_the_order_of_mechanisms_is_that_of_their_noise(phones):
    """Best first, as measured in the design figures: the ℓ2 family leads by orders of magnitude."""
    names = ["walsh", "kashin", "harmony", "laplace"]
    noise = []
    for name, each in build_mechanisms(names, 87, 16, 4.5, seed=0).items():
        length = float(np.linalg.norm(mean_after_clip(phones, each.ball, each.clip)))
        noise.append((forecast(each, length, 292).noise, name))
    assert [name for _, name in sorted(noise)] == names


def test_identity_is_exact_and_fully_leaky(phones):
    identity = build_mechanisms(["identity"], 87, 16, 4.5, 0)
    (found,) = compare(identity, phones, n_rounds=1, seed=0)
    assert found.cosine == pytest.approx(1.0)
    assert found.nmse == pytest.approx(0.0, abs=1e-20)
    assert found.signs == 1.0
    assert found.leak.auc == 1.0
