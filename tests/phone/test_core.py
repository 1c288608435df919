from __future__ import annotations

import numpy as np
import pytest

from nextapp import model
from nextapp.phone.core import PhoneCore
from nextapp.predictor import Habits
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Buckets, Crowd, ModelSettings, ReportRequest


@pytest.fixture
def broadcast(rng) -> Broadcast:
    return Broadcast(4, rng.normal(0, 0.3, (9, 3)), ModelSettings(alpha=0.2, gamma=0.5))


def named(device: PhoneCore, n: int, *given, **options) -> list[int]:
    return [app for app, _ in device.suggest(n, *given, **options)]


def launched(apps, every=10.0, **settings) -> PhoneCore:
    device = PhoneCore(**settings)
    for number, app in enumerate(apps):
        device.observe(app, every * number)
    return device


def test_the_user_vector_is_that_of_eq_10(broadcast):
    history = [3, 1, 3, 3, 8, 1]
    device = launched(history)
    device.take(broadcast)
    counts = np.bincount(history, minlength=9)
    Q, settings = broadcast.app_vectors, broadcast.settings
    S = model.transitions(history, 9)
    c = model.confidence(counts, settings.alpha, settings.gamma)
    p = model.user_vector(Q, c, (counts > 0) * 1.0, model.short_term(S, Q), settings.lam)
    np.testing.assert_allclose(device.user_vector, p, rtol=1e-12)


def by_bucket(question: str) -> Broadcast:
    """Slots for the buckets 5 and 9; what follows the first is told."""
    crowd = Crowd(
        np.array([0.5, 0.5]), np.array([0, 2, 2]), np.array([0, 1]), np.array([0.25, 0.5])
    )
    return Broadcast(
        4,
        np.zeros((2, 0)),
        ModelSettings(),
        request=ReportRequest("walsh", 1.0, 1.0, question=question),
        crowd=crowd,
        buckets=Buckets(16, "", np.array([5, 9])),
    )


BUCKET = {0: 5, 1: 9, 2: 9, 3: 2}  # of the apps; that of 3 has no slot
ROW = {5: 0, 9: 1}


def test_apps_of_one_bucket_have_equal_parts_of_what_is_told():
    device = launched([0, 1, 2, 3], habits=Habits())
    device.take(by_bucket("launches"), lambda app: ROW.get(BUCKET[app], -1), buckets=BUCKET.get)
    device.teach_habits()
    told, _ = device.habits.crowd.shares(np.array([0, 1, 2, 3]), 0, None)
    assert told.tolist() == [0.25, 0.25, 0.25, 0.0]
    told, _ = device.habits.crowd.shares(np.array([0, 1, 3]), 0, None)
    assert told.tolist() == [0.25, 0.5, 0.0]


def test_launches_are_told_by_bucket_and_have_length_1():
    device = launched([0, 1, 2, 3, 0, 0, 0, 0])
    device.take(by_bucket("launches"), lambda app: ROW.get(BUCKET[app], -1), buckets=BUCKET.get)
    by_hand = np.zeros((16, 1))
    by_hand[[5, 9, 2], 0] = np.sqrt([5 / 8, 2 / 8, 1 / 8])
    np.testing.assert_allclose(device.answer().dense(), by_hand, rtol=1e-15)
    nothing = PhoneCore()
    nothing.take(by_bucket("launches"), buckets=BUCKET.get)
    assert not nothing.answer().dense().any()


def test_prediction_ranks_the_apps_of_the_history_by_the_light_score(broadcast):
    history = [3, 1, 3, 8, 1, 0]
    device = launched(history)
    device.take(broadcast)
    r = model.light_scores(broadcast.app_vectors, device.user_vector, history)
    expected = sorted({3, 1, 8, 0}, key=lambda app: -r[app])
    assert named(device, 10, with_open=True) == expected
    assert named(device, 2, with_open=True) == expected[:2]


def test_a_pause_of_more_than_15_minutes_starts_a_session(broadcast):
    device = launched([3, 1, 3])
    device.observe(8, 20.0 + 15 * 60 + 1)
    device.take(broadcast)
    r = model.light_scores(broadcast.app_vectors, device.user_vector, [8])
    assert named(device, 4, with_open=True) == sorted({3, 1, 8}, key=lambda app: -r[app])
    later = named(device, 4, when=20.0 + 40 * 60, with_open=True)
    taste = model.light_scores(broadcast.app_vectors, device.user_vector, [])
    assert later == sorted({3, 1, 8}, key=lambda app: -taste[app])


def test_exactly_15_minutes_is_the_same_session(broadcast):
    device = launched([3])
    device.observe(1, 15 * 60.0)
    device.take(broadcast)
    r = model.light_scores(broadcast.app_vectors, device.user_vector, [3, 1])
    assert named(device, 2, with_open=True) == sorted({3, 1}, key=lambda app: -r[app])


def test_a_phone_without_a_broadcast_names_its_most_recent_apps():
    assert named(launched([3, 1, 3, 8]), 5, with_open=True) == [8, 3, 1]


def test_a_phone_without_launches_has_nothing_to_say(broadcast):
    device = PhoneCore()
    assert named(device, 5, with_open=True) == []
    device.take(broadcast)
    assert named(device, 5, with_open=True) == []
    assert not device.user_vector.any()


def test_apps_beyond_the_catalogue_are_kept_but_not_learnt_from(broadcast):
    device, known = launched([3, 77, 1, 77]), launched([3, 1])
    device.take(broadcast)
    known.take(broadcast)
    assert np.array_equal(device.user_vector, known.user_vector)
    assert set(named(device, 5, with_open=True)) == {3, 1, 77}


def test_launches_leave_the_window():
    device = launched([0, 1, 2, 3, 4], every=100.0, window=250.0)
    assert device.history.tolist() == [2, 3, 4]
    assert named(device, 9, with_open=True) == [4, 3, 2]


@pytest.mark.parametrize("length", [1, 7, 50, 400])
def test_a_long_life_with_a_window_equals_a_short_one(rng, broadcast, length):
    apps = rng.integers(0, 9, length)
    gaps = rng.choice([5.0, 60.0, 1000.0], length)
    times = np.cumsum(gaps)
    long, short = PhoneCore(window=3000.0), PhoneCore()
    for app, when in zip(apps, times, strict=True):
        long.observe(int(app), float(when))
    inside = times >= times[-1] - 3000.0
    for app, when in zip(apps[inside], times[inside], strict=True):
        short.observe(int(app), float(when))
    long.take(broadcast)
    short.take(broadcast)
    assert long.history.tolist() == short.history.tolist()
    assert np.array_equal(long.user_vector, short.user_vector)
    assert named(long, 9, with_open=True) == named(short, 9, with_open=True)


def test_a_clock_set_back_keeps_the_order_and_the_session(broadcast):
    device = launched([3, 1])
    device.observe(8, -1e6)
    assert device.history.tolist() == [3, 1, 8]
    assert named(device, 3, with_open=True) == [8, 1, 3]


def test_the_answer_is_the_gradient_of_eq_12(broadcast):
    history = [3, 1, 3, 3, 8, 1]
    device = launched(history)
    device.take(broadcast)
    counts = np.bincount(history, minlength=9)
    F = model.gradient(
        broadcast.app_vectors,
        device.user_vector,
        model.confidence(counts, 0.2, 0.5),
        (counts > 0) * 1.0,
        model.transitions(history, 9),
    )
    np.testing.assert_allclose(device.answer().dense(), F, rtol=1e-12, atol=1e-15)


def test_an_answer_needs_a_broadcast():
    with pytest.raises(RuntimeError, match="no broadcast yet"):
        PhoneCore().answer()


@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-160, 1.0, 1e6, 1e100, 1e154, 1e200, 1e308])
@pytest.mark.parametrize("lam", [5e-324, 1e-320, 1e-6, 1.0, 1e220, 1.7e308])
@pytest.mark.parametrize("apps", [[], [0], [0, 0, 0], [0, 1, 0, 8], [5, 5, 7]])
def test_arithmetic_is_total_whatever_a_server_sends(scale, lam, apps):
    """Beyond what `read_broadcast` lets through: the bounds there are not what this rests on."""
    vectors = np.full((9, 2), scale)
    vectors[1] *= -1.0
    core = launched(apps)
    with np.errstate(all="ignore"):
        broadcast = Broadcast(0, vectors, ModelSettings(lam=lam, alpha=0.0))
        _ = broadcast.gram
        core.take(broadcast)
    assert core.user_vector.shape == (2,)
    assert np.isfinite(core.user_vector).all()
    for name in ("harmony", "walsh"):
        made = mechanism(name, epsilon=1.0, n_apps=9, d=2, clip=1.0)
        answer = core.answer()
        dense = answer if isinstance(answer, np.ndarray) else answer.dense()
        assert np.isfinite(dense).all()
        made.check(made.encode(answer, KeyedBits(1)))


def test_a_launch_after_an_update_counts_in_the_next(broadcast):
    device = launched([3, 1])
    device.take(broadcast)
    before = device.user_vector
    device.observe(8, 50.0)
    device.take(broadcast)
    fresh = launched([3, 1, 8])
    fresh.take(broadcast)
    assert np.array_equal(device.user_vector, fresh.user_vector)
    assert not np.array_equal(device.user_vector, before)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((-1, 0.0), "app must be"), ((1.5, 0.0), "app must be"), ((1, float("nan")), "when must be")],
)
def test_bad_launches_are_refused_and_leave_no_trace(arguments, says):
    device = launched([2])
    with pytest.raises(ValueError, match=says):
        device.observe(*arguments)
    assert device.history.tolist() == [2]


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="window must be"):
        PhoneCore(window=0)


def test_a_threshold_needs_probabilities_and_names_no_app_below_it():
    core = PhoneCore(habits=Habits())
    for step in range(40):
        core.observe(step % 3 if step % 7 else 0, 1e9 + 60.0 * step)
    core.teach_habits()
    chances = dict(zip(core.candidates, core.habits.chances(core.candidates), strict=True))
    order = named(core, 3, with_open=True)
    middle = (chances[order[0]] + chances[order[1]]) / 2
    assert named(core, 3, threshold=middle, with_open=True) == order[:1]
    assert named(core, 2, threshold=0.0, with_open=True) == order[:2]
    plain = PhoneCore()
    plain.observe(0, 1e9)
    with pytest.raises(ValueError, match="SeqMF's scores are none"):
        named(plain, 3, threshold=0.5, with_open=True)
