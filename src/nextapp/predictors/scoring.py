"""Loops that answer `Questions`: recency, and taste plus what the session says.

All but MRU are of one form. For user u, candidate i and the session so far s,

    score_i = taste_i + Σ_{j in s'} table_ji

with s' the whole session, its last l launches, the last one or none. A table is one k x k block
a user, over the user's k candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.predictors.questions import Indices, Questions
from nextapp.wire import Floats, inference_window

_WHOLE_SESSION = int(np.iinfo(np.int64).max)


def recency_scores(questions: Questions) -> Floats:
    """MRU: the app's last position in the session so far, counted from 1; else 0."""
    return _recency(
        questions.candidate_starts,
        questions.session_user,
        questions.session_starts,
        questions.launches,
        questions.cell_starts,
    )


def session_scores(questions: Questions, taste: Floats, tables: Floats, inference: str) -> Floats:
    """Taste plus the session's part, in the modes of `nextapp.model.session_vector`.

    Parameters
    ----------
    taste : flat, a cell for every candidate of every user, as ``questions.candidates``
    tables : flat, k x k cells per user, row = launched app, column = candidate
    """
    window = inference_window(inference)
    return _session(
        questions.candidate_starts,
        questions.session_user,
        questions.session_starts,
        questions.launches,
        questions.cell_starts,
        taste,
        tables,
        table_starts(questions),
        {"none": 0, "last": 1}.get(inference, window or _WHOLE_SESSION),
        inference == "mean",
    )


def taste_scores(questions: Questions, taste: Floats) -> Floats:
    """Taste alone, whatever the session."""
    return session_scores(questions, taste, np.zeros(0), "none")


def table_starts(questions: Questions) -> Indices:
    """(n_users + 1,): where each user's k x k table begins."""
    return np.concatenate([[0], np.cumsum(np.diff(questions.candidate_starts) ** 2)])


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each whole-number key occurs."""

    keys: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, keys: npt.NDArray[np.int64]) -> Counts:
        return cls(*np.unique(keys, return_counts=True))

    def at(self, wanted: npt.NDArray[np.int64]) -> Floats:
        """The counts of the wanted keys, 0 for those that never occurred."""
        if len(self.keys) == 0:
            return np.zeros(len(wanted))
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0.0)


def table_pairs(questions: Questions) -> tuple[Indices, Indices, Indices]:
    """User code, launched app and candidate app of every cell of the tables."""
    k = np.diff(questions.candidate_starts)
    owner = np.repeat(np.arange(len(k)), k**2)
    cell = np.arange(len(owner)) - table_starts(questions)[owner]
    first = questions.candidate_starts[owner]
    launched = questions.candidates[first + cell // k[owner]]
    candidate = questions.candidates[first + cell % k[owner]]
    return questions.users[owner], launched, candidate


def similarity_tables(questions: Questions, app_vectors: Floats) -> Floats:
    """Tables of q_jᵀ q_i."""
    starts = questions.candidate_starts
    tables = [np.zeros(0)]
    for first, end in pairwise(starts.tolist()):
        own = app_vectors[questions.candidates[first:end]]
        tables.append((own @ own.T).ravel())
    return np.concatenate(tables)


def _seconds_for_sessions(_starts: Indices, *arrays: Indices | Floats) -> float:
    launches = arrays[2]
    return 4e-6 * len(launches)


@compiled(seconds=_seconds_for_sessions)
def _recency(
    candidate_starts: Indices,
    session_user: Indices,
    session_starts: Indices,
    launches: Indices,
    cell_starts: Indices,
) -> Floats:
    scores = np.empty(cell_starts[-1])
    for s in range(len(session_user)):
        user = session_user[s]
        k = candidate_starts[user + 1] - candidate_starts[user]
        first = session_starts[s]
        cell = cell_starts[s]
        last = np.zeros(k)
        for row in range(first, session_starts[s + 1] - 1):
            last[launches[row]] = row - first + 1
            scores[cell : cell + k] = last
            cell += k
    return scores


@compiled(seconds=_seconds_for_sessions)
def _session(
    candidate_starts: Indices,
    session_user: Indices,
    session_starts: Indices,
    launches: Indices,
    cell_starts: Indices,
    taste: Floats,
    tables: Floats,
    starts: Indices,
    window: int,
    mean: bool,
) -> Floats:
    scores = np.empty(cell_starts[-1])
    for s in range(len(session_user)):
        user = session_user[s]
        own = taste[candidate_starts[user] : candidate_starts[user + 1]]
        k = len(own)
        first = session_starts[s]
        cell = cell_starts[s]
        spoken = np.zeros(k)  # what the session says so far
        for row in range(first, session_starts[s + 1] - 1):
            since = row
            if row - first >= window:  # a launch leaves: sum anew, so that equal scores stay equal
                spoken[:] = 0.0
                since = row - window + 1
            for launch in range(since, row + 1):
                table = starts[user] + launches[launch] * k
                spoken += tables[table : table + k]
            share = 1.0 / (row - first + 1) if mean else 1.0
            scores[cell : cell + k] = own + share * spoken
            cell += k
    return scores
