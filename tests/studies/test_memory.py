"""Which apps to keep in memory: against plain loops, and the fewest cold starts by trying all."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp import plots
from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import exam
from nextapp.predictors.rivals import CountMix
from nextapp.studies import memory
from nextapp.studies.memory import MemoryStudy, Policy, Resident, play


def some_phone(rng, n, k) -> Resident:
    chances = rng.dirichlet(np.full(k, 0.5), n)
    return Resident(rng.integers(0, k, n), rng.integers(0, k, 4), chances, chances[::-1].copy())


def fewest_cold_starts(launches, resident, size) -> int:
    """By every choice of the app that gives way."""
    states = {frozenset(resident): 0}
    for app in launches.tolist():
        after: dict[frozenset[int], int] = {}
        for apps, cold in states.items():
            if app in apps:
                ways = [(apps, cold)]
            elif len(apps) < size:
                ways = [(apps | {app}, cold + 1)]
            else:
                ways = [(apps - {out} | {app}, cold + 1) for out in apps]
            for way, count in ways:
                after[way] = min(count, after.get(way, count))
        states = after
    return min(states.values())


@pytest.mark.parametrize("size", [2, 3, 4])
def test_nobody_has_fewer_cold_starts_than_min_and_min_has_as_few_as_any_choice(rng, size):
    for _ in range(20):
        phone = some_phone(rng, 30, 6)
        found = {name: play(phone, policy, size) for name, policy in phone.policies(()).items()}
        resident = np.flatnonzero(phone.start(size)).tolist()
        fewest = fewest_cold_starts(phone.launches, resident, size)
        assert found["min"] == (fewest, 0, 0)
        assert all(found[name][0] >= fewest for name in found if name != "top")


@pytest.mark.usefixtures("form")
def test_lru_keep_and_loads_in_advance_are_those_of_plain_loops(rng):
    phone, size, theta = some_phone(rng, 200, 9), 4, 0.05
    history, launches = phone.before.tolist(), phone.launches.tolist()
    resident = list(dict.fromkeys(history[::-1]))[:size]
    cold, latest = 0, resident[::-1]
    for app in launches:
        cold += app not in latest
        latest = [*(other for other in latest if other != app), app][-size:]
    assert play(phone, phone.policies(())["lru"], size) == (cold, 0, 0)

    for limit, name in ((None, "keep"), (theta, "keep-prewarm-0.05")):
        now, unused, cold, loaded, wasted = list(resident), set(), 0, 0, 0
        for row, app in enumerate(launches):
            past = history + launches[: row + 1]
            frequency = {
                other: sum(0.999**ago for ago, one in enumerate(past[::-1]) if one == other)
                for other in range(9)
            }
            p = phone.chances[min(row + 1, len(launches) - 1)]
            value = {
                other: (np.log(f) if f else -1e9) + 30 * p[other] for other, f in frequency.items()
            }
            unused.discard(app)
            if app not in now:
                cold += 1
                if len(now) == size:
                    out = min(now, key=value.__getitem__)
                    now.remove(out)
                    wasted += out in unused
                    unused.discard(out)
                now.append(app)
            while limit is not None:
                best = max(set(range(9)) - set(now), key=p.__getitem__)
                out = min(set(now) - {app}, key=value.__getitem__)
                gains = p[best] - (p[out] if len(now) == size else 0.0) > limit
                if not gains:
                    break
                if len(now) == size:
                    now.remove(out)
                    wasted += out in unused
                    unused.discard(out)
                now.append(best)
                unused.add(best)
                loaded += 1
        expected = (cold, loaded, wasted + len(unused))
        assert play(phone, phone.policies((theta,))[name], size) == expected


def test_top_holds_the_likeliest_apps_beside_the_open_one(rng):
    phone, size = some_phone(rng, 100, 8), 4
    cold, held = 0, set(np.flatnonzero(phone.start(size)).tolist())
    for row, app in enumerate(phone.launches.tolist()):
        cold += app not in held
        p = phone.chances[min(row + 1, 99)]
        others = sorted((other for other in range(8) if other != app), key=lambda i: -p[i])
        held = {app, *others[: size - 1]}
    assert play(phone, phone.policies(())["top"], size)[0] == cold


def test_an_app_never_launched_is_not_loaded_in_advance():
    """Two apps known; the third comes at the end, and P of it is high from the start."""
    log = LaunchLog.from_columns(
        np.zeros(12), [0, 1] * 5 + [0, 2], 60_000 * np.arange(12), ["u"], ["a", "b", "c"]
    )
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), memory._WHOLE_TEST_PART)
    counts = CountMix(longest=1)
    counts.fit(test.history)
    (phone,) = memory.phones_of(test, counts, counts)
    assert phone.launches.tolist() == [0, 1, 0, 1, 0, 2]
    assert phone.before.tolist() == [0, 1] * 3
    assert not phone.chances[:, 2].any()
    always = Policy(phone.chances, np.tile([0.0, 0.0, 0.9], (6, 1)) * (phone.chances > 0), 0.01)
    assert play(phone, always, 2) == (1, 0, 0)


def test_ten_users_have_an_interval(rng):
    log = LaunchLog.from_columns(
        np.repeat(np.arange(10), 60), rng.zipf(1.4, 600) % 10, 600_000 * np.tile(np.arange(60), 10),
        list("abcdefghij"), [f"a{k}" for k in range(10)],
    )  # fmt: skip
    found = memory.run(MemoryStudy("a log", sizes=(3,), thetas=()), log)["sizes"]["3"]["min"]
    assert found["cold"]["low"] < found["cold"]["mean"] < found["cold"]["high"]


def test_a_study_has_every_policy_for_every_size_and_a_figure(rng):
    n = 300
    log = LaunchLog.from_columns(
        np.repeat([0, 1, 2], n), rng.zipf(1.4, 3 * n) % 10, 600_000 * np.tile(np.arange(n), 3),
        ["u", "v", "w"], [f"a{k}" for k in range(10)],
    )  # fmt: skip
    study = MemoryStudy("a log", sizes=(3, 5), thetas=(0.1,), cold=1.0, warm=0.5)
    result = memory.run(study, log)
    assert list(result["sizes"]) == ["3", "5"]
    for found in result["sizes"].values():
        assert list(found) == [
            "lru", "lfu", "faded-lfu", "counts-keep", "chance", "keep", "keep-prewarm-0.1", "top",
            "min",
        ]  # fmt: skip
        assert found["lru"]["seconds_per_day"]["mean"] == 0.0
        fewest = found["min"]
        assert fewest["avoided"]["mean"] > 0.0
        assert fewest["avoided"]["low"] is None  # three users: no interval over users
        days = 59 * 600 / 86400  # sixty launches, ten minutes apart: below one day
        assert days < 1
        saved = (found["lru"]["cold"]["mean"] - fewest["cold"]["mean"]) / 100 * 60 * 0.5
        assert fewest["seconds_per_day"]["mean"] == pytest.approx(saved)
    assert len(plots.memory(result).axes) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sizes": (1, 5)}, "sizes must be"),
        ({"thetas": (1.5,)}, "thetas must be"),
        ({"cold": 0.1}, "a cold start must take"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        MemoryStudy("a log", **wrong)
