"""The functions of `nextapp.predictor`, compiled, over whole logs: the same definition, faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp import predictor
from nextapp.compiled import compiled, usable_in_loops
from nextapp.predictor import State, View, Weights
from nextapp.predictors.questions import Indices
from nextapp.wire import Floats

usable_in_loops(*predictor.FUNCTIONS)

_MAX_APPS, _SESSION_GAP = predictor.MAX_APPS, predictor.SESSION_GAP
_LEAST_CHANCE = predictor.LEAST_CHANCE
_new_state, _look, _answer = predictor.new_state, predictor.look, predictor.answer
_observe, _forget = predictor.observe, predictor.forget
_crowd_evidence = predictor.crowd_evidence


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
    """What the crowd says of the k candidates of each phone; all are empty where there is none.

    ``share`` has k rows of k cells for each phone, a row for each last app. Where the crowd
    knows what comes after ``before`` and ``last``, ``pair_of`` [before·k + last] is the row of
    ``pair_share`` that takes its place, else -1, and ``told`` on how many launches it rests.
    """

    share: Floats
    share_starts: Indices
    pair_of: npt.NDArray[np.int64]
    pair_share: Floats  # rows of all phones one after the other, each as long as its phone's k
    told: Floats
    pair_starts: Indices


class Seen(NamedTuple):
    """What was seen of the likeliest candidates of every launch asked for, likeliest first.

    All are empty where it is not wanted. ``features`` (n_asked, n, len(SEEN)), ``candidates``
    (n_asked, n) are places among the k of the phone, -1 where there are fewer, and ``launched``
    (n_asked,) is the place of the app that came.
    """

    features: npt.NDArray[np.float32]
    candidates: npt.NDArray[np.int32]
    launched: npt.NDArray[np.int32]


SEEN = (
    *predictor.STATISTICS, "score", "share of the crowd", "launches of the crowd",
    "launches after the last app", "launches after the last two", "place", "age", "time of day",
    "apps", "set of weights",
)  # fmt: skip
_N_STATISTICS, _AT_HOUR, _FIRST_HOUR, _ADDED = (
    predictor.N_STATISTICS, predictor.AT_HOUR, predictor.FIRST_HOUR, predictor.ADDED,
)  # fmt: skip


def empty_record() -> Seen:
    return record_for(0, 0)


def record_for(n_asked: int, n_candidates: int) -> Seen:
    """Room for so many launches."""
    return Seen(
        np.zeros((n_asked, n_candidates, len(SEEN)), np.float32),
        np.full((n_asked, n_candidates), -1, np.int32),
        np.zeros(n_asked, np.int32),
    )


class Learnt(NamedTuple):
    """The weights that phones end with, (n_phones, …): sets by statistics, and the gate."""

    mix: Floats
    gate: Floats


def answers(
    streams: Streams,
    candidate_starts: Indices,
    n_cells: int,
    weights: Weights,
    crowd: CrowdCells,
    seen: Seen | None = None,
) -> tuple[Floats, Learnt]:
    """The scores of `Habits` for every prediction asked of these phones, one cell a candidate; and
    the weights that each phone ends with. What was seen is written to `seen`, if given."""
    scores = np.empty(n_cells)
    start, gate = weights.start, np.array(weights.gate)
    n = len(candidate_starts) - 1
    learnt = Learnt(np.empty((n, *start.shape)), np.empty((n, len(gate))))
    seen = empty_record() if seen is None else seen
    _answers(streams, candidate_starts, start, gate, weights.rates, crowd, scores, learnt, seen)
    return scores, learnt


@compiled
def _note(
    seen: Seen,
    number: int,
    state: State,
    view: View,
    slots: Indices,
    scores: Floats,
    share: Floats,
    told: float,
) -> None:
    best = np.argsort(-scores)[: seen.candidates.shape[1]]
    for at in range(len(best)):
        i, slot = best[at], slots[best[at]]
        seen.candidates[number, at] = i
        features = seen.features[number, at]
        features[:_N_STATISTICS] = np.nan
        features[_N_STATISTICS:] = np.array([
            scores[i], 0.0, told, view.seen, view.seen_pair, -1.0, -1.0,
            float(view.rows[_AT_HOUR] - _FIRST_HOUR), float(state.known[0]), float(view.number),
        ])  # fmt: skip
        if len(share) > 0:
            features[_N_STATISTICS + 1] = share[i]
        if slot >= 0:
            features[:_N_STATISTICS] = view.features[:, slot]
            features[_N_STATISTICS + 5] = state.place[slot]
            features[_N_STATISTICS + 6] = view.ages[slot]


@compiled
def _answers(
    streams: Streams,
    candidate_starts: Indices,
    start: Floats,
    gate: Floats,
    rates: Floats,
    crowd: CrowdCells,
    scores: Floats,
    learnt: Learnt,
    seen: Seen,
) -> None:
    nothing: Floats = np.zeros(0)
    first_pair = 0  # cell of `pair_share` with which those of a phone begin
    number = 0  # of the launch asked for
    for v in range(len(candidate_starts) - 1):
        k = candidate_starts[v + 1] - candidate_starts[v]
        room = min(k, _MAX_APPS)
        state = _new_state(room, start, gate, rates)
        slots, apps = np.full(k, -1), np.zeros(room, np.int64)
        share, own_share, told, evidence = nothing, nothing, 0.0, nothing
        last = -1
        cell = streams.cell[v]
        for row in range(streams.starts[v], streams.starts[v + 1]):
            app, when = streams.launches[row], streams.seconds[row]
            clock = state.clock[0]
            asked = streams.asked[row]
            view = _look(state, when if streams.timed or not asked else clock)
            if len(share) > 0:
                evidence = _crowd_evidence(view, told)
            if asked:
                chances = _answer(state, view, slots, share, evidence)
                scores[cell : cell + k] = np.log(np.maximum(chances, _LEAST_CHANCE))
                if len(seen.launched) > 0:
                    seen.launched[number] = app
                    _note(seen, number, state, view, slots, scores[cell : cell + k], share, told)
                    number += 1
                cell += k
                if not streams.timed and when - clock > _SESSION_GAP:
                    view = _look(state, when)
            slot, new = slots[app], slots[app] < 0
            if new:
                slot = state.known[0]
                if slot == room:
                    slot = int(np.argmax(state.place))
                    slots[apps[slot]] = -1
                    _forget(state, slot)
                slots[app], apps[slot] = slot, app
            _observe(state, view, slot, when, new, own_share, evidence)
            if len(crowd.share) > 0:
                first = crowd.share_starts[v] + app * k
                share, told = crowd.share[first : first + k], 0.0
                if last >= 0:
                    pair = crowd.pair_of[crowd.share_starts[v] + last * k + app]
                    if pair >= 0:
                        share = crowd.pair_share[
                            first_pair + pair * k : first_pair + (pair + 1) * k
                        ]
                        told = crowd.told[crowd.pair_starts[v] + pair]
                own_share = share[apps[: state.known[0]]]
            last = app
        if len(crowd.share) > 0:
            first_pair += (crowd.pair_starts[v + 1] - crowd.pair_starts[v]) * k
        learnt.mix[v] = state.mix[:_ADDED]
        learnt.gate[v] = state.gate[0]
