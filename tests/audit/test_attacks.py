"""Attacks: AUC against a double loop, gradients against the history, ε against its cap."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nextapp.audit.attacks import (
    auc,
    informed_attack,
    synthetic_phones,
    uninformed_attack,
    with_the_first_two_swapped,
    without_one_app,
    without_the_favourite,
)
from nextapp.audit.comparing import build_mechanisms
from nextapp.model import confidence, gradient, seqmf_gradient, short_term, transitions, user_vector


@pytest.fixture(scope="module")
def phones():
    return synthetic_phones(60, 40, 8, seed=0)


def test_auc_is_the_share_of_pairs_in_order(rng):
    positives, negatives = rng.integers(5, size=13) / 1.0, rng.integers(4, size=7) / 1.0
    pairs = [(p > n) + 0.5 * (p == n) for p in positives for n in negatives]
    assert auc(positives, negatives) == pytest.approx(np.mean(pairs))


def test_auc_takes_certainty_in_its_stride():
    assert auc(np.array([math.inf, 1.0]), np.array([-math.inf, 0.0])) == 1.0


def test_the_gradient_is_that_of_the_dense_equations(phones):
    history, broadcast = phones.histories[3], phones.broadcast
    vectors, settings = broadcast.app_vectors, broadcast.settings
    counts = np.bincount(history, minlength=40)
    c = confidence(counts, settings.alpha, settings.gamma)
    S = transitions(history, 40)
    a = (counts > 0).astype(float)
    p = user_vector(vectors, c, a, short_term(S, vectors), settings.lam)
    expected = gradient(vectors, p, c, a, S)
    np.testing.assert_allclose(seqmf_gradient(history, broadcast).dense(), expected, atol=1e-14)


def test_rows_of_an_unnoised_gradient_are_exactly_the_apps_of_the_phone(phones):
    settings = replace(phones.broadcast.settings, alpha=0.0)
    broadcast = replace(phones.broadcast, settings=settings)
    for history in phones.histories:
        rows = np.flatnonzero(seqmf_gradient(history, broadcast).dense().any(axis=1))
        assert np.array_equal(rows, np.unique(history))


def test_with_alpha_the_rows_of_absent_apps_are_all_parallel(phones):
    settings = replace(phones.broadcast.settings, alpha=0.1)
    broadcast = replace(phones.broadcast, settings=settings)
    for history in phones.histories:
        each = seqmf_gradient(history, broadcast)
        along = np.outer(each.dense() @ each.p, each.p) / (each.p @ each.p)
        across = np.linalg.norm(each.dense() - along, axis=1)
        assert np.array_equal(np.flatnonzero(across > 1e-12), np.unique(history))


def test_an_unnoised_report_gives_everything_away(phones):
    plain = build_mechanisms(["identity"], 40, 8, 4.5, 0)["identity"]
    presence, favourite = uninformed_attack(plain, phones, 1, seed=0)
    assert (presence.question, presence.auc) == ("apps", 1.0)
    assert favourite.hit_rate > 0.75  # the longest row is the most used app
    assert [leak.auc for leak in informed_attack(plain, phones, 1, 0)] == [1.0, 1.0, 1.0]


def test_f_max_in_the_clear_answers_an_informed_attacker(phones):
    printed = build_mechanisms(["qharmony"], 40, 8, 0.1, 0)["qharmony"]
    (leak,) = informed_attack(printed, phones, 1, 0, ("favourite",))
    assert leak.auc > 0.99  # whatever ε is claimed


def test_alternatives_to_a_history():
    history = np.array([4, 4, 4, 2, 2, 7])
    random = np.random.default_rng(0)
    assert without_the_favourite(history, random).tolist() == [2, 2, 7]
    assert with_the_first_two_swapped(history, random).tolist() == [2, 2, 2, 4, 4, 7]
    left = without_one_app(history, random)
    assert len(np.unique(left)) == 2
    assert set(left.tolist()) < set(history.tolist())


def test_a_phone_with_one_app_can_be_attacked():
    history = np.array([0, 0, 0])
    random = np.random.default_rng(0)
    assert len(without_the_favourite(history, random)) == 0
    assert with_the_first_two_swapped(history, random).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["harmony", "kashin", "walsh"])
def test_no_informed_attacker_beats_the_cap_of_epsilon(name, phones):
    """e^ε/(1 + e^ε), within 4 standard errors of an AUC of 60 by 60 scores."""
    each = build_mechanisms([name], 40, 8, 1.0, 0)[name]
    cap = 1 / (1 + math.exp(-1.0))
    for leak in informed_attack(each, phones, 1, 0):
        assert leak.auc <= cap + 4 * math.sqrt(1 / (3 * 60))


def test_more_of_the_same_phone_leaks_more(phones):
    each = build_mechanisms(["walsh"], 40, 8, 4.5, 0)["walsh"]
    one, ten = informed_attack(each, phones, 10, 0, ("favourite",))
    assert (one.n_reports, ten.n_reports) == (1, 10)
    assert 0.7 < one.auc < ten.auc
    assert one.low < one.auc < one.high


def test_a_mechanism_that_wastes_its_epsilon_leaks_less(phones):
    """At equal ε: harmony hardly leaks, walsh does. Publish ε and AUC together."""
    mechanisms = build_mechanisms(["harmony", "walsh"], 40, 8, 4.5, 0)
    leaks = {name: informed_attack(each, phones, 5, 0)[2] for name, each in mechanisms.items()}
    assert leaks["harmony"].auc < 0.6 < leaks["walsh"].auc
