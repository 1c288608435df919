"""HR, MRR and NDCG @1, 3, 5 of one relevant app.

With the target at rank r (1 is best), each is a weight w(r) up to rank n and 0 beyond:

    HR@n    w = 1
    MRR@n   w = 1/r
    NDCG@n  w = 1/log2(r+1)   the ideal list has w(1) = 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from nextapp.wire import Floats

CUTOFFS = (1, 3, 5)
WEIGHTS: dict[str, Callable[[Floats], Floats]] = {
    "HR": np.ones_like,
    "MRR": lambda rank: 1.0 / rank,
    "NDCG": lambda rank: 1.0 / np.log2(rank + 1.0),
}
METRICS = tuple(f"{name}@{n}" for name in WEIGHTS for n in CUTOFFS)


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
