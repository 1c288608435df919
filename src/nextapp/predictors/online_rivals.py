"""The rivals that count, in a form that goes on learning through the test part.

The forms in `nextapp.predictors.rivals` stop learning where the history ends, as in the paper. A
phone would not: these see what `nextapp` sees, launch by launch.
"""

from __future__ import annotations

import numpy as np

from nextapp.compiled import compiled
from nextapp.data.log import LaunchLog
from nextapp.predictors.nextapp import launch_streams
from nextapp.predictors.predictor_loop import Streams
from nextapp.predictors.questions import Indices, Questions
from nextapp.predictors.rivals import SR, SROnDevice
from nextapp.predictors.scoring import table_pairs, table_starts
from nextapp.wire import Floats

_LAST_USE, _LAUNCHES, _FOLLOWERS = range(3)  # what a score is


class _OnlineRival:
    in_expectation = False
    score_is = _LAST_USE

    def fit(self, history: LaunchLog) -> None:
        self.history = history

    def score(self, questions: Questions) -> Floats:
        scores = np.empty(int(questions.cell_starts[-1]))
        _play(
            launch_streams(self.history, questions),
            questions.candidate_starts,
            table_starts(questions),
            self._start(questions),
            self.score_is,
            scores,
        )
        return scores

    def _start(self, questions: Questions) -> Floats:
        """What is counted from the start, flat, k x k cells for each phone."""
        return np.zeros(int(table_starts(questions)[-1]))


class OnlineMRU(_OnlineRival):
    """The later an app was launched, in this session or before it, the better."""

    name = "mru-online"


class OnlineMFU(_OnlineRival):
    """How often the user launched the app so far."""

    name = "mfu-online"
    score_is = _LAUNCHES


class OnlineSROnDevice(_OnlineRival):
    """How often the app came right after the last one so far, on this phone."""

    name = "sr-od-online"
    score_is = _FOLLOWERS


class OnlineSR(OnlineSROnDevice):
    """The same, and on all other phones until the history ends."""

    name = "sr-online"

    def _start(self, questions: Questions) -> Floats:
        counts = []
        for rule in (SR(), SROnDevice()):
            rule.fit(self.history)
            counts.append(rule.rules.at(rule._keys(*table_pairs(questions))))
        everybody, own = counts
        return everybody - own  # this phone's own are counted as they come


@compiled
def _play(
    streams: Streams,
    candidate_starts: Indices,
    starts: Indices,
    start: Floats,
    score_is: int,
    scores: Floats,
) -> None:
    for v in range(len(candidate_starts) - 1):
        k = candidate_starts[v + 1] - candidate_starts[v]
        last_use, launches = np.full(k, -1.0), np.zeros(k)
        followers = start[starts[v] : starts[v + 1]].copy().reshape((k, k))
        last = -1
        cell = streams.cell[v]
        for row in range(streams.starts[v], streams.starts[v + 1]):
            app = streams.launches[row]
            if streams.asked[row]:
                if score_is == _LAST_USE:
                    scores[cell : cell + k] = last_use
                elif score_is == _LAUNCHES:
                    scores[cell : cell + k] = launches
                else:  # there is a launch before every one that is asked for
                    scores[cell : cell + k] = followers[last]
                cell += k
            last_use[app] = row
            launches[app] += 1.0
            if last >= 0:
                followers[last, app] += 1.0
            last = app
