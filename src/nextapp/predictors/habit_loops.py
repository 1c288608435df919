"""`nextapp.habits.Habits` as a compiled loop over whole logs: a second form of the same statistics.

Written for speed, equal to the first to 1e-10 (tests/predictors/test_nextapp.py): a phone is a set
of arrays over its k candidates, an app's place in them stands for the app.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.typed import Dict

from nextapp import habits
from nextapp.predictors.questions import Indices
from nextapp.randomness.compiled import compiled
from nextapp.wire import Floats

_N = len(habits.STATISTICS)
(
    _FREQUENCY, _LATELY, _AFTER_1, _AFTER_2, _AFTER_4,
    _PLACE, _RHYTHM, _SINCE, _HOUR, _SESSION, _LESSON,
) = range(_N)  # fmt: skip
_OFFSETS = np.array(habits.AGAIN)
_AGAIN_FADE, _AGAIN_START, _AGAIN_LEAN = habits.AGAIN_FADE, habits.AGAIN_START, habits.AGAIN_LEAN
_FREQUENCY_FADE, _LATELY_FADE = habits.FREQUENCY_FADE, habits.LATELY_FADE
_PLACE_FADE, _SINCE_FADE = habits.PLACE_FADE, habits.SINCE_FADE
_AFTER_FADE, _HOUR_FADE = habits.AFTER_FADE, habits.HOUR_FADE
_LONGER_FADES = (habits.AFTER_2_FADE, habits.AFTER_4_FADE)
_FREQUENCY_PRIOR, _LATELY_PRIOR = habits.FREQUENCY_PRIOR, habits.LATELY_PRIOR
_AFTER_PRIOR, _LONGER_PRIOR = habits.AFTER_PRIOR, habits.LONGER_PRIOR
_HOUR_PRIOR, _RHYTHM_PRIOR = habits.HOUR_PRIOR, habits.RHYTHM_PRIOR
_SINCE_PRIOR, _PLACE_PRIOR = habits.SINCE_PRIOR, habits.PLACE_PRIOR
_CROWD_WEIGHT, _CROWD_SHARE = habits.CROWD_WEIGHT, habits.CROWD_SHARE
_ODDS, _N_ODDS = np.array(habits.CROWD_ODDS), len(habits.CROWD_ODDS)
_TRUST_FADE, _TRUST_START = habits.TRUST_FADE, np.array(habits.TRUST_START)
_FIRST_LEAD, _ABOVE, _LEAST = habits.FIRST_LEAD, 1.0 + 1e-9, 1e-9
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
    again: Floats
    trust: Floats  # (2, 2, n_odds): gain, squares
    features: Floats
    scores: Floats
    popular: Floats
    since: npt.NDArray[np.int64]
    bucket: npt.NDArray[np.int64]
    error: Floats


class Streams(NamedTuple):
    """What the phones of a chunk of questions saw, in the order they saw it.

    Phone v saw the launches ``starts[v]:starts[v + 1]``. Where ``asked`` holds, the scores before
    the launch are wanted: k cells from ``cell[v]`` on, prediction after prediction.
    """

    starts: Indices
    launches: Indices
    seconds: Floats
    asked: npt.NDArray[np.bool_]
    cell: Indices


class CrowdCells(NamedTuple):
    """`Crowd.cells` for the candidates of a chunk, each of a phone's candidates being the last app.

    ``share`` has k x k cells a phone. All are empty where there is no crowd.
    """

    popular: Floats
    share: Floats
    rest: Floats
    share_starts: Indices


def answers(
    streams: Streams,
    candidate_starts: Indices,
    n_cells: int,
    weights: habits.Weights,
    crowd: CrowdCells,
) -> tuple[Floats, Floats]:
    """The scores of `Habits` for every prediction asked of these phones, one cell a candidate; and
    the weights that each phone ends with, (n_phones, 2, n_statistics)."""
    width = np.diff(candidate_starts)
    if len(width) and width.max() >= _CODES:
        raise ValueError(f"a phone can have {_CODES - 1} apps at most, got {width.max()}.")
    scores = np.empty(n_cells)
    mixes = np.empty((len(width), 2, _N))
    _answers(
        streams,
        candidate_starts,
        np.array([weights.within, weights.opening]),
        weights.rate,
        weights.lesson,
        weights.again,
        crowd,
        scores,
        mixes,
    )
    return scores, mixes


@compiled
def _answers(
    streams: Streams,
    candidate_starts: Indices,
    start: Floats,
    rate: float,
    lesson: float,
    again: float,
    crowd: CrowdCells,
    scores: Floats,
    mixes: Floats,
) -> None:
    for v in range(len(candidate_starts) - 1):
        own = slice(candidate_starts[v], candidate_starts[v + 1])
        k = candidate_starts[v + 1] - candidate_starts[v]
        first, end = streams.starts[v], streams.starts[v + 1]
        crowded = len(crowd.popular) > 0
        cells = slice(crowd.share_starts[v], crowd.share_starts[v + 1]) if crowded else slice(0, 0)
        told = crowd.share[cells].reshape((k, k) if crowded else (0, 0))
        phone = _new_phone(k, end - first, start)
        slots = (
            Dict.empty(types.int64, types.int64),
            Dict.empty(types.int64, types.int64),
        )
        cell = streams.cell[v]
        for row in range(first, end):
            app, when = streams.launches[row], streams.seconds[row]
            opening = when - phone.real[_LAST_TIME] > _SESSION_GAP
            looked = streams.asked[row]
            if looked:
                _look(phone, slots, phone.real[_LAST_TIME], False, start)
                scores[cell : cell + k] = phone.scores
                _finish(phone, again, scores[cell : cell + k])
                if crowded:
                    _mix_crowd(
                        phone, crowd.popular[own], told, crowd.rest[own], scores[cell : cell + k]
                    )
                cell += k
            if phone.whole[_KNOWN] > 0 and (opening or not looked):
                moment = when if opening else phone.real[_LAST_TIME]
                _look(phone, slots, moment, opening, start)
            if crowded and phone.known[app]:
                _learn_trust(
                    phone, crowd.popular[own], told, crowd.rest[own], app, 0.0 if opening else again
                )
            _observe(phone, slots, app, when, opening, rate, lesson, start)
        mixes[v] = phone.mix


@compiled
def _new_phone(k: int, n: int, start: Floats) -> Phone:
    contexts = min(_MAX_CONTEXTS, n)
    whole = np.zeros(4, np.int64)
    whole[_KIND_1], whole[_KIND_2] = _N_KINDS - 1, _N_KINDS - 1
    again = np.zeros(len(_OFFSETS))
    again[0] = _AGAIN_START
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
        again,
        np.zeros((2, 2, _N_ODDS)),
        np.zeros((_N, k)),
        np.zeros(k),
        np.zeros(k),
        np.zeros(k, np.int64),
        np.zeros(k, np.int64),
        np.zeros(k),
    )


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
def _finish(phone: Phone, again: float, scores: Floats) -> None:
    """What `Habits.scores` settles outside the sum: the offset of the last app, apps unknown."""
    k, n = len(scores), phone.whole[_KNOWN]
    if n == 0:
        scores[:] = 0.0
        return
    if n < k:
        highest = -np.inf
        for i in range(k):
            if phone.known[i]:
                highest = max(highest, scores[i])
        total = 0.0
        for i in range(k):
            if phone.known[i]:
                total += math.exp(scores[i] - highest)
        new = phone.places[_NEW] / phone.places.sum()
        score = highest + math.log(total) + math.log(new / (1.0 - new) / (k - n))
        for i in range(k):
            if not phone.known[i]:
                scores[i] = score
    last = phone.recent[0]
    if n > 1 and last >= 0 and phone.known[last]:
        best = int(np.argmax(phone.again))
        largest = len(_OFFSETS) - 1
        if 2.0 * phone.places[0] > phone.places.sum() and (
            best == largest or phone.again[largest] + _AGAIN_LEAN > phone.again[best]
        ):
            best = largest
        scores[last] += again * _OFFSETS[best]


@compiled
def _count_again(phone: Phone, app: int) -> None:
    last = phone.recent[0]
    if phone.whole[_KNOWN] < 2 or last < 0 or not phone.known[last]:
        return
    best = -1
    for i in range(len(phone.known)):
        if phone.known[i] and i != last and (best < 0 or phone.scores[i] > phone.scores[best]):
            best = i
    for number in range(len(_OFFSETS)):
        phone.again[number] *= _AGAIN_FADE
        same = phone.scores[last] + _OFFSETS[number] > phone.scores[best]
        if (same and app == last) or (not same and app == best):
            phone.again[number] += 1.0


@compiled
def _mix_crowd(phone: Phone, popular: Floats, share: Floats, rest: Floats, scores: Floats) -> None:
    """`habits.mixed_with_crowd`, in place."""
    last = phone.recent[0]
    own = np.exp(scores - scores.max())
    own /= own.sum()
    seen = phone.real[_TOTAL]
    filled = (seen * own + _CROWD_WEIGHT * popular) / (seen + _CROWD_WEIGHT)
    expected = filled
    if last >= 0:
        told = share[last] + rest[last] * filled
        expected = _CROWD_SHARE * told + (1.0 - _CROWD_SHARE) * filled
    first, others = _trusted(phone, 0), _trusted(phone, 1)
    weight = _crowd_weight(phone, others)
    scores[:] = np.log((1.0 - weight) * own + weight * expected)
    if first != others:
        weight = _crowd_weight(phone, first)
        best = np.argmax((1.0 - weight) * own + weight * expected)
        highest = scores.max()
        if scores[best] < highest:
            scores[best] = highest + _FIRST_LEAD


@compiled
def _crowd_weight(phone: Phone, number: int) -> float:
    last = phone.recent[0]
    n_after = 0.0
    if last >= 0 and phone.known[last]:
        n_after = phone.after[last].sum()
    told = _CROWD_WEIGHT * _ODDS[number]
    return float(told / (told + _CROWD_WEIGHT + n_after))


@compiled
def _trusted(phone: Phone, row: int) -> int:
    """`Trust.odds`: which of them, for the first place or for the order of the others."""
    best, most = 0, 0.0
    for number in range(1, _N_ODDS):
        noise = math.sqrt(_TRUST_START[row] + phone.trust[1, row, number])
        beyond = phone.trust[0, row, number] - noise
        if beyond > most:
            best, most = number, beyond
    return best


@compiled
def _learn_trust(
    phone: Phone, popular: Floats, share: Floats, rest: Floats, app: int, again: float
) -> None:
    """`Habits._learn_trust`; the cells among the apps known follow from those of all candidates."""
    last, known = phone.recent[0], phone.known
    own = phone.scores.copy()
    _finish(phone, again, own)
    own[~known] = -np.inf
    own = np.exp(own - own.max())
    own /= own.sum()
    total = popular[known].sum()
    weight = share[last][known].sum() + rest[last] * total
    seen = phone.real[_TOTAL]
    filled = (seen * own + _CROWD_WEIGHT * popular / total) / (seen + _CROWD_WEIGHT)
    told = filled
    if weight >= _LEAST:
        told = share[last] / weight + rest[last] * total / weight * filled
    expected = _CROWD_SHARE * told + (1.0 - _CROWD_SHARE) * filled
    usual = np.zeros(2)
    for number in range(_N_ODDS):
        weight = _crowd_weight(phone, number)
        likely = (1.0 - weight) * own + weight * expected
        above = 0
        for i in range(len(known)):
            if known[i] and likely[i] > likely[app] * _ABOVE:
                above += 1
        hits = np.array([1.0 * (above < 1), 1.0 * (above < 3) + 1.0 * (above < 5)])
        if number == 0:
            usual = hits
        for row in range(2):
            better = hits[row] - usual[row]
            gain, squares = phone.trust[0, row], phone.trust[1, row]
            gain[number] = gain[number] * _TRUST_FADE + better
            squares[number] = squares[number] * _TRUST_FADE + better * better


@compiled
def _observe(
    phone: Phone,
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
        if phone.known[app]:
            _learn(phone, app, 1 if opening else 0, rate, lesson, start)
        if not opening:
            _count_again(phone, app)
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
            phone.squares[number, f] += slope * slope
            phone.mix[number, f] += rate * slope / math.sqrt(phone.squares[number, f])
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
