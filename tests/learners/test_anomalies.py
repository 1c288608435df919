"""Jumps: what a server notes when a round's reports differ from all before by more than noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.learners import (
    SUSPICIOUS,
    CrowdLearner,
    anomaly_of_launches,
    anomaly_of_transitions,
)
from nextapp.phone.core import PhoneCore
from nextapp.privacy import requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.server.settings import settings_of
from nextapp.wire import Report

NAMES = tuple(f"app-{row}" for row in range(8))


def test_the_largest_anomaly_is_the_one_by_hand():
    """Two apps, one report a round: z = Σ_j w_j d_j / √(Σ w² σ²), worked out for both weights."""
    before = np.array([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    round_ = np.array([[1.0, 3.0, 0.0], [0.0, 1.0, 0.0]])
    found = anomaly_of_transitions(
        round_, 1.0, before, np.full((2, 3), 4.0), 0.8, np.array([0.9, 0.1])
    )
    # d = [[0, 3], [0, 0]], σ² = .8 (1 + 1/4) = 1 in each cell
    even, by_popularity = 3 / math.sqrt(2), 0.9 * 3 / math.sqrt(0.82)
    assert (found.question, found.row) == ("transitions", 1)
    assert found.errors == pytest.approx(max(even, by_popularity))


def test_cells_without_reports_before_say_nothing():
    """A slot given in the last round: its cells are compared with nothing."""
    before, n_before = np.ones((2, 3)), np.array([[9.0, 0.0, 9.0], [0.0, 0.0, 0.0]])
    round_ = np.array([[1.0, 50.0, 0.0], [50.0, 50.0, 50.0]])
    found = anomaly_of_transitions(round_, 9.0, before, n_before, 1.0, np.array([0.5, 0.5]))
    assert (found.row, found.errors) == (0, 0.0)
    assert anomaly_of_transitions(round_, 9.0, before, 0 * n_before, 1.0, np.ones(2)) is None
    assert anomaly_of_launches(np.ones(4), 3.0, np.zeros(4), 0.0, 1.0) is None


def test_launches_change_by_bucket():
    round_, before = np.array([1.0, 8.0, 2.0]), np.array([4.0, 4.0, 8.0])
    found = anomaly_of_launches(round_, 4.0, before, 16.0, 0.2)
    assert found.row == 1
    assert found.errors == pytest.approx((8 / 4 - 4 / 16) / math.sqrt(0.2 * (1 / 4 + 1 / 16)))


def test_noise_alone_is_not_suspicious(rng):
    """300 rounds of pure noise over 60 apps: 6 standard errors come once in millions of them."""
    worst = 0.0
    for _ in range(300):
        round_, before = rng.normal(size=(60, 61)) * 10, rng.normal(size=(60, 61)) * 30
        found = anomaly_of_transitions(
            round_, 100.0, before, np.full((60, 61), 900.0), 1.0, rng.dirichlet(np.ones(60))
        )
        worst = max(worst, found.errors)
    assert 3.0 < worst < SUSPICIOUS


def answers(learner: CrowdLearner, phones: range, app: int | None) -> list:
    """Reports of honest phones, or of phones that send the codeword which points most at an app."""
    made = requested_mechanism(learner.broadcast)
    found = []
    for phone in phones:
        if app is None:
            core = PhoneCore()
            for step in range(12):
                core.observe((phone + step) % len(NAMES), 60.0 * step)
            core.take(learner.broadcast)
            answer = core.answer()
            found.append(made.encode(answer, KeyedBits(1, phone, learner.broadcast.round), 0))
            continue
        wanted = np.zeros((made.n_apps, made.d))
        wanted[:, app] = 1.0
        seed = int(KeyedBits(2, phone, learner.broadcast.round).words(1)[0])
        best = int(made._alignments(1e6 * wanted, seed).argmax())
        found.append(Report("walsh", 0, made.payload(seed, best)))
    return found


def test_phones_that_lie_together_show_in_the_round_in_which_they_begin():
    """200 of 2,000, each with the best of its 256 codewords, at 2.8: the mean along their direction
    rises by .1 · 2.8 with the error √(1/2000 + 1/8000), so by 11 errors."""
    learner = CrowdLearner(settings_of({"epsilon": 1.0}).requests, NAMES)
    made = requested_mechanism(learner.broadcast)
    for number in range(4):
        reports = answers(learner, range(2_000 * number, 2_000 * (number + 1)), None)
        learner.apply_sum(len(reports) * made.decode(reports), len(reports))
        assert learner.note == ""
    lying = answers(learner, range(200), 5)
    reports = [*lying, *answers(learner, range(9_000, 10_800), None)]
    learner.apply_sum(len(reports) * made.decode(reports), len(reports))
    assert learner.anomaly.row == 5
    assert learner.anomaly.errors > SUSPICIOUS
    assert "row 5 of the catalogue changed" in learner.note
    learner.pass_over()
    assert learner.note == ""
