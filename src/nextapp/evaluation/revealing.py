"""Iterative revealing: the questions for every predictor, and the ranks of the true apps.

How is asked and counted is a preset: as the authors did, as the paper's text says, as a phone would
see it, or as papers on neural networks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.compiled import loop
from nextapp.data.cutting import (
    DAY_MS,
    Parts,
    Split,
    TooFewDays,
    collapse_repeats,
    session_starts,
)
from nextapp.data.log import Indices, LaunchLog
from nextapp.predictors import Questions
from nextapp.settings import count, unknown
from nextapp.table import FEWEST, bootstrap_means, bootstrap_within
from nextapp.wire import Floats

_CHUNK_CELLS = 2_000_000  # scores in memory per chunk
_CHUNKS = 8  # smallest number of chunks, for the threads
_NEVER = np.iinfo(np.intp).max
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Preset:
    """How predictions are ranked and averaged (PAPER.md, R9 to R12, R15).

    ``candidates``, the apps that are ranked
        ``history+target``: the user's apps in train and validation; a target outside is added.
        ``whole``: all apps the user ever launches, the test part included.
        ``so-far``: apps the user launched before this launch; any other target is a miss.
        ``catalogue``: all apps of the log.
    ``ties`` of the target with others
        ``pessimistic``: the target is ranked last among equal scores.
        ``expected``: the expected value over all orders of equal scores.
    ``average``
        ``session``: first over the predictions of a session, then over a user's sessions.
        ``user``: over all predictions of a user.
        ``prediction``: all predictions of all users have the same weight.
    ``drop_unseen``
        leave out test launches of users or apps that do not occur in train or validation.
    ``repeats`` of an app within 3 s
        ``collapsed``, ``collapsed-inclusive`` (also after exactly 3 s) or ``kept``.
    ``sessions``
        a session ends with a ``gap`` of 15 minutes, or is the user's whole test part (``all``).
    """

    name: str
    candidates: Literal["history+target", "whole", "so-far", "catalogue"]
    ties: Literal["pessimistic", "expected"]
    average: Literal["session", "user", "prediction"]
    drop_unseen: bool
    repeats: Literal["collapsed", "collapsed-inclusive", "kept"]
    sessions: Literal["gap", "all"] = "gap"

    def collapse_repeats(self, log: LaunchLog) -> LaunchLog:
        """The log with repeats within 3 s collapsed or kept, as in this preset."""
        if self.repeats == "kept":
            return log
        return collapse_repeats(log, inclusive=self.repeats == "collapsed-inclusive")


AUTHORS = Preset("authors", "history+target", "pessimistic", "user", True, "collapsed-inclusive")
PAPER = Preset("paper", "whole", "expected", "session", False, "collapsed")
HONEST = Preset("honest", "so-far", "expected", "session", False, "collapsed")
# As in papers on neural networks, e.g. arXiv 2502.16957; windows of five launches are up to models.
NEURAL = Preset("neural", "catalogue", "expected", "prediction", False, "kept", "all")

PRESETS = {preset.name: preset for preset in (AUTHORS, PAPER, HONEST, NEURAL)}


def find_preset(name: str) -> Preset:
    """A preset by its name: authors, paper, honest or neural."""
    if name not in PRESETS:
        raise ValueError(unknown("preset", name, PRESETS))
    return PRESETS[name]


class Predictions(NamedTuple):
    """Columns with one entry per prediction.

    The scores of the user's candidates are ``width`` cells from ``cell`` on. ``target`` is the
    position of the launched app among them, ``last`` that of the launch before; -1 where a session
    begins.
    """

    user: Indices
    target: Indices
    last: Indices
    cell: Indices
    width: Indices


class Chunk(NamedTuple):
    """Questions about whole sessions, with what determines which candidates compete.

    ``rows`` are the launches as rows of the collapsed log; a candidate competes for the launch
    in row t if its ``seen_from`` lies before t, or if it is launched and ``target_competes``.
    """

    questions: Questions
    rows: Indices
    seen_from: Indices
    target_competes: bool

    @property
    def predictions(self) -> Predictions:
        questions = self.questions
        user = np.repeat(questions.session_user, np.diff(questions.session_starts))
        before = np.append(-1, questions.launches[:-1])
        before[questions.session_starts[:-1]] = -1
        width = np.diff(questions.candidate_starts)[user]
        cell = np.cumsum(width) - width
        return Predictions(user, questions.launches, before, cell, width)

    def competes(self, asked: Predictions) -> Mask:
        """By cell, whether the candidate competes."""
        first = self.questions.candidate_starts[asked.user]
        competes = _seen(self.rows, first, asked.width, self.seen_from)
        competes[asked.cell + asked.target] |= self.target_competes
        return competes


class Units(NamedTuple):
    """What intervals resample: ``of_row`` numbers it for each row of an exam, ascending, and
    ``owner`` is the position of its user."""

    name: str
    of_row: Indices
    owner: Indices

    def drawn(
        self, sums: Floats, sizes: Floats, seed: int, weights: Floats | None = None
    ) -> Floats:
        """(DRAWS, columns): bootstrap means over users of sums (n_units, columns) over sizes."""
        if self.name != "users":
            return bootstrap_within(sums, sizes, self.owner, seed)
        with np.errstate(invalid="ignore"):
            return bootstrap_means(sums / sizes[:, None], seed, weights)


@dataclass(frozen=True, eq=False)
class Exam:
    """A log prepared for evaluation: the history to learn from and the test sessions to predict.

    Every launch of the sessions is predicted. Those `within` a session are the paper's predictions:
    all but the first. A session of one launch is asked about only if its user has longer ones.

    ``rows`` are the launches of the test sessions, as rows of ``whole``, the collapsed log;
    ``sessions`` (n_sessions + 1,) are the bounds of the sessions in ``rows``. ``users`` are the
    users of the sessions, ascending; each has candidates, as in `Questions`, with the row after
    which each competes.
    """

    whole: LaunchLog
    history: LaunchLog
    how: str
    preset: Preset
    rows: Indices
    sessions: Indices
    users: Indices
    candidates: Indices
    candidate_starts: Indices
    seen_from: Indices

    @property
    def n_predictions(self) -> int:
        return int(np.count_nonzero(self.within))

    @cached_property
    def prediction_session(self) -> Indices:
        return np.repeat(np.arange(len(self.sessions) - 1), np.diff(self.sessions))

    @cached_property
    def within(self) -> Mask:
        """(n_rows,): launches that do not begin a session."""
        within = np.ones(len(self.rows), bool)
        within[self.sessions[:-1]] = False
        return within

    @cached_property
    def session_user(self) -> Indices:
        """(n_sessions,): the position of each session's user in ``users``."""
        return np.searchsorted(self.users, self.whole.user[self.rows[self.sessions[:-1]]])

    @cached_property
    def repeats(self) -> Mask:
        """(n_rows,): launches within a session of the same app as the launch before."""
        app = self.whole.app[self.rows]
        again = self.within.copy()
        again[1:] &= app[1:] == app[:-1]
        return again

    @cached_property
    def openings(self) -> Mask:
        """(n_rows,): launches after more than 15 minutes without one."""
        opens = np.zeros(len(self.whole), bool)
        opens[session_starts(self.whole)[:-1]] = True
        return opens[self.rows] & ~self.within

    @cached_property
    def units(self) -> Units:
        """Users; with fewer than ten their days, of fewer than ten days their sessions, of fewer
        than ten sessions their launches."""
        user = self.session_user[self.prediction_session]
        if len(self.users) >= FEWEST:
            return Units("users", user, np.arange(len(self.users)))
        opens = np.zeros(len(self.whole), bool)
        opens[session_starts(self.whole)[:-1]] = True
        begins = {
            "days": np.diff(self.whole.time[self.rows] // DAY_MS, prepend=-1) != 0,
            "sessions": opens[self.rows],
            "launches": np.ones(len(user), bool),
        }
        for name, new in begins.items():
            number = np.cumsum(new | (np.diff(user, prepend=-1) != 0)) - 1
            found = Units(name, number, user[np.unique(number, return_index=True)[1]])
            if len(found.owner) >= FEWEST:
                break
        return found

    def counted(self, table: str) -> Mask:
        """(n_rows,): the predictions of one of `metrics.TABLES`."""
        if table == "openings":
            return self.openings
        return self.within & ~self.repeats if table == "different" else self.within

    @cached_property
    def chunks(self) -> list[Chunk]:
        """All predictions, in order, in chunks of whole users."""
        n_apps = self.whole.n_apps
        width = np.diff(self.candidate_starts)
        keys = np.repeat(np.arange(len(self.users)), width) * n_apps + self.candidates
        owner = np.repeat(self.session_user, np.diff(self.sessions))
        places = np.searchsorted(keys, owner * n_apps + self.whole.app[self.rows])
        launches = places - self.candidate_starts[owner]

        cells = np.cumsum(np.diff(self.sessions) * width[self.session_user])
        number = (cells - 1) // max(1, min(_CHUNK_CELLS, int(cells[-1]) // _CHUNKS))
        first_of_user = np.searchsorted(self.session_user, np.arange(len(self.users)))
        number = number[first_of_user][self.session_user]  # a user's sessions stay together
        bounds = np.flatnonzero(np.diff(number, prepend=-1, append=number[-1] + 1))
        chunks = []
        for first, last in pairwise(bounds):
            users, session_user = np.unique(self.session_user[first:last], return_inverse=True)
            picked = np.concatenate(
                [np.arange(*self.candidate_starts[user : user + 2]) for user in users]
            )
            rows = slice(self.sessions[first], self.sessions[last])
            questions = Questions(
                users=self.users[users],
                candidates=self.candidates[picked],
                candidate_starts=np.concatenate([[0], np.cumsum(width[users])]),
                session_user=session_user,
                session_starts=self.sessions[first : last + 1] - self.sessions[first],
                launches=launches[rows],
                times=self.whole.time[self.rows[rows]],
            )
            target_competes = self.preset.candidates == "history+target"
            seen_from = self.seen_from[picked]
            chunks.append(Chunk(questions, self.rows[rows], seen_from, target_competes))
        return chunks


def exam(log: LaunchLog, split: Split, preset: Preset) -> Exam:
    """Collapse, split, cut sessions, settle who competes (PAPER.md, R9, R12, R14, R15)."""
    whole = preset.collapse_repeats(log)
    try:
        parts = split.cut(whole)
    except TooFewDays as error:
        raise ValueError(f"{error} {_split_that_fits(whole, preset)}") from None
    found = _exam_of_parts(parts, preset)
    if found is None:
        raise ValueError(
            f"the test part of split {parts.how} has no session of two launches or more, so there "
            f"is nothing to predict. {_split_that_fits(whole, preset)}"
        )
    return found


def _exam_of_parts(parts: Parts, preset: Preset) -> Exam | None:
    whole, history = parts.whole, parts.history
    first = FirstLaunches.of(whole)
    known = np.isin(first.pairs, history.user.astype(np.int64) * whole.n_apps + history.app)
    rows = np.flatnonzero(parts.part == 2)
    return exam_on(rows, whole, history, parts.how, preset, first, known)


def _split_that_fits(whole: LaunchLog, preset: Preset) -> str:
    """Which split leaves something to learn from and something to predict; tried one by one."""
    for train in (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2):
        split = Split("fraction", train, 0, round(1 - train, 1))
        parts = split.cut(whole)
        if len(parts.history) and _exam_of_parts(parts, preset) is not None:
            return f"This split fits: {split}."
    return (
        f"No split fits this log of {count(len(whole), 'launch', 'launches')}: two launches of one "
        f"person within 15 minutes are needed after the training part. Give a longer log."
    )


class FirstLaunches(NamedTuple):
    """All pairs of user and app, as user · n_apps + app, ascending, and the first row of each."""

    pairs: npt.NDArray[np.int64]
    row: Indices

    @classmethod
    def of(cls, log: LaunchLog) -> FirstLaunches:
        return cls(*np.unique(log.user.astype(np.int64) * log.n_apps + log.app, return_index=True))


def exam_on(
    rows: Indices,
    whole: LaunchLog,
    history: LaunchLog,
    how: str,
    preset: Preset,
    first: FirstLaunches,
    known: npt.NDArray[np.bool_],
) -> Exam | None:
    """The exam on these rows of a collapsed log; None if there is nothing to predict.

    ``known``: for each pair of ``first``, whether it occurs in the history.
    """
    if preset.sessions == "gap":
        tested = np.zeros(len(whole), bool)
        tested[rows] = True
        session = session_starts(whole.where(tested))
        number = np.repeat(np.arange(len(session) - 1), np.diff(session))
    else:
        number = np.unique(whole.user[rows], return_inverse=True)[1]
    if preset.drop_unseen:
        users, apps = np.zeros(whole.n_users, bool), np.zeros(whole.n_apps, bool)
        users[first.pairs[known] // whole.n_apps] = True
        apps[first.pairs[known] % whole.n_apps] = True
        seen = users[whole.user[rows]] & apps[whole.app[rows]]
        rows, number = rows[seen], number[seen]
    length = np.bincount(number, minlength=1)
    enough = np.isin(whole.user[rows], whole.user[rows[length[number] >= 2]])
    rows, number = rows[enough], number[enough]
    if len(rows) == 0:
        return None
    sessions = np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(rows))

    users = np.unique(whole.user[rows])
    asked = np.isin(first.pairs // whole.n_apps, users)
    pairs, first_row = first.pairs[asked], first.row[asked]
    if preset.candidates == "catalogue":
        pairs = (users[:, None] * np.int64(whole.n_apps) + np.arange(whole.n_apps)).ravel()
        seen_from = np.full(len(pairs), -1)
    elif preset.candidates == "whole":
        seen_from = np.full(len(pairs), -1)
    elif preset.candidates == "so-far":
        seen_from = first_row
    else:
        seen_from = np.where(known[asked], -1, _NEVER)
    return Exam(
        whole=whole,
        history=history,
        how=how,
        preset=preset,
        rows=rows,
        sessions=sessions,
        users=users.astype(np.intp),
        candidates=pairs % whole.n_apps,
        candidate_starts=np.searchsorted(pairs // whole.n_apps, np.append(users, whole.n_users)),
        seen_from=seen_from,
    )


@loop(seconds=lambda rows, *_: 2e-6 * len(rows))
def _seen(rows: Indices, first: Indices, width: Indices, seen_from: Indices) -> Mask:
    seen = np.empty(width.sum(), np.bool_)
    cell = 0
    for n in range(len(rows)):
        own = slice(first[n], first[n] + width[n])
        seen[cell : cell + width[n]] = seen_from[own] < rows[n]
        cell += width[n]
    return seen


def ranks_without_last(
    asked: Predictions, competes: Mask, scores: Floats, better: Indices, equal: Indices
) -> tuple[Indices, Indices]:
    """The same ranks with the last app taken out of the ranking; where it is launched again, and
    at the first launch of a session, nothing is taken out."""
    there = np.flatnonzero((asked.last >= 0) & (asked.last != asked.target) & (equal > 0))
    own, last = (asked.cell[there] + place[there] for place in (asked.target, asked.last))
    better, equal = better.copy(), equal.copy()
    better[there] -= competes[last] & (scores[last] > scores[own])
    equal[there] -= competes[last] & (scores[last] == scores[own])
    return better, equal


def _ranks_by_numpy(
    predictions: Predictions, competes: Mask, scores: Floats
) -> tuple[Indices, Indices, bool]:
    better, equal = np.zeros((2, len(predictions.user)), np.intp)
    finite = bool(np.isfinite(scores[competes]).all())
    for n in np.flatnonzero(competes[predictions.cell + predictions.target]):
        cells = slice(predictions.cell[n], predictions.cell[n] + predictions.width[n])
        score, own = scores[cells], scores[predictions.cell[n] + predictions.target[n]]
        better[n] = np.count_nonzero(competes[cells] & (score > own))
        equal[n] = np.count_nonzero(competes[cells] & (score == own))
    return better, equal, finite


@loop(seconds=lambda predictions, *_: 1.5e-5 * len(predictions.user), plain=_ranks_by_numpy)
def ranks(
    predictions: Predictions, competes: Mask, scores: Floats
) -> tuple[Indices, Indices, bool]:
    """For every prediction, the number of candidates that score higher than the target, and equal
    to it (including the target); and whether all scores are finite.

    If the target does not compete, both are 0: a miss.
    """
    n_predictions = len(predictions.user)
    better = np.zeros(n_predictions, np.intp)
    equal = np.zeros(n_predictions, np.intp)
    finite = True
    for n in range(n_predictions):
        cell = predictions.cell[n]
        own = scores[cell + predictions.target[n]]
        above, level = 0, 0
        for i in range(cell, cell + predictions.width[n]):
            if competes[i]:
                finite &= np.isfinite(scores[i])
                above += scores[i] > own
                level += scores[i] == own
        if competes[cell + predictions.target[n]]:
            better[n] = above
            equal[n] = level
    return better, equal, finite
