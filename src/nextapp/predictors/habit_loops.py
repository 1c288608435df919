"""`nextapp.habits.Habits` as a compiled loop over whole logs: a second form of the same statistics.

Written for speed, equal to the first to 1e-10 (tests/predictors/test_nextapp.py): a phone is a set
of arrays over its k candidates, an app's place in them stands for the app.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp import habits
from nextapp.compiled import compiled, dict_of_whole_numbers
from nextapp.predictors.questions import Indices
from nextapp.wire import Floats

_N = len(habits.STATISTICS)
(
    _FREQUENCY, _LATELY, _AFTER_1, _AFTER_2, _AFTER_4,
    _PLACE, _RHYTHM, _SINCE, _HOUR, _SESSION, _LESSON, _CROWD,
) = range(_N)  # fmt: skip
_FREQUENCY_FADE, _LATELY_FADE = habits.FREQUENCY_FADE, habits.LATELY_FADE
_PLACE_FADE, _SINCE_FADE = habits.PLACE_FADE, habits.SINCE_FADE
_AFTER_FADE, _HOUR_FADE = habits.AFTER_FADE, habits.HOUR_FADE
_LONGER_FADES = (habits.AFTER_2_FADE, habits.AFTER_4_FADE)
_FREQUENCY_PRIOR, _LATELY_PRIOR = habits.FREQUENCY_PRIOR, habits.LATELY_PRIOR
_AFTER_PRIOR, _LONGER_PRIOR = habits.AFTER_PRIOR, habits.LONGER_PRIOR
_HOUR_PRIOR, _RHYTHM_PRIOR = habits.HOUR_PRIOR, habits.RHYTHM_PRIOR
_SINCE_PRIOR, _PLACE_PRIOR = habits.SINCE_PRIOR, habits.PLACE_PRIOR
_CROWD_WEIGHT, _CROWD_REACH = habits.CROWD_WEIGHT, habits.CROWD_REACH
_AGAIN_PRIOR, _LEAST_CHANCE, _LEAST_ROOM = (
    habits.AGAIN_PRIOR, habits.LEAST_CHANCE, habits.LEAST_ROOM,
)  # fmt: skip
_AGAIN_LEAN, _FIRST_LEAD = habits.AGAIN_LEAN, habits.FIRST_LEAD
_LEAST_COUNTED, _MOST_LOG_ODDS = habits.LEAST_COUNTED, habits.MOST_LOG_ODDS
_LEAST_COUNT, _GRADIENT_START = habits.LEAST_COUNT, habits.GRADIENT_START
_LESSON_STEPS = habits.LESSON_STEPS
_LESSON_FADE, _SESSION_GAP = habits.LESSON_FADE, habits.SESSION_GAP
_MAX_APPS, _MAX_CONTEXTS = habits.MAX_APPS, habits.MAX_CONTEXTS
_ENDS = np.array(habits.PLACE_ENDS)
_NEW, _N_PLACES, _N_KINDS = habits.NEW, habits.N_PLACES, habits.N_KINDS
_N_HOURS, _HOUR_SECONDS, _N_SINCE = habits.N_HOURS, habits.HOUR_SECONDS, habits.N_SINCE
_CODES = 1 << 15  # apps of one phone, at most

# Where whole numbers and times stand in a phone's `whole` and `real`.
_KNOWN, _SEEN, _KIND_1, _KIND_2 = 0, 1, 2, 3
_LAST_TIME, _TOTAL = 0, 1


class Phone(NamedTuple):
    """The state of `Habits`, by place among the candidates; and room for one look at it."""

    whole: npt.NDArray[np.int64]
    real: Floats
    recent: npt.NDArray[np.int64]  # the last four launches, latest first; -1 for none
    known: npt.NDArray[np.bool_]
    place: npt.NDArray[np.int64]
    launches: Floats
    lately: Floats
    launched: Floats
    in_session: Floats
    after: Floats
    hours: Floats
    lesson: Floats  # (2, k, k)
    errors: Floats
    lesson_of: Floats
    errors_of: Floats
    places: Floats
    rhythm: Floats
    hits: Floats
    trials: Floats
    mix: Floats
    squares: Floats
    longer: Floats  # (2, contexts, k)
    used: npt.NDArray[np.int64]  # (2, contexts): when last, by launch number
    keys: npt.NDArray[np.int64]  # (2, contexts)
    again: Floats  # (2, 3): v and their squares; (2, 0) where that step is switched off
    gate: Floats  # (2, 2): g and their squares
    evidence: Floats  # (3,): what v weigh
    features: Floats
    scores: Floats
    popular: Floats
    since: npt.NDArray[np.int64]
    bucket: npt.NDArray[np.int64]
    error: Floats


class Streams(NamedTuple):
    """What the phones of a chunk of questions saw, in the order they saw it.

    Phone v saw the launches ``starts[v]:starts[v + 1]``. Where ``asked`` holds, the scores before
    the launch are wanted: k cells from ``cell[v]`` on, prediction after prediction; as of the
    launch before it, or ``timed`` as of the moment of the launch itself: a phone knows its clock.
    """

    starts: Indices
    launches: Indices
    seconds: Floats
    asked: npt.NDArray[np.bool_]
    cell: Indices
    timed: bool = False


class CrowdCells(NamedTuple):
    """`Crowd.cells` for the candidates of a chunk, each of a phone's candidates being the last app.

    ``share`` has k x k cells a phone; ``rest`` is what the crowd does not know of what comes after
    each candidate, ``average`` how readily it launches an app again. All are empty where there is
    no crowd.
    """

    popular: Floats
    share: Floats
    rest: Floats
    share_starts: Indices
    average: float


class Told(NamedTuple):
    """The part of `CrowdCells` that one phone uses; k = 0 where there is no crowd."""

    popular: Floats
    share: Floats  # (k, k)
    rest: Floats
    average: float


class Learnt(NamedTuple):
    """The weights that phones end with, (n_phones, …); fields as of `habits.Weights`."""

    mix: Floats  # (…, 2, n_statistics): within, opening
    again: Floats
    gate: Floats


def answers(
    streams: Streams,
    candidate_starts: Indices,
    n_cells: int,
    weights: habits.Weights,
    crowd: CrowdCells,
) -> tuple[Floats, Learnt]:
    """The scores of `Habits` for every prediction asked of these phones, one cell a candidate; and
    the weights that each phone ends with."""
    width = np.diff(candidate_starts)
    if len(width) and width.max() >= _CODES:
        raise ValueError(f"a phone can have {_CODES - 1} apps at most, got {width.max()}.")
    scores = np.empty(n_cells)
    n = len(width)
    learnt = Learnt(np.empty((n, 2, _N)), np.empty((n, len(weights.again))), np.empty((n, 2)))
    _answers(
        streams,
        candidate_starts,
        np.array([weights.within, weights.opening]),
        weights.rate,
        weights.lesson,
        np.array(weights.again),
        np.array(weights.gate),
        crowd,
        scores,
        learnt,
    )
    return scores, learnt


@compiled
def _answers(
    streams: Streams,
    candidate_starts: Indices,
    start: Floats,
    rate: float,
    lesson: float,
    again: Floats,
    gate: Floats,
    crowd: CrowdCells,
    scores: Floats,
    learnt: Learnt,
) -> None:
    for v in range(len(candidate_starts) - 1):
        own = slice(candidate_starts[v], candidate_starts[v + 1])
        k = candidate_starts[v + 1] - candidate_starts[v]
        first, end = streams.starts[v], streams.starts[v + 1]
        crowded = len(crowd.popular) > 0
        cells = slice(crowd.share_starts[v], crowd.share_starts[v + 1]) if crowded else slice(0, 0)
        those = own if crowded else slice(0, 0)
        told = Told(
            crowd.popular[those],
            crowd.share[cells].reshape((k, k) if crowded else (0, 0)),
            crowd.rest[those],
            crowd.average,
        )
        phone = _new_phone(k, end - first, start, again, gate)
        slots = (dict_of_whole_numbers(), dict_of_whole_numbers())
        cell = streams.cell[v]
        for row in range(first, end):
            app, when = streams.launches[row], streams.seconds[row]
            opening = when - phone.real[_LAST_TIME] > _SESSION_GAP
            moment = when if opening else phone.real[_LAST_TIME]
            looked = streams.asked[row]
            if looked:
                opens = opening and streams.timed
                _look(phone, told, slots, moment if opens else phone.real[_LAST_TIME], opens, start)
                _predict(phone, told, opens, scores[cell : cell + k])
                looked = opens == opening
                cell += k
            if phone.whole[_KNOWN] > 0 and not looked:
                _look(phone, told, slots, moment, opening, start)
            _observe(phone, told, slots, app, when, opening, rate, lesson, start)
        learnt.mix[v] = phone.mix
        learnt.again[v] = phone.again[0]
        learnt.gate[v] = phone.gate[0]


@compiled
def _new_phone(k: int, n: int, start: Floats, again: Floats, gate: Floats) -> Phone:
    contexts = min(_MAX_CONTEXTS, n)
    whole = np.zeros(4, np.int64)
    whole[_KIND_1], whole[_KIND_2] = _N_KINDS - 1, _N_KINDS - 1
    return Phone(
        whole,
        np.zeros(2),
        np.full(4, -1),
        np.zeros(k, np.bool_),
        np.zeros(k, np.int64),
        np.zeros(k),
        np.zeros(k),
        np.zeros(k),
        np.zeros(k),
        np.zeros((k, k)),
        np.zeros((_N_HOURS, k)),
        np.zeros((2, k, k)),
        np.zeros((2, k, k)),
        np.zeros(k),
        np.zeros(k),
        np.full(_N_PLACES, _PLACE_PRIOR),
        np.zeros((_N_KINDS * _N_KINDS, _N_PLACES)),
        np.zeros(_N_SINCE),
        np.zeros(_N_SINCE),
        start.copy(),
        np.full(start.shape, _GRADIENT_START),
        np.zeros((2, contexts, k)),
        np.zeros((2, contexts), np.int64),
        np.zeros((2, contexts), np.int64),
        _moving(again),
        _moving(gate),
        np.zeros(3),
        np.zeros((_N, k)),
        np.zeros(k),
        np.zeros(k),
        np.zeros(k, np.int64),
        np.zeros(k, np.int64),
        np.zeros(k),
    )


@compiled
def _moving(start: Floats) -> Floats:
    moving = np.full((2, len(start)), _GRADIENT_START)
    moving[0] = start
    return moving


@compiled
def _bucket(place: int) -> int:
    for bucket in range(_NEW):
        if place < _ENDS[bucket]:
            return bucket
    return _NEW


@compiled
def _kind(bucket: int) -> int:
    return 4 if bucket == _NEW else min(bucket, 3)


@compiled
def _context(recent: npt.NDArray[np.int64], order: int) -> int:
    """A number for the last two or four launches; -1 where there are not so many."""
    length = 2 if order == 0 else 4
    key = 0
    for step in range(length):
        if recent[step] < 0:
            return -1
        key = key * _CODES + recent[step]
    return key


@compiled
def _look(
    phone: Phone,
    told: Told,
    slots: Any,
    when: float,
    opening: bool,
    start: Floats,
) -> None:
    """`Habits._look`: fills features, scores, since, bucket; those of unknown apps are empty."""
    k = len(phone.known)
    n = phone.whole[_KNOWN]
    total = phone.real[_TOTAL]
    features, scores, popular = phone.features, phone.scores, phone.popular
    last = phone.recent[0]
    hour = int(when // _HOUR_SECONDS) % _N_HOURS
    features[:] = 0.0

    by_place, by_rhythm, by_since = _by_place_and_since(phone)
    placed = start[0, _PLACE] != 0.0 or start[1, _PLACE] != 0.0
    prior = _FREQUENCY_PRIOR / (n + 1.0)
    for i in range(k):
        if not phone.known[i]:
            phone.bucket[i] = _NEW
            continue
        popular[i] = (phone.launches[i] + prior) / (total + _FREQUENCY_PRIOR)
        features[_FREQUENCY, i] = math.log(popular[i])
        if phone.lately[i] > 0.0:
            features[_LATELY, i] = math.log1p(phone.lately[i] / (_LATELY_PRIOR * popular[i]))
        bucket = _bucket(phone.place[i])
        phone.bucket[i] = bucket
        if placed:
            features[_PLACE, i] = by_place[bucket]
        if last >= 0 and phone.after[last, i] > 0.0:
            back = _AFTER_PRIOR * popular[i] * math.exp(0.5 * features[_PLACE, i])
            features[_AFTER_1, i] = math.log1p(phone.after[last, i] / back)
        features[_RHYTHM, i] = by_rhythm[bucket]
        _, exponent = math.frexp(max(when - phone.launched[i], 0.0) + 1.0)
        phone.since[i] = min(exponent - 1, _N_SINCE - 1)
        features[_SINCE, i] = by_since[phone.since[i]]
        if phone.hours[hour, i] > 0.0:
            features[_HOUR, i] = math.log1p(phone.hours[hour, i] / (_HOUR_PRIOR * popular[i]))
        if not opening and phone.in_session[i] > 0.0:
            features[_SESSION, i] = math.log1p(phone.in_session[i])

    _back_off(phone, slots)
    mix = phone.mix[1 if opening else 0]
    if start[0, _LESSON] != 0.0 or start[1, _LESSON] != 0.0:
        features[_LESSON] = phone.lesson_of
        for back in range(_n_lessons(phone)):
            features[_LESSON] += phone.lesson[back, phone.recent[back]]
    if len(told.popular) > 0 and (start[0, _CROWD] != 0.0 or start[1, _CROWD] != 0.0):
        _by_crowd(phone, told, opening)
    scores[:] = 0.0
    for f in range(_N):
        weight = mix[f]
        for i in range(k):
            scores[i] += weight * features[f, i]


@compiled
def _by_place_and_since(phone: Phone) -> tuple[Floats, Floats, Floats]:
    """`Habits._by_place` and `Habits._by_since`."""
    share_sum = phone.places.sum()
    context = phone.whole[_KIND_2] * _N_KINDS + phone.whole[_KIND_1]
    rhythm_sum = phone.rhythm[context].sum()
    n = phone.whole[_KNOWN]
    by_place, by_rhythm = np.empty(_N_PLACES), np.empty(_N_PLACES)
    for bucket in range(_N_PLACES):
        share = phone.places[bucket] / share_sum
        width = 1
        if bucket < _NEW:
            before = 0 if bucket == 0 else _ENDS[bucket - 1]
            width = max(min(_ENDS[bucket], n) - before, 1)
        by_place[bucket] = math.log(max(n, 1) * share / width)
        seen = phone.rhythm[context, bucket]
        by_rhythm[bucket] = math.log((seen / share + _RHYTHM_PRIOR) / (rhythm_sum + _RHYTHM_PRIOR))
    average = (phone.hits.sum() + 1.0) / (phone.trials.sum() + 10.0)
    by_since = np.empty(_N_SINCE)
    for step in range(_N_SINCE):
        by_since[step] = math.log(
            (phone.hits[step] / average + _SINCE_PRIOR) / (phone.trials[step] + _SINCE_PRIOR)
        )
    return by_place, by_rhythm, by_since


@compiled
def _back_off(phone: Phone, slots: Any) -> None:
    """`Habits._back_off`."""
    features, popular = phone.features, phone.popular
    k = len(popular)
    for order in range(2):
        key = _context(phone.recent, order)
        if key < 0 or key not in slots[order]:
            continue
        counts = phone.longer[order, slots[order][key]]
        for i in range(k):
            if counts[i] > 0.0:
                if order == 0:
                    lift = 0.5 * features[_AFTER_1, i]
                else:
                    lift = 0.5 * features[_AFTER_2, i] + 0.25 * features[_AFTER_1, i]
                back = popular[i] * math.exp(lift)
                features[_AFTER_2 + order, i] = math.log1p(counts[i] / (_LONGER_PRIOR * back))


@compiled
def _by_crowd(phone: Phone, told: Told, opening: bool) -> None:
    """`Habits._by_crowd`."""
    k = len(phone.known)
    last = -1 if opening else _last_known(phone)
    before = phone.recent[0]
    if before < 0:
        return
    again = told.share[last, last] if last >= 0 else 0.0
    room = max(1.0 - again, _LEAST_ROOM)
    total, shares = 0.0, 0.0
    for i in range(k):
        if phone.known[i] and i != last:
            total += told.popular[i]
            shares += told.share[before, i]
    silent = max(0.0, 1.0 - shares / room)
    for i in range(k):
        if phone.known[i]:
            ratio = told.share[before, i] / told.popular[i] * (total / room) + silent
            phone.features[_CROWD, i] = math.log(0.5 + 0.5 * ratio)
    if last >= 0:
        likely = again + told.rest[last] * told.average
        phone.features[_CROWD, last] = _log_odds(likely) - _log_odds(told.average)


@compiled
def _last_known(phone: Phone) -> int:
    last = phone.recent[0]
    return int(last) if last >= 0 and phone.known[last] else -1


@compiled
def _log_odds(chance: float) -> float:
    chance = min(max(chance, _LEAST_CHANCE), 1.0 - _LEAST_CHANCE)
    return math.log(chance / (1.0 - chance))


@compiled
def _log_sum_of_others(phone: Phone, scores: Floats, last: int) -> float:
    """log Σ e^s over the known apps but the last."""
    highest = -np.inf
    for i in range(len(scores)):
        if phone.known[i] and i != last:
            highest = max(highest, scores[i])
    total = 0.0
    for i in range(len(scores)):
        if phone.known[i] and i != last:
            total += math.exp(scores[i] - highest)
    return highest + math.log(total)


@compiled
def _again(phone: Phone, told: Told, last: int) -> float:
    """`Habits._again_now`: fills the evidence, returns P(j)."""
    usual = phone.places[0] / phone.places.sum()
    if len(told.popular) > 0:
        usual = told.share[last, last] + told.rest[last] * usual
    seen, all_seen = phone.after[last, last], phone.after[last].sum()
    readily = _log_odds((seen + _AGAIN_PRIOR * usual) / (all_seen + _AGAIN_PRIOR))
    ahead = readily
    if phone.whole[_KNOWN] > 1:
        ahead = phone.scores[last] - _log_sum_of_others(phone, phone.scores, last)
    phone.evidence[0], phone.evidence[1], phone.evidence[2] = ahead, readily, 1.0
    logit = ahead
    if phone.again.shape[1] > 0:
        logit = 0.0
        for f in range(3):
            logit += phone.again[0, f] * phone.evidence[f]
    return _logistic(logit)


@compiled
def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(x, -_MOST_LOG_ODDS), _MOST_LOG_ODDS)))


@compiled
def _gate(phone: Phone) -> tuple[float, float]:
    """`Habits._gate_now`: w, and the second of what g weigh."""
    last, n_after = _last_known(phone), 0.0
    if last >= 0:
        n_after = phone.after[last].sum()
    grown = math.log(_CROWD_WEIGHT / (_CROWD_WEIGHT + n_after))
    return _logistic(phone.gate[0, 0] + phone.gate[0, 1] * grown), grown


@compiled
def _predict(phone: Phone, told: Told, opening: bool, scores: Floats) -> None:
    """`Habits.scores` of all candidates, after a look."""
    k, n = len(scores), phone.whole[_KNOWN]
    last = -1 if opening else _last_known(phone)
    scores[:] = phone.scores
    if last >= 0 and k == 1:
        scores[0] = 0.0
        return
    if n < k:
        score, n_others = 0.0, n - 1 if last >= 0 else n
        if n_others > 0:
            seen = phone.places[1 if last >= 0 else 0 : _NEW].sum()
            odds = max(phone.places[_NEW], _LEAST_COUNTED) / max(seen, _LEAST_COUNTED)
            score = _log_sum_of_others(phone, scores, last) + math.log(odds / (k - n))
        for i in range(k):
            if not phone.known[i]:
                scores[i] = score
    everyone = np.ones(k, np.bool_)
    own = _softmax_of_others(scores, everyone, last)
    if len(told.popular) > 0:
        weight, _ = _gate(phone)
        own = (1.0 - weight) * own + weight * _told_of_others(phone, told, own, everyone, last)
    if last >= 0:
        again = _again(phone, told, last)
        own *= 1.0 - again
        own[last] = again
    scores[:] = np.log(own)
    if last >= 0 and phone.again.shape[1] > 0 and 2.0 * phone.places[0] > phone.places.sum():
        best = scores.max()
        if best > scores[last] > best - _AGAIN_LEAN:
            scores[last] = best + _FIRST_LEAD


@compiled
def _softmax_of_others(scores: Floats, those: npt.NDArray[np.bool_], last: int) -> Floats:
    chances = np.zeros(len(scores))
    highest = -np.inf
    for i in range(len(scores)):
        if those[i] and i != last:
            highest = max(highest, scores[i])
    for i in range(len(scores)):
        if those[i] and i != last:
            chances[i] = math.exp(scores[i] - highest)
    chances /= chances.sum()
    return chances


@compiled
def _told_of_others(
    phone: Phone, told: Told, own: Floats, those: npt.NDArray[np.bool_], last: int
) -> Floats:
    """`habits.told_of_others`, among `those`."""
    before, seen = phone.recent[0], phone.real[_TOTAL]
    room = 1.0
    if last >= 0:
        room = max(1.0 - told.share[last, last], _LEAST_ROOM)
    covered, total = 0.0, 0.0
    for i in range(len(own)):
        if those[i] and i != last:
            total += told.popular[i]
            if before >= 0:
                covered += told.share[before, i] / room
    reach = 0.0
    if covered > 0.0:
        reach = covered ** (-_CROWD_REACH if covered < 1.0 else -1.0)
    rest = max(0.0, 1.0 - reach * covered)
    expected = np.zeros(len(own))
    for i in range(len(own)):
        if those[i] and i != last:
            filled = (seen * own[i] + _CROWD_WEIGHT * told.popular[i] / total) / (
                seen + _CROWD_WEIGHT
            )
            share = told.share[before, i] if before >= 0 else 0.0
            expected[i] = reach / room * share + rest * filled
    return expected


@compiled
def _learn_again_and_gate(phone: Phone, told: Told, app: int, rate: float) -> None:
    """`Habits._learn_again` and `Habits._learn_gate`."""
    last = _last_known(phone)
    if last < 0:
        return
    if phone.again.shape[1] > 0:
        again = _again(phone, told, last)
        error = (1.0 if app == last else 0.0) - again
        for f in range(3):
            _step(phone.again[0], phone.again[1], f, error * phone.evidence[f], rate)
    if len(told.popular) == 0 or app == last or not phone.known[app] or phone.whole[_KNOWN] < 3:
        return
    own = _softmax_of_others(phone.scores, phone.known, last)
    expected = _told_of_others(phone, told, own, phone.known, last)
    weight, grown = _gate(phone)
    mixed = (1.0 - weight) * own[app] + weight * expected[app]
    slope = (expected[app] - own[app]) / mixed * weight * (1.0 - weight)
    _step(phone.gate[0], phone.gate[1], 0, slope, rate)
    _step(phone.gate[0], phone.gate[1], 1, slope * grown, rate)


@compiled
def _step(weights: Floats, squares: Floats, f: int, slope: float, rate: float) -> None:
    squares[f] += slope * slope
    weights[f] += rate * slope / math.sqrt(squares[f])


@compiled
def _observe(
    phone: Phone,
    told: Told,
    slots: Any,
    app: int,
    when: float,
    opening: bool,
    rate: float,
    lesson: float,
    start: Floats,
) -> None:
    """`Habits.observe`, after a look at the moment of the launch."""
    whole, real, recent = phone.whole, phone.real, phone.recent
    k = len(phone.known)
    if whole[_KNOWN] > 0:
        if rate > 0.0 and not opening:
            _learn_again_and_gate(phone, told, app, rate)
        if phone.known[app]:
            _learn(phone, app, 1 if opening else 0, rate, lesson, start)
        _count_transition(phone, slots, app)
    if not phone.known[app]:
        if whole[_KNOWN] == _MAX_APPS:
            _forget_oldest(phone)
        phone.known[app] = True
        phone.place[app] = whole[_KNOWN]
        whole[_KNOWN] += 1
    last = recent[0]
    if last >= 0:
        if phone.known[last]:
            for i in range(k):
                phone.after[last, i] *= _AFTER_FADE
            phone.after[last, app] += 1.0
        if opening:
            phone.in_session[:] = 0.0
    hour = int(when // _HOUR_SECONDS) % _N_HOURS
    for i in range(k):
        phone.launches[i] *= _FREQUENCY_FADE
        phone.lately[i] *= _LATELY_FADE
        phone.hours[hour, i] *= _HOUR_FADE
        if phone.known[i] and phone.place[i] < phone.place[app]:
            phone.place[i] += 1
    real[_TOTAL] = real[_TOTAL] * _FREQUENCY_FADE + 1.0
    phone.launches[app] += 1.0
    phone.lately[app] += 1.0
    phone.hours[hour, app] += 1.0
    phone.place[app] = 0
    phone.in_session[app] += 1.0
    phone.launched[app] = when
    recent[1:] = recent[:-1].copy()
    recent[0] = app
    real[_LAST_TIME] = when
    whole[_SEEN] += 1


@compiled
def _learn(phone: Phone, app: int, number: int, rate: float, lesson: float, start: Floats) -> None:
    k = len(phone.known)
    error, scores = phone.error, phone.scores
    highest = -np.inf
    for i in range(k):
        if phone.known[i]:
            highest = max(highest, scores[i])
    total = 0.0
    for i in range(k):
        error[i] = math.exp(scores[i] - highest) if phone.known[i] else 0.0
        total += error[i]
    for i in range(k):
        error[i] /= -total
    error[app] += 1.0
    if rate > 0.0:
        for f in range(_N):
            if start[number, f] == 0.0:
                continue
            slope = 0.0
            for i in range(k):
                slope += phone.features[f, i] * error[i]
            _step(phone.mix[number], phone.squares[number], f, slope, rate)
    if lesson > 0.0:
        _correct(phone, error, lesson * _LESSON_STEPS[0], phone.lesson_of, phone.errors_of)
        for back in range(_n_lessons(phone)):
            row = phone.recent[back]
            step = lesson * _LESSON_STEPS[back + 1]
            _correct(phone, error, step, phone.lesson[back, row], phone.errors[back, row])


@compiled
def _n_lessons(phone: Phone) -> int:
    """How many of the last two apps are known and can have corrections."""
    for back in range(2):
        if phone.recent[back] < 0 or not phone.known[phone.recent[back]]:
            return back
    return 2


@compiled
def _correct(phone: Phone, error: Floats, step: float, corrections: Floats, errors: Floats) -> None:
    for i in range(len(error)):
        if phone.known[i]:
            errors[i] = errors[i] * _LESSON_FADE + error[i] * error[i]
            corrections[i] += step * error[i] / math.sqrt(1.0 + errors[i])


@compiled
def _count_transition(phone: Phone, slots: Any, app: int) -> None:
    whole = phone.whole
    k = len(phone.known)
    bucket = phone.bucket[app]
    context = whole[_KIND_2] * _N_KINDS + whole[_KIND_1]
    phone.rhythm[context] *= _PLACE_FADE
    phone.rhythm[context, bucket] += 1.0
    phone.places[:] *= _PLACE_FADE
    phone.places[bucket] += 1.0
    whole[_KIND_2] = whole[_KIND_1]
    whole[_KIND_1] = _kind(bucket)
    phone.hits[:] *= _SINCE_FADE
    phone.trials[:] *= _SINCE_FADE
    for i in range(k):
        if phone.known[i]:
            phone.trials[phone.since[i]] += 1.0
    if phone.known[app]:
        phone.hits[phone.since[app]] += 1.0
    for order in range(2):
        key = _context(phone.recent, order)
        if key < 0:
            continue
        known = slots[order]
        if key in known:
            row = known[key]
        else:
            row = len(known)
            if row == _MAX_CONTEXTS:
                row = np.argmin(phone.used[order])
                del known[phone.keys[order, row]]
                phone.longer[order, row] = 0.0
            known[key] = row
            phone.keys[order, row] = key
        phone.used[order, row] = whole[_SEEN]
        counts = phone.longer[order, row]
        fade = _LONGER_FADES[order]
        for i in range(k):
            if counts[i] > 0.0:
                counts[i] *= fade
                if counts[i] < _LEAST_COUNT:
                    counts[i] = 0.0
        counts[app] += 1.0


@compiled
def _forget_oldest(phone: Phone) -> None:
    """The app unused for longest gives way, and all that was known of it."""
    oldest = -1
    for i in range(len(phone.known)):
        if phone.known[i] and (oldest < 0 or phone.place[i] > phone.place[oldest]):
            oldest = i
    phone.real[_TOTAL] -= phone.launches[oldest]
    phone.whole[_KNOWN] -= 1
    phone.known[oldest] = False
    phone.launches[oldest] = 0.0
    phone.lately[oldest] = 0.0
    phone.in_session[oldest] = 0.0
    phone.after[oldest, :] = 0.0
    phone.after[:, oldest] = 0.0
    phone.hours[:, oldest] = 0.0
    phone.lesson_of[oldest] = 0.0
    phone.errors_of[oldest] = 0.0
    phone.lesson[:, oldest, :] = 0.0
    phone.lesson[:, :, oldest] = 0.0
    phone.errors[:, oldest, :] = 0.0
    phone.errors[:, :, oldest] = 0.0
    phone.longer[:, :, oldest] = 0.0
