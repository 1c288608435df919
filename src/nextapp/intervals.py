"""95 % confidence intervals from a bootstrap over users, or over the days of fewer than ten."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

LEVEL = 0.95
DRAWS = 2_000
FEWEST = 10  # users; an interval over fewer says nothing
_CELLS = 4_000_000


def bootstrap_means(
    by_user: Floats, seed: int, weights: Floats | None = None, stratum: int = 0
) -> Floats:
    """(DRAWS, columns): bootstrap means over users; NaN values are ignored.

    All columns use the same resamples of users, so differences between columns are paired. With
    ``weights`` (n_users,) the values were multiplied by them, and a mean is the sum of the values
    over the sum of the weights of the users drawn. Each ``stratum`` has its own draws.
    """
    generator = KeyedBits(seed, phone=stratum, purpose="boot").generator()
    n_users = len(by_user)
    there = ~np.isnan(by_user)
    filled = np.where(there, by_user, 0.0)
    counted = there if weights is None else there * weights[:, None]
    means = []
    step = max(1, _CELLS // n_users)
    for start in range(0, DRAWS, step):
        n = min(step, DRAWS - start)
        drawn = resample(generator, n_users, n)
        with np.errstate(invalid="ignore"):
            means.append((drawn @ filled) / (drawn @ counted))
    return np.concatenate(means)


def bootstrap_within(sums: Floats, sizes: Floats, owner: npt.NDArray[np.intp], seed: int) -> Floats:
    """(DRAWS, columns): bootstrap means over parts of users, such as days; no user is left out.

    A user's mean is the sum of ``sums`` (n_parts, columns) over that of ``sizes`` (n_parts,), of
    the user's parts in the resample. The result is the mean over users with any size.
    """
    drawn = [
        bootstrap_means(sums[owner == user], seed, sizes[owner == user], int(user))
        for user in np.unique(owner[sizes > 0])
    ]
    return np.mean(drawn, axis=0) if drawn else np.full((DRAWS, sums.shape[1]), np.nan)


def resample(generator: np.random.Generator, n: int, draws: int = DRAWS) -> Floats:
    """(draws, n): how often each of n items is in a bootstrap sample of size n."""
    return generator.multinomial(n, np.full(n, 1.0 / n), draws).astype(float)


def interval(means: Floats) -> Floats:
    """(2, columns) or (2,): the 2.5 % and 97.5 % quantiles of bootstrap means."""
    tail = (1 - LEVEL) / 2
    return np.nanquantile(means, [tail, 1 - tail], axis=0)


def measured(mean: float, means: Floats) -> dict[str, float]:
    """A figure with the interval of its bootstrap means, as plain values."""
    low, high = interval(means)
    return {"mean": float(mean), "low": float(low), "high": float(high)}
