"""The public clip: how long the gradients of synthetic phones are that nobody owns.

Nothing private is looked at: the phones are drawn with another seed than those that report.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from nextapp.data import synthetic
from nextapp.data.log import Codes
from nextapp.model import seqmf_gradient
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats


def public_seed(seed: int) -> int:
    """Another seed, for the public phones of an experiment with this one."""
    return int(KeyedBits(seed, purpose="public").words(1)[0] >> np.uint64(1))


def public_clips(
    population: synthetic.Parameters, seed: int, broadcast: Broadcast
) -> dict[str, float]:
    """A clip for each kind of ball: the median length of the gradients of synthetic phones."""
    starts, apps = synthetic.histories(population, seed, 0, population.phones)
    lengths = history_lengths(starts.tolist(), apps, broadcast)
    return {ball: float(np.median(each)) for ball, each in lengths.items()}


def history_lengths(starts: Iterable[int], apps: Codes, broadcast: Broadcast) -> dict[str, Floats]:
    """For each kind of ball, the lengths of F(u), eq. (12), of phones that launched anything.

    Phone u's launches are ``apps[starts[u]:starts[u + 1]]``.
    """
    lengths: dict[str, list[float]] = {"linf": [], "l1": [], "l2": []}
    for first, last in pairwise(starts):
        if last > first:
            history = apps[first:last].astype(np.int64)
            entries = np.abs(seqmf_gradient(history, broadcast).dense())
            lengths["linf"].append(float(entries.max()))
            lengths["l1"].append(float(entries.sum()))
            lengths["l2"].append(float(np.sqrt((entries**2).sum())))
    return {ball: np.array(found) for ball, found in lengths.items()}
