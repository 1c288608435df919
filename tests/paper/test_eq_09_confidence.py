"""Eq. (9), the confidence weights."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.model import confidence


def test_by_hand():
    # d = 4, 0, 9; gamma = 1/2: powers 2, 0, 3; alpha = 1/4: (2.25, .25, 3.25) / 5.75
    np.testing.assert_allclose(
        confidence([4, 0, 9], alpha=0.25, gamma=0.5), np.array([2.25, 0.25, 3.25]) / 5.75
    )


def test_without_smoothing_it_is_the_launch_share():
    assert confidence([3, 0, 1], alpha=0.0, gamma=1.0).tolist() == [0.75, 0.0, 0.25]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_weights_add_up_to_one(rng, alpha, gamma):
    assert confidence(rng.integers(0, 9, 12), alpha, gamma).sum() == pytest.approx(1)


def test_an_app_never_launched_weighs_alpha_only_for_gamma_0_too():
    assert confidence([5, 0, 2], alpha=0.0, gamma=0.0).tolist() == [0.5, 0.0, 0.5]


def test_a_phone_without_launches():
    assert confidence([0, 0], alpha=0.0, gamma=1.0).tolist() == [0.0, 0.0]
    assert confidence([0, 0], alpha=0.5, gamma=1.0).tolist() == [0.5, 0.5]
