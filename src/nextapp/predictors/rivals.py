"""The rivals: Random, MRU, MFU, SR, SR-od (PAPER.md, R18, R22), their online forms, and PPM.

As in the paper, a rival stops learning where the history ends. A phone would not: the online forms
go on through the test part and see what `nextapp` sees, launch by launch. So does PPM, prediction
by partial matching, a Markov model of variable order. The context of order m is the last m launches
of this phone. What came after it is counted, and the orders are blended from the shortest to the
longest, each with the escape of PPM's method C:

    P₋₁(i) = 1 / k,   k candidates
    P_m(i) = (n_m(i) + d_m P_{m−1}(i)) / (Σ n_m + d_m),   m = 0 … 6

n_m(i) counts launches of i after the context of order m and d_m how many different apps came. A
context never seen leaves P as it is. Counts fade each time their context occurs, so that what came
lately counts more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled, dict_of_whole_numbers, loop
from nextapp.data.log import Indices, LaunchLog
from nextapp.predictors import Questions, Streams, launch_streams
from nextapp.wire import Floats

_IN_SESSION, _LAST_USE, _LAUNCHES, _FOLLOWERS, _FRECENCY, _DECAYED = range(6)  # what a score is

KISS_WINDOW = 1500  # launches: 30 for each of the 50 results that KISS shows by default
CHROMEOS_DECAY = 0.8

LONGEST = 6
# What is left of a count when its context occurs again: order 0, longer ones. Of .95, .98, .99 and
# .9, .95, .98 the best in HR@1 + HR@5 over the training parts of four real logs, within .002.
FADE, CONTEXT_FADE = 0.95, 0.95
# Of the count mix: launches of prior, and what is left of a count when its context occurs again:
# one or two apps, none. Of 5 to 80, .95 to 1 and .8 to .995 the best in HR@1 + HR@5 of all launches
# and of the next different app over the training parts of three phone logs.
MIX_PRIOR, MIX_FADE, MIX_USUAL_FADE = 20.0, 0.97, 0.85


class Random:
    """Candidates in a random order; the evaluation takes the exact expectation over all orders."""

    name = "random"
    in_expectation = True

    def fit(self, history: LaunchLog) -> None:
        """Nothing to learn."""

    def score(self, questions: Questions) -> Floats:
        return np.zeros(questions.cell_starts[-1])


class MFU:
    """Most frequently used: how often the user launched the app."""

    name = "mfu"
    in_expectation = False

    def fit(self, history: LaunchLog) -> None:
        self.n_apps = history.n_apps
        self.launches = Counts.of(history.user.astype(np.int64) * history.n_apps + history.app)

    def score(self, questions: Questions) -> Floats:
        owner = np.repeat(questions.users, np.diff(questions.candidate_starts))
        taste = self.launches.at(owner * self.n_apps + questions.candidates)
        return session_scores(questions, taste, np.zeros(0), 0)


class SR:
    """Sequential rules: how often the app came right after the last one, over all users.

    Raw counts; a user's whole history is one sequence.
    """

    name = "sr"
    in_expectation = False
    on_device = False

    def fit(self, history: LaunchLog) -> None:
        self.n_apps = history.n_apps
        same_user = history.user[1:] == history.user[:-1]
        previous, following = history.app[:-1][same_user], history.app[1:][same_user]
        self.rules = Counts.of(self._keys(history.user[1:][same_user], previous, following))

    def score(self, questions: Questions) -> Floats:
        tables = self.rules.at(self._keys(*table_pairs(questions)))
        return session_scores(questions, np.zeros(len(questions.candidates)), tables, 1)

    def _keys(
        self,
        user: npt.NDArray[np.integer],
        previous: npt.NDArray[np.integer],
        following: npt.NDArray[np.integer],
    ) -> npt.NDArray[np.int64]:
        owner = user.astype(np.int64) if self.on_device else 0
        return (owner * self.n_apps + previous.astype(np.int64)) * self.n_apps + following


class SROnDevice(SR):
    """SR-od: sequential rules from the user's own history alone."""

    name = "sr-od"
    on_device = True


class SROnDeviceByS(SROnDevice):
    """SR-od scored with S_u, as the paper's authors ran it in their dynamic runs (PAPER.md, R22).

    In their reading of S_u a rule is worth its share of all transitions *into* the app (R1): how
    often i came after j, divided by how often i came after anything.
    """

    name = "sr-od-su"

    def fit(self, history: LaunchLog) -> None:
        super().fit(history)
        same_user = history.user[1:] == history.user[:-1]
        owner = history.user[1:][same_user].astype(np.int64)
        self.into = Counts.of(owner * history.n_apps + history.app[1:][same_user])

    def score(self, questions: Questions) -> Floats:
        user, previous, following = table_pairs(questions)
        into = self.into.at(user.astype(np.int64) * self.n_apps + following)
        shares = self.rules.at(self._keys(user, previous, following)) / np.maximum(into, 1)
        return session_scores(questions, np.zeros(len(questions.candidates)), shares, 1)


# Online forms


class _OnlineRival:
    in_expectation = False
    score_is = _LAST_USE

    def fit(self, history: LaunchLog) -> None:
        self.history = history

    def score(self, questions: Questions) -> Floats:
        scores = np.zeros(int(questions.cell_starts[-1]))
        _play_online(
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


class MRU(_OnlineRival):
    """Most recently used: the app's last position in the session so far, counted from 1; else 0."""

    name = "mru"
    score_is = _IN_SESSION

    def fit(self, history: LaunchLog) -> None:
        super().fit(history.where(np.zeros(len(history), bool)))  # only sessions count


class Recents(_OnlineRival):
    """The list of recent apps, as phones show it: the later an app was launched, in this session or
    before it, the better."""

    name = "recents"


class OnlineMFU(_OnlineRival):
    """How often the user launched the app so far."""

    name = "mfu-online"
    score_is = _LAUNCHES


class Kiss(_OnlineRival):
    """Frecency, as the launcher KISS sorts its history: an app's share of the last 1,500 launches,
    divided by how many launches ago it came last (its history by frecency)."""

    name = "kiss"
    score_is = _FRECENCY


class ChromeOS(_OnlineRival):
    """Most recently and frequently used, as ChromeOS ranked apps: every launch multiplies all
    scores by .8 and adds .2 to its app's (Chromium's app launch predictor)."""

    name = "chromeos"
    score_is = _DECAYED


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


@loop(seconds=lambda streams, *_: 2e-6 * len(streams.launches))
def _play_online(
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
        lately, decayed = np.zeros(k), np.zeros(k)
        followers = start[starts[v] : starts[v + 1]].copy().reshape((k, k))
        last, opening = -1, -1
        cell = streams.cell[v]
        for row in range(streams.starts[v], streams.starts[v + 1]):
            app = streams.launches[row]
            opening = row if streams.timed[row] else opening
            if streams.asked[row]:
                if score_is == _IN_SESSION:
                    scores[cell : cell + k] = np.maximum(last_use - opening + 1.0, 0.0)
                elif score_is == _LAST_USE:
                    scores[cell : cell + k] = last_use
                elif score_is == _LAUNCHES:
                    scores[cell : cell + k] = launches
                elif score_is == _FRECENCY:
                    scores[cell : cell + k] = lately / (row - 1 - last_use + 0.001)
                elif score_is == _DECAYED:
                    scores[cell : cell + k] = decayed
                elif last >= 0:
                    scores[cell : cell + k] = followers[last]
                cell += k
            last_use[app] = row
            launches[app] += 1.0
            lately[app] += 1.0
            if row - streams.starts[v] >= KISS_WINDOW:
                lately[streams.launches[row - KISS_WINDOW]] -= 1.0
            decayed *= CHROMEOS_DECAY
            decayed[app] += 1.0 - CHROMEOS_DECAY
            if last >= 0:
                followers[last, app] += 1.0
            last = app


class PPM:
    """Prediction by partial matching, orders 0 to 6, on each phone alone; scores are log P."""

    name = "ppm"
    in_expectation = False
    scores_are_log_chances = True

    fades = np.array([FADE] + [CONTEXT_FADE] * LONGEST)
    escapes = np.zeros(LONGEST + 1)  # method C

    def fit(self, history: LaunchLog) -> None:
        self.history = history

    def score(self, questions: Questions) -> Floats:
        chances = np.empty(int(questions.cell_starts[-1]))
        streams = launch_streams(self.history, questions)
        match_partially(streams, questions.candidate_starts, self.fades, self.escapes, chances)
        return np.log(chances)


class CountMix(PPM):
    """Counts after the last app and after the last two, each mixed with what is expected without.

        P(i) = (n(i) + a P'(i)) / (Σn + a)

    n counts launches of i after the context and P' is P for the shorter one: first how often i is
    launched at all. So it is PPM with an escape of a, however many apps came.
    """

    name = "count-mix"

    def __init__(self, longest: int = 2) -> None:
        self.fades = np.array([MIX_USUAL_FADE] + [MIX_FADE] * longest)
        self.escapes = np.array([1.0] + [MIX_PRIOR] * longest)


class Followers(NamedTuple):
    """What came after each context: chains of cells, one per app."""

    head: Indices  # by context: its first cell; -1 none
    app: Indices
    times: Floats  # how often it came, faded
    next: Indices  # the cell after it in the chain


@compiled
def _blend(followers: Followers, contexts: Indices, escapes: Floats, k: int) -> Floats:
    """P of the k candidates after these contexts, the shortest first; -1 where there is none."""
    chances = np.full(k, 1.0 / k)
    for order in range(len(contexts)):
        first = followers.head[contexts[order]] if contexts[order] >= 0 else -1
        if first < 0:
            break
        total, escape, at = escapes[order], escapes[order], first
        each = 0.0 if escape > 0.0 else 1.0
        while at >= 0:
            total += followers.times[at] + each
            escape += each
            at = followers.next[at]
        chances *= escape / total
        at = first
        while at >= 0:
            chances[followers.app[at]] += followers.times[at] / total
            at = followers.next[at]
    return chances


@compiled
def _count(followers: Followers, context: int, app: int, fade: float, n_cells: int) -> int:
    """A launch of `app` after a context; how many cells there are with it."""
    at, found = followers.head[context], False
    while at >= 0:
        followers.times[at] *= fade
        if followers.app[at] == app:
            followers.times[at] += 1.0
            found = True
        at = followers.next[at]
    if found:
        return n_cells
    followers.app[n_cells], followers.times[n_cells] = app, 1.0
    followers.next[n_cells], followers.head[context] = followers.head[context], n_cells
    return n_cells + 1


@loop(seconds=lambda streams, *_: 4e-5 * len(streams.launches))
def match_partially(
    streams: Streams, candidate_starts: Indices, fades: Floats, escapes: Floats, chances: Floats
) -> None:
    """P of every candidate by cell, for what is asked of these phones.

    ``escapes`` by order; 0 for the escape of method C, the number of different apps that came.
    """
    n_orders = len(fades)
    for v in range(len(candidate_starts) - 1):
        k = candidate_starts[v + 1] - candidate_starts[v]
        first, end = streams.starts[v], streams.starts[v + 1]
        most = (end - first) * n_orders + 1
        followers = Followers(
            np.full(most, -1), np.empty(most, np.int64), np.empty(most), np.empty(most, np.int64)
        )
        longer = dict_of_whole_numbers()  # context and the app before it to the longer context
        contexts = np.full(n_orders, -1)  # those that hold now, by order
        contexts[0] = 0
        n_contexts, n_cells = 1, 0
        cell = streams.cell[v]
        for row in range(first, end):
            app = streams.launches[row]
            if streams.asked[row]:
                chances[cell : cell + k] = _blend(followers, contexts, escapes, k)
                cell += k
            for order in range(n_orders):
                if contexts[order] >= 0:
                    n_cells = _count(followers, contexts[order], app, fades[order], n_cells)
            for order in range(1, min(n_orders, row - first + 2)):
                key = contexts[order - 1] * k + streams.launches[row - order + 1]
                if key not in longer:
                    longer[key] = n_contexts
                    n_contexts += 1
                contexts[order] = longer[key]


# Scores
#
# All but the online forms: for user u, candidate i and the session so far s,
#
#     score_i = taste_i + Σ_{j in s'} table_ji
#
# with s' the whole session, its last launches, the last one or none. A table is one k x k block a
# user, over the user's k candidates.

WHOLE_SESSION = int(np.iinfo(np.int64).max)


def session_scores(
    questions: Questions, taste: Floats, tables: Floats, window: int, *, mean: bool = False
) -> Floats:
    """Taste plus the session's part, as in `nextapp.model.session_vector`.

    Parameters
    ----------
    taste : flat, a cell for every candidate of every user, as ``questions.candidates``
    tables : flat, k x k cells per user, row = launched app, column = candidate
    window : how many launches of the session count, from its end
    mean : their mean, not their sum
    """
    return _session(
        questions.candidate_starts,
        questions.session_user,
        questions.session_starts,
        questions.launches,
        questions.cell_starts,
        taste,
        tables,
        table_starts(questions),
        window,
        mean,
    )


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


@loop(seconds=lambda *arrays: 4e-6 * len(arrays[3]))  # the launches
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
        scores[cell : cell + k] = own
        cell += k
        for row in range(first, session_starts[s + 1] - 1):
            since = row
            if row - first >= window:  # a launch leaves: sum anew, so that equal scores stay equal
                spoken[:] = 0.0
                since = row - window + 1
            for launch in range(since, row + 1):
                table = starts[user] + launches[launch] * k
                spoken += tables[table : table + k]
            share = 1.0 / (row - first + 1) if mean else 1.0
            now = scores[cell : cell + k]
            np.multiply(spoken, share, now)
            now += own
            cell += k
    return scores
