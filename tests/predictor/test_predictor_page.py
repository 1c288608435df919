"""The predictor written again from docs/predictor.md, number by number, against `Habits`.

Nothing here comes from `nextapp.predictor`: what the page leaves out or gets wrong shows as a
difference. Contexts are kept by their apps; the hash table has tests of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from habits_scores import scores_of
from nextapp.predictor import Habits

N_PLACES, NEW = 16, 16
START = {
    "changed": [0.30, 0.40, 0.25, 0.35, 0.10, 0.15, 0.35, 0.05, 0.65],
    "opening": [0.50, 0.25, 0.20, 0.25, 0.10, 0.15, 0.15, 0.05, 0.55],
    "repeated": [0.30, 0.40, 0.25, 0.35, 0.10, 0.15, 0.35, 0.05, 0.65],
}


def bucket(place: int) -> int:
    """Places 0 to 11 apart, the others together."""
    return place if place < 12 else 12 + (place >= 16) + (place >= 24) + (place >= 40)


def bin_of(age: float) -> int:
    return min(19, int(math.log2(max(age, 0.0) + 1.0)))


def chance(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))


class Context:
    """Counts that fade at each visit."""

    def __init__(self, fade: float) -> None:
        self.fade = fade
        self.counts: dict[int, float] = {}

    def add(self, app: int) -> None:
        self.counts = {each: count * self.fade for each, count in self.counts.items()}
        self.counts[app] = self.counts.get(app, 0.0) + 1.0

    def of(self, app: int) -> float:
        return self.counts.get(app, 0.0)

    @property
    def total(self) -> float:
        return sum(self.counts.values())


class Page:
    """docs/predictor.md"""

    def __init__(self, crowd=None) -> None:
        self.crowd = crowd
        self.launches: list[int] = []
        self.by_use: list[int] = []  # the list by last use
        self.launched: dict[int, float] = {}  # when last
        self.clock = 0.0
        self.frequency = Context(0.999)
        self.after: dict[tuple[int, ...], Context] = {}
        self.hours = [Context(0.96) for _ in range(12)]
        self.places = [0.5] * (N_PLACES + 1)
        self.places_after = defaultdict(lambda: [0.0] * (N_PLACES + 1))
        self.came, self.could = [0.0] * 20, [0.0] * 20
        self.new_came, self.new_could = [0.0] * 20, [0.0] * 20
        self.since_new = 0
        self.weights = defaultdict(lambda: [0.0] * 9)
        self.weights |= {name: list(start) for name, start in START.items()}
        self.slopes = defaultdict(lambda: [0.0] * 9)
        self.corrections, self.errors = defaultdict(float), defaultdict(float)
        self.gate, self.gate_slopes = [0.0, 0.6, 0.7, 0.15, -1.0], [0.0] * 5
        self.trust, self.first_trust = -0.5, 0.5

    # Predicting

    def last(self, n: int) -> tuple[int, ...]:
        return tuple(self.launches[-n:]) if len(self.launches) >= n else ()

    def context(self, n: int) -> Context:
        return self.after.get(self.last(n), Context(1.0)) if self.last(n) else Context(1.0)

    def moment(self, when: float | None) -> tuple[float, bool]:
        opening = bool(self.launches) and when is not None and when - self.clock > 900.0
        return (when, True) if opening else (self.clock, False)

    def place_chances(self) -> list[float]:
        after = self.places_after[self.last(1)]
        total = sum(self.places)
        return [
            (here + 60.0 * everywhere / total) / (sum(after) + 60.0)
            for here, everywhere in zip(after, self.places, strict=True)
        ]

    def chance_new(self) -> float:
        at = bin_of(self.since_new)
        usual = self.place_chances()[NEW]
        return (self.new_came[at] + 30.0 * usual) / (self.new_could[at] + 30.0)

    def sets_of_weights(self, opening: bool) -> dict[str | tuple, float]:
        """The set, what is added to it after the last app; and their steps."""
        repeated = bool(self.last(2)) and len(set(self.last(2))) == 1
        name = "opening" if opening else "repeated" if repeated else "changed"
        return {name: 0.05, self.last(1): 0.02}

    def correction_keys(self, app: int) -> list[tuple[float, tuple]]:
        """The step of each, and what it is kept by."""
        before = self.last(2)[0] if self.last(2) else None
        return [(0.15, (app,)), (0.4, ("last", self.last(1), app)), (0.1, ("before", before, app))]

    def logs(self, when: float | None) -> dict[int, list[float]]:
        """log ratio of each statistic, by known app."""
        now, opening = self.moment(when)
        n, at_place = len(self.by_use), self.place_chances()
        together = [bucket(place) for place in range(n)]
        average = (sum(self.came) + 1.0) / (sum(self.could) + 10.0)
        one, longer = self.context(1), [self.context(m) for m in (2, 4)]
        found = {}
        for place, app in enumerate(self.by_use):
            usual = (self.frequency.of(app) + 6.0 / (n + 1)) / (self.frequency.total + 6.0)
            at = bucket(place)
            by_place = n * at_place[at] / together.count(at)
            age = bin_of(now - self.launched[app])
            since = (self.came[age] / average + 7.0) / (self.could[age] + 7.0)
            after = 1.0 + one.of(app) / (8.0 * usual * math.sqrt(by_place))
            expected = 0.75 * usual * math.sqrt(after)
            hour = self.hours[int(now // 7200) % 12]
            again = 1.0
            if app == self.launches[-1] and not opening:
                p = (one.of(app) + 7.0 * at_place[0]) / (one.total + 7.0)
                p = min(max(p, 0.01), 0.99)
                again = p / (1.0 - p)
            ratios = [
                usual, by_place, since, after, *(1.0 + each.of(app) / expected for each in longer),
                1.0 + hour.of(app) / (40.0 * usual), again,
            ]  # fmt: skip
            lesson = sum(self.corrections[key] for _, key in self.correction_keys(app))
            found[app] = [*map(math.log, ratios), lesson]
        return found

    def own(self, when: float | None) -> dict[int, float]:
        """P of the known apps, without the crowd and without P(new)."""
        sets = [self.weights[name] for name in self.sets_of_weights(self.moment(when)[1])]
        weights = [sum(each) for each in zip(*sets, strict=True)]
        exponentials = {
            app: math.exp(sum(w * log for w, log in zip(weights, logs, strict=True)))
            for app, logs in self.logs(when).items()
        }
        return {app: e / sum(exponentials.values()) for app, e in exponentials.items()}

    def told(self, apps: list[int], opening: bool) -> tuple[dict[int, float], list[float], float]:
        """Shares, the inputs of the gate, and w."""
        before = self.last(2)[0] if self.last(2) else None
        shares, launches = self.crowd.shares(np.array(apps), self.launches[-1], before)
        inputs = [
            1.0,
            math.log(3.0 / (3.0 + self.context(1).total)),
            math.log(1.0 / (1.0 + self.context(2).total)),
            math.log(1.0 + launches),
            1.0 if opening else 0.0,
        ]
        weight = chance(sum(g * x for g, x in zip(self.gate, inputs, strict=True)))
        return dict(zip(apps, shares.tolist(), strict=True)), inputs, weight

    def scores(self, candidates: list[int], when: float | None = None) -> list[float]:
        own = self.own(when)
        new = [app for app in candidates if app not in own]
        known = sum(own.get(app, 0.0) for app in candidates)
        p_new = (self.chance_new() if known else 1.0) if new else 0.0
        p = {app: (1.0 - p_new) * own[app] / known for app in candidates if app in own}
        p |= {app: p_new / len(new) for app in new}
        if self.crowd is not None:
            first = max(candidates, key=p.__getitem__)
            share, _, w = self.told(candidates, self.moment(when)[1])
            p = mixed(p, share, w * chance(self.trust))
            if self.first_trust < 0.0:
                best = max(candidates, key=p.__getitem__)
                p[first], p[best] = p[best], p[first]
        return [math.log(p[app]) for app in candidates]

    # Learning

    def observe(self, app: int, when: float) -> None:
        now, opening = self.moment(when)
        known = app in self.launched
        if known:
            p = self.own(when)
            if self.crowd is not None:
                self.learn_crowd(app, p, opening)
            self.learn(app, p, when, opening)
        place = bucket(self.by_use.index(app)) if known else NEW
        if self.launches:
            self.came = [0.9997 * count for count in self.came]
            self.could = [0.9997 * count for count in self.could]
            for each in self.by_use:
                self.could[bin_of(now - self.launched[each])] += 1.0
            if known:
                self.came[bin_of(now - self.launched[app])] += 1.0
            self.new_came = [0.9997 * count for count in self.new_came]
            self.new_could = [0.9997 * count for count in self.new_could]
            self.new_could[bin_of(self.since_new)] += 1.0
            self.new_came[bin_of(self.since_new)] += not known
        for places in (self.places, self.places_after[self.last(1)]):
            places[:] = [0.9997 * count for count in places]
            places[place] += 1.0
        self.frequency.add(app)
        for n, fade in ((1, 0.97), (2, 0.965), (4, 0.965)):
            if self.last(n):
                self.after.setdefault(self.last(n), Context(fade)).add(app)
        self.hours[int(when // 7200) % 12].add(app)
        if known:
            self.by_use.remove(app)
        self.by_use.insert(0, app)
        self.launches.append(app)
        self.launched[app] = self.clock = when
        self.since_new = self.since_new + 1 if known else 0

    def learn(self, app: int, p: dict[int, float], when: float, opening: bool) -> None:
        error = {each: (each == app) - chance for each, chance in p.items()}
        logs = self.logs(when)
        for number in range(9):
            slope = sum(error[each] * logs[each][number] for each in error)
            for name, step in self.sets_of_weights(opening).items():
                self.slopes[name][number] += slope**2
                size = math.sqrt(1.0 + self.slopes[name][number])
                self.weights[name][number] += step * slope / size
        for each, e in error.items():
            for step, key in self.correction_keys(each):
                self.errors[key] = 0.999 * self.errors[key] + e**2
                self.corrections[key] += step * e / math.sqrt(1.0 + self.errors[key])

    def learn_crowd(self, app: int, p: dict[int, float], opening: bool) -> None:
        share, inputs, w = self.told(list(p), opening)
        both = mixed(p, share, w)
        slope = w * (1.0 - w) * (share[app] - p[app] * sum(share.values())) / both[app]
        for number, x in enumerate(inputs):
            self.gate_slopes[number] += (slope * x) ** 2
            self.gate[number] += 0.05 * slope * x / math.sqrt(1.0 + self.gate_slopes[number])
        gain = math.log(both[app] / p[app])
        self.trust = -0.5 + 0.998 * (self.trust + 0.5) + min(max(gain, -3.0), 3.0)
        a, b = max(p, key=p.__getitem__), max(both, key=both.__getitem__)
        if a != b and app in (a, b):
            gain = math.log(both[app] / (both[a] + both[b]) / (p[app] / (p[a] + p[b])))
            self.first_trust = 0.5 + 0.998 * (self.first_trust - 0.5) + min(max(gain, -3.0), 3.0)


def mixed(p: dict[int, float], share: dict[int, float], weight: float) -> dict[int, float]:
    total = sum(share[app] for app in p)
    return {app: (1.0 - weight * total) * p[app] + weight * share[app] for app in p}


class RandomCrowd:
    """Followers of each app by lot, and launches seen after two apps."""

    def __init__(self, rng: np.random.Generator) -> None:
        likes = rng.random((40, 40)) ** 6
        self.share = likes / likes.sum(axis=1, keepdims=True) * rng.uniform(0.5, 1.0, (40, 1))
        self.launches = rng.choice([0.0, 0.0, 1.0, 3.0, 20.0], (40, 40))

    def shares(self, apps, last, before):
        if last is None:
            return np.zeros(len(apps)), 0.0
        return self.share[last, apps], 0.0 if before is None else float(self.launches[before, last])


def some_launches(rng: np.random.Generator, n: int) -> list[tuple[int, float]]:
    """Routines, repeats and chance; short and long pauses; new apps now and then, also late."""
    routine = rng.integers(0, 8, 7).tolist()
    app, when, launches = 0, 1.6e9 + float(rng.random()) * 86400.0, []
    for t in range(n):
        kind = rng.random()
        if t % 60 == 59:
            app = 20 + t // 60
        elif 0.2 <= kind < 0.6:
            app = routine[t % 7]
        elif kind >= 0.6:
            app = int(rng.integers(0, 18))
        when += float(rng.choice([rng.uniform(0, 60), rng.uniform(0, 900), rng.uniform(900, 9000),
                                  rng.uniform(9000, 2e5)], p=[0.5, 0.3, 0.15, 0.05]))  # fmt: skip
        launches.append((app, when))
    return launches


@pytest.mark.parametrize("crowded", [False, True])
def test_the_page_says_what_the_predictor_does(rng, crowded):
    crowd = RandomCrowd(rng) if crowded else None
    phone, page = Habits(), Page(crowd)
    phone.crowd = crowd
    for t, (app, when) in enumerate(some_launches(rng, 300)):
        phone.observe(app, when)
        page.observe(app, when)
        known = phone.apps
        asked = [(known, None)]
        if t % 3 == 0:
            asked += [(known, when + 2000.0), ([*known, 38, 39], None), (known[::2], when + 500.0)]
        for candidates, moment in asked:
            np.testing.assert_allclose(
                scores_of(phone, candidates, moment), page.scores(candidates, moment), atol=1e-9
            )
