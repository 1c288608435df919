"""`NextApp`: each phone predicts by its own habits, brought up to date launch by launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nextapp import predictor
from nextapp.data.log import LaunchLog
from nextapp.predictor import Weights
from nextapp.predictors.pooled import Pooled, Tables
from nextapp.predictors.predictor_loop import CrowdCells, Learnt, Streams, answers
from nextapp.predictors.questions import Indices, Predictor, Questions
from nextapp.wire import Crowd, Floats

NAME = "nextapp"


class NextApp:
    """What a phone with `nextapp.predictor.Habits` predicts.

    The statistics come from the history and go on with every launch of the test part once it has
    been revealed, those that nobody is asked about included. ``taste`` gives the SeqMF scores,
    where they are to be mixed in; ``crowd`` is what all phones start from, or how
    it is learnt from the history, such as `pool_phones`.
    """

    in_expectation = False

    @property
    def scores_are_log_chances(self) -> bool:
        """Not where taste is mixed in."""
        return self.taste is None

    def __init__(
        self,
        weights: Weights = predictor.DEFAULT,
        name: str = NAME,
        taste: Predictor | None = None,
        crowd: Crowd | Callable[[LaunchLog], Crowd | Pooled] | None = None,
    ) -> None:
        self.weights = weights
        self.name = name
        self.taste = taste if weights.taste else None
        self.crowd_from = crowd
        self.crowd: Crowd | Pooled | None = None

    def fit(self, history: LaunchLog) -> None:
        self.history = history
        self.crowd = self.crowd_from(history) if callable(self.crowd_from) else self.crowd_from
        if self.taste is not None:
            self.taste.fit(history)

    def score(self, questions: Questions) -> Floats:
        scores, _ = self.answers(questions)
        if self.taste is not None:
            scores += self.weights.taste * _standardise(questions, self.taste.score(questions))
        return scores

    def answers(self, questions: Questions) -> tuple[Floats, Learnt]:
        """The scores without taste, and the weights each phone ends with."""
        streams, starts = launch_streams(self.history, questions), questions.candidate_starts
        told = crowd_cells(self.crowd, questions.users, questions.candidates, starts, streams)
        return answers(streams, starts, int(questions.cell_starts[-1]), self.weights, told)


def launch_streams(history: LaunchLog, questions: Questions) -> Streams:
    """History, then the sessions and what passed between them, phone by phone."""
    starts = questions.candidate_starts
    begin, end = history.starts[questions.users], history.starts[questions.users + 1]
    n_old = end - begin
    old_phone = np.repeat(np.arange(len(questions.users)), n_old)
    first = np.repeat(np.cumsum(n_old) - n_old, n_old)
    old_rows = np.repeat(begin, n_old) + np.arange(len(old_phone)) - first
    keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * history.n_apps
    places = np.searchsorted(
        keys + questions.candidates, old_phone * history.n_apps + history.app[old_rows]
    )

    n_passed, n_asked = np.diff(questions.passed_starts), np.diff(questions.session_starts)
    asked = np.ones(len(questions.launches), bool)
    asked[questions.session_starts[:-1]] = False
    phone = np.concatenate(
        [
            old_phone,
            np.repeat(questions.session_user, n_passed),
            np.repeat(questions.session_user, n_asked),
        ]
    )
    session = np.arange(len(n_asked))
    turn = np.concatenate(
        [
            np.full(len(old_phone), -1),
            np.repeat(2 * session, n_passed),
            np.repeat(2 * session + 1, n_asked),
        ]
    )
    order = np.lexsort((turn, phone))
    launches = np.concatenate([places - starts[old_phone], questions.passed, questions.launches])
    times = np.concatenate([history.time[old_rows], questions.passed_times, questions.times])
    unasked = np.zeros(len(old_phone) + len(questions.passed), bool)
    first_session = np.searchsorted(questions.session_user, np.arange(len(questions.users)))
    return Streams(
        starts=np.searchsorted(phone[order], np.arange(len(questions.users) + 1)),
        launches=launches[order],
        seconds=times[order] / 1000.0,
        asked=np.concatenate([unasked, asked])[order],
        cell=questions.cell_starts[first_session],
    )


def crowd_cells(
    crowd: Crowd | Pooled | None,
    users: Indices,
    candidates: Indices,
    starts: Indices,
    streams: Streams | None = None,
) -> CrowdCells:
    """What the crowd says of the candidates of phones, those of phone v from starts[v] on.

    What a phone is told by a `Pooled` crowd leaves out its own launches. With ``streams`` only what
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
        told=np.concatenate([np.zeros(0), *(table.told for table in tables)]),
        pair_starts=np.cumsum([0, *(len(table.told) for table in tables)]),
    )


def online_scores(
    apps: Indices,
    seconds: Floats,
    candidates: Indices,
    crowd: Crowd | None = None,
    weights: Weights = predictor.DEFAULT,
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
        timed=True,
    )
    n_cells = len(seconds) * len(candidates)
    told = crowd_cells(crowd, np.zeros(1, np.intp), candidates, starts)
    scores, _ = answers(streams, starts, n_cells, weights, told)
    return scores.reshape(len(seconds), len(candidates))


def _standardise(questions: Questions, taste: Floats) -> Floats:
    """Each prediction's scores less their mean, by their standard deviation."""
    width = np.diff(questions.candidate_starts)[questions.session_user]
    sizes = np.repeat(width, np.diff(questions.session_starts) - 1)
    starts = np.cumsum(sizes) - sizes
    mean = np.repeat(np.add.reduceat(taste, starts) / sizes, sizes)
    spread = np.sqrt(np.add.reduceat((taste - mean) ** 2, starts) / sizes)
    standard: Floats = (taste - mean) / np.repeat(np.where(spread > 0, spread, 1.0), sizes)
    return standard
