"""The mechanism of a simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from all_reports import apply_reports
from nextapp.fleet.encoders import FLEET_MECHANISMS
from nextapp.learners import SeqMFLearner, sgd
from nextapp.randomness import KeyedBits
from nextapp.studies.mechanisms import FORMS, NONE, PRINTED, mechanism_for_simulation
from nextapp.wire import ModelSettings

CLIPS = {"linf": 0.1, "l1": 2.0, "l2": 0.5}


@pytest.mark.parametrize("name", FLEET_MECHANISMS)
def test_each_gets_the_clip_of_its_ball(name):
    made = mechanism_for_simulation(name, 1.5, 7, 3, CLIPS)
    assert (made.name, made.n_apps, made.d) == (name, 7, 3)
    if name == "identity":
        assert math.isinf(made.clip)
    else:
        assert made.epsilon == 1.5
        assert made.clip == CLIPS[made.ball]
        assert mechanism_for_simulation(name, 1.5, 7, 3, 0.7).clip == 0.7


def test_none_is_the_gradient_as_it_is_and_others_need_an_epsilon():
    assert mechanism_for_simulation(NONE, None, 7, 3, CLIPS).name == "identity"
    with pytest.raises(ValueError, match="epsilon"):
        mechanism_for_simulation("harmony", None, 7, 3, CLIPS)
    with pytest.raises(ValueError, match="unknown mechanism"):
        mechanism_for_simulation("harmny", 1.0, 7, 3, CLIPS)


def test_laplace_with_the_l1_ball_adds_noise_of_two_over_epsilon():
    """The scale is Δ/ε: 2·D entries apart at the most in the ℓ∞ ball, 2 in the ℓ1 ball."""
    wide = mechanism_for_simulation("laplace", 2.0, 7, 3, CLIPS)
    narrow = mechanism_for_simulation("laplace-l1", 2.0, 7, 3, CLIPS)
    assert (wide.ball, wide.clip, wide.scale) == ("linf", CLIPS["linf"], 2 * 21 / 2.0)
    assert (narrow.ball, narrow.clip, narrow.scale) == ("l1", CLIPS["l1"], 2 / 2.0)
    assert wide.guarantee.epsilon == narrow.guarantee.epsilon == 2.0


def test_qharmony_as_printed_is_algorithms_1_and_2_and_a_step_along_what_they_return(rng, seed):
    """No clip, k = 9, and Q − β (F̄ + λQ), with Algorithm 2 worked out by hand."""
    n_apps, d, rate, lam = 7, 3, 0.1, 0.5
    printed = mechanism_for_simulation(PRINTED, 4.5, n_apps, d, CLIPS)
    assert (printed.k, printed.ball, printed.clip) == (9, "none", math.inf)
    gradients = rng.normal(0, 5, (12, n_apps, d))
    reports = [printed.encode(F, KeyedBits(seed, phone)) for phone, F in enumerate(gradients)]
    s, z = np.zeros(n_apps * d), np.zeros(n_apps * d)
    for report in reports:
        positions, signs, _ = printed._parts([report])
        assert len(set(positions[0].tolist())) == 9
        np.add.at(s, positions[0], signs[0])
        np.add.at(z, positions[0], signs[0] > 0)
    f_bar = max(F.max() for F in gradients) / z.max() * s.reshape(n_apps, d)
    Q = rng.normal(0, 1, (n_apps, d))
    for name, times in ((PRINTED, 1), ("qharmony-printed-mean", len(reports))):
        made = mechanism_for_simulation(name, 4.5, n_apps, d, CLIPS)
        server = SeqMFLearner(Q, ModelSettings(lam=lam), sgd(rate), made)
        stepped = apply_reports(server, reports).app_vectors
        np.testing.assert_allclose(stepped, Q - rate * (times * f_bar + lam * Q), rtol=1e-12)


def test_every_form_says_which_it_is():
    assert FORMS[PRINTED].unsafe
    assert FORMS["qharmony-printed-k1"].unsafe
    assert not FORMS["laplace-l1"].unsafe
    assert mechanism_for_simulation("qharmony-printed-k1", 4.5, 7, 3, CLIPS).k == 1
    assert (
        mechanism_for_simulation(PRINTED, 4.5, 2, 2, CLIPS).k == 4
    )  # no more than there are entries
    for name in ("laplace", "laplace-l1", "qharmony", *(n for n in FORMS if "printed" in n)):
        assert FORMS[name].words
