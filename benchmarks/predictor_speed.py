"""What the predictor costs a phone: predict and observe, beside a list of recently used apps.

    python benchmarks/predictor_speed.py

The list is what stock Android offers (the AOSP reference predictor): move to the front, take the
first five. Medians of 2,000 launches of 30 apps, best of several runs, without a crowd and with one
of 2,000 apps; then the compiled form on a whole log.
"""

from __future__ import annotations

import time

import numpy as np

from nextapp.data import Split, read
from nextapp.evaluation import exam, find_preset
from nextapp.predictor import Habits
from nextapp.predictors import NextApp
from nextapp.wire import Crowd

N_CROWD = 2000
N_APPS, N_LAUNCHES, RUNS = 30, 2000, 5


class RecentlyUsed:
    """The peer."""

    def __init__(self) -> None:
        self.apps: list[int] = []

    def observe(self, app: int, when: float) -> None:
        if app in self.apps:
            self.apps.remove(app)
        self.apps.insert(0, app)

    def predict(self) -> list[int]:
        return self.apps[:5]


class WithHabits(Habits):
    def predict(self) -> list[int]:
        known = self.apps
        return [known[place] for place in np.argsort(-self.scores(known))[:5].tolist()]


class WithCrowd(WithHabits):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(1)
        n_each = 64
        self.crowd = Crowd(
            rng.dirichlet(np.ones(N_CROWD)),
            np.arange(N_CROWD + 1) * n_each,
            np.concatenate([rng.choice(N_CROWD, n_each, replace=False) for _ in range(N_CROWD)]),
            rng.dirichlet(np.ones(n_each), N_CROWD).ravel(),
        )


def launches(seed: int) -> list[tuple[int, float]]:
    rng = np.random.default_rng(seed)
    follows = rng.dirichlet(np.full(N_APPS, 0.15), N_APPS)
    app, when, found = 0, 1.7e9, []
    for _ in range(N_LAUNCHES):
        app = int(rng.choice(N_APPS, p=follows[app]))
        when += float(rng.choice([20, 2000], p=[0.9, 0.1]))
        found.append((app, when))
    return found


def microseconds(phone: RecentlyUsed | WithHabits, told: list[tuple[int, float]]) -> list[float]:
    """Median time of a prediction and of the launch after it."""
    taken = []
    for app, when in told:
        start = time.perf_counter()
        phone.predict()
        middle = time.perf_counter()
        phone.observe(app, when)
        taken.append((middle - start, time.perf_counter() - middle))
    return [1e6 * float(median) for median in np.median(taken, axis=0)]


def main() -> None:
    told = launches(0)
    for maker in (RecentlyUsed, WithHabits, WithCrowd):
        best = np.min([microseconds(maker(), told) for _ in range(RUNS)], axis=0)
        print(f"{maker.__name__:13} predict {best[0]:6.1f} µs   observe {best[1]:6.1f} µs")
    alone = []
    for _ in range(RUNS):
        phone, taken = Habits(), []
        for app, when in told:
            start = time.perf_counter()
            phone.observe(app, when)
            taken.append(time.perf_counter() - start)
        alone.append(1e6 * float(np.median(taken)))
    print(f"observe with no prediction before it: {min(alone):.1f} µs")
    start = time.perf_counter()
    data = phone.to_bytes()
    middle = time.perf_counter()
    Habits.from_bytes(data)
    end = time.perf_counter()
    print(
        f"state {len(data):,} bytes, written in {1e3 * (middle - start):.1f} ms, "
        f"read in {1e3 * (end - middle):.1f} ms"
    )
    log = read("synthetic:phones=40,apps=30,days=30,installed=30", seed=0)
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    predictor = NextApp()
    predictor.fit(test.history)
    questions = [chunk.questions for chunk in test.chunks]
    predictor.score(questions[0])  # compiled
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        for asked in questions:
            predictor.score(asked)
        times.append(time.process_time() - start)
    each = 1e6 * min(times) / len(test.whole)
    print(
        f"compiled: {each:.2f} µs a launch, learning and all, on one core: "
        f"{min(alone) / each:.0f} times as fast"
    )


if __name__ == "__main__":
    main()
