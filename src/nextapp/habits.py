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
    crowd       log(½ + ½ P_crowd(i | j) / P_crowd(i)); of the last app how much more readily the
                crowd launches it again than other apps, in log-odds. 0 where there is no `Crowd`

and the score s(i) is their sum, each times its weight. The weights start from shipped constants and
move on the phone: after every launch one AdaGrad step down the slope of −log P(app), P the softmax
of the scores. There are two sets of them, one for launches within a session and one for those that
open a session.

A context backs off halfway to what is known without it:
b₁ = P0·e^(place/2), b₂ = P0·e^(φ₁/2), b₄ = P0·e^(φ₂/2 + φ₁/4).

Within a session the next app is found in two steps. Is it the last one, j, again?

    P(j) = σ(v₁·(s(j) − log Σ e^s) + v₂·log-odds((n(j→j) + κ·r(j)) / (n(j→·) + κ)) + v₃)

Σ over all others, r(j) what the crowd says of it, or how often this person repeats at all. And if
not, which of the others? With own = softmax(s) over them, and where a `Crowd` is at hand,

    P(i) = (1 − P(j)) · ((1 − w)·own(i) + w·(c·share(i | j) + rest·Q(i)))
    Q(i) = (n·own(i) + κ·P_crowd(i)) / (n + κ),   w = σ(g₁ + g₂·log(κ / (κ + n(j→·)))),   κ = 3

so that own counts take over as they grow, and where the crowd is silent the phone speaks; c and
rest are in `told_of_others`, docs/crowd.md says why it is so. v and g move like the weights, each
down the slope of its own loss. Apps never launched here share P(new), how readily this person takes
up something new. A launch that opens a session is found in one step: all apps are "others".

docs/predictor.md has figures, ablations, and how the constants came about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nextapp.names import unknown
from nextapp.wire import Floats, WireError, pack, unpack

SESSION_GAP = 15 * 60.0

STATISTICS = (
    "frequency", "lately", "after-1", "after-2", "after-4",
    "place", "rhythm", "since", "hour", "session", "lesson", "crowd",
)  # fmt: skip
GROUPS = {
    "transitions": ("after-1", "after-2", "after-4", "lesson"),
    "recency": ("place", "rhythm", "since", "again"),
    "counts": ("frequency", "lately"),
}
(
    _FREQUENCY, _LATELY, _AFTER_1, _AFTER_2, _AFTER_4,
    _PLACE, _RHYTHM, _SINCE, _HOUR, _SESSION, _LESSON, _CROWD,
) = range(len(STATISTICS))  # fmt: skip

# How fast each statistic fades, per launch that it counts.
FREQUENCY_FADE, LATELY_FADE, PLACE_FADE, SINCE_FADE = 0.997, 0.95, 0.999, 0.999
AFTER_FADE, AFTER_2_FADE, AFTER_4_FADE, HOUR_FADE = 0.97, 0.95, 0.95, 0.97
# How many launches a prior weighs.
FREQUENCY_PRIOR, LATELY_PRIOR, AFTER_PRIOR, LONGER_PRIOR = 3.0, 5.0, 3.0, 0.5
HOUR_PRIOR, RHYTHM_PRIOR, SINCE_PRIOR, PLACE_PRIOR = 20.0, 10.0, 5.0, 0.5
CROWD_WEIGHT = 3.0  # κ: how many launches what the crowd says weighs
CROWD_REACH = 0.5  # how far what it says of apps not at hand goes to those that are: 0 not, 1 all
AGAIN_PRIOR = 5.0  # κ of how readily an app is launched again
AGAIN_LEAN = 0.4  # log-odds by which another app must be ahead where most launches are repeats
FIRST_LEAD = 1e-6  # of the last app, where it comes first by that
LEAST_CHANCE = 0.01  # of the same again, and of something else, before they become log-odds
LEAST_COUNTED = 1e-100  # a count that has faded for very long
MOST_LOG_ODDS = 30.0  # of any chance that is learnt
LEAST_ROOM = 1e-9  # what the crowd leaves to other apps than the last, at least
LEAST_COUNT = 0.02  # a follower that has faded below is dropped
GRADIENT_START = 1.0  # AdaGrad's sum of squares starts here
LESSON_STEPS = 0.1, 0.3, 0.1  # of the corrections: for i, after the last app, after the one before
LESSON_FADE = 0.999  # of their sums of squared errors

MAX_APPS = 256  # the app unused for longest gives way
MAX_CONTEXTS = 2048  # of each longer kind; the context unused for longest gives way

# Places in the list of apps by last use; far ones share a count.
PLACE_ENDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 40, MAX_APPS)
NEW = len(PLACE_ENDS)  # the place of an app never launched before
N_PLACES = NEW + 1
_BUCKET = np.searchsorted(PLACE_ENDS, np.arange(MAX_APPS), side="right")
_ENDS = np.array((*PLACE_ENDS, 0))
_FIRST = np.array((0, *PLACE_ENDS[:-1], 0))
_KIND = np.array([0, 1, 2] + [3] * (NEW - 3) + [4])  # for rhythm: places 0, 1, 2, further, new
N_KINDS = 5
N_HOURS, HOUR_SECONDS = 8, 3 * 3600.0
N_SINCE = 20  # doublings of a second; the last stands for six days and more


@dataclass(frozen=True)
class Weights:
    """The start of the mix: a weight for each of `STATISTICS`, by set.

    A weight of exactly 0 switches its statistic off for good. ``again`` are v, the weights of "the
    same again" (none: the sum alone ranks the last app), ``gate`` are g, those of what the crowd
    is worth. ``rate`` is the step with which all of them move (0: they stay), ``lesson`` scales
    that of the corrections. ``taste`` is the weight of the SeqMF score, in standard deviations
    over the candidates; it stays as it is.
    """

    within: tuple[float, ...]
    opening: tuple[float, ...]
    again: tuple[float, ...] = (0.5, 0.5, 0.0)
    gate: tuple[float, ...] = (0.0, 1.0)
    rate: float = 0.05
    lesson: float = 1.0
    taste: float = 0.0

    def __post_init__(self) -> None:
        for name in ("within", "opening"):
            if len(getattr(self, name)) != len(STATISTICS):
                raise ValueError(
                    f"{name} must hold {len(STATISTICS)} weights, for {', '.join(STATISTICS)}; "
                    f"got {len(getattr(self, name))}."
                )
        if len(self.again) not in (0, 3) or len(self.gate) != 2:
            raise ValueError(
                f"again must hold 3 weights or none, and gate 2; got {len(self.again)} and "
                f"{len(self.gate)}."
            )
        numbers = (
            *self.within, *self.opening, *self.again, *self.gate,
            self.rate, self.lesson, self.taste,
        )  # fmt: skip
        if not all(math.isfinite(number) for number in numbers) or min(self.rate, self.lesson) < 0:
            raise ValueError("weights must be finite, and rate and lesson >= 0.")


DEFAULT = Weights(
    within=(0.25, -0.05, 0.29, 0.14, 0.29, 0.48, 0.01, 0.21, 0.22, 0.02, 0.79, 0.3),
    opening=(0.54, -0.15, 0.16, 0.13, 0.28, 0.20, 0.04, 0.15, 0.07, 0.05, 0.77, 0.3),
)
ABLATIONS = (*STATISTICS, "again", "adaptation", *GROUPS)


def without(*names: str, weights: Weights = DEFAULT) -> Weights:
    """The weights with these ingredients switched off.

    Names of `STATISTICS`; of groups of them (`GROUPS`); ``again``, the step of its own for the last
    app; or ``adaptation``, which keeps the weights where they start. Of the crowd only the
    statistic goes; for the rest give a phone no `Crowd`.
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
        again=() if "again" in off else weights.again,
    )


class Reason(NamedTuple):
    """Why an app stands where it stands.

    ``speaks`` has for each statistic its part of the score, above or below that of the average
    candidate; ``evidence`` the counts behind them. ``score`` is that of `Habits.scores`
    and ``share`` its softmax.
    """

    app: int
    score: float
    share: float
    speaks: dict[str, float]
    evidence: dict[str, float]


class CrowdView(Protocol):
    """What `Habits` asks of a `nextapp.wire.Crowd`, by the numbers that it has for apps itself."""

    def cells(
        self, candidates: npt.NDArray[np.integer], last: int | None
    ) -> tuple[Floats, Floats]: ...

    def again(self, last: int | None, usual: float) -> float: ...

    @property
    def average_again(self) -> float: ...


class _View(NamedTuple):
    """The statistics of all known apps as of one moment; columns are slots."""

    opening: bool
    when: float
    features: Floats  # (n_statistics, n_known)
    scores: Floats  # (n_known,): the sum
    last: int  # the last app's slot; -1: all are others, as where the launch opens a session
    evidence: tuple[float, ...]  # what v weigh; empty where there is nothing to weigh
    again: float  # P(j), given that
    since: npt.NDArray[np.intp]  # (n_known,)
    told: tuple[Floats, Floats] | None  # `Crowd.cells` of the known apps
    room: float  # what the crowd leaves to other apps than the last one


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
        self._crowd: CrowdView | None = None
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
        self._again = np.array([weights.again, [GRADIENT_START] * len(weights.again)])
        self._gate = np.array([weights.gate, [GRADIENT_START] * len(weights.gate)])
        self._view: _View | None = None

    @property
    def crowd(self) -> CrowdView | None:
        """What many phones know; None where there is none."""
        return self._crowd

    @crowd.setter
    def crowd(self, crowd: CrowdView | None) -> None:
        if crowd is not self._crowd:
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
            if self.weights.rate:
                self._learn_again(view, slot)
                self._learn_gate(view, slot)
            if slot is not None:
                self._learn(view, slot)
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
            slope *= self._on[number]
            _step(self._mix[number], self._squares[number], slope, self.weights.rate)
        if self.weights.lesson:
            squared = error * error
            corrections, errors = self._lessons(len(error))
            for number, step in enumerate(LESSON_STEPS[: len(errors)]):
                errors[number] *= LESSON_FADE
                errors[number] += squared
                corrections[number] += (
                    self.weights.lesson * step * error / np.sqrt(1.0 + errors[number])
                )

    def _learn_again(self, view: _View, slot: int | None) -> None:
        """One step of v down the slope of −log P(j), or of −log(1 − P(j))."""
        if view.evidence and self.weights.again:
            error = float(slot == view.last) - view.again
            _step(
                self._again[0], self._again[1], error * np.array(view.evidence), self.weights.rate
            )

    def _learn_gate(self, view: _View, slot: int | None) -> None:
        """One step of g down the slope of −log P(app), given that it is one of the known others."""
        if view.told is None or view.last < 0 or slot in (None, view.last) or len(self._slot) < 3:
            return
        own = softmax_of_others(view.scores, view.last)
        told = told_of_others(own, *view.told, view.last, view.room, self._total)
        weight, evidence = self._gate_now()
        mixed = (1.0 - weight) * own[slot] + weight * told[slot]
        slope = (told[slot] - own[slot]) / mixed * weight * (1.0 - weight)
        _step(self._gate[0], self._gate[1], slope * evidence, self.weights.rate)

    def _gate_now(self) -> tuple[float, Floats]:
        """w, and what g weigh."""
        evidence = np.array([1.0, math.log(CROWD_WEIGHT / (CROWD_WEIGHT + self.n_after))])
        return _logistic(float(self._gate[0] @ evidence)), evidence

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
        """How likely each candidate is next, log P; higher is better. The last app may be lifted
        to the first place (`AGAIN_LEAN`), the others stay as they are.

        Within a session the statistics are as of the last launch. With a ``when`` more than 15
        minutes later they are as of then, and the launch would open a session. ``taste`` are the
        SeqMF light scores of the candidates; with them the scores are log P but for a constant.
        """
        apps = np.asarray(candidates, np.int64).tolist()
        if not apps:
            return np.empty(0)
        view = self._seen_from(when)
        slots = self._slots_of(apps)
        scores = self._chances(view, apps, slots, self._sums(view, slots), crowded=True)
        if taste is not None and self.weights.taste:
            scores += self.weights.taste * _standardised(taste)
        return scores

    def _slots_of(self, apps: list[int]) -> npt.NDArray[np.intp]:
        """-1 for those never launched."""
        return np.array([self._slot.get(app, -1) for app in apps], np.intp)

    def _sums(self, view: _View, slots: npt.NDArray[np.intp]) -> Floats:
        """s of each candidate; those never launched share P(new)."""
        new = slots < 0
        n_new = int(np.count_nonzero(new))
        sums: Floats = view.scores[slots] if self._slot else np.zeros(len(slots))
        if n_new:
            sums[new] = self._score_of_new(view, n_new)
        return sums

    def _chances(
        self,
        view: _View,
        apps: list[int],
        slots: npt.NDArray[np.intp],
        sums: Floats,
        *,
        crowded: bool,
    ) -> Floats:
        """log P of each candidate, with or without what the crowd says of the others."""
        last = -1
        if view.last >= 0 and self._last_apps[0] in apps:
            last = apps.index(self._last_apps[0])
            if len(apps) == 1:
                return np.zeros(1)
        others = softmax_of_others(sums, last)
        if crowded and self._crowd is not None and view.told is not None:
            weight, _ = self._gate_now()
            if slots.min() < 0:
                before = self._last_apps[0] if self._last_apps else None
                popular, share = self._crowd.cells(np.array(apps, np.int64), before)
            else:
                popular, share = view.told[0][slots], view.told[1][slots]
            told = told_of_others(others, popular, share, last, view.room, self._total)
            others = (1.0 - weight) * others + weight * told
        if last >= 0:
            others *= 1.0 - view.again
            others[last] = view.again
        chances: Floats = np.log(others)
        if last >= 0 and self.weights.again and self._repeats_mostly():
            best = float(chances.max())
            if best > chances[last] > best - AGAIN_LEAN:
                chances[last] = best + FIRST_LEAD
        return chances

    def _repeats_mostly(self) -> bool:
        return bool(2.0 * self._places[0] > self._places.sum())

    @property
    def n_after(self) -> float:
        """How often any app was seen right after the last one, fading."""
        last = self._slot.get(self._last_apps[0]) if self._last_apps else None
        return 0.0 if last is None else float(self._after[last].sum())

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
        slots = self._slots_of(apps)
        sums = self._sums(view, slots)
        for row, app, score in zip(parts, apps, sums.tolist(), strict=True):
            slot = self._slot.get(app)
            if slot is None:
                row[-1] = score
            else:
                row[: len(mix)] = mix * view.features[:, slot]
        own = self._chances(view, apps, slots, sums, crowded=False)
        if view.last >= 0 and len(apps) > 1 and self._last_apps[0] in apps:
            last = apps.index(self._last_apps[0])
            other = 0 if last else 1
            parts[last, -2] = own[last] - sums[last] - (own[other] - sums[other])
        total = self._chances(view, apps, slots, sums, crowded=True)
        parts[:, _CROWD] += total - own
        if taste is not None and self.weights.taste:
            names.append("taste")
            parts = np.column_stack([parts, self.weights.taste * _standardised(taste)])
            total = total + parts[:, -1]
        share = np.exp(total - total.max())
        share /= share.sum()
        speaks = parts - parts.mean(axis=0)  # those of a new app's one part are the others' mean
        silent = () if self._crowd is not None else (_CROWD,)
        evidence = [self._evidence(app, view) for app in apps]
        return [
            Reason(
                apps[i],
                float(total[i]),
                float(share[i]),
                {name: float(speaks[i, k]) for k, name in enumerate(names) if k not in silent},
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
        other = -1 if opening or last is None else last
        told, room = None, 1.0
        if self._crowd is not None:
            told = self._crowd.cells(
                np.array(list(self._slot), np.int64),
                self._last_apps[0] if self._last_apps else None,
            )
            if other >= 0:
                room = max(1.0 - float(told[1][other]), LEAST_ROOM)
            if self._any[_CROWD]:
                features[_CROWD] = self._by_crowd(self._crowd, *told, other, room)
        scores = self._mix[int(opening)] @ features
        evidence, again = self._again_now(scores, other)
        return _View(opening, when, features, scores, other, evidence, again, since, told, room)

    def _by_crowd(
        self, crowd: CrowdView, popular: Floats, share: Floats, last: int, room: float
    ) -> Floats:
        """The statistic "crowd"."""
        others = np.ones(len(share))
        if last >= 0:
            others[last] = 0.0
        total = float(popular @ others)
        silent = max(0.0, 1.0 - float(share @ others) / room)
        lift: Floats = np.log(0.5 + 0.5 * (share / popular * (total / room) + silent))
        if last >= 0:
            usual = crowd.average_again
            lift[last] = _log_odds(crowd.again(self._last_apps[0], usual)) - _log_odds(usual)
        return lift

    def _again_now(self, scores: Floats, last: int) -> tuple[tuple[float, ...], float]:
        """What v weigh, and P(j)."""
        if last < 0:
            return (), 0.0
        usual = float(self._places[0] / self._places.sum())
        if self._crowd is not None:
            usual = self._crowd.again(self._last_apps[0], usual)
        row = self._after[last]
        readily = _log_odds(
            (float(row[last]) + AGAIN_PRIOR * usual) / (float(row.sum()) + AGAIN_PRIOR)
        )
        ahead = readily
        if len(scores) > 1:
            ahead = float(scores[last]) - _log_sum_of_others(scores, last)
        evidence = (ahead, readily, 1.0)
        if not self.weights.again:
            return evidence, _logistic(ahead)
        return evidence, _logistic(float(self._again[0] @ evidence))

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

    def _by_place(self, n: int) -> tuple[Floats, Floats]:
        """Place and rhythm of each place, for n known apps."""
        share = self._places / self._places.sum()
        width = np.maximum(np.minimum(_ENDS, n) - _FIRST, 1)
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
        """Apps never launched here, n_new of them, share P(new) among all, or among the others."""
        places, last = self._places, view.last
        if len(self._slot) <= (last >= 0):
            return 0.0
        seen = float(places[1:NEW].sum() if last >= 0 else places[:NEW].sum())
        odds = max(float(places[NEW]), LEAST_COUNTED) / max(seen, LEAST_COUNTED)
        return _log_sum_of_others(view.scores, last) + math.log(odds / n_new)

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
            "gate": self._gate,
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
            several = ("within", "opening", "again", "gate")
            habits = cls(Weights(**values | {name: tuple(values[name]) for name in several}))
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
        for name in ("mix", "squares", "places", "rhythm", "hits", "trials", "again", "gate"):
            if tensors[name].shape != getattr(self, f"_{name}").shape:
                raise ValueError(f"{name} of other statistics than these.")
            getattr(self, f"_{name}")[...] = tensors[name]
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


def softmax_of_others(scores: Floats, last: int) -> Floats:
    """Softmax over all but `last`, which has 0; over all where it is -1."""
    chances: Floats = scores.copy()
    if last >= 0:
        chances[last] = -math.inf
    chances -= chances.max()
    np.exp(chances, out=chances)
    chances /= chances.sum()
    return chances


def told_of_others(
    own: Floats, popular: Floats, share: Floats, last: int, room: float, n_launches: float
) -> Floats:
    """What the crowd expects of all but `last`, of all where it is -1: a distribution.

        c·share(i) + rest·Q(i),   c = (room / Σ share)^½ / room,   rest = 1 − c·Σ share

    Σ over the others, `room` what the crowd leaves to them, 1 − share(last). Shares are those among
    all phones, many of which have apps that this one has not; what they do with those it may do
    with its own, or not: halfway.
    """
    if last >= 0:
        share, popular = share.copy(), popular.copy()
        share[last] = popular[last] = 0.0
    covered = float(share.sum()) / room
    reach = 0.0
    if covered > 0.0:
        reach = covered ** (-CROWD_REACH if covered < 1.0 else -1.0)
    rest = max(0.0, 1.0 - reach * covered)
    filled = (n_launches * own + CROWD_WEIGHT * popular / popular.sum()) / (
        n_launches + CROWD_WEIGHT
    )
    told: Floats = reach / room * share + rest * filled
    return told


def _step(weights: Floats, squares: Floats, slope: Floats, rate: float) -> None:
    """AdaGrad, up the slope, in place; `squares` are the sums of its squares."""
    squares += slope * slope
    weights += rate * slope / np.sqrt(squares)


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(x, -MOST_LOG_ODDS), MOST_LOG_ODDS)))


def _log_odds(chance: float) -> float:
    chance = min(max(chance, LEAST_CHANCE), 1.0 - LEAST_CHANCE)
    return math.log(chance / (1.0 - chance))


def _log_sum_of_others(scores: Floats, last: int) -> float:
    """log Σ e^s over all but `last`; over all where it is -1."""
    others = scores.copy()
    if last >= 0:
        others[last] = -math.inf
    highest = float(others.max())
    others -= highest
    return highest + math.log(float(np.exp(others, out=others).sum()))


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
