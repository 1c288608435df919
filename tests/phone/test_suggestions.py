"""What a phone suggests, keeps in memory and leaves out, and what its owner says of apps."""

from __future__ import annotations

import math
import random

import pytest

from nextapp.phone import Phone, Store
from nextapp.phone.core import LightReason, PhoneCore
from nextapp.phone.ledger import DAY
from nextapp.predictor import Habits

NOON = 1_790_000_000.0
APPS = ("browser", "camera", "chat", "mail", "maps", "music", "notes", "radio")
LAST = NOON + 60 * 199  # time of the last of 200 launches, one a minute
SOON, LATER = LAST + 60, LAST + 3600


class Clock:
    now = SOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["nextapp", "seqmf"])
def phone(tmp_path, request, clock, make_broadcast, seed):
    """A phone with 200 launches of eight apps; the seqmf one has app vectors of a server."""
    with Store.create(tmp_path / "phone.db", predictor=request.param) as store:
        phone = Phone(store, clock=clock)
        chance = random.Random(seed)
        for number in range(200):
            phone.observe(chance.choice(APPS), NOON + 60 * number, zone=0)
        if request.param == "seqmf":
            phone.take(make_broadcast(5, apps=APPS).to_bytes(), NOON)
        yield phone


def opened(phone: Phone) -> str:
    return phone.store.launches()[-1].name


def chances_of(phone: Phone, *asked: float, **options: bool) -> dict[str, float]:
    return {app: reason.share for app, reason in phone.explain(*asked, **options)}


def reopened(phone: Phone) -> Phone:
    return Phone(Store(phone.store.path), clock=phone._clock)


def test_the_open_app_is_left_out_and_the_order_of_the_others_stays(phone):
    every = phone.predict(9, SOON, with_open=True)
    assert sorted(every) == sorted(APPS)
    others = phone.predict(9, SOON)
    assert others == [app for app in every if app != opened(phone)]
    assert [name for name, _ in phone.explain(9, SOON)] == others
    assert phone.predict(3, SOON) == others[:3]


def test_at_an_opening_the_last_app_is_a_candidate(phone):
    assert sorted(phone.predict(9, LATER)) == sorted(APPS)
    assert phone.predict(9, LATER) == phone.predict(9, LATER, with_open=True)


def test_a_phone_with_one_app_has_nothing_to_suggest_but_at_an_opening(store, clock):
    phone = Phone(store, clock=clock)
    assert phone.predict(5) == phone.keep_order() == []
    phone.observe("chat", NOON, zone=0)
    assert phone.predict(5, NOON + 1) == []
    assert phone.predict(5, NOON + 1, with_open=True) == ["chat"]
    assert phone.predict(5, NOON + DAY) == ["chat"]


def test_probabilities_are_those_of_a_different_app(phone):
    if phone.store.predictor == "seqmf":
        assert all(isinstance(reason, LightReason) for _, reason in phone.explain(9, SOON))
        with pytest.raises(ValueError, match="no probabilities"):
            phone.predict(9, SOON, probabilities=True)
        return
    every = chances_of(phone, 9, SOON, with_open=True)
    others = chances_of(phone, 9, SOON)
    p_open = every.pop(opened(phone))
    assert list(others) == list(every)
    for app, chance in every.items():
        assert others[app] == pytest.approx(chance / (1 - p_open), rel=1e-12)
    assert sum(every.values()) + p_open < 1  # the rest is of apps never launched here
    assert dict(phone.predict(9, SOON, probabilities=True)) == others
    likely = [app for app, chance in others.items() if chance >= 0.15]
    assert phone.predict(9, SOON, threshold=0.15) == likely


def test_probabilities_are_those_of_the_habits(phone):
    if phone.store.predictor == "seqmf":
        return
    habits, names = Habits(), sorted(APPS)
    for launch in phone.store.launches():
        habits.observe(names.index(launch.name), launch.clock)
    expected = dict(zip(names, habits.chances(list(range(8)), SOON).tolist(), strict=True))
    found = chances_of(phone, 9, SOON, with_open=True)
    assert found == pytest.approx(expected, rel=1e-9)


def test_what_is_on_the_screen_stays_unless_another_is_clearly_better(phone):
    others = phone.predict(9, SOON)
    worst = others[:-4:-1]  # the three least likely, the least likely first
    assert phone.predict(3, SOON, shown=worst, steady=1e300) == worst
    assert set(phone.predict(3, SOON, shown=worst, steady=1.0)) == set(others[:3])
    top = others[2], others[0], others[1]
    assert phone.predict(3, SOON, shown=top) == [*top]  # in their places, not best first
    shown = [others[1], opened(phone), others[2]]
    assert phone.predict(3, SOON, shown=shown) == [others[1], others[0], others[2]]
    assert phone.predict(3, SOON, shown=["no such app"]) == others[:3]


@pytest.mark.parametrize("steady", [0.9, math.nan, math.inf])
def test_a_factor_below_one_or_none_is_refused(phone, steady):
    with pytest.raises(ValueError, match="steady must be a factor of 1 or more"):
        phone.predict(3, SOON, steady=steady)
    with pytest.raises(ValueError, match="n must be a whole number of 1 or more"):
        phone.predict(0, SOON)


def test_apps_are_kept_by_how_often_and_how_soon_they_are_wanted(phone):
    """log f + 30·P, f counted here by hand with the fade of the predictor."""
    if phone.store.predictor == "seqmf":
        return
    counts = dict.fromkeys(APPS, 0.0)
    for launch in phone.store.launches():
        counts = {app: 0.999 * count for app, count in counts.items()}
        counts[launch.name] += 1
    frequency = {app: count / sum(counts.values()) for app, count in counts.items()}
    chances = chances_of(phone, 9, SOON, with_open=True)
    scores = {app: math.log(frequency[app]) + 30 * chances[app] for app in APPS}
    expected = sorted(APPS, key=lambda app: -scores[app])
    expected.remove(opened(phone))
    assert phone.keep_order(SOON) == [opened(phone), *expected]


def test_all_apps_have_a_place_in_the_order_but_those_that_are_gone(phone):
    phone.hide("chat")
    assert sorted(phone.keep_order(SOON)) == sorted(APPS)
    assert phone.keep_order(SOON)[0] == opened(phone)
    phone.removed("mail")
    assert "mail" not in phone.keep_order(SOON)


def test_frequent_apps_are_kept_by_a_phone_that_predicts_by_light_scores():
    """Before there are vectors all of P is in the order of use, and f is what counts."""
    core = PhoneCore()
    for number, app in enumerate([3] * 50 + [2] * 20 + [1]):
        core.observe(app, float(number))
    assert core.keep_order() == [1, 2, 3]
    far = float(10**6)
    frequencies = core._frequencies([1, 2, 3])
    fades = [sum(0.999**k for k in ages) for ages in (range(1), range(1, 21), range(21, 71))]
    expected = [fade / sum(fades) for fade in fades]
    assert frequencies == pytest.approx(expected, rel=1e-9)
    assert sorted(core.keep_order(far)) == [1, 2, 3]


# --- what the owner says -------------------------------------------------------------------------


def test_a_hidden_app_is_not_suggested_and_the_chances_of_the_others_stay(phone):
    before = phone.predict(9, SOON)
    app = before[1]
    phone.hide(app)
    assert phone.predict(9, SOON) == [each for each in before if each != app]
    assert app not in phone.predict(9, LATER, with_open=True)
    assert app not in dict(phone.explain(9, LATER))
    assert reopened(phone).predict(9, SOON) == phone.predict(9, SOON)
    phone.observe(app, SOON, zone=0)  # it is launched, and stays hidden
    assert app not in phone.predict(9, SOON + 3600)
    phone.unhide(app)
    assert app in phone.predict(9, SOON + 3600)


def test_another_process_sees_what_was_hidden(phone):
    other = reopened(phone)
    app = other.predict(9, SOON)[0]
    phone.hide(app)
    assert app not in other.predict(9, SOON)
    phone.unhide(app)
    assert app in other.predict(9, SOON)
    other.store.close()


def test_a_dismissed_app_comes_back_after_a_while(phone, clock):
    app = phone.predict(9, SOON)[0]
    assert phone.dismiss(app, 1800.0) == SOON + 1800
    for when, is_there in ((SOON, False), (SOON + 1799, False), (SOON + 1800, True)):
        assert (app in phone.predict(9, when)) == is_there
        assert (app in reopened(phone).predict(9, when)) == is_there
    assert phone.unhide(app)
    assert not phone.unhide(app)
    assert app in phone.predict(9, SOON)
    for seconds in (0.0, math.nan, math.inf, 367 * DAY):
        with pytest.raises(ValueError, match="for more than 0 s and for a year at most"):
            phone.dismiss(app, seconds)


def test_an_app_may_be_hidden_before_its_first_launch(phone):
    phone.hide("diary")
    phone.observe("diary", SOON, zone=0)
    assert "diary" not in phone.predict(9, LATER + 60)


def test_a_new_app_has_a_fair_place_and_leaves_it_unless_it_is_used(phone):
    phone.installed(["chess"])
    shown = phone.predict(9, SOON)
    assert sorted([*shown, opened(phone)]) == sorted([*APPS, "chess"])
    found = []
    chance = random.Random(3)
    for number in range(60):
        found.append(phone.predict(9, SOON + 60 * number).index("chess"))
        phone.observe(chance.choice(APPS), SOON + 60 * number, zone=0)
    assert found[0] < 7
    assert set(found[40:]) == {7}  # behind the seven others
    if phone.store.predictor == "nextapp":
        when = SOON + 60 * 60
        found = chances_of(phone, 9, when)
        assert found["chess"] == pytest.approx(1 / (11 + 60))
        again = chances_of(reopened(phone), 9, when)
        assert again == pytest.approx(found, rel=1e-9)
        assert dict(phone.explain(9, when))["chess"].share == found["chess"]
    with pytest.raises(TypeError, match="got the one name 'chess'"):
        phone.installed("chess")
    phone.installed(["chess", opened(phone)])  # nothing new
    assert phone.predict(9, SOON + 60 * 60).index("chess") == 7
    phone.observe("chess", SOON + 60 * 60, zone=0)
    assert phone._core.new == {}
    assert phone.store.marks() == []
    assert "chess" in phone.predict(9, LATER + 60 * 60)


def test_new_apps_take_their_chance_from_all_others_alike(phone):
    if phone.store.predictor == "seqmf":
        return
    before = chances_of(phone, 9, SOON)
    phone.installed(["chess", "go"])
    after = chances_of(phone, 11, SOON)
    assert after["chess"] == after["go"] == pytest.approx(1 / 22)
    for app, chance in before.items():
        assert after[app] == pytest.approx(chance * 10 / 11)


def test_a_removed_app_comes_back_with_its_history_when_it_is_installed_or_launched(phone):
    before = phone.predict(9, SOON)
    app = before[0]
    for again in (
        lambda: phone.installed([app]),
        lambda: phone.observe(app, SOON, zone=0),
    ):
        phone.removed(app)
        assert app not in phone.predict(9, LATER + 60)
        assert app not in reopened(phone).predict(9, LATER + 60)
        again()
        assert phone.store.marks() == []
        assert app in phone.predict(9, LATER + 60)
    phone.installed(["chess"])
    phone.removed("chess")
    assert "chess" not in phone.predict(11, SOON)


def test_what_the_owner_said_outlives_the_launches_and_ends_with_forget(tmp_path, clock):
    with Store.create(tmp_path / "phone.db", window=DAY) as store:
        phone = Phone(store, clock=clock)
        phone.observe("geheimnis", NOON, zone=0)
        phone.hide("geheimnis")
        for number in range(1200):
            phone.observe(APPS[number % 8], NOON + 3600 * (1 + number), zone=0)
        assert "geheimnis" not in {launch.name for launch in store.launches()}
        phone.observe("geheimnis", NOON + 3600 * 1300, zone=0)
        assert "geheimnis" not in phone.predict(9, NOON + 3600 * 1302)
        marks = store.marks()
        assert [(mark.name, mark.mark) for mark in marks] == [("geheimnis", "hidden")]
        assert phone.export()["marks"] == [mark._asdict() for mark in marks]
        phone.forget("geheimnis")
        assert store.marks() == []
        phone.hide("geheimnis")
        phone.dismiss("geheimer")
        phone.forget()
        assert store.marks() == []
        store.close()
        assert all(b"geheim" not in file.read_bytes() for file in tmp_path.iterdir())
