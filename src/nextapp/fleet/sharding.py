"""Fleets larger than memory, or than one machine: shards built one after the other.

Synthetic phones follow from a seed, so a shard can be built again at any time and is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nextapp.data import synthetic
from nextapp.fleet.columns import Fleet


@dataclass(frozen=True)
class Recipe:
    """Synthetic phones first to last − 1 of a world."""

    first: int
    last: int
    parameters: synthetic.Parameters
    seed: int

    def build(self) -> Fleet:
        return Fleet.of_synthetic(self.parameters, self.seed, self.first, self.last)


def recipes(
    n_phones: int, n_shards: int, parameters: synthetic.Parameters, seed: int
) -> list[Recipe]:
    """A world of synthetic phones in shards of almost equal size."""
    if not 1 <= n_shards <= n_phones:
        raise ValueError(
            f"{n_phones:,} phones can be cut in 1 to {n_phones:,} shards, got {n_shards}."
        )
    cuts = np.linspace(0, n_phones, n_shards + 1).astype(int).tolist()
    return [Recipe(first, last, parameters, seed) for first, last in pairwise(cuts)]
