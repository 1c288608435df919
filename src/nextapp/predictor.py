"""The predictor of one phone: one definition, for the phone and for the lab.

Nothing here leaves the phone, so it costs no privacy. The state of a phone is `State`, plain
arrays. The functions that work on it use the part of NumPy that Numba can compile: a phone runs
them as they are, and the lab compiles the same functions (`nextapp.predictors.nextapp`).

Known apps have slots 0 to n − 1. Each statistic gives every known app a ratio: how much more likely
than usual it makes the app. The score of an app is the weighted sum of the logs:

    frequency   P0(i) = (n(i) + α/(n + 1)) / (Σn + α)
    place       how often, after app j, the app at i's place in the list by last use came next
    since       how often an app is launched this long after its last launch, by the average
    after-1     1 + n(j→i) / (κ·P0(i)·√place(i)),  j the last app
    after-2     1 + n(kj→i) / (κ'·P0(i)·√after-1(i)),  after two apps; so after-4
    hour        1 + n(hour→i) / (κ''·P0(i)),  twelve times of day
    again       for the last app only: the odds that it is launched again
    lesson      e^(corrections for i, for i after the last app, for i after the app before it)

    s(i) = Σ weight·log ratio(i),   P(i) = softmax of s

All counts fade. There are three sets of weights: after a change of app, after a repeat, and for a
launch that opens a session; to each is added what was learnt after the last app. After every launch
the weights that applied take one AdaGrad step along the gradient of log P(launched app), and so do
the corrections. Apps never launched on this phone share P(new): how often a new app came this many
launches after the last new one.

A crowd, if there is one, is mixed in at the end. share(i) is what it predicts. Its weight w grows
with what the crowd has seen and falls with what the phone has seen itself:

    P(i) := (1 − t·w·Σ share)·P(i) + t·w·share(i)
    w = σ(g₀ + g₁·log(3/(3 + n(j→·))) + g₂·log(1/(1 + n(kj→·))) + g₃·log(1 + crowd's n(kj→·))
          + g₄ if the launch opens a session)

g learns like the weights. t is the trust in the crowd: by Bayes' rule, the probability that the
launches on this phone follow P with w rather than P alone, where older launches fade. So a crowd
with other habits soon has no effect. Where the crowd would change the first app, a second trust is
kept in the same way for these two apps; while its log odds are below 0, the two swap places and the
phone's own first app stays first. docs/predictor.md has the origin of every constant.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nextapp.settings import unknown
from nextapp.wire import Floats, WireError, pack, unpack

Whole = npt.NDArray[np.int64]

SESSION_GAP = 15 * 60.0

STATISTICS = (
    "frequency", "place", "since", "after-1", "after-2", "after-4", "hour", "again", "lesson",
)  # fmt: skip
N_STATISTICS = len(STATISTICS)
FREQUENCY, PLACE, SINCE, AFTER_1, AFTER_2, AFTER_4, HOUR, AGAIN, LESSON = range(N_STATISTICS)
GROUPS = {
    "transitions": ("after-1", "after-2", "after-4", "lesson"),
    "recency": ("place", "since", "again"),
    "longer": ("after-2", "after-4"),
    "time": ("since", "hour"),
}
CHANGED, OPENING, REPEATED, ADDED = range(4)  # sets of weights, then what is added after each app

# Constants. "fitted": by benchmarks/fit_predictor.py on the training parts of four real logs and
# two synthetic ones. "round": how little it matters is in docs/results.md.
# Weights of priors, in launches:
FREQUENCY_PRIOR = 6.0  # round
AFTER_PRIOR = 8.0  # round
LONGER_PRIOR = 0.75  # round
HOUR_PRIOR = 40.0  # round
SINCE_PRIOR = 7.0  # round
AGAIN_PRIOR = 7.0  # round
PLACE_PRIOR = 0.5  # round; a launch at each place
PLACE_AFTER_PRIOR = 60.0  # round; places after the last app, at the start as after all apps
NEW_PRIOR = 30.0  # round
OWN_PRIOR, OWN_PAIR_PRIOR = 3.0, 1.0  # round; of the weight of the crowd
TRUST_START, FIRST_TRUST_START = -0.5, 0.5  # round; log odds before any launch
MOST_GAIN = 3.0  # round; the most that one launch changes them by
# Fades: what a count is multiplied by before it counts another launch:
FREQUENCY_FADE, AFTER_FADE, LONGER_FADE, HOUR_FADE = 0.999, 0.97, 0.965, 0.96  # round
PLACE_FADE, LESSON_FADE, TRUST_FADE = 0.9997, 0.999, 0.998  # round
LESSON_STEPS = np.array([[0.1], [0.15], [0.4]])  # round; after the one before, of i, after the last
LEAST_AGAIN = 0.01  # round; the probability of a repeat is kept within .01 and .99
LEAST_CHANCE = 1e-100  # so that every log is finite
MOST_LOG_ODDS = 30.0  # so that no exponential overflows

MAX_APPS = 256  # beyond this, the app unused for longest is dropped
NOBODY = MAX_APPS  # the "last app" before the first launch
ENDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 40, MAX_APPS)  # far places share a count
NEW = len(ENDS)  # the place of an app never launched before
BUCKET = np.searchsorted(ENDS, np.arange(MAX_APPS), side="right")
WIDTH = np.array([  # how many of n apps are at a place
    [max(min(end, n) - first, 1) for first, end in zip((0, *ENDS), (*ENDS, 0), strict=True)]
    for n in range(MAX_APPS + 1)
], float)  # fmt: skip
ONES = np.ones(MAX_APPS)  # x @ ONES is a sum, and fast on a phone
AGES = 2.0 ** np.arange(1, 20) - 1.0  # seconds since an app's last launch; the last: six days
N_AGES = len(AGES) + 1
CAME, COULD, NEW_CAME, NEW_COULD = range(4)  # rows of `ages`

# A context is a row of `counts`: all launches, those after the last app, after the last two and
# four, those at this time of day. Rows of longer contexts are found by hash. Corrections have rows
# of their own: after the app before the last, of the app alone, after the last.
BEFORE, ALL, LAST, TWO, FOUR, AT_HOUR = range(6)
FADES = np.array([[FREQUENCY_FADE], [AFTER_FADE], [LONGER_FADE], [LONGER_FADE], [HOUR_FADE]])
N_HOURS, DAY = 12, 86400.0
FIRST_LAST = 1
FIRST_BEFORE = FIRST_HOUR = FIRST_LAST + MAX_APPS + 1
FIRST_HASHED = FIRST_HOUR + N_HOURS
N_HASHED, PROBES = 4093, 8  # a prime; of eight contexts the one unused for longest is replaced
SCRAMBLE = (2**31 - 1, 48271)  # a step of Lehmer's generator, so that keys alike lie far apart
FREE, GONE = -1, -2  # in place of a key
BITS = 9  # per app in a key
N_RECENT = 4
OF_TWO = 1 << N_RECENT * BITS | sum(NOBODY << number * BITS for number in range(2, N_RECENT))
OF_FOUR = 2 << N_RECENT * BITS

VERSION = "8"  # of the state as bytes
_BY_SLOT = ("place", "launched", "counts", "lessons", "errors")  # a column for each slot


class State(NamedTuple):
    """What a phone knows. Columns are slots of apps, `room` of them."""

    known: Whole  # (3,): n, launches so far, launches since a new app
    clock: Floats  # (1,): time of the last launch
    recent: Whole  # (N_RECENT,): slots of the last launches, latest first
    rows: Whole  # (6,): the contexts that hold now
    place: Whole  # (room,): in the list of apps by last use
    launched: Floats  # (room,): when last
    counts: Floats  # (FIRST_HASHED + N_HASHED, room)
    keys: Whole  # (N_HASHED,): of contexts
    used: Whole  # (N_HASHED,): when last, by number of launch
    lessons: Floats  # (FIRST_BEFORE + MAX_APPS + 1, room): corrections
    errors: Floats  # the same: sums of their squared errors
    places: Floats  # (FIRST_HOUR, NEW + 1): launches by place; all, and after each app
    ages: Floats  # (4, N_AGES): launches by the app's age, and apps that could have been; launches
    # of new apps by how many launches since the last new one, and all launches by that
    mix: Floats  # (ADDED + MAX_APPS + 1, N_STATISTICS): weights, and what is added to them
    squares: Floats  # the same: sums of their squared gradients; ∞ where a statistic is off
    gate: Floats  # (2, 5): g, and sums of their squared gradients
    trust: Floats  # (2,): log odds that the crowd helps; that it does where the first would change
    rates: Floats  # (3,): of the weights, of the corrections, of what is added to the weights


class View(NamedTuple):
    """The statistics as of one moment."""

    number: int  # of the set of weights
    rows: Whole
    ages: Whole  # (n,)
    lessons: Floats  # (3, n): those that apply
    features: Floats  # (N_STATISTICS, n)
    chances: Floats  # (n,)
    places: Floats  # (NEW + 1,): how likely each place is
    seen: float  # launches after the last app
    seen_pair: float  # launches after the last two


def new_state(room: int, start: Floats, gate: Floats, rates: Floats) -> State:
    n_sets = ADDED + MAX_APPS + 1
    mix, squares = np.zeros((n_sets, N_STATISTICS)), np.ones((n_sets, N_STATISTICS))
    mix[:ADDED] = start
    squares[:ADDED] = np.where(start == 0.0, np.inf, 1.0)
    squares[ADDED:, start[CHANGED] * start[OPENING] == 0.0] = np.inf
    n_rows, n_lessons = FIRST_HASHED + N_HASHED, FIRST_BEFORE + MAX_APPS + 1
    moving = np.ones((2, len(gate)))
    moving[0] = gate
    state = State(
        np.zeros(3, np.int64), np.zeros(1), np.full(N_RECENT, NOBODY), np.zeros(6, np.int64),
        np.zeros(room, np.int64), np.zeros(room),
        np.zeros((n_rows, room)), np.full(N_HASHED, FREE), np.zeros(N_HASHED, np.int64),
        np.zeros((n_lessons, room)), np.zeros((n_lessons, room)),
        np.zeros((FIRST_HOUR, NEW + 1)), np.zeros((4, N_AGES)),
        mix, squares, moving,
        np.array([TRUST_START, FIRST_TRUST_START]),
        rates.copy(),
    )  # fmt: skip
    state.places[0] = PLACE_PRIOR
    find_rows(state)
    return state


# Statistics: ratios of all known apps


def by_frequency(count: Floats, total: float) -> Floats:
    prior = FREQUENCY_PRIOR / (len(count) + 1.0)
    ratio: Floats = (count + prior) / (total + FREQUENCY_PRIOR)
    return ratio


def place_chances(state: State) -> Floats:
    """(NEW + 1,): how likely each place is to be launched next, after the last app."""
    usual, after = state.places[0], state.places[state.rows[LAST]]
    weight = PLACE_AFTER_PRIOR / (usual @ ONES[: NEW + 1])
    chances: Floats = (after + weight * usual) / (after @ ONES[: NEW + 1] + PLACE_AFTER_PRIOR)
    return chances


def by_place(state: State, n: int, chances: Floats) -> Floats:
    """How likely the app at this place of the list by last use is, relative to the average app."""
    readily = chances * n / WIDTH[n]
    ratio: Floats = readily[BUCKET[state.place[:n]]]
    return ratio


def chance_new(state: State, view: View) -> float:
    """P(new): how often a new app came this many launches after the last new one; before much is
    known, how often after the last app."""
    counts = state.ages[NEW_CAME:, newness(state)]
    new: float = (counts[0] + NEW_PRIOR * view.places[NEW]) / (counts[1] + NEW_PRIOR)
    return new


def newness(state: State) -> int:
    """The bin of the launches since the last one of a new app: bins as of ages."""
    return min(int(math.log2(int(state.known[2]) + 1)), N_AGES - 1)


def by_age(state: State, ages: Whole) -> Floats:
    """How often an app is launched this long after its last launch, relative to the average."""
    came, could = state.ages[CAME], state.ages[COULD]
    sums = state.ages @ ONES[:N_AGES]
    average = (sums[CAME] + 1.0) / (sums[COULD] + 10.0)
    ratio: Floats = ((came / average + SINCE_PRIOR) / (could + SINCE_PRIOR))[ages]
    return ratio


def by_again(usual: float, count: float, total: float) -> float:
    """The odds that the last app is launched again, by its own repeats and the usual ones."""
    chance: float = (count + AGAIN_PRIOR * usual) / (total + AGAIN_PRIOR)
    chance = min(max(chance, LEAST_AGAIN), 1.0 - LEAST_AGAIN)
    return chance / (1.0 - chance)


def look(state: State, when: float) -> View:
    """All statistics and their mix; within a session, as of the last launch."""
    n = int(state.known[0])
    last = int(state.recent[0])
    opening = when - state.clock[0] > SESSION_GAP
    if not opening:
        when = state.clock[0]
    rows = state.rows.copy()
    rows[AT_HOUR] = hour_row(when)
    counts = state.counts[rows[ALL:], :n]
    totals = counts @ ONES[:n]
    ages = np.searchsorted(AGES, when - state.launched[:n], side="right")
    places = place_chances(state)
    ratios = np.empty((AGAIN, n))
    usual, place = by_frequency(counts[0], totals[0]), by_place(state, n, places)
    ratios[FREQUENCY], ratios[PLACE], ratios[SINCE] = usual, place, by_age(state, ages)
    # A context is compared with what is expected without it.
    ratios[AFTER_1] = 1.0 + counts[1] / (AFTER_PRIOR * usual * np.sqrt(place))
    expected = LONGER_PRIOR * usual * np.sqrt(ratios[AFTER_1])
    ratios[AFTER_2 : AFTER_4 + 1] = 1.0 + counts[2:4] / expected
    ratios[HOUR] = 1.0 + counts[4] / (HOUR_PRIOR * usual)
    features = np.zeros((N_STATISTICS, n))
    np.log(ratios, features[:AGAIN])
    lessons = state.lessons[rows[: LAST + 1], :n]
    features[LESSON] = ONES[: LAST + 1] @ lessons
    number = CHANGED
    if opening:
        number = OPENING
    elif last != NOBODY:
        repeats = by_again(places[0], counts[1, last], totals[1])
        features[AGAIN, last] = math.log(repeats)
        if last == state.recent[1]:
            number = REPEATED
    chances = softmax(weights_after(state, number) @ features)
    return View(number, rows, ages, lessons, features, chances, places, totals[1], totals[2])


def weights_after(state: State, number: int) -> Floats:
    """A set of weights, and what is added to it after the last app."""
    weights: Floats = state.mix[number] + state.mix[ADDED + state.recent[0]]
    return weights


def softmax(scores: Floats) -> Floats:
    if len(scores) == 0:
        return scores
    chances: Floats = np.exp(scores - scores[scores.argmax()])
    chances /= chances.sum()
    return chances


def answer(state: State, view: View, slots: Whole, share: Floats, evidence: Floats) -> Floats:
    """P of the apps at these slots, which sums to 1; -1 stands for an app never launched here.

    `share` is what the crowd predicts for these apps, empty if there is no crowd; `evidence` is
    that of `crowd_evidence`.
    """
    n_new = np.count_nonzero(slots < 0)
    if n_new == len(slots):
        chances = np.full(len(slots), 1.0 / max(len(slots), 1))
    else:
        chances = view.chances[slots if n_new == 0 else np.maximum(slots, 0)]
        if n_new > 0:
            chances[slots < 0] = 0.0
        chances /= max(chances.sum(), LEAST_CHANCE)
        if n_new > 0:
            new = chance_new(state, view)
            chances *= 1.0 - new
            chances[slots < 0] = new / n_new
    if len(share) > 0:
        weight = crowd_weight(state, evidence) * odds_to_chance(state.trust[0])
        first = chances.argmax()
        chances = chances * (1.0 - weight * share.sum()) + weight * share
        if state.trust[1] < 0.0:
            best = chances.argmax()
            chances[first], chances[best] = chances[best], chances[first]
    return chances


def crowd_evidence(view: View, n_pair: float) -> Floats:
    """The inputs of g: launches seen here after the last app and after the last two, the crowd's
    launches after the last two (`n_pair`), and whether a session opens."""
    own = math.log(OWN_PRIOR / (OWN_PRIOR + view.seen))
    own_pair = math.log(OWN_PAIR_PRIOR / (OWN_PAIR_PRIOR + view.seen_pair))
    opens = 1.0 if view.number == OPENING else 0.0
    return np.array([1.0, own, own_pair, math.log(1.0 + n_pair), opens])


def crowd_weight(state: State, evidence: Floats) -> float:
    """w, before trust."""
    return odds_to_chance(float(state.gate[0] @ evidence))


def odds_to_chance(log_odds: float) -> float:
    """σ(log_odds)"""
    return 1.0 / (1.0 + math.exp(-min(max(log_odds, -MOST_LOG_ODDS), MOST_LOG_ODDS)))


# Learning


def observe(
    state: State, view: View, slot: int, when: float, new: bool, share: Floats, evidence: Floats
) -> None:
    """Learn from a launch of the app at this slot; `view` is the view before it.

    `share` is what the crowd predicted for the known apps; it may be empty. `evidence` is as in
    `answer`.
    """
    n = state.known[0]
    if not new:
        if len(share) > 0:
            learn_gate(state, view, slot, share, evidence)
        learn(state, view, slot)
    if n > 0:
        count_ages(state, view, slot, new)
    count_place(state, slot, new)
    if slot == n:
        state.place[n] = n
        state.known[0] = n = n + 1
    count_contexts(state, view.rows, slot, when)
    place = state.place[:n]
    place += place < place[slot]
    place[slot] = 0
    state.launched[slot] = state.clock[0] = when
    state.known[1] += 1
    state.known[2] = 0 if new else state.known[2] + 1
    state.recent[1:] = state.recent[:-1].copy()
    state.recent[0] = slot
    find_rows(state)


def learn(state: State, view: View, slot: int) -> None:
    """One AdaGrad step along the gradient of log P: the weights, and the corrections that apply.

    A weight whose squares are ∞ does not move: its statistic is switched off.
    """
    error = -view.chances
    error[slot] += 1.0
    gradient = view.features @ error
    square = gradient * gradient
    for row, rate in ((view.number, state.rates[0]), (ADDED + state.recent[0], state.rates[2])):
        squares, mix = state.squares[row], state.mix[row]
        squares += square
        mix += rate * gradient / np.sqrt(squares)
    n, rows = len(error), view.rows[: LAST + 1]
    errors = state.errors[rows, :n] * LESSON_FADE + error * error
    state.errors[rows, :n] = errors
    steps = state.rates[1] * LESSON_STEPS * error
    state.lessons[rows, :n] = view.lessons + steps / np.sqrt(1.0 + errors)


def learn_gate(state: State, view: View, slot: int, share: Floats, evidence: Floats) -> None:
    """One AdaGrad step of g along the gradient of log P with the crowd mixed in; and both trusts by
    Bayes' rule: was P with the crowd better than P alone, for all apps, and for the two apps that
    each of them puts first."""
    weight = crowd_weight(state, evidence)
    alone, total, trust = view.chances, share.sum(), state.trust
    both = alone * (1.0 - weight * total) + weight * share
    own, mixed = max(float(alone[slot]), LEAST_CHANCE), max(float(both[slot]), LEAST_CHANCE)
    gain = math.log(mixed / own)
    trust[0] = update_trust(float(trust[0]), TRUST_START, gain)
    first, best = alone.argmax(), both.argmax()
    if first != best and slot in (first, best):
        gain -= math.log((both[first] + both[best]) / (alone[first] + alone[best]))
        trust[1] = update_trust(trust[1], FIRST_TRUST_START, gain)
    gradient = (share[slot] - own * total) / mixed * weight * (1.0 - weight)
    gate, squares = state.gate[0], state.gate[1]
    gradients = gradient * evidence
    squares += gradients * gradients
    gate += state.rates[0] * gradients / np.sqrt(squares)


def update_trust(trust: float, start: float, gain: float) -> float:
    """Log odds after one more launch; they fade towards their start."""
    return start + TRUST_FADE * (trust - start) + min(max(gain, -MOST_GAIN), MOST_GAIN)


def count_place(state: State, slot: int, new: bool) -> None:
    bucket = NEW if new else BUCKET[state.place[slot]]
    for row in (0, state.rows[LAST]):
        places = state.places[row]
        places *= PLACE_FADE
        places[bucket] += 1.0


def count_ages(state: State, view: View, slot: int, new: bool) -> None:
    ages, at = state.ages, newness(state)
    ages *= PLACE_FADE
    ages[COULD] += np.bincount(view.ages, minlength=N_AGES)
    ages[NEW_COULD, at] += 1.0
    if new:
        ages[NEW_CAME, at] += 1.0
    else:
        ages[CAME, view.ages[slot]] += 1.0


def count_contexts(state: State, rows: Whole, slot: int, when: float) -> None:
    n, rows = state.known[0], rows[ALL:]
    rows[-1] = hour_row(when)
    counts = state.counts[rows, :n] * FADES
    counts[:, slot] += 1.0
    state.counts[rows, :n] = counts


def hour_row(when: float) -> int:
    return FIRST_HOUR + int(when * N_HOURS // DAY) % N_HOURS


def find_rows(state: State) -> None:
    """The rows of the contexts for the next launch."""
    recent, rows = state.recent, state.rows
    last, before = int(recent[0]), int(recent[1])
    rows[LAST] = FIRST_LAST + last
    rows[BEFORE] = FIRST_BEFORE + before
    two = last << BITS | before
    four = (two << BITS | int(recent[2])) << BITS | int(recent[3])
    rows[TWO] = FIRST_HASHED + find(state, OF_TWO | two)
    rows[FOUR] = FIRST_HASHED + find(state, OF_FOUR | four)


def find(state: State, key: int) -> int:
    """The row of a context, by open addressing; if there is no free row, the one unused for longest
    of a few is replaced."""
    keys, used = state.keys, state.used
    found = first = key % SCRAMBLE[0] * SCRAMBLE[1] % SCRAMBLE[0] % N_HASHED
    for step in range(PROBES):
        row = (first + step) % N_HASHED
        there = int(keys[row])
        if there == key:
            used[row] = state.known[1]
            return row
        if there == FREE:
            found = row
            break
        if used[row] < used[found]:
            found = row
    keys[found], used[found] = key, state.known[1]
    state.counts[FIRST_HASHED + found] = 0.0
    return found


def forget(state: State, slot: int) -> None:
    """Delete all that is known of an app; its slot may then be taken by another."""
    last, before = FIRST_LAST + slot, FIRST_BEFORE + slot
    state.counts[:, slot] = 0.0
    state.counts[last] = 0.0
    state.places[last] = 0.0
    state.lessons[:, slot] = 0.0
    state.lessons[last] = 0.0
    state.lessons[before] = 0.0
    state.errors[:, slot] = 0.0
    state.errors[last] = 0.0
    state.errors[before] = 0.0
    for number in range(N_RECENT):
        state.keys[state.keys >> number * BITS & (1 << BITS) - 1 == slot] = GONE
    state.mix[ADDED + slot] = 0.0
    state.squares[ADDED + slot] = np.where(state.squares[ADDED + slot] == np.inf, np.inf, 1.0)
    state.recent[state.recent == slot] = NOBODY
    place = state.place[: state.known[0]]
    place -= place > place[slot]
    place[slot] = len(place) - 1
    find_rows(state)


FUNCTIONS = (
    new_state, by_frequency, place_chances, by_place, chance_new, newness, by_age, by_again, look,
    weights_after, softmax, answer, crowd_evidence, crowd_weight, odds_to_chance, observe, learn,
    learn_gate, update_trust, count_place, count_ages, count_contexts, hour_row, find_rows, find,
    forget,
)  # fmt: skip


# One phone


@dataclass(frozen=True)
class Weights:
    """The start of the mix: a weight for each of `STATISTICS`.

    ``opening`` is for launches that open a session, ``within`` for the others: after a change of
    app and after a repeat the weights start alike. A weight of exactly 0 switches its statistic off
    for good. ``gate`` are g, what the crowd is worth. ``rate`` is the step with which all of them
    move (0: they stay), ``added`` that of what is added to the weights after each app; ``lesson``
    scales those of the corrections.
    """

    within: tuple[float, ...]
    opening: tuple[float, ...]
    gate: tuple[float, ...]
    rate: float = 0.05
    added: float = 0.02
    lesson: float = 1.0

    @property
    def start(self) -> Floats:
        """(ADDED, N_STATISTICS): by set of weights."""
        sets = np.empty((ADDED, N_STATISTICS))
        sets[[CHANGED, REPEATED]], sets[OPENING] = self.within, self.opening
        return sets

    @property
    def rates(self) -> Floats:
        return np.array([self.rate, self.lesson, self.added])

    def new_state(self, room: int) -> State:
        return new_state(room, self.start, np.array(self.gate), self.rates)


DEFAULT = Weights(  # fitted, then rounded to twentieths
    within=(0.30, 0.40, 0.25, 0.35, 0.10, 0.15, 0.35, 0.05, 0.65),
    opening=(0.50, 0.25, 0.20, 0.25, 0.10, 0.15, 0.15, 0.05, 0.55),
    gate=(0.0, 0.60, 0.70, 0.15, -1.0),
)
ABLATIONS = (*STATISTICS, "added", "adaptation", *GROUPS)


def without(*names: str, weights: Weights = DEFAULT) -> Weights:
    """The weights with these ingredients switched off.

    Names of `STATISTICS`; of groups of them (`GROUPS`); ``added``, with which the weights are the
    same after all apps; or ``adaptation``, with which they stay where they start. To leave out the
    crowd, give a phone no crowd.
    """
    off: set[str] = set()
    for name in names:
        if name not in ABLATIONS:
            raise ValueError(unknown("ingredient", name, ABLATIONS))
        off.update(GROUPS.get(name, (name,)))

    def zero_if_off(numbers: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(
            0.0 if name in off else number for name, number in zip(STATISTICS, numbers, strict=True)
        )

    return replace(
        weights,
        within=zero_if_off(weights.within),
        opening=zero_if_off(weights.opening),
        rate=0.0 if "adaptation" in off else weights.rate,
        added=0.0 if off & {"adaptation", "added"} else weights.added,
    )


# Suggestions: what a launcher shows and a memory manager keeps. The phone, the evaluation and the
# memory study share these formulas. Arrays have an entry for each candidate; `chances` are P(next
# launch = i) with the crowd mixed in already: leaving the open app out before that costs hits.

STEADY = 1.5
"""How many times as likely an app must be to take the place of one on the screen."""

KEEP_BY_CHANCE = 30.0
"""Weight of P(next = i) beside log f(i) in the order in which apps are kept in memory."""

LEAST_FREQUENCY = 1e-9  # so that the log is finite for apps never launched

NEW_APP_LAUNCHES = 10.0
"""Within this many launches the first launch of a new app comes in half of all cases."""


def next_different(chances: Floats, open_app: int) -> Floats:
    """P(next launch = i | it is not of the open app): 0 for the candidate `open_app`."""
    others = chances.copy()
    others[open_app] = 0.0
    rest = 1.0 - chances[open_app]
    if rest > 0.0:
        others /= rest
    return others


def keep_scores(frequency: Floats, chances: Floats) -> Floats:
    """log f(i) + 30·P(next = i): what is highest is kept in memory, what is lowest gives way.

    f is the faded frequency of the predictor, the share of the launches that an app had: what is
    wanted in the long run. P says what is wanted next.
    """
    scores: Floats = np.log(np.maximum(frequency, LEAST_FREQUENCY)) + KEEP_BY_CHANCE * chances
    return scores


def steady_row(shown: Whole, chances: Floats, n: int, factor: float = STEADY) -> Whole:
    """The n candidates to show, where `shown` are on the screen.

    A candidate on the screen gives way only to one that is `factor` times as likely, and what stays
    keeps its place. The free places are filled with the others, best first. Candidates without a
    chance are not shown. `shown` has -1 at places whose app is no candidate any more.
    """
    if len(shown) == 0:
        best = np.argsort(-chances, kind="mergesort")[:n]
        return best[chances[best] > 0.0]
    weighted = chances.copy()
    weighted[shown[shown >= 0]] *= factor
    best = np.argsort(-weighted, kind="mergesort")[:n]
    best = best[weighted[best] > 0.0]
    row = np.full(len(best), -1)
    new = np.ones(len(best), np.bool_)
    for place in range(min(len(best), len(shown))):
        stays = new & (best == shown[place])
        if stays.any():
            row[place] = shown[place]
            new &= ~stays
    row[row < 0] = best[new]
    return row


def chances_of_new(n_launches: Whole) -> Floats:
    """P(next = i) of apps that were installed `n_launches` ago and never launched since.

    If the first launch comes within k launches with probability k/(10 + k), an app that was not
    launched within k is the next one with probability 1/(11 + k). So a new app has a fair place at
    first, and leaves it unless it is used. Several share the chance of the latest, by the chance of
    each alone. What they have is taken from all other apps alike.
    """
    alone: Floats = 1.0 / (NEW_APP_LAUNCHES + 1.0 + n_launches)
    if len(alone) == 0:
        return alone
    together: Floats = alone * (alone.max() / alone.sum())
    return together


class Reason(NamedTuple):
    """Why an app stands where it stands.

    ``speaks`` has for each statistic its part of the score, above or below that of the average
    candidate; ``evidence`` the counts behind them. ``score`` is log P among the candidates, and
    ``share`` that of `Habits.chances`.
    """

    app: int
    score: float
    share: float
    speaks: dict[str, float]
    evidence: dict[str, float]

    @property
    def strongest(self) -> list[tuple[str, float]]:
        """What speaks most for it or against it, strongest first. All that the last apps say
        (after-1 to after-4) counts as one, "after"."""
        parts: dict[str, float] = {}
        for name, part in self.speaks.items():
            family = "after" if name.startswith("after-") else name
            parts[family] = parts.get(family, 0.0) + part
        return sorted(parts.items(), key=lambda part: -abs(part[1]))


class CrowdView(Protocol):
    """What many phones know, by the numbers that this phone has for apps."""

    def shares(self, apps: Whole, last: int | None, before: int | None) -> tuple[Floats, float]:
        """For each app its share of the crowd's launches after `last`, or after `before` and `last`
        where that is known; and the number of launches after both behind it, else 0."""
        ...


_NOTHING: Floats = np.zeros(0)


class Habits:
    """One phone's statistics and their mix. Apps are numbers; times are seconds, local time.

    At most `MAX_APPS` apps and `N_HASHED` contexts of two and four apps are kept; those unused for
    longest give way. ``crowd`` may be set at any time; it is no part of the state.
    """

    def __init__(self, weights: Weights = DEFAULT) -> None:
        self.weights = weights
        self._state = weights.new_state(16)
        self._slot: dict[int, int] = {}  # by app, the latest launch last
        self._apps = np.zeros(0, np.int64)  # by slot; -1 where an app was forgotten
        self._crowd: CrowdView | None = None
        self._view: View | None = None
        self._moment = 0.0  # of the view
        self._from_crowd = _NOTHING, _NOTHING  # shares of the known apps, and evidence

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
        return list(reversed(self._slot))

    def observe(self, app: int, when: float) -> None:
        """A launch: the weights and corrections learn from it, then the statistics take it in."""
        app, when = checked_launch(app, when)
        view = self._seen_from(when)
        slot = self._slot.pop(app, None)
        new = slot is None
        if slot is None:
            slot = self._new_slot(app)
        self._slot[app] = slot
        observe(self._state, view, slot, when, new, *self._from_crowd)
        self._view = None

    def _new_slot(self, app: int) -> int:
        empty = np.flatnonzero(self._apps < 0)
        if len(empty):
            slot = int(empty[0])
        elif len(self._apps) == MAX_APPS:
            slot = int(self._state.place.argmax())
            del self._slot[int(self._apps[slot])]
            forget(self._state, slot)
        else:
            slot = len(self._apps)
            self._apps = np.append(self._apps, -1)
            room = len(self._state.place)
            if slot == room:
                self._state = _resize(self._state, min(2 * room, MAX_APPS))
        self._apps = self._apps.copy()  # a crowd may keep what it found for the old ones
        self._apps[slot] = app
        return slot

    def forget(self, app: int) -> None:
        """An app that is gone: all that was known of it goes too. Apps never launched are fine.

        Its slot stays empty until the next new app takes it.
        """
        slot = self._slot.pop(app, None)
        if slot is None:
            return
        forget(self._state, slot)
        self._apps = self._apps.copy()
        self._apps[slot] = -1
        self._view = None

    def chances(
        self,
        candidates: Sequence[int] | npt.NDArray[np.integer],
        when: float | None = None,
    ) -> Floats:
        """P that each candidate is the next launch.

        Within a session the statistics are as of the last launch. With a ``when`` more than 15
        minutes later they are as of then, and the launch would open a session.

        What they leave to 1 is P(new): the next launch may be of an app never launched here. Where
        candidates are such apps they share it, and all sum to 1.
        """
        apps = _numbers(candidates)
        slots = self._slots_of(apps)
        chances = self._chances(apps, slots, when, crowded=True)
        if slots.min(initial=0) >= 0:
            chances *= 1.0 - float(chance_new(self._state, self._seen_from(when)))
        return chances

    def frequencies(self, candidates: Sequence[int] | npt.NDArray[np.integer]) -> Floats:
        """The share of the launches that each candidate had, where older ones have faded."""
        counts = self._state.counts[self._state.rows[ALL]]
        slots = self._slots_of(_numbers(candidates))
        shares: Floats = np.where(slots < 0, 0.0, counts[slots]) / max(counts.sum(), 1.0)
        return shares

    def explain(
        self,
        candidates: Sequence[int] | npt.NDArray[np.integer],
        when: float | None = None,
    ) -> list[Reason]:
        """What speaks for each candidate, best first; same arguments as `chances`."""
        apps = _numbers(candidates)
        if not apps:
            return []
        slots = self._slots_of(apps)
        view = self._seen_from(when)
        parts = np.zeros((len(apps), N_STATISTICS))
        there = slots >= 0
        mix = weights_after(self._state, view.number)
        parts[there] = mix * view.features[:, slots[there]].T
        own = _log(self._chances(apps, slots, when, crowded=False))
        level = (own - parts.sum(axis=1))[there].max(initial=-math.inf)  # the same for all there
        columns: dict[str, Floats] = dict(zip(STATISTICS, parts.T, strict=True))
        columns["new"] = np.where(there, 0.0, own - (level if there.any() else 0.0))
        total = own
        if self._crowd is not None:
            total = _log(self._chances(apps, slots, when, crowded=True))
            columns["crowd"] = total - own
        share = self.chances(apps, when)
        return [
            Reason(
                apps[i],
                float(total[i]),
                float(share[i]),
                {name: float(part[i] - part.mean()) for name, part in columns.items()},
                self._evidence(int(slots[i]), view),
            )
            for i in np.argsort(-total, kind="stable").tolist()
        ]

    def _evidence(self, slot: int, view: View) -> dict[str, float]:
        if slot < 0:
            return {}
        state, rows = self._state, view.rows
        return {
            "launches": float(state.counts[rows[ALL], slot]),
            "of": float(state.counts[rows[ALL]].sum()),
            "after-1": float(state.counts[rows[LAST], slot]),
            "after-2": float(state.counts[rows[TWO], slot]),
            "after-4": float(state.counts[rows[FOUR], slot]),
            "place": float(state.place[slot]),
            "seconds": max(0.0, self._moment - float(state.launched[slot])),
            "hour": float(state.counts[rows[AT_HOUR], slot]),
        }

    def _slots_of(self, apps: list[int]) -> Whole:
        """-1 for those never launched."""
        known = self._slot
        return np.array([known.get(app, -1) for app in apps], np.int64)

    def _chances(
        self, apps: list[int], slots: Whole, when: float | None, *, crowded: bool
    ) -> Floats:
        view = self._seen_from(when)
        share, evidence = self._from_crowd if crowded else (_NOTHING, _NOTHING)
        if len(share):
            if slots.min(initial=0) < 0 and self._crowd is not None:
                share, _ = self._crowd.shares(np.array(apps, np.int64), *self._context())
            else:
                share = share[slots]
        return answer(self._state, view, slots, share, evidence)

    def _context(self) -> tuple[int | None, int | None]:
        last, before = self._state.recent[:2].tolist()
        return (
            None if last == NOBODY else int(self._apps[last]),
            None if before == NOBODY else int(self._apps[before]),
        )

    def _seen_from(self, when: float | None) -> View:
        """The statistics as of `when`; kept until the next launch."""
        clock = float(self._state.clock[0])
        moment = when if when is not None and when - clock > SESSION_GAP else clock
        if self._view is None or self._moment != moment:
            self._view, self._moment = look(self._state, moment), moment
            self._from_crowd = _NOTHING, _NOTHING
            if self._crowd is not None and self._slot:
                share, n_pair = self._crowd.shares(self._apps, *self._context())
                self._from_crowd = share, crowd_evidence(self._view, n_pair)
        return self._view

    # Keeping

    def to_bytes(self) -> bytes:
        """The whole state; `from_bytes` continues from it."""
        n, state = len(self._apps), self._state
        tensors: dict[str, npt.NDArray[Any]] = {"apps": self._apps}
        for name, part in _parts_in_use(n).items():
            tensors[name] = getattr(state, name)[part]
        hashed = np.flatnonzero(state.keys != FREE)
        cells = state.counts[FIRST_HASHED + hashed, :n]
        row, column = np.nonzero(cells)
        tensors |= {
            "hashed": hashed.astype(np.uint16),
            "keys": state.keys[hashed],
            "used": state.used[hashed].astype(np.uint32),
            "sizes": np.bincount(row, minlength=len(hashed)).astype(np.uint16),
            "followers": column.astype(np.uint8),
            "followed": cells[row, column],
        }
        words = {"kind": "nextapp habits", "version": VERSION}
        return pack(tensors, words | {"weights": json.dumps(asdict(self.weights))})

    @classmethod
    def from_bytes(cls, data: bytes) -> Habits:
        """Raises `WireError` where the bytes are damaged, or of another version."""
        tensors, words = unpack(data)
        if words.get("kind") != "nextapp habits":
            raise WireError(f"expected nextapp habits, got {words.get('kind')!r}.")
        if words.get("version", "1") != VERSION:
            raise WireError(
                f"habits of version {words.get('version', '1')} cannot be read by a program of "
                f"version {VERSION}: learn them again from the launches."
            )
        try:
            values = json.loads(words["weights"])
            several = {name for name, value in values.items() if isinstance(value, list)}
            habits = cls(Weights(**values | {name: tuple(values[name]) for name in several}))
            habits._restore(tensors)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise WireError(f"habits that cannot be read: {error}") from error
        return habits

    def _restore(self, tensors: dict[str, npt.NDArray[Any]]) -> None:
        n = len(tensors["apps"])
        if n > MAX_APPS:
            raise ValueError(f"{n} apps, at most {MAX_APPS} are kept.")
        self._apps = tensors["apps"].copy()
        by_last_use = np.argsort(-tensors["place"], kind="stable").tolist()
        known = ((int(self._apps[slot]), slot) for slot in by_last_use)
        self._slot = {app: slot for app, slot in known if app >= 0}
        state = self._state = _resize(self._state, max(16, 1 << max(n - 1, 0).bit_length()))
        for name, part in _parts_in_use(n).items():
            array = getattr(state, name)
            if tensors[name].shape != array[part].shape:
                raise ValueError(f"{name} of other statistics than these.")
            array[part] = tensors[name]
        hashed = tensors["hashed"]
        state.keys[:] = FREE
        state.keys[hashed], state.used[hashed] = tensors["keys"], tensors["used"]
        contexts = FIRST_HASHED + np.repeat(hashed, tensors["sizes"])
        state.counts[contexts, tensors["followers"]] = tensors["followed"]


def _parts_in_use(n: int) -> dict[str, Any]:
    """What n apps use of the arrays of a state; rows of hashed contexts are kept apart."""
    apps = np.append(np.arange(n), NOBODY)
    by_last = np.append(0, FIRST_LAST + apps)
    corrections = np.append(by_last, FIRST_BEFORE + apps)
    weights = np.append(np.arange(ADDED), ADDED + apps)
    whole = dict.fromkeys(("known", "clock", "recent", "rows", "ages", "gate", "trust"), ...)
    return whole | {
        "place": slice(n),
        "launched": slice(n),
        "places": by_last,
        "counts": (np.append(by_last, FIRST_HOUR + np.arange(N_HOURS)), slice(n)),
        "lessons": (corrections, slice(n)),
        "errors": (corrections, slice(n)),
        "mix": weights,
        "squares": weights,
    }


def _resize(state: State, room: int) -> State:
    """The same state in arrays with more columns."""
    wider: dict[str, npt.NDArray[Any]] = {}
    for name in _BY_SLOT:
        old = getattr(state, name)
        new: npt.NDArray[Any] = np.zeros((*old.shape[:-1], room), old.dtype)
        new[..., : old.shape[-1]] = old
        wider[name] = new
    return state._replace(**wider)


def checked_launch(app: int, when: float) -> tuple[int, float]:
    if not isinstance(app, int | np.integer) or app < 0:
        raise ValueError(f"app must be a whole number >= 0, got {app!r}.")
    if not math.isfinite(when):
        raise ValueError(f"when must be a finite number of seconds, got {when!r}.")
    return int(app), float(when)


def _numbers(candidates: Sequence[int] | npt.NDArray[np.integer]) -> list[int]:
    if isinstance(candidates, list):
        return candidates
    numbers: list[int] = np.asarray(candidates, np.int64).tolist()
    return numbers


def _log(chances: Floats) -> Floats:
    scores: Floats = np.log(np.maximum(chances, LEAST_CHANCE))
    return scores
