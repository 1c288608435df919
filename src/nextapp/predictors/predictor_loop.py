"""The functions of `nextapp.predictor` over whole logs: compiled where the log is large."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp import predictor
from nextapp.compiled import cache_folder, compiled, loop_of, usable_in_loops
from nextapp.data.log import Indices
from nextapp.predictor import Weights
from nextapp.predictors import Streams
from nextapp.wire import Floats

usable_in_loops(*predictor.FUNCTIONS)

_MAX_APPS, _SESSION_GAP = predictor.MAX_APPS, predictor.SESSION_GAP
_LEAST_CHANCE = predictor.LEAST_CHANCE
_new_state, _look, _answer = predictor.new_state, predictor.look, predictor.answer
_observe, _forget = predictor.observe, predictor.forget
_crowd_evidence = predictor.crowd_evidence


class CrowdCells(NamedTuple):
    """What the crowd says of the k candidates of each phone; all are empty where there is none.

    ``share`` has k rows of k cells for each phone, a row for each last app. Where the crowd
    knows what comes after ``before`` and ``last``, ``pair_of`` [before·k + last] is the row of
    ``pair_share`` that takes its place, else -1, and ``support`` on how many launches it rests.
    """

    share: Floats
    share_starts: Indices
    pair_of: npt.NDArray[np.int64]
    pair_share: Floats  # rows of all phones one after the other, each as long as its phone's k
    support: Floats
    pair_starts: Indices


Loop = Callable[..., None]
SECONDS = 1.5e-4  # that plain Python needs for a launch
COMPILING = 8.0  # seconds to compile the loop, at least


def loop_for(n_launches: int) -> Loop:
    """The loop for a log of this many launches: as plain Python, or compiled.

    Chosen once for all phones of a log: the two forms differ in the last bits.
    """
    while _compiling_ahead:
        _compiling_ahead.pop().wait()
    return loop_of(_answers).form(SECONDS * n_launches, COMPILING)


_compiling_ahead: list[subprocess.Popen[bytes]] = []
_AHEAD = "from nextapp.predictors.predictor_loop import compile_now; compile_now()"


def compile_ahead() -> None:
    """Compile the loop in another process while this one does something else; `loop_for` waits.

    For a command that knows that it will need the machine code, and has much to do before.
    """
    if cache_folder(Path(__file__)) is not None and not loop_of(_answers).is_on_disk():
        _compiling_ahead.append(
            subprocess.Popen([sys.executable, "-c", _AHEAD], stderr=subprocess.DEVNULL)
        )


def compile_now() -> None:
    """Compile the loop, and run it for a phone without launches."""
    nowhere, nothing, starts = np.zeros(0, np.intp), np.zeros(0), np.zeros(2, np.intp)
    never = np.zeros(0, bool)
    streams = Streams(starts, nowhere, nothing, never, np.zeros(1, np.intp), never)
    crowd = CrowdCells(nothing, starts, nowhere, nothing, nothing, starts)
    machine = loop_of(_answers).form(math.inf)
    answers(streams, np.array([0, 1]), 0, predictor.DEFAULT, crowd, machine)


def answers(
    streams: Streams,
    candidate_starts: Indices,
    n_cells: int,
    weights: Weights,
    crowd: CrowdCells,
    loop: Loop,
) -> Floats:
    """The scores of `Habits` for every prediction asked of these phones, one cell a candidate."""
    scores = np.empty(n_cells)
    gate = np.array(weights.gate)
    loop(streams, candidate_starts, weights.start, gate, weights.rates, crowd, scores)
    return scores


@compiled
def _answers(
    streams: Streams,
    candidate_starts: Indices,
    start: Floats,
    gate: Floats,
    rates: Floats,
    crowd: CrowdCells,
    scores: Floats,
) -> None:
    nothing: Floats = np.zeros(0)
    first_pair = 0  # cell of `pair_share` with which those of a phone begin
    for v in range(len(candidate_starts) - 1):
        k = candidate_starts[v + 1] - candidate_starts[v]
        room = min(k, _MAX_APPS)
        state = _new_state(room, start, gate, rates)
        slots, apps = np.full(k, -1), np.zeros(room, np.int64)
        share, own_share, support, evidence = nothing, nothing, 0.0, nothing
        last = -1
        cell = streams.cell[v]
        for row in range(streams.starts[v], streams.starts[v + 1]):
            app, when = streams.launches[row], streams.seconds[row]
            clock = state.clock[0]
            timed = streams.timed[row]
            view = _look(state, when if timed else clock)
            if len(share) > 0:
                evidence = _crowd_evidence(view, support)
            if streams.asked[row]:
                chances = _answer(state, view, slots, share, evidence)
                scores[cell : cell + k] = np.log(np.maximum(chances, _LEAST_CHANCE))
                cell += k
                if not timed and when - clock > _SESSION_GAP:
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
                share, support = crowd.share[first : first + k], 0.0
                if last >= 0:
                    pair = crowd.pair_of[crowd.share_starts[v] + last * k + app]
                    if pair >= 0:
                        share = crowd.pair_share[
                            first_pair + pair * k : first_pair + (pair + 1) * k
                        ]
                        support = crowd.support[crowd.pair_starts[v] + pair]
                own_share = share[apps[: state.known[0]]]
            last = app
        if len(crowd.share) > 0:
            first_pair += (crowd.pair_starts[v + 1] - crowd.pair_starts[v]) * k
