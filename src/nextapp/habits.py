"""What one phone knows of its own person, and how it ranks the next app by it.

Nothing here ever leaves the phone, so it costs no privacy. `Habits` keeps a few statistics, each
brought up to date at every launch. Each gives every app i a number φ(i), in the unit of log-odds:

    frequency   log P0(i),  P0(i) = (n(i) + α·prior(i)) / (n + α),  n(i) fading over 330 launches
    lately      log(1 + l(i) / (κ·P0(i))),  l(i) the launches of i fading over 20 launches
    after-1     log(1 + n(j→i) / (κ·b(i))),  j the last app; b backs off, see below
    after-2,-4  the same after the last two, four apps
    place       log(n_apps·P(i's place in the list of apps by last use))
    rhythm      log(P(place | places of the last two launches) / P(place))
    since       log(how readily an app is launched so long after its last launch / on average)
    hour        log(1 + n(hour→i) / (κ·P0(i))),  eight times of day
    session     log(1 + launches of i in the session so far)
    lesson      what the mix got wrong before: a correction for i, for i after the last app, and for
                i after the one before it, learnt by its errors

and the score is their sum, each times its weight. The weights start from shipped constants and move
on the phone: after every launch one AdaGrad step down the slope of −log P(app), P the softmax of
the scores. There are two sets of them, one for launches within a session and one for those that
open a session.

A context backs off halfway to what is known without it:
b₁ = P0·e^(place/2), b₂ = P0·e^(φ₁/2), b₄ = P0·e^(φ₂/2 + φ₁/4).

Two things are settled outside the sum. Apps never launched here share P(new), how readily this
person takes up something new. And within a session the last app gets an offset, the one of
`AGAIN` with which "the same again or the best of the others" would have been right most often;
the largest has a lead where most launches are repeats.
Where a `Crowd` is at hand it is mixed in at the end, own = softmax(score):

    P(i) = (1 − w)·own(i) + w·(.9·(share(i | j) + rest·Q(i)) + .1·Q(i))
    Q(i) = (n·own(i) + κ·P_crowd(i)) / (n + κ),   w = fκ / (fκ + κ + n(j→·)),   κ = 3

so that own counts take over as they grow, and where the crowd is silent the phone speaks;
`Crowd.cells` has share and rest, docs/crowd.md why it is so. The phone learns f, what the crowd is
worth to it, by its hits (`Trust`): one for the first place, one for the order of the others.

docs/predictor.md has figures, ablations, and how the constants came about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.names import unknown
from nextapp.wire import Crowd, Floats, WireError, pack, unpack

SESSION_GAP = 15 * 60.0

STATISTICS = (
    "frequency", "lately", "after-1", "after-2", "after-4",
    "place", "rhythm", "since", "hour", "session", "lesson",
)  # fmt: skip
GROUPS = {
    "transitions": ("after-1", "after-2", "after-4", "lesson"),
    "recency": ("place", "rhythm", "since", "again"),
    "counts": ("frequency", "lately"),
}
(
    _FREQUENCY, _LATELY, _AFTER_1, _AFTER_2, _AFTER_4,
    _PLACE, _RHYTHM, _SINCE, _HOUR, _SESSION, _LESSON,
) = range(len(STATISTICS))  # fmt: skip

# How fast each statistic fades, per launch that it counts.
FREQUENCY_FADE, LATELY_FADE, PLACE_FADE, SINCE_FADE = 0.997, 0.95, 0.999, 0.999
AFTER_FADE, AFTER_2_FADE, AFTER_4_FADE, HOUR_FADE = 0.97, 0.95, 0.95, 0.97
# How many launches a prior weighs.
FREQUENCY_PRIOR, LATELY_PRIOR, AFTER_PRIOR, LONGER_PRIOR = 3.0, 5.0, 3.0, 0.5
HOUR_PRIOR, RHYTHM_PRIOR, SINCE_PRIOR, PLACE_PRIOR = 20.0, 10.0, 5.0, 0.5
CROWD_WEIGHT = 3.0  # κ: how many launches what the crowd says weighs
CROWD_SHARE = 0.9
CROWD_ODDS = 1.0, 0.0, 0.2, 3.0, 10.0  # f, what the crowd's odds are multiplied by; 1 is usual
TRUST_FADE, TRUST_START = 0.9995, (1.0, 4.0)  # of the hits by which f is chosen, see `Trust`
FIRST_LEAD = 1e-3  # of the first place, where the order of the others has another app there
LEAST_COUNT = 0.02  # a follower that has faded below is dropped
GRADIENT_START = 1.0  # AdaGrad's sum of squares starts here
LESSON_STEPS = 0.1, 0.3, 0.1  # of the corrections: for i, after the last app, after the one before
LESSON_FADE = 0.999  # of their sums of squared errors

AGAIN = 0.0, -0.2, 0.2, -0.4, 0.4, 0.7, 1.0, 1.5, 3.0  # offsets of the last app to choose from
AGAIN_FADE, AGAIN_START = 0.999, 2.0  # hits of an offset fade; no offset starts ahead by these
AGAIN_LEAN = 10.0  # hits by which the largest leads where most launches repeat the app before

MAX_APPS = 256  # the app unused for longest gives way
MAX_CONTEXTS = 2048  # of each longer kind; the context unused for longest gives way

# Places in the list of apps by last use; far ones share a count.
PLACE_ENDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 40, MAX_APPS)
NEW = len(PLACE_ENDS)  # the place of an app never launched before
N_PLACES = NEW + 1
_BUCKET = np.searchsorted(PLACE_ENDS, np.arange(MAX_APPS), side="right")
_FIRST = np.array((0, *PLACE_ENDS[:-1]))
_OFFSETS = np.array(AGAIN)
_ODDS = np.array(CROWD_ODDS)
_START = np.array(TRUST_START)[:, None]
_KIND = np.array([0, 1, 2] + [3] * (NEW - 3) + [4])  # for rhythm: places 0, 1, 2, further, new
N_KINDS = 5
N_HOURS, HOUR_SECONDS = 8, 3 * 3600.0
_ABOVE = 1.0 + 1e-9  # what is above another by rounding alone is not above it
N_SINCE = 20  # doublings of a second; the last stands for six days and more


@dataclass(frozen=True)
class Weights:
    """The start of the mix: a weight for each of `STATISTICS`, by set.

    A weight of exactly 0 switches its statistic off for good. ``rate`` is the step with which the
    weights move (0: they stay), ``lesson`` scales that of the corrections, ``again`` the offset of
    the last app (0: none). ``taste`` is the
    weight of the SeqMF score, in standard deviations over the candidates; it stays as it is.
    """

    within: tuple[float, ...]
    opening: tuple[float, ...]
    rate: float = 0.05
    lesson: float = 1.0
    again: float = 1.0
    taste: float = 0.0

    def __post_init__(self) -> None:
        for name in ("within", "opening"):
            if len(getattr(self, name)) != len(STATISTICS):
                raise ValueError(
                    f"{name} must hold {len(STATISTICS)} weights, for {', '.join(STATISTICS)}; "
                    f"got {len(getattr(self, name))}."
                )
        numbers = (*self.within, *self.opening, self.rate, self.lesson, self.again, self.taste)
        if not all(math.isfinite(number) for number in numbers) or min(self.rate, self.lesson) < 0:
            raise ValueError("weights must be finite, and rate and lesson >= 0.")


DEFAULT = Weights(
    within=(0.25, -0.05, 0.29, 0.14, 0.29, 0.48, 0.01, 0.21, 0.22, 0.02, 0.79),
    opening=(0.54, -0.15, 0.16, 0.13, 0.28, 0.20, 0.04, 0.15, 0.07, 0.05, 0.77),
)
ABLATIONS = (*STATISTICS, "again", "adaptation", *GROUPS)


def without(*names: str, weights: Weights = DEFAULT) -> Weights:
    """The weights with these ingredients switched off.

    Names of `STATISTICS`; of groups of them (`GROUPS`); ``again``; or ``adaptation``, which keeps
    the weights where they start.
    """
    off: set[str] = set()
    for name in names:
        if name not in ABLATIONS:
            raise ValueError(unknown("ingredient", name, ABLATIONS))
        off.update(GROUPS.get(name, (name,)))

    def kept(numbers: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(
            0.0 if name in off else number for name, number in zip(STATISTICS, numbers, strict=True)
        )

    return replace(
        weights,
        within=kept(weights.within),
        opening=kept(weights.opening),
        rate=0.0 if "adaptation" in off else weights.rate,
        lesson=0.0 if "lesson" in off else weights.lesson,
        again=0.0 if "again" in off else weights.again,
    )


class Reason(NamedTuple):
    """Why an app stands where it stands.

    ``speaks`` has for each statistic its part of the score, above or below that of the average
    candidate; ``evidence`` the counts behind them. ``share`` is the softmax over the candidates,
    without the offset of the last app, which only sets the order.
    """

    app: int
    score: float
    share: float
    speaks: dict[str, float]
    evidence: dict[str, float]


class _View(NamedTuple):
    """The statistics of all known apps as of one moment; columns are slots."""

    opening: bool
    when: float
    features: Floats  # (n_statistics, n_known)
    scores: Floats  # (n_known,): the sum
    offset: float  # of the last app, beyond the sum
    since: npt.NDArray[np.intp]  # (n_known,)


class Trust:
    """What the crowd is worth to one phone: which f of `CROWD_ODDS` has been right most often.

    Chosen apart for the first place, by hits at 1, and for the order of the others, by hits at 3
    and at 5. With h the hits of an f and h₁ those of f = 1, it is the f with the largest

        Σ(h − h₁) − √(s + Σ(h − h₁)²),

    if that is above 0, and 1 if none is: another f than the usual must have paid by more than one
    standard error. The sums fade over 2,000 launches; s, the square of the largest h, stands for
    one launch to begin with.
    """

    def __init__(self) -> None:
        self.gain = np.zeros((2, len(CROWD_ODDS)))  # rows: first place, order of the others
        self.squares = np.zeros((2, len(CROWD_ODDS)))

    @property
    def odds(self) -> tuple[float, float]:
        """f for the first place, and for the order of the others."""
        beyond = self.gain - np.sqrt(_START + self.squares)
        beyond[:, 0] = 0.0
        first, others = beyond.argmax(axis=1).tolist()
        return CROWD_ODDS[first], CROWD_ODDS[others]

    def learn(self, hits: Floats) -> None:
        """A launch, by its `crowd_hits`."""
        better = hits - hits[:, :1]
        self.gain *= TRUST_FADE
        self.gain += better
        self.squares *= TRUST_FADE
        self.squares += better * better


_BY_APP = (
    "_count", "_lately", "_launched", "_in_session", "_place", "_lesson_of", "_errors_of",
)  # fmt: skip
_BY_PAIR = ("_after", "_lesson", "_errors")


class Habits:
    """One phone's statistics and their mix. Apps are numbers; times are seconds, local time.

    The state is bounded: `MAX_APPS` apps and `MAX_CONTEXTS` contexts of each longer kind, those
    unused for longest giving way. ``crowd`` may be set at any time; it is no part of the state.
    """

    def __init__(self, weights: Weights = DEFAULT) -> None:
        self.weights = weights
        self._crowd: Crowd | None = None
        self._slot: dict[int, int] = {}  # app → its place in the arrays below
        self._last_apps: list[int] = []  # the last four launches, latest first
        self._last_time = 0.0
        self._kinds = (4, 4)  # of the places of the last two launches, latest first
        self._mix = np.array([weights.within, weights.opening])  # (2, n_statistics)
        self._squares = np.full(self._mix.shape, GRADIENT_START)
        self._on = self._mix != 0.0
        self._any = self._on.any(axis=0).tolist()
        room = 16
        self._count = np.zeros(room)
        self._total = 0.0
        self._lately = np.zeros(room)
        self._launched = np.zeros(room)  # time of the last launch
        self._in_session = np.zeros(room)
        self._place = np.zeros(room, np.int64)
        self._after = np.zeros((room, room))  # row: last app
        self._hours = np.zeros((N_HOURS, room))
        self._lesson = np.zeros((2, room, room))  # after the last app, after the one before
        self._errors = np.zeros((2, room, room))
        self._lesson_of = np.zeros(room)
        self._errors_of = np.zeros(room)
        self._longer: tuple[dict[tuple[int, ...], dict[int, float]], ...] = ({}, {})
        self._places = np.full(N_PLACES, PLACE_PRIOR)
        self._rhythm = np.zeros((N_KINDS * N_KINDS, N_PLACES))
        self._hits = np.zeros(N_SINCE)
        self._trials = np.zeros(N_SINCE)
        self._again = np.zeros(len(AGAIN))  # hits of each offset
        self._again[0] = AGAIN_START
        self._trust = Trust()
        self._view: _View | None = None

    @property
    def crowd(self) -> Crowd | None:
        """What many phones know; None where there is none."""
        return self._crowd

    @crowd.setter
    def crowd(self, crowd: Crowd | None) -> None:
        self._crowd = crowd
        self._view = None

    @property
    def apps(self) -> list[int]:
        """The apps known, latest launch first."""
        known = list(self._slot)
        return [known[slot] for slot in np.argsort(self._place[: len(known)]).tolist()]

    def mix(self, opening: bool = False) -> dict[str, float]:
        """The weights as they stand now."""
        return dict(zip(STATISTICS, self._mix[int(opening)].tolist(), strict=True))

    # Learning

    def observe(self, app: int, when: float) -> None:
        """A launch: the weights and corrections learn from it, then the statistics take it in."""
        if not isinstance(app, int | np.integer) or app < 0:
            raise ValueError(f"app must be a whole number >= 0, got {app!r}.")
        if not math.isfinite(when):
            raise ValueError(f"when must be a finite number of seconds, got {when!r}.")
        app, when = int(app), float(when)
        slot = self._slot.get(app)
        if self._slot:
            view = self._seen_from(when)
            if slot is not None:
                if self._crowd is not None:
                    self._learn_trust(self._crowd, view, slot)
                self._learn(view, slot)
            if not view.opening:
                self._count_again(view, slot)
            self._count_transition(view, app, slot)
        if slot is None:
            slot = self._new_slot(app)
        self._count_launch(slot, when)
        self._last_apps = [app, *self._last_apps[:3]]
        self._last_time = when
        self._view = None

    def _learn(self, view: _View, slot: int) -> None:
        """One step down the slope of −log P(app)."""
        error = np.exp(view.scores - view.scores.max())
        error /= -error.sum()
        error[slot] += 1.0  # 1 for the app launched, minus P
        if self.weights.rate:
            number = int(view.opening)
            slope = view.features @ error
            squares = self._squares[number]
            squares += slope * slope
            step = self.weights.rate * slope / np.sqrt(squares)
            self._mix[number] += step * self._on[number]
        if self.weights.lesson:
            squared = error * error
            corrections, errors = self._lessons(len(error))
            for number, step in enumerate(LESSON_STEPS[: len(errors)]):
                errors[number] *= LESSON_FADE
                errors[number] += squared
                corrections[number] += (
                    self.weights.lesson * step * error / np.sqrt(1.0 + errors[number])
                )

    def _learn_trust(self, crowd: Crowd, view: _View, slot: int) -> None:
        """How each way to weigh the crowd would have ranked the app among those known."""
        scores = view.scores
        if view.offset:
            scores = scores.copy()
            scores[self._slot[self._last_apps[0]]] += view.offset
        cells = crowd.cells(np.array(list(self._slot), np.int64), self._last_apps[0])
        self._trust.learn(crowd_hits(scores, slot, *cells, self.n_after, self.n_launches))

    def _lessons(self, n: int) -> tuple[list[Floats], list[Floats]]:
        """The corrections that apply now, and their squared errors: for each app, after the last
        one, after the one before; rows of the n known apps, to be written to."""
        corrections: list[Floats] = [self._lesson_of[:n]]
        errors: list[Floats] = [self._errors_of[:n]]
        for back, app in enumerate(self._last_apps[:2]):
            slot = self._slot.get(app)
            if slot is None:
                break
            corrections.append(self._lesson[back, slot, :n])
            errors.append(self._errors[back, slot, :n])
        return corrections, errors

    def _count_again(self, view: _View, slot: int | None) -> None:
        """Which offsets of the last app would have put the launch first."""
        last = self._slot.get(self._last_apps[0])
        if last is None or len(self._slot) < 2:
            return
        others = view.scores.copy()
        others[last] = -math.inf
        best = int(others.argmax())
        self._again *= AGAIN_FADE
        if slot in (last, best):
            same = view.scores[last] + _OFFSETS > others[best]
            self._again += same == (slot == last)

    def _count_transition(self, view: _View, app: int, slot: int | None) -> None:
        """The launch seen from the one before: contexts, places, times since."""
        bucket = NEW if slot is None else int(_BUCKET[self._place[slot]])
        kinds = self._rhythm[self._kinds[1] * N_KINDS + self._kinds[0]]
        kinds *= PLACE_FADE
        kinds[bucket] += 1.0
        self._places *= PLACE_FADE
        self._places[bucket] += 1.0
        self._kinds = (int(_KIND[bucket]), self._kinds[0])
        self._hits *= SINCE_FADE
        self._trials *= SINCE_FADE
        self._trials += np.bincount(view.since, minlength=N_SINCE)
        if slot is not None:
            self._hits[view.since[slot]] += 1.0
        for contexts, length, fade in zip(
            self._longer, (2, 4), (AFTER_2_FADE, AFTER_4_FADE), strict=True
        ):
            if len(self._last_apps) < length:
                continue
            context = tuple(self._last_apps[:length])
            faded = {
                follower: count * fade
                for follower, count in contexts.pop(context, {}).items()
                if count * fade >= LEAST_COUNT
            }
            faded[app] = faded.get(app, 0.0) + 1.0
            contexts[context] = faded
            if len(contexts) > MAX_CONTEXTS:
                del contexts[next(iter(contexts))]

    def _count_launch(self, slot: int, when: float) -> None:
        n = len(self._slot)
        if self._last_apps:
            last = self._slot.get(self._last_apps[0])
            if last is not None:
                row = self._after[last, :n]
                row *= AFTER_FADE
                row[slot] += 1.0
            if when - self._last_time > SESSION_GAP:
                self._in_session[:n] = 0.0
        self._count[:n] *= FREQUENCY_FADE
        self._total *= FREQUENCY_FADE
        self._count[slot] += 1.0
        self._total += 1.0
        self._lately[:n] *= LATELY_FADE
        self._lately[slot] += 1.0
        hour = self._hours[_hour(when), :n]
        hour *= HOUR_FADE
        hour[slot] += 1.0
        self._in_session[slot] += 1.0
        self._launched[slot] = when
        place = self._place[:n]
        place += place < place[slot]
        place[slot] = 0

    def _new_slot(self, app: int) -> int:
        if len(self._slot) == MAX_APPS:
            self.forget(self.apps[-1])
        slot = len(self._slot)
        if slot == len(self._count):
            self._resize(2 * slot)
        self._slot[app] = slot
        self._place[slot] = slot
        return slot

    def forget(self, app: int) -> None:
        """An app that is gone: all that was known of it goes too. Apps never launched are fine."""
        slot = self._slot.get(app)
        if slot is None:
            return
        n = len(self._slot)
        order = [*range(slot), *range(slot + 1, n)]
        self._total -= float(self._count[slot])
        place = self._place[:n]
        place -= place > place[slot]
        self._rearrange(order, len(self._count))
        self._slot = {
            other: number - (number > slot) for other, number in self._slot.items() if other != app
        }
        for contexts in self._longer:
            for followers in contexts.values():
                followers.pop(app, None)
        self._view = None

    def _resize(self, room: int) -> None:
        self._rearrange(list(range(len(self._count))), room)

    def _rearrange(self, order: list[int], room: int) -> None:
        """Slots in another order, in arrays of another size."""
        n = len(order)
        for name in _BY_APP:
            old = getattr(self, name)
            new = np.zeros(room, old.dtype)
            new[:n] = old[order]
            setattr(self, name, new)
        hours = np.zeros((N_HOURS, room))
        hours[:, :n] = self._hours[:, order]
        self._hours = hours
        for name in _BY_PAIR:
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-2], room, room))
            new[..., :n, :n] = old[..., order, :][..., order]
            setattr(self, name, new)

    # Predicting

    def scores(
        self,
        candidates: Sequence[int] | npt.NDArray[np.integer],
        when: float | None = None,
        taste: Floats | None = None,
    ) -> Floats:
        """How likely each candidate is next: log-odds but for a constant, higher is better.

        Within a session the statistics are as of the last launch. With a ``when`` more than 15
        minutes later they are as of then, and the launch would open a session. ``taste`` are the
        SeqMF light scores of the candidates.
        """
        apps = np.asarray(candidates, np.int64).tolist()
        scores: Floats = np.empty(len(apps))
        if not apps:
            return scores
        view = self._seen_from(when)
        slots = [self._slot.get(app, -1) for app in apps]
        known = np.array(slots)
        if self._slot:
            scores[:] = view.scores[known]
            if view.offset:
                scores[known == self._slot[self._last_apps[0]]] += view.offset
        n_new = slots.count(-1)
        if n_new:
            scores[known < 0] = self._score_of_new(view, n_new)
        if taste is not None and self.weights.taste:
            scores += self.weights.taste * _standardised(taste)
        if self._crowd is not None:
            scores = self._mixed(self._crowd, apps, scores)
        return scores

    @property
    def trust(self) -> tuple[float, float]:
        """By what the crowd's odds are multiplied: for the first place, for the others' order."""
        return self._trust.odds

    @property
    def n_launches(self) -> float:
        """Launches seen, fading."""
        return self._total

    @property
    def n_after(self) -> float:
        """How often any app was seen right after the last one, fading."""
        last = self._slot.get(self._last_apps[0]) if self._last_apps else None
        return 0.0 if last is None else float(self._after[last].sum())

    def _mixed(self, crowd: Crowd, apps: list[int], scores: Floats) -> Floats:
        cells = crowd.cells(
            np.array(apps, np.int64), self._last_apps[0] if self._last_apps else None
        )
        return mixed_with_crowd(scores, *cells, self.n_after, self.n_launches, self._trust.odds)

    def explain(
        self,
        candidates: Sequence[int] | npt.NDArray[np.integer],
        when: float | None = None,
        taste: Floats | None = None,
    ) -> list[Reason]:
        """What speaks for each candidate, best first; same arguments and scores as `scores`."""
        apps = np.asarray(candidates, np.int64).tolist()
        if not apps:
            return []
        view = self._seen_from(when)
        mix = self._mix[int(view.opening)]
        names = [*STATISTICS, "again", "new"]
        parts = np.zeros((len(apps), len(names)))
        n_new = sum(app not in self._slot for app in apps)
        for row, app in zip(parts, apps, strict=True):
            slot = self._slot.get(app)
            if slot is None:
                row[-1] = self._score_of_new(view, n_new)
            else:
                row[: len(mix)] = mix * view.features[:, slot]
                row[-2] = view.offset * (app == self._last_apps[0])
        if taste is not None and self.weights.taste:
            names.append("taste")
            parts = np.column_stack([parts, self.weights.taste * _standardised(taste)])
        if self._crowd is not None:
            names.append("crowd")
            own = parts.sum(axis=1)
            parts = np.column_stack([parts, self._mixed(self._crowd, apps, own) - own])
        total = parts.sum(axis=1)
        likely = total - parts[:, names.index("again")]
        share = np.exp(likely - likely.max())
        share /= share.sum()
        speaks = parts - parts.mean(axis=0)  # those of a new app's one part are the others' mean
        evidence = [self._evidence(app, view) for app in apps]
        return [
            Reason(
                apps[i],
                float(total[i]),
                float(share[i]),
                dict(zip(names, speaks[i].tolist(), strict=True)),
                evidence[i],
            )
            for i in np.argsort(-total, kind="stable").tolist()
        ]

    def _seen_from(self, when: float | None) -> _View:
        """The statistics as of `when`; kept until the next launch."""
        opening = when is not None and when - self._last_time > SESSION_GAP
        moment = when if opening and when is not None else self._last_time
        view = self._view
        if view is None or view.opening != opening or view.when != moment:
            view = self._view = self._look(opening, moment)
        return view

    def _look(self, opening: bool, when: float) -> _View:
        n = len(self._slot)
        features = np.zeros((len(STATISTICS), n))
        prior = self._prior()
        popular = (self._count[:n] + FREQUENCY_PRIOR * prior) / (self._total + FREQUENCY_PRIOR)
        np.log(popular, out=features[_FREQUENCY])
        features[_LATELY] = np.log1p(self._lately[:n] / (LATELY_PRIOR * popular))
        bucket = _BUCKET[self._place[:n]]
        by_place, by_rhythm = self._by_place(n)
        if self._any[_PLACE]:
            features[_PLACE] = by_place[bucket]
        features[_RHYTHM] = by_rhythm[bucket]
        last = self._slot.get(self._last_apps[0]) if self._last_apps else None
        if last is not None:
            back = AFTER_PRIOR * popular * np.exp(0.5 * features[_PLACE])
            features[_AFTER_1] = np.log1p(self._after[last, :n] / back)
        self._back_off(features, popular)
        if self._any[_LESSON]:
            features[_LESSON] = sum(self._lessons(n)[0])
        since = _doublings(when - self._launched[:n])
        features[_SINCE] = self._by_since()[since]
        hour = self._hours[_hour(when), :n]
        features[_HOUR] = np.log1p(hour / (HOUR_PRIOR * popular))
        if not opening:
            features[_SESSION] = np.log1p(self._in_session[:n])
        offset = 0.0
        if not opening and last is not None and n > 1:
            offset = self.weights.again * self._best_offset()
        return _View(opening, when, features, self._mix[int(opening)] @ features, offset, since)

    def _back_off(self, features: Floats, popular: Floats) -> None:
        """After-2 and after-4: only apps that followed the context have anything to say."""
        slots = self._slot
        for contexts, length, here, below in (
            (self._longer[0], 2, _AFTER_2, _AFTER_1),
            (self._longer[1], 4, _AFTER_4, _AFTER_2),
        ):
            followers = contexts.get(tuple(self._last_apps[:length]))
            if not followers or len(self._last_apps) < length:
                continue
            for app, count in followers.items():
                slot = slots[app]
                lift = 0.5 * features[below, slot]
                if here == _AFTER_4:
                    lift += 0.25 * features[_AFTER_1, slot]
                back = popular[slot] * math.exp(lift)
                features[here, slot] = math.log1p(count / (LONGER_PRIOR * back))

    def _best_offset(self) -> float:
        hits = self._again.tolist()
        if 2.0 * self._places[0] > self._places.sum():
            hits[-1] += AGAIN_LEAN
        return AGAIN[hits.index(max(hits))]

    def _by_place(self, n: int) -> tuple[Floats, Floats]:
        """Place and rhythm of each place, for n known apps."""
        share = self._places / self._places.sum()
        ends = np.minimum((*PLACE_ENDS, 0), n)
        width = np.maximum(ends - np.append(_FIRST, 0), 1)
        seen = self._rhythm[self._kinds[1] * N_KINDS + self._kinds[0]]
        rhythm = (seen / share + RHYTHM_PRIOR) / (seen.sum() + RHYTHM_PRIOR)
        return np.log(max(n, 1) * share / width), np.log(rhythm)

    def _by_since(self) -> Floats:
        average = (self._hits.sum() + 1.0) / (self._trials.sum() + 10.0)
        readily: Floats = np.log(
            (self._hits / average + SINCE_PRIOR) / (self._trials + SINCE_PRIOR)
        )
        return readily

    def _prior(self) -> float:
        """prior(i): as if one app more than those known could come."""
        return 1.0 / (len(self._slot) + 1.0)

    def _score_of_new(self, view: _View, n_new: int) -> float:
        """Apps never launched here, n_new of them, share P(new) among all."""
        if not self._slot:
            return 0.0
        new = float(self._places[NEW] / self._places.sum())
        highest = float(view.scores.max())
        known = highest + math.log(float(np.exp(view.scores - highest).sum()))
        return known + math.log(new / (1.0 - new) / n_new)

    def _evidence(self, app: int, view: _View) -> dict[str, float]:
        """The counts behind the statistics."""
        slot = self._slot.get(app)
        if slot is None:
            return {}
        last = self._slot.get(self._last_apps[0]) if self._last_apps else None
        found = {
            "launches": float(self._count[slot]),
            "of": self._total,
            "lately": float(self._lately[slot]),
            "after-1": float(self._after[last, slot]) if last is not None else 0.0,
            "place": float(self._place[slot]),
            "seconds": max(0.0, view.when - float(self._launched[slot])),
            "hour": float(self._hours[_hour(view.when), slot]),
            "session": 0.0 if view.opening else float(self._in_session[slot]),
        }
        for contexts, length in zip(self._longer, (2, 4), strict=True):
            followers = contexts.get(tuple(self._last_apps[:length]), {})
            found[f"after-{length}"] = followers.get(app, 0.0)
        return found

    # Keeping

    def to_bytes(self) -> bytes:
        """The whole state; `from_bytes` goes on as if nothing had happened."""
        n = len(self._slot)
        tensors: dict[str, npt.NDArray[np.generic]] = {
            "apps": np.array(list(self._slot), np.int64),
            "last_apps": np.array(self._last_apps, np.int64),
            "times": np.array([self._last_time, self._total]),
            "kinds": np.array(self._kinds, np.int64),
            "mix": self._mix,
            "squares": self._squares,
            "places": self._places,
            "rhythm": self._rhythm,
            "hits": self._hits,
            "trials": self._trials,
            "again": self._again,
            "trust": np.array([self._trust.gain, self._trust.squares]),
            "hours": self._hours[:, :n],
        }
        tensors |= {name[1:]: getattr(self, name)[:n] for name in _BY_APP}
        tensors |= {name[1:]: getattr(self, name)[..., :n, :n] for name in _BY_PAIR}
        for contexts, length in zip(self._longer, (2, 4), strict=True):
            keys = np.array(list(contexts), np.int64).reshape(len(contexts), length)
            cells = [cell for followers in contexts.values() for cell in followers.items()]
            tensors[f"contexts_{length}"] = keys
            tensors[f"sizes_{length}"] = np.array([len(f) for f in contexts.values()], np.int64)
            tensors[f"followers_{length}"] = np.array([app for app, _ in cells], np.int64)
            tensors[f"counts_{length}"] = np.array([count for _, count in cells], np.float64)
        return pack(
            tensors, {"kind": "nextapp habits", "weights": json.dumps(asdict(self.weights))}
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Habits:
        tensors, words = unpack(data)
        if words.get("kind") != "nextapp habits":
            raise WireError(f"expected nextapp habits, got {words.get('kind')!r}.")
        try:
            values = json.loads(words["weights"])
            within, opening = (tuple(values.pop(name)) for name in ("within", "opening"))
            habits = cls(Weights(within, opening, **values))
            habits._restore(tensors)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise WireError(f"habits that cannot be read: {error}") from error
        return habits

    def _restore(self, tensors: dict[str, npt.NDArray[np.generic]]) -> None:
        n = len(tensors["apps"])
        if n > MAX_APPS:
            raise ValueError(f"{n} apps, at most {MAX_APPS} are kept.")
        self._resize(max(16, 1 << max(n - 1, 0).bit_length()))
        self._slot = {app: slot for slot, app in enumerate(tensors["apps"].tolist())}
        self._last_apps = tensors["last_apps"].tolist()
        self._last_time, self._total = tensors["times"].tolist()
        self._kinds = tuple(tensors["kinds"].tolist())
        for name in ("mix", "squares", "places", "rhythm", "hits", "trials", "again"):
            getattr(self, f"_{name}")[...] = tensors[name]
        if "trust" in tensors:  # older states have none
            self._trust.gain[...], self._trust.squares[...] = tensors["trust"]
        for name in _BY_APP:
            getattr(self, name)[:n] = tensors[name[1:]]
        self._hours[:, :n] = tensors["hours"]
        for name in _BY_PAIR:
            getattr(self, name)[..., :n, :n] = tensors[name[1:]]
        for contexts, length in zip(self._longer, (2, 4), strict=True):
            ends = np.cumsum(tensors[f"sizes_{length}"].astype(np.int64)).tolist()
            cells = list(
                zip(
                    tensors[f"followers_{length}"].tolist(),
                    tensors[f"counts_{length}"].tolist(),
                    strict=True,
                )
            )
            start = 0
            for key, end in zip(tensors[f"contexts_{length}"].tolist(), ends, strict=True):
                contexts[tuple(key)] = dict(cells[start:end])
                start = end


def mixed_with_crowd(
    scores: Floats,
    popular: Floats,
    share: Floats,
    rest: float | Floats,
    n_after: float | Floats,
    n_launches: float | Floats,
    odds: tuple[float, float] | Floats = (1.0, 1.0),
) -> Floats:
    """A phone's scores and what `Crowd.cells` says of the same candidates as one score, log P.

    The formula stands at the top. Candidates are the last axis; `rest`, `n_after` and `n_launches`
    have one number for each of the others, `odds` two, as `Trust.odds`. The app that the first of
    them puts first comes first; all others are scored by the second.
    """
    own, expected = _own_and_expected(scores, popular, share, rest, n_launches)
    weight = _crowd_weight(odds, n_after)
    first, others = weight[..., :1], weight[..., 1:]
    mixed: Floats = np.log((1.0 - others) * own + others * expected)
    if (first != others).any():
        best = ((1.0 - first) * own + first * expected).argmax(axis=-1)[..., None]
        there, highest = np.take_along_axis(mixed, best, -1), mixed.max(axis=-1, keepdims=True)
        lifted = np.where((there < highest) & (first != others), highest + FIRST_LEAD, there)
        np.put_along_axis(mixed, best, lifted, -1)
    return mixed


def crowd_hits(
    scores: Floats,
    place: int | npt.NDArray[np.integer],
    popular: Floats,
    share: Floats,
    rest: float | Floats,
    n_after: float | Floats,
    n_launches: float | Floats,
) -> Floats:
    """(…, 2, n_odds): whether each of `CROWD_ODDS` would have put the candidate at `place` first;
    and whether among three, plus whether among five. Arguments as of `mixed_with_crowd`."""
    own, expected = (
        each[..., None, :] for each in _own_and_expected(scores, popular, share, rest, n_launches)
    )
    weight = _crowd_weight(_ODDS, n_after)[..., None]
    likely = (1.0 - weight) * own + weight * expected  # (…, n_odds, n_candidates)
    if isinstance(place, int):
        launched = likely[..., place : place + 1]
    else:
        launched = np.take_along_axis(likely, np.asarray(place)[..., None, None], -1)
    above = (likely > launched * _ABOVE).sum(axis=-1)
    hits: Floats = np.empty((*above.shape[:-1], 2, above.shape[-1]))
    hits[..., 0, :] = above < 1
    hits[..., 1, :] = (above < 3) + 1.0 * (above < 5)
    return hits


def _own_and_expected(
    scores: Floats, popular: Floats, share: Floats, rest: float | Floats, n_launches: float | Floats
) -> tuple[Floats, Floats]:
    seen, silent = np.asarray(n_launches)[..., None], np.asarray(rest)[..., None]
    own: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    own /= own.sum(axis=-1, keepdims=True)
    filled = (seen * own + CROWD_WEIGHT * popular) / (seen + CROWD_WEIGHT)
    expected: Floats = CROWD_SHARE * (share + silent * filled) + (1.0 - CROWD_SHARE) * filled
    return own, expected


def _crowd_weight(odds: tuple[float, float] | Floats, n_after: float | Floats) -> Floats:
    """w, for each of the odds on the last axis."""
    told = CROWD_WEIGHT * np.asarray(odds)
    weight: Floats = told / (told + CROWD_WEIGHT + np.asarray(n_after)[..., None])
    return weight


def _hour(when: float) -> int:
    return int(when // HOUR_SECONDS) % N_HOURS


def _doublings(seconds: Floats) -> npt.NDArray[np.intp]:
    """How often a second must double to pass these; 0 for a clock set back."""
    _, exponent = np.frexp(np.maximum(seconds, 0.0) + 1.0)
    doublings: npt.NDArray[np.intp] = np.minimum(exponent - 1, N_SINCE - 1).astype(np.intp)
    return doublings


def _standardised(taste: Floats) -> Floats:
    spread = float(np.std(taste))
    standard: Floats = (np.asarray(taste) - np.mean(taste)) / (spread if spread > 0 else 1.0)
    return standard
