"""The ceiling: its answers are the odds of the phones, and nobody is above it."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.data import synthetic
from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.data.synthetic import chances, make, parse
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.evaluation.static import score_predictions
from nextapp.predictors import Questions
from nextapp.predictors.ceiling import Ceiling
from nextapp.predictors.rivals import MFU, MRU, SR, SROnDevice

WORLD = parse("synthetic:phones=40,apps=60,days=20")


def asked_of(preset, seed, parameters=WORLD):
    return exam(make(parameters, seed), Split.parse("fraction:0.6,0,0.4"), find_preset(preset))


@pytest.mark.usefixtures("form")
def test_without_echoes_its_answers_are_the_odds(seed):
    """Each against the odds looked up by phone and moment; authors' counting leaves no echo."""
    test = asked_of("authors", seed)
    ceiling = Ceiling(WORLD, seed)
    ceiling.fit(test.history)
    told = {}
    for phone, one in enumerate(chances(WORLD, seed, range(40))):
        for row, time in enumerate(one.time.tolist()):
            told.setdefault((phone, time), dict(zip(one.apps, one.odds[row], strict=True)))
    n_compared = 0
    for chunk in test.chunks:
        questions = chunk.questions
        expected = [
            [told[question.user, time].get(app, 0.0) for app in question.candidates]
            for question, time in zip(questions, questions.times.tolist(), strict=True)
        ]
        n_compared += len(expected)
        np.testing.assert_allclose(ceiling.score(questions), np.concatenate(expected), atol=1e-15)
    assert n_compared == len(test.rows) > 1_000


def test_an_app_that_is_not_on_the_phone_has_no_chance(seed):
    """All apps of the world are candidates; the launches of the phone's first session asked."""
    world = parse("synthetic:phones=1,apps=60,days=20,echo=0,launches_spread=0")
    log = make(world, seed)
    end = int(np.flatnonzero(np.diff(log.time) > 900_000)[0]) + 1
    whole = np.arange(60)
    questions = Questions(
        users=np.array([0]),
        candidates=whole,
        candidate_starts=np.array([0, 60]),
        session_user=np.array([0]),
        session_starts=np.array([0, end]),
        launches=log.app[:end].astype(np.intp),
        times=log.time[:end],
    )
    ceiling = Ceiling(world, seed)
    ceiling.fit(log.where(np.zeros(len(log), bool)))
    scores = ceiling.score(questions).reshape(-1, 60)
    assert len(scores) == end == 8
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    (one,) = chances(world, seed, [0])
    assert (scores[:, np.setdiff1d(whole, one.apps)] == 0).all()


@pytest.mark.parametrize("preset", ["authors", "paper"])
def test_what_it_holds_likeliest_comes_as_often_as_it_says(preset, seed):
    """Echoes are many and sessions long; false alarms once in 100,000 seeds.

    A third of the echoes stays in the log as the paper counts, none as the authors do.
    """
    world = parse(
        "synthetic:phones=60,apps=60,days=12,echo=0.3,launches=60,launches_spread=0,pause=300"
    )
    test = asked_of(preset, seed, world)
    ceiling = Ceiling(world, seed)
    ceiling.fit(test.history)
    hits, stated = 0.0, []
    for chunk in test.chunks:
        questions = chunk.questions
        scores, place = ceiling.score(questions), 0
        for question, target in zip(questions, questions.launches, strict=True):
            cells = scores[place : place + len(question.candidates)]
            place += len(cells)
            hits += cells.argmax() == target
            stated.append(cells.max())
    chance = np.array(stated)
    assert len(chance) > 20_000
    assert abs(hits - chance.sum()) < 4.4 * np.sqrt((chance * (1 - chance)).sum())


@pytest.mark.parametrize("preset", ["honest", "paper", "authors"])
def test_nobody_is_above_it(preset, seed):
    "By more than 4 standard errors of the paired difference over predictions."
    test = asked_of(preset, seed)
    wanted = ("HR@1", "HR@3", "HR@5")
    ceiling = Ceiling(WORLD, seed)
    ceiling.fit(test.history)
    best = score_predictions(test, ceiling, wanted)[0][test.within]
    for rival in (MRU(), MFU(), SR(), SROnDevice()):
        rival.fit(test.history)
        gap = best - score_predictions(test, rival, wanted)[0][test.within]
        assert (gap.mean(axis=0) > -4 * gap.std(axis=0) / np.sqrt(len(gap))).all()
    assert gap.mean(axis=0).min() > 0.02


def test_where_the_same_app_is_always_likeliest_it_is_mru(seed):
    """Repeats in 9 of 10: nobody can have another first guess."""
    world = parse("synthetic:phones=20,apps=30,days=20,repeat=0.9,repeat_spread=0,echo=0")
    test = asked_of("paper", seed, world)
    marks = evaluate(test, [Ceiling(world, seed), MRU()], 0).marks
    assert np.array_equal(marks[0].tables["all"][:, 0], marks[1].tables["all"][:, 0])
    assert marks[0].tables["all"][:, 2].mean() > marks[1].tables["all"][:, 2].mean()


@pytest.mark.parametrize("other", [{"seed": 1}, {"world": "synthetic:phones=40,apps=60,days=21"}])
def test_phones_of_another_seed_or_world_are_refused(seed, other):
    test = asked_of("paper", seed)
    ceiling = Ceiling(
        parse(other["world"]) if "world" in other else WORLD, seed + other.get("seed", 0)
    )
    ceiling.fit(test.history)
    with pytest.raises(ValueError, match="made with its own parameters and seed"):
        ceiling.score(test.chunks[0].questions)


def test_people_are_refused():
    log = LaunchLog.from_columns(
        [0] * 4, [0, 1, 0, 1], [0, 10_000, 20_000, 30_000], ["anna"], list("ab")
    )
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    ceiling = Ceiling(synthetic.LSAPP, 0)
    ceiling.fit(test.history)
    with pytest.raises(ValueError, match="only synthetic phones, such as phone-0007; got 'anna'"):
        ceiling.score(test.chunks[0].questions)
