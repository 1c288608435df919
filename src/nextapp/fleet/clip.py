"""The public clip: how long the gradients of synthetic phones are that nobody owns.

Nothing private is looked at: the phones are drawn with another seed than those that report.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nextapp.data import synthetic
from nextapp.model import seqmf_gradient
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast


def public_seed(seed: int) -> int:
    """Another seed, for the public phones of an experiment with this one."""
    return int(KeyedBits(seed, purpose="public").words(1)[0] >> np.uint64(1))


def public_clips(
    population: synthetic.Parameters, seed: int, broadcast: Broadcast
) -> dict[str, float]:
    """A clip for each kind of ball: the median length of F(u), eq. (12), of synthetic phones.

    Phones without a launch do not count.
    """
    starts, apps = synthetic.histories(population, seed, 0, population.phones)
    lengths: dict[str, list[float]] = {"linf": [], "l1": [], "l2": []}
    for first, last in pairwise(starts.tolist()):
        if last > first:
            history = apps[first:last].astype(np.int64)
            entries = np.abs(seqmf_gradient(history, broadcast).dense())
            lengths["linf"].append(float(entries.max()))
            lengths["l1"].append(float(entries.sum()))
            lengths["l2"].append(float(np.sqrt((entries**2).sum())))
    return {ball: float(np.median(found)) for ball, found in lengths.items()}
