"""The functions of `nextapp.predictor`, compiled, over whole logs: the same definition, faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp import predictor
from nextapp.compiled import compiled, usable_in_loops
from nextapp.predictor import Weights
from nextapp.predictors.questions import Indices
from nextapp.wire import Floats

usable_in_loops(*predictor.FUNCTIONS)

_MAX_APPS, _SESSION_GAP = predictor.MAX_APPS, predictor.SESSION_GAP
_LEAST_CHANCE = predictor.LEAST_CHANCE
_new_state, _look, _answer = predictor.new_state, predictor.look, predictor.answer
_observe, _forget = predictor.observe, predictor.forget


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
) -> tuple[Floats, Learnt]:
    """The scores of `Habits` for every prediction asked of these phones, one cell a candidate; and
    the weights that each phone ends with."""
    scores = np.empty(n_cells)
    start = np.array([weights.changed, weights.opening, weights.repeated])
    gate, rates = np.array(weights.gate), np.array([weights.rate, weights.lesson])
    n = len(candidate_starts) - 1
    learnt = Learnt(np.empty((n, *start.shape)), np.empty((n, len(gate))))
    _answers(streams, candidate_starts, start, gate, rates, crowd, scores, learnt)
    return scores, learnt


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
) -> None:
    nothing: Floats = np.zeros(0)
    first_pair = 0  # cell of `pair_share` with which those of a phone begin
    for v in range(len(candidate_starts) - 1):
        k = candidate_starts[v + 1] - candidate_starts[v]
        room = min(k, _MAX_APPS)
        state = _new_state(room, start, gate, rates)
        slots, apps = np.full(k, -1), np.zeros(room, np.int64)
        share, own_share, told = nothing, nothing, 0.0
        last = -1
        cell = streams.cell[v]
        for row in range(streams.starts[v], streams.starts[v + 1]):
            app, when = streams.launches[row], streams.seconds[row]
            clock = state.clock[0]
            asked = streams.asked[row]
            view = _look(state, when if streams.timed or not asked else clock)
            if asked:
                chances = _answer(state, view, slots, share, told)
                scores[cell : cell + k] = np.log(np.maximum(chances, _LEAST_CHANCE))
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
            _observe(state, view, slot, when, new, own_share, told)
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
        learnt.mix[v] = state.mix
        learnt.gate[v] = state.gate[0]
