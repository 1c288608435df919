"""Predictions over the store, and the odd things that happen to a phone."""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from nextapp.phone import Phone, Store
from nextapp.phone.core import PhoneCore
from nextapp.phone.ledger import DAY, StoreError
from nextapp.phone.phone import MOST_LAUNCHES
from nextapp.predictor import Habits
from nextapp.wire import Broadcast, Crowd, WireError, pack, unpack

NOON = 1_790_000_000.0
APPS = ("browser", "camera", "chat", "mail", "maps", "music")


def played(store: Store, apps, start: float = NOON, every: float = 60.0) -> Phone:
    phone = Phone(store, clock=lambda: NOON)
    for number, app in enumerate(apps):
        phone.observe(app, start + every * number, zone=0)
    return phone


def given(phone: Phone, broadcast, when: float = NOON) -> None:
    """Hand a broadcast to a phone, as the next one of the server that it knows."""
    held = phone.store.broadcast()
    if held is not None:
        history = Broadcast.from_bytes(held.data).history.after(held.round, held.data)
        broadcast = replace(broadcast, history=history)
    phone.take(broadcast.to_bytes(), when)


def some_apps(seed: int, n: int, of=APPS) -> list[str]:
    chance = random.Random(seed)
    return [chance.choice(of) for _ in range(n)]


def test_a_time_may_be_a_datetime(store):
    summer = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    with Phone(store) as phone:
        phone.observe("mail", summer)
        phone.observe("maps", datetime(2026, 7, 1, 10, 5, tzinfo=UTC))
        local = datetime(2026, 7, 2, 10, 6)
        phone.observe("chat", local)
        first, second, third = store.launches()
        assert third.clock == time.mktime(local.timetuple())
        assert (first.clock, first.zone) == (datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp(), 7200)
        assert (second.clock - first.clock, second.zone) == (300.0, 0)
        later = local + timedelta(minutes=7)
        reasons = phone.explain(2, later)
        assert reasons == phone.explain(2, later.timestamp())
        pandas = pytest.importorskip("pandas")  # whose astimezone() needs a zone
        assert phone.explain(2, pandas.Timestamp(later)) == reasons
        with pytest.raises(ValueError, match="or a datetime, got '2026-07-01'"):
            phone.observe("mail", "2026-07-01")


def test_open_or_create_goes_on_with_the_phone_that_is_there(tmp_path):
    for n_launches in (1, 2):
        with Phone(Store.open_or_create(tmp_path / "phone.db", lifetime=0.5)) as phone:
            phone.observe("mail", NOON + n_launches)
            assert phone.store.n_launches() == n_launches
            assert phone.store.limits.lifetime == 0.5
    (tmp_path / "other.db").write_text("not a phone")
    with pytest.raises(StoreError, match="database"):
        Store.open_or_create(tmp_path / "other.db")


def test_a_phone_predicts_what_a_device_with_the_same_launches_predicts(
    store, make_broadcast, seed
):
    broadcast = make_broadcast(5)
    history = some_apps(seed, 200)
    phone = played(store, history)
    given(phone, broadcast)
    device = twin(history)
    device.take(broadcast)
    for when in (NOON + 60 * 200, NOON + DAY):
        expected = [APPS[app] for app, _ in device.suggest(6, when, with_open=True)]
        assert phone.predict(6, when, with_open=True) == expected
    np.testing.assert_array_equal(phone._core.user_vector, device.user_vector)


def twin(history, every: float = 60.0) -> PhoneCore:
    device = PhoneCore(habits=Habits())
    for number, app in enumerate(history):
        device.observe(APPS.index(app), NOON + every * number)
    return device


def test_a_phone_that_was_closed_goes_on_as_if_it_had_not_been(store, make_broadcast, seed):
    history = some_apps(seed, 120, (*APPS, "diary"))
    phone = played(store, history[:60])
    given(phone, make_broadcast(5))
    other_path = store.path.with_name("never closed.db")
    with Store.create(other_path, lifetime=1.0, per_day=1.0) as never_closed:
        other = played(never_closed, history[:60])
        given(other, make_broadcast(5))
        for number, app in enumerate(history[60:], 60):
            with Store(store.path) as reopened:
                phone = Phone(reopened)
                phone.observe(app, NOON + 60 * number, zone=0)
            other.observe(app, NOON + 60 * number, zone=0)
            if number % 10 == 0:
                with Store(store.path) as reopened:
                    assert Phone(reopened).predict(
                        7, NOON + 60 * number, with_open=True
                    ) == other.predict(7, NOON + 60 * number, with_open=True)


def test_an_app_the_server_does_not_know_is_kept_and_predicted_but_not_learnt_from(
    store, make_broadcast
):
    phone = played(store, ["chat", "diary", "mail", "diary", "diary"])
    given(phone, make_broadcast(5))
    assert "diary" in phone.predict(5, with_open=True)
    known = twin(["chat", "mail"])
    known.take(make_broadcast(5))
    np.testing.assert_array_equal(phone._core.user_vector, known.user_vector)
    assert phone._core.n_launches == 5


def test_a_catalogue_that_is_ordered_anew_and_grows_changes_no_prediction(
    store, make_broadcast, seed
):
    history = some_apps(seed, 150)
    phone = played(store, history)
    given(phone, make_broadcast(5))
    before = phone.predict(6, NOON + 60 * 150, with_open=True), phone._core.user_vector
    shuffled = [*APPS[::-1]]
    given(phone, make_broadcast(6, apps=shuffled))
    assert phone.predict(6, NOON + 60 * 150, with_open=True) == before[0]
    np.testing.assert_allclose(phone._core.user_vector, before[1], rtol=1e-9)
    given(phone, make_broadcast(7, apps=("atlas", *shuffled, "zoo")))
    assert set(phone.predict(6, NOON + 60 * 150, with_open=True)) == set(history)


def test_an_app_the_catalogue_takes_up_is_learnt_from_then_on(store, make_broadcast, seed):
    history = some_apps(seed, 100)
    phone = played(store, history)
    given(phone, make_broadcast(5, apps=APPS[:3]))
    given(phone, make_broadcast(6))
    device = twin(history)
    device.take(make_broadcast(6))
    np.testing.assert_allclose(phone._core.user_vector, device.user_vector, rtol=1e-12)


def test_a_broadcast_of_another_dimension_is_taken_over(store, make_broadcast):
    phone = played(store, ["chat", "mail", "chat"])
    given(phone, make_broadcast(5))
    given(phone, make_broadcast(6, d=9))
    assert phone._core.user_vector.shape == (9,)
    with Store(store.path) as again:
        assert Phone(again)._core.user_vector.shape == (9,)


def test_a_catalogue_without_names_is_known_by_its_numbers(store, make_broadcast):
    phone = played(store, ["0", "3", "0", "seventh"])
    given(phone, replace(make_broadcast(5), apps=()))
    assert phone._core._rows_of_history().tolist() == [0, 3, 0, -1]


def test_an_uninstalled_app_is_gone_with_its_launches_until_it_is_launched_again(
    store, make_broadcast
):
    phone = played(store, ["chat", "mail", "chat", "maps"])
    given(phone, make_broadcast(5))
    phone.forget("chat")
    assert sorted(phone.predict(5, with_open=True)) == ["mail", "maps"]
    with Store(store.path) as again:
        assert sorted(Phone(again).predict(5, with_open=True)) == ["mail", "maps"]
    phone.observe("chat", NOON + 999)
    assert sorted(phone.predict(5, with_open=True)) == ["chat", "mail", "maps"]
    with pytest.raises(ValueError, match="no launches of 'game'"):
        phone.forget("game")


def test_launches_leave_the_window(tmp_path):
    path = tmp_path / "phone.db"
    with Store.create(path, lifetime=1.0, per_day=1.0, window=1000.0) as store:
        phone = played(store, ["old"], NOON)
        phone.observe("chat", NOON + 500)
        phone.observe("mail", NOON + 1000)
        assert sorted(phone.predict(5, with_open=True)) == [
            "chat",
            "mail",
            "old",
        ]  # exactly at the edge
        phone.observe("mail", NOON + 1001)
        assert sorted(phone.predict(5, with_open=True)) == ["chat", "mail"]
    with Store(path) as store:
        assert sorted(Phone(store).predict(5, with_open=True)) == ["chat", "mail"]


def test_a_window_of_launches_keeps_the_file_from_growing(tmp_path):
    """10 windows pass; the file stays as large as after four, predictor and all."""
    with Store.create(
        tmp_path / "phone.db", lifetime=1.0, per_day=1.0, window=400.0, flush_after=None
    ) as store:
        phone = Phone(store)
        sizes = []
        for number in range(4000):
            phone.observe(f"app {number % 30} of week {number // 600}", NOON + number, zone=0)
            if number % 400 == 399:
                phone.predict(5, with_open=True)
                sizes.append(store._connection.execute("PRAGMA page_count").fetchone()[0])
        assert phone._core.n_launches == 401
        assert len(store.launches()) < 401 + 512
        assert len(store.names) <= 90
        assert len(Phone(store)._core.habits.apps) <= 90
        assert max(sizes[7:]) <= 1.25 * max(sizes[4:7])
        assert store.n_bytes < 6 << 20  # the WAL's 4 MiB included


def test_a_clock_that_jumps_ahead_once_costs_at_most_a_day_of_history(tmp_path):
    with Store.create(tmp_path / "phone.db", lifetime=1.0, per_day=1.0, window=10 * DAY) as store:
        phone = played(store, ["chat"], NOON)
        phone.observe("maps", NOON + 60)
        phone.observe("mail", NOON + 70 * 365 * DAY)  # a wrong clock
        phone.observe("mail", NOON + 120)  # and right again
        assert sorted(phone.predict(5, with_open=True)) == ["chat", "mail", "maps"]
        phone.observe("music", 0.0)  # an empty battery: 1970
        phone.observe("music", NOON + 180)
        assert sorted(phone.predict(5, with_open=True)) == ["chat", "mail", "maps", "music"]
        for day in range(1, 12):  # and the window goes on as if nothing had been
            phone.observe("music", NOON + day * DAY)
        assert phone.predict(5, with_open=True) == ["music"]
    with Store(tmp_path / "phone.db") as store:
        assert Phone(store).predict(5, with_open=True) == ["music"]


def test_a_phone_never_keeps_more_launches_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("nextapp.phone.phone.MOST_LAUNCHES", 100)
    assert MOST_LAUNCHES > 100
    with Store.create(tmp_path / "phone.db", lifetime=1.0, per_day=1.0) as store:
        phone = played(store, ["rare", *itertools.repeat("often", 99)], every=0.001)
        assert sorted(phone.predict(5, with_open=True)) == ["often", "rare"]
        phone.observe("often", NOON + 1)
        assert phone.predict(5, with_open=True) == ["often"]


def test_two_phones_over_one_store_see_each_others_launches_and_models(store, make_broadcast):
    one = played(store, ["chat", "mail"])
    with Store(store.path) as other_store:
        other = Phone(other_store, clock=lambda: NOON)
        other.observe("maps", NOON + 200, zone=0)
        one.observe("music", NOON + 300, zone=0)
        assert len(one.predict(5, with_open=True)) == 4
        assert one._core.history.tolist() == [1, 2, 3, 4]
        given(other, make_broadcast(5))
        assert one.predict(4, NOON, with_open=True) == other.predict(4, NOON, with_open=True)
        assert one.round == 5
        other.forget("chat")
        assert "chat" not in one.predict(5, with_open=True)
        other.forget()
        assert one.predict(5, with_open=True) == []
        assert one.round is None


def test_imported_launches_are_put_in_order_and_counted_once(store):
    phone = played(store, ["chat"])
    launches = [("mail", NOON - 60.0, 0), ("maps", NOON - 120.0, 0)]
    assert phone.learn(launches) == 2
    assert phone.learn(launches) == 0
    assert phone._core.candidates == [store.names[app] for app in ("chat", "mail", "maps")]


def test_a_launch_that_is_not_kept_is_not_counted(store):
    phone = played(store, ["chat"])
    for app, when in (("", NOON), ("mail", -1.0), ("mail", 1e300), ("mail", float("nan"))):
        with pytest.raises(ValueError, match="must"):
            phone.observe(app, when)
    with pytest.raises(ValueError, match="must"):
        phone.predict(5, 1e300, with_open=True)
    store._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(RuntimeError, match="cannot be written"):
        phone.observe("mail", NOON)
    assert phone.predict(5, with_open=True) == ["chat"]


def test_forgetting_all_leaves_a_phone_that_starts_anew(store, make_broadcast):
    phone = played(store, ["chat", "mail"])
    given(phone, make_broadcast(5))
    phone.forget()
    assert phone.predict(5, with_open=True) == []
    assert phone.round is None
    phone.observe("maps", NOON)
    assert phone.predict(5, with_open=True) == ["maps"]
    assert phone.export()["launches"] == [{"app": "maps", "time": NOON, "zone": 0}]


def test_an_export_holds_every_launch(store, make_broadcast, seed):
    history = some_apps(seed, 50)
    phone = played(store, history)
    given(phone, make_broadcast(5))
    held = phone.export()
    assert [launch["app"] for launch in held["launches"]] == history
    assert held["broadcast"]["round"] == 5
    assert held["user_vector"] is None  # it predicts by habits


def lessons(monkeypatch) -> list[int]:
    """Notes every app that habits learn from, from now on."""
    seen: list[int] = []
    true_observe = Habits.observe

    def observe(self, app, when):
        seen.append(app)
        true_observe(self, app, when)

    monkeypatch.setattr(Habits, "observe", observe)
    return seen


def test_what_was_learnt_is_kept_and_only_later_launches_are_learnt_from_again(
    store, make_broadcast, seed, monkeypatch
):
    history = some_apps(seed, 100)
    phone = played(store, history)
    given(phone, make_broadcast(5))
    phone.predict(6, with_open=True)
    phone.close()
    phone = Phone(Store(store.path))
    store_numbers = phone.store.names
    phone.observe("mail", NOON + 6000, zone=0)
    phone.observe("chat", NOON + 6060, zone=0)
    seen = lessons(monkeypatch)
    before = phone.predict(6, NOON + 6061, with_open=True)
    phone.close()
    with Store(store.path) as again:
        assert Phone(again).predict(6, NOON + 6061, with_open=True) == before
    assert seen == [store_numbers["mail"], store_numbers["chat"]] * 2


@pytest.mark.parametrize("snapshot", [b"no habits", b""])
def test_a_predictor_that_does_not_fit_is_learnt_anew(
    store, make_broadcast, seed, monkeypatch, snapshot
):
    phone = played(store, some_apps(seed, 100))
    given(phone, make_broadcast(5))
    before = phone.predict(6, NOON + 6000, with_open=True)
    store.keep_snapshot(90, snapshot)
    seen = lessons(monkeypatch)
    with Store(store.path) as again:
        assert Phone(again).predict(6, NOON + 6000, with_open=True) == before
    assert len(seen) == 100


@pytest.mark.parametrize("n_after", [0, 40])
@pytest.mark.parametrize("window", [2000.0, 1e9])
def test_a_memory_read_as_columns_is_that_of_launches_played_one_by_one(
    tmp_path, rng, window, n_after
):
    """Launches left the window, one app was erased in between, and some came after what is kept."""
    path = tmp_path / "phone.db"
    pauses = rng.choice([5.0, 30.0, 1200.0, 90_000.0], 400, p=[0.5, 0.4, 0.09, 0.01])
    clock = NOON + np.cumsum(pauses)
    names = [f"app {number}" for number in rng.zipf(1.4, 400) % 12]
    with Store.create(path, lifetime=1.0, per_day=1.0, window=window) as store:
        phone = Phone(store)
        for number, (name, when) in enumerate(zip(names, clock, strict=True)):
            if number == 200:
                phone.forget(names[3])
            if number == 400 - n_after:
                phone.predict(5, float(clock[number]), with_open=True)
                phone._save(1)
            phone.observe(name, float(when), zone=3600)
        if n_after == 0:
            phone.predict(5, float(clock[-1]), with_open=True)
            phone._save(1)
    with Store(path) as store:
        assert store.snapshot()[0] == store.launches()[-1].number - n_after
        quick = Phone(store)
        store.drop_snapshot()
        slow = Phone(store)
        for name in ("_apps", "_ages", "_last_time", "_counts"):
            assert getattr(quick._core, name) == getattr(slow._core, name), name
        assert list(quick._core._counts) == list(slow._core._counts)
        n_launches = slow._core.n_launches
        sessions = [min(each._core._n_session, n_launches) for each in (quick, slow)]
        assert sessions[0] == sessions[1]
        assert (quick._last, list(quick._kept)) == (slow._last, list(slow._kept))
        assert set(quick._core.candidates) <= set(quick._names)
        assert quick._core.n_unlearnt == n_after
        if window == 1e9:  # else one has learnt from launches that the other never saw
            assert quick.predict(5, float(clock[-1]), with_open=True) == slow.predict(
                5, float(clock[-1]), with_open=True
            )


def test_launches_that_left_the_window_are_in_nothing_that_is_kept(tmp_path):
    """Not even where the phone never predicts again."""
    with Store.create(
        tmp_path / "phone.db", lifetime=1.0, per_day=1.0, window=400.0, flush_after=None
    ) as store:
        phone = Phone(store)
        for number in range(100):
            phone.observe("early", NOON + number, zone=0)
        phone.predict(5, NOON + 100, with_open=True)
        phone._save(1)
        assert store.snapshot() is not None
        for number in range(1100):
            phone.observe("late", NOON + 1000 + number, zone=0)
        assert store.snapshot() is None
        assert store.launches()[0].name == "late"


def test_another_catalogue_costs_no_learning(store, make_broadcast, seed, monkeypatch):
    phone = played(store, some_apps(seed, 100))
    given(phone, make_broadcast(5))
    phone.predict(6, with_open=True)
    phone._save(1)
    seen = lessons(monkeypatch)
    given(phone, make_broadcast(6, apps=(*APPS, "zoo")))
    phone.predict(6, with_open=True)
    with Store(store.path) as again:
        Phone(again).predict(6, with_open=True)
    given(phone, make_broadcast(7, apps=("atlas", *APPS[::-1], "zoo")))
    phone.predict(6, with_open=True)
    assert seen == []


def test_closing_keeps_what_was_learnt(store, seed):
    phone = played(store, some_apps(seed, 70))
    phone.predict(5, with_open=True)
    phone.close()
    with Store(store.path) as again:
        assert again.snapshot()[0] == 70


def test_only_a_prediction_makes_habits_learn(store, make_broadcast, seed, monkeypatch):
    seen = lessons(monkeypatch)
    phone = played(store, some_apps(seed, 70))
    given(phone, make_broadcast(5))
    phone.export()
    assert seen == []
    phone.predict(1, with_open=True)
    phone.predict(1, with_open=True)
    assert len(seen) == 70


def test_what_speaks_for_an_app_is_told_in_the_order_of_the_prediction(store, seed):
    phone = played(store, some_apps(seed, 70))
    told = phone.explain(4, NOON + 4201, with_open=True)
    assert [name for name, _ in told] == phone.predict(4, NOON + 4201, with_open=True)
    scores = [reason.score for _, reason in told]
    assert scores == sorted(scores, reverse=True)


def test_whatever_a_broadcast_holds_it_is_taken_or_refused_and_the_phone_goes_on(
    store, make_broadcast, seed
):
    """300 broadcasts, whole by their checksum, with random nonsense in one or two places."""
    phone = played(store, some_apps(seed, 30))
    crowd = Crowd(np.full(6, 1 / 6), np.arange(7), np.arange(6), np.full(6, 0.5))
    tensors, words = unpack(make_broadcast(5, crowd=crowd).to_bytes())
    chance = random.Random(seed)
    numbers = np.random.default_rng(seed)
    nonsense = ["", "{}", "[]", "null", "-1", "7", "1e999", "NaN", '"x"', '[["a"]]', '{"lam": -1}']
    nonsense += [json.dumps(["\ud800", *"abcde"]), json.dumps([1, 2, 3, 4, 5, 6]), "[" * 5000]
    nonsense += [
        json.dumps({"mechanism": "harmony", "epsilon": value}) for value in ("1", None, [])
    ]
    taken = 0
    for _ in range(300):
        some, said = dict(tensors), dict(words)
        for _ in range(chance.choice([1, 2])):
            if chance.random() < 0.5:
                name = chance.choice(list(said))
                said[name] = chance.choice(nonsense)
            else:
                name = chance.choice(list(some))
                shape = chance.choice(
                    [(), (0,), (3,), (6, 4), (4, 4), (7,), (6,), (2, 2, 2), (6, 0)]
                )
                kind = chance.choice([np.float64, np.float32, np.int64, np.uint8])
                scale = chance.choice([0.0, 1.0, 1e30, 1e200, np.nan, -1.0])
                with np.errstate(invalid="ignore", over="ignore"):
                    some[name] = (numbers.random(shape) * scale).astype(kind).reshape(shape)
        said.pop("sha256", None)
        try:
            phone.take(pack(some, said), NOON)
            phone.store.drop_broadcast()
            taken += 1
        except WireError:
            pass
        assert sorted(phone.predict(6, with_open=True)) == sorted(set(some_apps(seed, 30)))
    assert 0 < taken < 300


def test_what_is_no_store_and_no_number_is_answered_in_words(tmp_path):
    file = tmp_path / "phone.db"
    for wrong, error, says in (
        (3, TypeError, "named by the path of its file, got 3"),
        (tmp_path, StoreError, f"{tmp_path} is a folder"),
        (tmp_path / "no" / "phone.db", StoreError, f"make {tmp_path / 'no'} first"),
    ):
        with pytest.raises(error, match=re.escape(says)):
            Store.open_or_create(wrong)
    with pytest.raises(TypeError, match=r"Store.open_or_create\('phone.db'\)"):
        Phone(str(file))
    with Phone(Store.open_or_create(file)) as phone:
        phone.observe("Mail", NOON)
        for n in ("3", 2.5, 0):
            with pytest.raises(ValueError, match="n must be a whole number of 1 or more"):
                phone.predict(n)
        with pytest.raises(TypeError, match="shown must be several names"):
            phone.predict(3, shown="Mail")
        assert repr(phone) == f"Phone({str(file)!r})"
