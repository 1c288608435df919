"""Evaluation protocols, and the metrics: HR, MRR and NDCG @1, 3, 5 of one relevant app.

The presets are as the authors did, as the paper's text says, as a phone would see it, and as papers
on neural networks do.

With the target at rank r (1 is best), each is a weight w(r) up to rank n and 0 beyond:

    HR@n    w = 1
    MRR@n   w = 1/r
    NDCG@n  w = 1/log2(r+1)   the ideal list has w(1) = 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nextapp.data.cutting import collapse_repeats
from nextapp.data.log import LaunchLog
from nextapp.wire import Floats

CUTOFFS = (1, 3, 5)
WEIGHTS: dict[str, Callable[[Floats], Floats]] = {
    "HR": np.ones_like,
    "MRR": lambda rank: 1.0 / rank,
    "NDCG": lambda rank: 1.0 / np.log2(rank + 1.0),
}
METRICS = tuple(f"{name}@{n}" for name in WEIGHTS for n in CUTOFFS)

TABLES = {
    "all": "all launches within a session",
    "different": "the next different app (the last app is left out)",
    "openings": "the first launch of a session",
}


def values(
    better: npt.NDArray[np.integer],
    equal: npt.NDArray[np.integer],
    ties: str,
    wanted: Sequence[str] = METRICS,
) -> Floats:
    """(n_predictions, len(wanted)): the wanted metrics of every prediction; by default all nine.

    ``better`` is the number of candidates with a higher score than the target; ``equal`` that of
    candidates with the same score, including the target, or 0 if the target was no candidate (a
    miss). With pessimistic ties the target has rank better + equal. With expected ties each rank
    from better + 1 to better + equal is equally likely.
    """
    last = better + equal
    first = np.where(ties == "pessimistic", last, better + 1)
    hit = equal > 0
    columns = []
    longest = max(CUTOFFS)
    for metric in wanted:
        name, _, n = metric.partition("@")
        rank = np.arange(1.0, longest + 1)
        gained = np.concatenate([[0.0], np.cumsum(WEIGHTS[name](rank) * (rank <= int(n)))])
        upto = gained[np.minimum(last, longest)]
        before = gained[np.minimum(np.maximum(first - 1, 0), longest)]
        columns.append(hit * (upto - before) / np.maximum(last - first + 1, 1))
    return np.stack(columns, axis=1)


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
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}.")
    return PRESETS[name]
