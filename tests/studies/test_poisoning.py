"""Phones that lie together: how far they lift an app in new phones' suggestions, at the most."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nextapp.data import synthetic
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import mean_vector
from nextapp.learners import CrowdLearner
from nextapp.predictors.nextapp import online_scores
from nextapp.privacy import requested_mechanism
from nextapp.server.settings import settings_of
from nextapp.studies.new_phones import HEADLINE, synthetic_phones

N_APPS, N_PHONES, SEED = 87, 100_000, 5
NAMES = tuple(f"app-{row}" for row in range(N_APPS))
PLACE = 55  # of the target in the list by popularity


@pytest.fixture(scope="module")
def honest():
    """The mean answer of honest phones, and new phones that have the target."""
    parameters = synthetic.fleet_parameters(1_000, N_APPS)
    histories = synthetic.histories(parameters, SEED, 0, parameters.phones)
    mean = mean_vector(Fleet.of_histories(*histories, parameters.apps))
    popular = mean[:, :-1].sum(axis=0) + mean[:, :-1].sum(axis=1)
    target = int(np.argsort(-popular, kind="stable")[PLACE])
    phones = [
        one for one in synthetic_phones(parameters, SEED, 1_000, 800) if target in one.candidates
    ]
    assert len(phones) > 20
    return mean, popular, target, phones


def direction(kind, target, popular):
    """(n_apps, n_apps + 1), of length 1: to the target from popular apps, and back."""
    wanted, weight = np.zeros((N_APPS, N_APPS + 1)), popular.copy()
    weight[target] = 0.0
    wanted[:, target] = weight
    if kind == "both ways":
        wanted[target, :-1] = weight
    return wanted / np.linalg.norm(wanted)


def learn(mean, liars, wanted, given):
    """The crowd that a server publishes after a report of each phone, and a liar's weight."""
    settings = settings_of(given)
    learner = CrowdLearner(settings.requests, NAMES)
    made = requested_mechanism(replace(learner.broadcast, request=settings.requests.transitions))
    noise = np.random.default_rng(SEED).normal(size=mean.shape)
    told = (1 - liars) * mean + liars * made.liar_weight * wanted
    learner.total = N_PHONES * told + noise * math.sqrt(N_PHONES * made.entry_variance)
    learner.n_since = np.full(N_APPS, float(N_PHONES))
    return learner.crowd(), made.liar_weight


def named(phones, target, crowd) -> float:
    """How often the target is among the first five of the new phones' predictions."""
    first, last = HEADLINE
    found = []
    for one in phones:
        scores = online_scores(one.apps, one.seconds, one.candidates, crowd)[first:last]
        best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        found.append((one.candidates[best] == target).any(axis=1).mean())
    return float(np.mean(found))


@pytest.mark.parametrize(("epsilon", "liars", "most"), [
    (1.0, 0.01, 0.10), (1.0, 0.05, 0.50), (4.5, 0.01, 0.05), (4.5, 0.05, 0.30),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["one way", "both ways"])
def test_liars_lift_an_app_by_no_more_than_the_page_states(honest, epsilon, liars, most, kind):
    """docs/deploy.md, Through the crowd; and the popularity of the app within its bound."""
    mean, popular, target, phones = honest
    wanted = direction(kind, target, popular)
    fair, weight = learn(mean, 0.0, wanted, {"epsilon": epsilon})
    bent, _ = learn(mean, liars, wanted, {"epsilon": epsilon})
    lift = named(phones, target, bent) - named(phones, target, fair)
    assert lift < most
    bound = liars * weight * math.sqrt(2 * N_APPS + 2) / 2 / mean[:, :-1].sum()
    assert 0 < bent.popularity[target] - fair.popularity[target] < bound


def test_fewer_codewords_take_from_liars(honest):
    """With 256 codewords the same liars lift the app further."""
    mean, popular, target, phones = honest
    wanted = direction("one way", target, popular)
    lifts = []
    for given in ({}, {"options": {"b": 8}}):
        fair, _ = learn(mean, 0.0, wanted, given)
        bent, _ = learn(mean, 0.05, wanted, given)
        lifts.append(named(phones, target, bent) - named(phones, target, fair))
    assert 0 < lifts[0] < 0.9 * lifts[1]
