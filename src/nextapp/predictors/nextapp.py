"""`NextApp`: each phone predicts by its own habits, brought up to date launch by launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nextapp import predictor
from nextapp.data.log import Indices, LaunchLog
from nextapp.predictor import Weights
from nextapp.predictors import Questions, Streams, launch_streams
from nextapp.predictors.pooled import Pooled, Tables
from nextapp.predictors.predictor_loop import CrowdCells, answers, loop_for
from nextapp.wire import Crowd, Floats

NAME = "nextapp"


class NextApp:
    """What a phone with `nextapp.predictor.Habits` predicts.

    The statistics come from the history and go on with every launch of the test part once it has
    been revealed, those that nobody is asked about included. ``crowd`` is what all phones start
    from, or how it is learnt from the history, such as `Pooled`.
    """

    in_expectation = False
    scores_are_log_chances = True

    def __init__(
        self,
        weights: Weights = predictor.DEFAULT,
        name: str = NAME,
        crowd: Crowd | Callable[[LaunchLog], Crowd | Pooled] | None = None,
    ) -> None:
        self.weights = weights
        self.name = name
        self.crowd_from = crowd
        self.crowd: Crowd | Pooled | None = None

    def fit(self, history: LaunchLog) -> None:
        self.history = history
        self.crowd = self.crowd_from(history) if callable(self.crowd_from) else self.crowd_from
        self.loop = loop_for(len(history))

    def score(self, questions: Questions) -> Floats:
        streams, starts = launch_streams(self.history, questions), questions.candidate_starts
        cells = crowd_cells(self.crowd, questions.users, questions.candidates, starts, streams)
        n_cells = int(questions.cell_starts[-1])
        return answers(streams, starts, n_cells, self.weights, cells, self.loop)


def crowd_cells(
    crowd: Crowd | Pooled | None,
    users: Indices,
    candidates: Indices,
    starts: Indices,
    streams: Streams | None = None,
) -> CrowdCells:
    """What the crowd says of the candidates of phones, those of phone v from starts[v] on.

    What a `Pooled` crowd says to a phone leaves out its own launches. With ``streams`` only what
    comes after the apps that are launched there.
    """
    tables = []
    for v, user in enumerate(users.tolist() if crowd is not None else ()):
        own = candidates[starts[v] : starts[v + 1]].astype(np.int64)
        if isinstance(crowd, Pooled):
            launched = None
            if streams is not None:
                launched = own[np.unique(streams.launches[slice(*streams.starts[v : v + 2])])]
            tables.append(crowd.others(user).tables(own, launched))
        elif crowd is not None:
            share = np.array([crowd.shares(own, last)[0] for last in own.tolist()])
            unknown = np.full(len(own) ** 2, -1)
            tables.append(Tables(share, unknown, np.zeros((0, len(own))), np.zeros(0)))
    return CrowdCells(
        share=np.concatenate([np.zeros(0), *(table.share.ravel() for table in tables)]),
        share_starts=np.cumsum([0, *(table.share.size for table in tables)]),
        pair_of=np.concatenate([np.zeros(0, np.int64), *(table.pair_of for table in tables)]),
        pair_share=np.concatenate([np.zeros(0), *(table.pair_share.ravel() for table in tables)]),
        support=np.concatenate([np.zeros(0), *(table.support for table in tables)]),
        pair_starts=np.cumsum([0, *(len(table.support) for table in tables)]),
    )


def online_scores(
    apps: Indices,
    seconds: Floats,
    candidates: Indices,
    crowd: Crowd | None = None,
) -> Floats:
    """(n_launches, n_candidates): one phone from its first launch on, each launch predicted at its
    moment and before it is seen. Candidates ascend, and hold every app launched."""
    starts = np.array([0, len(candidates)])
    streams = Streams(
        starts=np.array([0, len(seconds)]),
        launches=np.searchsorted(candidates, apps[: len(seconds)]),
        seconds=seconds,
        asked=np.ones(len(seconds), bool),
        cell=np.zeros(1, np.intp),
        timed=np.ones(len(seconds), bool),
    )
    n_cells = len(seconds) * len(candidates)
    cells = crowd_cells(crowd, np.zeros(1, np.intp), candidates, starts)
    scores = answers(streams, starts, n_cells, predictor.DEFAULT, cells, loop_for(len(seconds)))
    return scores.reshape(len(seconds), len(candidates))
