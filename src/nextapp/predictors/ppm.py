"""`PPM`: prediction by partial matching, a Markov model of variable order that learns online.

The context of order m is the last m launches of this phone. What came after it is counted, and the
orders are blended from the shortest to the longest, each with the escape of PPM's method C:

    P₋₁(i) = 1 / k,   k candidates
    P_m(i) = (n_m(i) + d_m P_{m−1}(i)) / (Σ n_m + d_m),   m = 0 … 6

n_m(i) counts launches of i after the context of order m and d_m how many different apps came. A
context never seen leaves P as it is. Counts fade each time their context occurs, so that what came
lately counts more. As every rival in an online form it sees what `nextapp` sees: the history, then
each launch once it has been revealed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nextapp.compiled import compiled, dict_of_whole_numbers
from nextapp.data.log import LaunchLog
from nextapp.predictors.nextapp import launch_streams
from nextapp.predictors.predictor_loop import Streams
from nextapp.predictors.questions import Indices, Questions
from nextapp.wire import Floats

LONGEST = 6
# What is left of a count when its context occurs again: order 0, longer ones. Of .95, .98, .99 and
# .9, .95, .98 the best in HR@1 + HR@5 over the training parts of four real logs, but for .002.
FADE, CONTEXT_FADE = 0.95, 0.95


class PPM:
    """Prediction by partial matching, orders 0 to 6, on each phone alone; scores are log P."""

    name = "ppm"
    in_expectation = False
    scores_are_log_chances = True

    def __init__(self, fade: float = FADE, context_fade: float = CONTEXT_FADE) -> None:
        self.fades = np.array([fade] + [context_fade] * LONGEST)

    def fit(self, history: LaunchLog) -> None:
        self.history = history

    def score(self, questions: Questions) -> Floats:
        streams = launch_streams(self.history, questions)
        return self.play(streams, questions.candidate_starts, int(questions.cell_starts[-1]))

    def play(self, streams: Streams, candidate_starts: Indices, n_cells: int) -> Floats:
        """log P by cell, for what is asked of these phones."""
        scores = np.empty(n_cells)
        _play(streams, candidate_starts, self.fades, scores)
        return scores


class Followers(NamedTuple):
    """What came after each context: chains of cells, one per app."""

    head: Indices  # by context: its first cell; -1 none
    app: Indices
    times: Floats  # how often it came, faded
    next: Indices  # the cell after it in the chain


@compiled
def _blend(followers: Followers, contexts: Indices, k: int) -> Floats:
    """P of the k candidates after these contexts, the shortest first; -1 where there is none."""
    chances = np.full(k, 1.0 / k)
    for context in contexts:
        first = followers.head[context] if context >= 0 else -1
        if first < 0:
            break
        total, escape, at = 0.0, 0.0, first
        while at >= 0:
            total += followers.times[at] + 1.0
            escape += 1.0
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


@compiled
def _play(streams: Streams, candidate_starts: Indices, fades: Floats, scores: Floats) -> None:
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
                scores[cell : cell + k] = np.log(_blend(followers, contexts, k))
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
