"""A demonstration phone: launches by tapping or from a person's log, suggestions, rivals, reports.

Suggestions come from `PhoneCore` with `Habits`, as on a real phone. Reports use a mechanism that
the owner's limits allow and are charged to a real ledger; they go to a practice server inside this
page, so nothing leaves the machine. The ledger is a file without launches.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.data.cutting import collapse_repeats
from nextapp.evaluation import metrics
from nextapp.page.catalogue import N_APPS, NAMES, app_entry, short_name
from nextapp.phone.core import Limits, PhoneCore
from nextapp.phone.ledger import DAY, BudgetSpent, ClockError
from nextapp.phone.store import Store, TooSoon
from nextapp.predictor import Habits, Reason
from nextapp.privacy import Mechanism
from nextapp.privacy.walsh import fewest_bits
from nextapp.studies.reasons import words
from nextapp.wire import Broadcast, Floats, ModelSettings, Report, ReportRequest, WireError

SHOWN = 5  # suggestions
MODELS = ("nextapp", "mru", "sr-od")
EPSILON = Limits().per_report
PRACTICE = "practice server in this page"
MOST_LEARNT = 10_000  # largest number of launches that the phone has learnt at the start
MOST_APPS = 200  # largest catalogue; rarer apps of a log are not in it, as on a real server
SEED_BYTES = 8  # of a report by walsh; they do not depend on the launches
TAP_SECONDS = 20.0  # assumed seconds between two taps
_LEAST_PART = 0.05  # smallest part of a score that gets a bar: a factor of 1.05
_LEARNT_DAYS = 14

PERSON = replace(
    synthetic.APP_USAGE,
    phones=12,
    apps=N_APPS,
    days=21,
    start="2026-03-02",
    installed=20.0,
    installed_spread=0.05,
    taste=0.9,
    habit=0.32,
    own_habit=0.4,
    returning=0.55,
    repeat=0.06,
    repeat_spread=0.5,
    echo=0.0,
)
"""Synthetic people: three weeks, about twenty apps each."""


@dataclass(frozen=True)
class Person:
    """The owner of a phone; launches are app names and local times (s), oldest first."""

    name: str
    launches: Sequence[tuple[str, float]]
    n_learnt: int
    apps: tuple[str, ...]
    is_synthetic: bool
    from_log: bool  # else one of the synthetic people that are always there
    n_older: int = 0  # launches left out before the learnt ones


@lru_cache(maxsize=8)
def synthetic_person(number: int) -> Person:
    log = collapse_repeats(synthetic.make(PERSON, 0))
    starts = log.starts.tolist()
    rows = slice(starts[number], starts[number + 1])
    used = np.bincount(log.app[rows], minlength=N_APPS)
    names = [""] * N_APPS
    for app, (name, _) in zip(np.argsort(-used, kind="stable").tolist(), NAMES, strict=True):
        names[app] = name  # this person's most used app gets the most common name
    seconds = (log.time[rows] / 1000).tolist()
    launches = [
        (names[app], when) for app, when in zip(log.app[rows].tolist(), seconds, strict=True)
    ]
    first = seconds[0] + _LEARNT_DAYS * DAY
    n_learnt = sum(when < first for when in seconds)
    name = f"Synthetic person {number + 1}"
    return Person(name, launches, n_learnt, tuple(names), True, False)


def person_of_log(
    name: str, launches: Sequence[tuple[str, float]], is_synthetic: bool = False
) -> Person:
    """A person from a log: the first two thirds are learnt, the last third can be played."""
    counts: dict[str, int] = {}
    for app, _ in launches:
        counts[app] = counts.get(app, 0) + 1
    apps = tuple(sorted(counts, key=lambda app: -counts[app])[:MOST_APPS])
    n_learnt = max(1, 2 * len(launches) // 3)
    n_older = max(0, n_learnt - MOST_LEARNT)
    recent, n_learnt = launches[n_older:], n_learnt - n_older
    return Person(name, recent, n_learnt, apps, is_synthetic, True, n_older)


class PhoneSession:
    """One phone on the page. ``left_out`` is kept when the page is loaded again."""

    def __init__(self, person: Person, left_out: dict[int, float] | None = None) -> None:
        self.id = secrets.token_urlsafe(12)
        self.person = person
        self._numbers = {app: number for number, app in enumerate(person.apps)}
        self._names = list(person.apps)
        self._phone = PhoneCore(habits=Habits())
        self._phone.left_out = {} if left_out is None else left_out
        self._followers: dict[int, dict[int, int]] = {}
        self._last: int | None = None
        self._clock = 0.0
        self._n_predicted = 0
        self._hits = {model: np.zeros(2) for model in MODELS}  # at 1 and at 5
        self._events: deque[dict[str, Any]] = deque(maxlen=40)
        request = ReportRequest("walsh", EPSILON, 1.0, {"b": fewest_bits(EPSILON)}, "transitions")
        rows = np.zeros((len(person.apps), 0))
        self._asked = Broadcast(0, rows, ModelSettings(), person.apps, request)  # of the server
        self._reports: list[dict[str, Any]] = []
        self._place = 0
        for app, when in person.launches[: person.n_learnt]:
            self._observe(self._number(app), when)
            self._place += 1
        self._first_shown = self._counts()[:20]
        self._folder = TemporaryDirectory(prefix="nextapp-page-")
        self._store = Store.create(Path(self._folder.name) / "budget.db")

    # --- launches

    def _number(self, app: str) -> int:
        if app not in self._numbers:
            self._numbers[app] = len(self._names)
            self._names.append(app)
        return self._numbers[app]

    def _counts(self) -> list[int]:
        history = self._phone.history
        counts = np.bincount(history, minlength=len(self._names))
        return [app for app in np.argsort(-counts, kind="stable").tolist() if counts[app]]

    def _observe(self, app: int, when: float) -> None:
        when = max(when, self._clock)
        self._phone.observe(app, when)
        if self._last is not None:
            after = self._followers.setdefault(self._last, {})
            after[app] = after.get(app, 0) + 1
        self._last, self._clock = app, when

    def _launch(self, app: int, when: float) -> None:
        """A launch that all models predict first, of another app than the open one."""
        when = max(when, self._clock)
        open_app = self._phone.open_app(when)
        if app != open_app:
            by_nextapp = [each for each, _ in self._phone.suggest(len(self._names), when)]
            place = by_nextapp.index(app) + 1 if app in by_nextapp else 0
            others = [each for each in self._phone.candidates if each != open_app]
            for model, apps in (("nextapp", by_nextapp), ("mru", others)):
                self._hits[model] += (apps[:1] == [app], app in apps[:SHOWN])
            self._hits["sr-od"] += self._hits_of_sr(app, others)
            self._n_predicted += 1
            self._events.append({"app": self._names[app], "place": place, "clock": _clock(when)})
        self._observe(app, when)

    def _hits_of_sr(self, app: int, known: list[int]) -> Floats:
        """(2,): those of SR-od; ties (apps that never followed) count by expectation."""
        if app not in known:
            return np.zeros(2)
        after = self._followers.get(-1 if self._last is None else self._last, {})
        scores, own = np.array([after.get(each, 0) for each in known]), after.get(app, 0)
        better, equal = np.array([(scores > own).sum()]), np.array([(scores == own).sum()])
        hits: Floats = metrics.values(better, equal, "expected", ("HR@1", "HR@5"))[0]
        return hits

    def tap(self, app: str) -> None:
        """The person launches an app, shortly after the last one."""
        self._launch(self._known(app), self._clock + TAP_SECONDS)

    def _known(self, app: str) -> int:
        if app not in self._numbers:
            raise ValueError(f"there is no app {app!r:.80} on this phone.")
        return self._numbers[app]

    def leave_out(self, app: str, hours: float | None) -> None:
        """Do not suggest an app for some hours; None: from now on; 0: suggest it again."""
        if hours is not None and not 0 <= float(hours) <= 24 * 30:
            raise ValueError(f"hours must be from 0 to 720, got {hours!r}.")
        until = math.inf if hours is None else self._clock + float(hours) * 3600
        self._phone.left_out[self._known(app)] = until

    def wait(self, hours: float) -> None:
        """Let time pass, so that the next launch starts a new session."""
        if not 0 < hours <= 24 * 30:
            raise ValueError(f"hours must be from 0 to 720, got {hours!r}.")
        self._clock += hours * 3600

    def play(self, n: int) -> str:
        """Play the next n launches of the person's log; a sentence where there are none."""
        if not 1 <= n <= 200:
            raise ValueError(f"n must be from 1 to 200, got {n!r}.")
        launches = self.person.launches[self._place : self._place + n]
        for app, when in launches:
            self._launch(self._number(app), when)
        self._place += len(launches)
        return "" if launches else "The log ends here."

    # --- reports

    def report(self) -> str:
        """Send the day's report to the practice server; returns a sentence about the result."""
        store, broadcast, when = self._store, self._asked, self._clock
        limits = store.limits
        self._phone.take(broadcast)
        try:
            mechanism = limits.mechanism_for(broadcast)
            epsilon = mechanism.guarantee.epsilon
            store.check_charge(epsilon, when, hours=limits.hours)
            report = self._phone.draw_report(mechanism, broadcast.round)
            drawn = store.charge_report(PRACTICE, report, epsilon, when, hours=limits.hours)
        except (BudgetSpent, TooSoon, ClockError, WireError) as error:
            return str(error)
        finally:
            self._phone.take(None)
        found = store.begin_sending(drawn)
        if found is not None:
            data, _ = found
            self._reports.insert(0, self._about(Report.from_bytes(data), data, mechanism))
        self._asked = replace(broadcast, round=broadcast.round + 1)
        store.settle(drawn, "accepted", "", self._clock)
        return f"{drawn.n_bytes} bytes went to the {PRACTICE}; ε = {drawn.epsilon:g} is spent."

    def _about(self, report: Report, data: bytes, mechanism: Mechanism) -> dict[str, Any]:
        """A report as it was sent, and the transitions that it speaks for."""
        names = [short_name(app) for app in self.person.apps]
        transitions = mechanism.decode([report])[:, : len(names)]
        for_it = np.argwhere(transitions > 0)
        examples = [
            f"{names[last]} then {names[following]}"
            for last, following in for_it[:: max(1, len(for_it) // 3)][:3].tolist()
        ]
        return {
            "clock": _clock(self._clock),
            "round": report.round,
            "mechanism": mechanism.name,
            "epsilon": mechanism.epsilon,
            "odds": math.exp(mechanism.epsilon),
            "n_bytes": len(data),
            "payload": report.payload.hex(" "),
            "hex": data.hex(" "),
            "n_public": SEED_BYTES,
            "speaks_for": len(for_it),
            "of": transitions.size,
            "examples": examples,
        }

    def _budget(self) -> dict[str, Any]:
        left = self._store.ledger.left(self._clock)
        limits = self._store.limits
        return {
            "lifetime": limits.lifetime,
            "left_today": left.today,
            "left": left.lifetime,
            "spent": limits.lifetime - left.lifetime,
        }

    # --- the state that the page shows

    def state(self, said: str = "") -> dict[str, Any]:
        return {
            "id": self.id,
            "person": self.person.name,
            "synthetic": self.person.is_synthetic,
            "n_older": self.person.n_older,
            "clock": _clock(self._clock),
            "n_launches": self._phone.n_launches,
            "apps": [app_entry(self._names[app]) for app in self._on_screen()],
            "suggestions": self.suggestions(),
            "left_out": [
                app_entry(self._names[app])
                for app, until in self._phone.left_out.items()
                if until > self._clock
            ],
            "last": None if self._last is None else self._names[self._last],
            "played": self._place - self.person.n_learnt,
            "to_play": len(self.person.launches) - self.person.n_learnt,
            "rates": self._rates(),
            "events": list(self._events),
            "reports": self._reports,
            "budget": self._budget(),
            "said": said,
        }

    def _rates(self) -> dict[str, dict[str, float]]:
        n = self._n_predicted
        rates = {}
        for model, hits in self._hits.items():
            at_1, at_5 = (hits / max(n, 1)).tolist()
            rates[model] = {"n": n, "at_1": at_1, "at_5": at_5}
        return rates

    def suggestions(self) -> list[dict[str, Any]]:
        last = "" if self._last is None else short_name(self._names[self._last])
        reasons = [each for each in self._phone.explain(self._clock) if isinstance(each, Reason)]
        return [
            {
                **app_entry(self._names[reason.app]),
                "share": reason.share,
                "words": words(reason, last),
                "parts": [
                    {"name": name, "part": part}
                    for name, part in reason.strongest[:5]
                    if abs(part) >= _LEAST_PART  # the strongest come first
                ],
            }
            for reason in reasons[:SHOWN]
        ]

    def _on_screen(self) -> list[int]:
        """The apps on the home screen; they keep their places, and new ones are added."""
        shown = set(self._first_shown)
        self._first_shown += [app for app in self._counts() if app not in shown][
            : max(0, 24 - len(shown))
        ]
        return self._first_shown

    def close(self) -> None:
        self._store.close()
        with suppress(OSError):
            self._folder.cleanup()


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
