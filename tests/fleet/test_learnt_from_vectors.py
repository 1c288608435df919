"""Transition vectors: what a phone tells, what the server makes of it, and copies of phones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextapp.crowd import REPEATS, crowd_from, transition_vector
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import draw_copies, draw_launches, mean_vector, tally_answers
from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, ModelSettings, ReportRequest


def dense(crowd):
    matrix = np.zeros((crowd.n_apps, crowd.n_apps))
    matrix[np.repeat(np.arange(crowd.n_apps), np.diff(crowd.starts)), crowd.following] = crowd.share
    return matrix


def fleet_of(histories, n_apps):
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])]).astype(np.int64)
    return Fleet.of_histories(starts, np.concatenate(histories).astype(np.int32), n_apps)


def test_a_transition_vector_by_hand():
    """0→1 twice, 0→0 once, 1→0 once: rows of 3 and of 1. What goes by way of 9 is not counted."""
    found = transition_vector(np.array([0, 1, 0, 0, 1, 9, 0]), 3).dense()
    by_hand = np.zeros((3, 4))
    by_hand[0, 0], by_hand[0, 1], by_hand[1, 0] = REPEATS / math.sqrt(3), 2 / math.sqrt(3), 1.0
    np.testing.assert_allclose(found, by_hand / math.sqrt(REPEATS**2 / 3 + 4 / 3 + 1))
    assert transition_vector(np.array([2]), 3).dense().sum() == 0
    assert transition_vector(np.array([1, 9, 1]), 3).dense().sum() == 0


def test_every_phone_has_a_vector_of_the_same_length(rng):
    for _ in range(20):
        history = rng.integers(0, 6, rng.integers(2, 80))
        assert np.linalg.norm(transition_vector(history, 6).share) == pytest.approx(1.0)


def test_a_phone_answers_with_its_transition_vector():
    phone = PhoneCore()
    for step, app in enumerate([0, 1, 0, 0, 1, 9, 0]):
        phone.observe(app, float(step))
    request = ReportRequest("walsh", 1.0, 1.0, {}, "transitions")
    phone.take(Broadcast(0, np.zeros((3, 0)), ModelSettings(), (), request))
    by_vector = transition_vector(np.array([0, 1, 0, 0, 1, 9, 0]), 3).dense()
    assert np.array_equal(phone.answer().dense(), by_vector)


def test_apps_are_left_out_of_a_fleet_as_of_its_phones(rng):
    histories = [rng.integers(0, 9, size) for size in (0, 1, 5, 30, 80)]
    kept = np.array([1, 4, 5, 8])
    number = np.full(9, -1)
    number[kept] = np.arange(4)
    each = [transition_vector(number[history], 4).dense() for history in histories]
    fleet = fleet_of(histories, 9).among(kept)
    np.testing.assert_allclose(mean_vector(fleet), np.mean(each, axis=0), atol=1e-15)
    assert (fleet.columns.apps[: fleet.columns.app_starts[3]] < 4).all()


def test_copies_teach_the_mean_and_the_noise_of_so_many_phones(rng, seed):
    """The variance over 300 draws at 5 sigma; a fleet whose reports are played has the same."""
    histories = [rng.integers(0, 5, 40) for _ in range(6)]
    fleet, m = fleet_of(histories, 9), mechanism("walsh", epsilon=2.0, n_apps=9, d=10, clip=1.0)
    truth = np.mean([transition_vector(history, 9).dense() for history in histories], axis=0)
    seeds = range(300 * seed, 300 * (seed + 1))
    found = np.array([draw_copies(fleet, m, 5000, each) for each in seeds]) - truth
    due = m.entry_variance / 5000
    assert due == pytest.approx(1 / (m.mu**2 * 5000))
    assert (found**2).mean() == pytest.approx(due, rel=5 * math.sqrt(2 / found.size))
    assert np.abs(found.mean(axis=0)).max() < 5.5 * math.sqrt(due / 300)
    tallies = [tally_answers(fleet, m, "transitions", each) for each in seeds]
    played = np.array([m.estimate(each, len(fleet))[5:] for each in tallies])
    assert (played**2).mean() == pytest.approx(
        m.entry_variance / 6, rel=5 * math.sqrt(2 / played.size)
    )
    with pytest.raises(ValueError, match="1 phone or more"):
        draw_copies(fleet, m, 0, seed)


def test_real_reports_have_the_noise_that_the_server_reckons_with(rng, seed):
    """400 reports, 9 of 10 cells that no phone has: their variance at 5 sigma."""
    m = mechanism("walsh", epsilon=4.5, n_apps=12, d=13, clip=1.0)
    answer = transition_vector(rng.integers(0, 3, 50), 12)
    reports = [m.encode(answer, KeyedBits(seed, phone)) for phone in range(400)]
    found = m.decode(reports)
    unknown = answer.dense() == 0
    due = m.entry_variance / 400
    assert (found[unknown] ** 2).mean() == pytest.approx(due, rel=5 * math.sqrt(2 / unknown.sum()))
    known = found[~unknown] - answer.dense()[~unknown]
    assert np.abs(known).max() < 5.5 * math.sqrt(due)


def test_launches_of_copies_are_roots_of_shares(seed):
    """By hand: phone 0 launches 0 three times and 1 once, phone 1 launches 1 only."""
    fleet = fleet_of([np.array([0, 0, 1, 0]), np.array([1, 1])], 3)
    m = mechanism("walsh", epsilon=4.5, n_apps=3, d=1, clip=1.0)
    found = draw_launches(fleet, m, 10**14, seed)
    by_hand = [math.sqrt(0.75) / 2, (0.5 + 1.0) / 2, 0.0]
    np.testing.assert_allclose(found, by_hand, atol=1e-5)


def test_a_habit_is_found_through_noise_whatever_the_scale_of_the_vectors(rng):
    """The same habit in 20,000 phones; a clip of .2 in place of 1 changes nothing but units."""
    n, found = 12, []
    answer = transition_vector(np.tile([0, 1, 2], 20), n).dense()
    noise = rng.normal(size=answer.shape)
    for clip in (1.0, 0.2):
        m = mechanism("walsh", epsilon=1.0, n_apps=n, d=n + 1, clip=clip)
        error = math.sqrt(m.entry_variance / 20_000)
        found.append(dense(crowd_from(clip * answer + error * noise, error)))
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
    assert min(found[0][0, 1], found[0][1, 2], found[0][2, 0]) > 0.6


def test_noise_alone_is_told_as_flat_rows(rng):
    """Rows come out flat, whatever the number of apps: no app stands out by much."""
    for n in (12, 150):
        m = mechanism("walsh", epsilon=1.0, n_apps=n, d=n + 1, clip=1.0)
        error = math.sqrt(m.entry_variance / 1000)
        found = dense(crowd_from(error * rng.normal(size=(n, n + 1)), error))
        assert found[~np.eye(n, dtype=bool)].max() < 0.12
        assert found.sum(axis=1).mean() < 0.75
