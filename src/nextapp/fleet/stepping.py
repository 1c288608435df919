"""The phone's step for a whole range of phones: h, p and F, compiled.

The second form of `nextapp.model`'s ``phone_…`` functions, equation by equation and held to them by
tests (float64, 1e-10). Symbols as in `nextapp.model`. float32 or float64, as Q is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.compiled import fast
from nextapp.fleet.columns import Columns, Fleet, Mask, each_range
from nextapp.wire import Broadcast, Floats

STRIDE = 8  # transitions of one row stand together: taken apart, their sums need not wait
READING_CODES = {"example": 0, "equation": 1, "authors": 2, "none": 3}


class Terms(NamedTuple):
    """What a broadcast says to every phone, in the precision of the run."""

    Q: Floats
    gram: Floats
    lam: Any
    alpha: float
    gamma: float
    reading: int


def terms(broadcast: Broadcast, dtype: npt.DTypeLike) -> Terms:
    settings = broadcast.settings
    kind: Any = np.dtype(dtype).type
    return Terms(
        np.ascontiguousarray(broadcast.app_vectors, dtype),
        np.ascontiguousarray(broadcast.gram, dtype),
        kind(settings.lam),
        settings.alpha,
        settings.gamma,
        READING_CODES[settings.reading],
    )


class Workspace(NamedTuple):
    """Room for the work on one phone, used again for the next."""

    own: Floats  # (most, d)   rows of Q of the phone's apps
    SQ: Floats  # (most, d)   own rows of S Q
    F: Floats  # (most, d)   the phone's own rows of F, without the background
    c: Floats  # (most,)
    h: Floats  # (most,)
    D: Floats  # (most,)
    shares: Floats  # (most,)  one over the denominator of each row of S
    A: Floats  # (d, d)
    inverse: Floats  # (d,)   of the diagonal of A's Cholesky factor
    p: Floats  # (d,)


@fast
def new_workspace(most: int, Q: Floats) -> Workspace:
    d = Q.shape[1]
    return Workspace(
        np.empty((most, d), Q.dtype),
        np.empty((most, d), Q.dtype),
        np.empty((most, d), Q.dtype),
        np.empty(most, Q.dtype),
        np.empty(most, Q.dtype),
        np.empty(most, Q.dtype),
        np.empty(most, Q.dtype),
        np.empty((d, d), Q.dtype),
        np.empty(d, Q.dtype),
        np.empty(d, Q.dtype),
    )


@fast
def most_apps(first: int, last: int, fleet: Columns) -> int:
    most = 1
    for phone in range(first, last):
        most = max(most, fleet.app_starts[phone + 1] - fleet.app_starts[phone])
    return most


@fast
def prepare(phone: int, fleet: Columns, t: Terms, w: Workspace) -> tuple[int, Any]:
    """own, c, c0, h of one phone, eqs. (7), (9). Returns k and c0."""
    d = t.Q.shape[1]
    start = fleet.app_starts[phone]
    k = fleet.app_starts[phone + 1] - start
    total = 0.0
    for i in range(k):
        power = float(fleet.counts[start + i])
        if t.gamma != 1.0:
            power = power**t.gamma
        w.c[i] = power
        total += power
        w.h[i] = 0
        w.shares[i] = 0
        app = fleet.apps[start + i]
        for x in range(d):
            w.own[i, x] = t.Q[app, x]
            w.SQ[i, x] = 0
    total += t.alpha * len(t.Q)
    share = 1.0 / total if total > 0.0 else 0.0
    for i in range(k):
        w.c[i] = (w.c[i] + t.alpha) * share

    if t.reading != 3:
        short_term(phone, k, fleet, t, w)
    return k, t.Q.dtype.type(t.alpha * share)


@fast
def short_term(phone: int, k: int, fleet: Columns, t: Terms, w: Workspace) -> None:
    """The rows of S Q and h of one phone, eqs. (5), (7)."""
    d = t.Q.shape[1]
    first, last = fleet.transition_starts[phone], fleet.transition_starts[phone + 1]
    if t.reading == 2:  # authors: n(j→i) / n(·→i)
        for e in range(first, last):
            w.shares[fleet.following[e]] += fleet.times[e]
    else:  # example, equation: divided by n(i→·)
        for e in range(first, last):
            w.shares[fleet.previous[e]] += fleet.times[e]
    for i in range(k):  # a row whose denominator is 0 is 0
        w.shares[i] = 1 / w.shares[i] if w.shares[i] > 0 else 0
    for offset in range(STRIDE):
        for e in range(first + offset, last, STRIDE):
            row, column = ends(e, fleet, t.reading)
            weight = fleet.times[e] * w.shares[row]
            for x in range(d):
                w.SQ[row, x] += weight * w.own[column, x]
    for i in range(k):
        for x in range(d):
            w.h[i] += w.own[i, x] * w.SQ[i, x]


@fast
def ends(e: int, fleet: Columns, reading: int) -> tuple[int, int]:
    """Row and column of S of one transition."""
    if reading == 0:
        return fleet.previous[e], fleet.following[e]
    return fleet.following[e], fleet.previous[e]


@fast
def solve(k: int, c0: Any, t: Terms, w: Workspace) -> None:
    """p of one phone, eq. (10), by Cholesky."""
    d = t.Q.shape[1]
    A, p = w.A, w.p
    for x in range(d):
        for y in range(d):
            A[x, y] = c0 * t.gram[x, y]
        A[x, x] += t.lam
        p[x] = 0
    for i in range(k):
        pull = w.c[i] * (1 - w.h[i])
        for x in range(d):
            p[x] += pull * w.own[i, x]
    add_squares(k, c0, w)
    for x in range(d):
        for y in range(x):
            left = A[x, y]
            for z in range(y):
                left -= A[x, z] * A[y, z]
            A[x, y] = left * w.inverse[y]
        left = A[x, x]
        for z in range(x):
            left -= A[x, z] * A[x, z]
        w.inverse[x] = 1 / math.sqrt(left)
        left = p[x]
        for z in range(x):
            left -= A[x, z] * p[z]
        p[x] = left * w.inverse[x]
    for x in range(d - 1, -1, -1):
        p[x] *= w.inverse[x]
        for z in range(x):
            p[z] -= A[x, z] * p[x]


@fast
def add_squares(k: int, c0: Any, w: Workspace) -> None:
    """A += Σ_own (c − c0) q qᵀ."""
    A, d = w.A, len(w.p)
    i = 0
    while i + 4 <= k:  # four apps at a time: A is read and written a quarter as often
        a, b, c, e = i, i + 1, i + 2, i + 3
        for x in range(d):
            wa, wb = (w.c[a] - c0) * w.own[a, x], (w.c[b] - c0) * w.own[b, x]
            wc, we = (w.c[c] - c0) * w.own[c, x], (w.c[e] - c0) * w.own[e, x]
            for y in range(d):
                A[x, y] += (wa * w.own[a, y] + wb * w.own[b, y]) + (
                    wc * w.own[c, y] + we * w.own[e, y]
                )
        i += 4
    while i < k:
        for x in range(d):
            scaled = (w.c[i] - c0) * w.own[i, x]
            for y in range(d):
                A[x, y] += scaled * w.own[i, y]
        i += 1


@fast
def gradient_rows(phone: int, k: int, c0: Any, fleet: Columns, t: Terms, w: Workspace) -> float:
    """The own rows of F above the background, eq. (12); returns the own apps' loss, eq. (3)."""
    d = t.Q.shape[1]
    loss = 0.0
    for i in range(k):
        taste = t.Q.dtype.type(0)
        for x in range(d):
            taste += w.own[i, x] * w.p[x]
        residual = taste + w.h[i] - 1
        w.D[i] = w.c[i] * residual
        loss += 0.5 * w.D[i] * residual - 0.5 * c0 * taste * taste
        above = w.D[i] - c0 * taste
        for x in range(d):
            w.F[i, x] = above * w.p[x] + w.D[i] * w.SQ[i, x]
    if t.reading != 3:
        for e in range(fleet.transition_starts[phone], fleet.transition_starts[phone + 1]):
            row, column = ends(e, fleet, t.reading)
            entry = w.D[row] * w.shares[row] * fleet.times[e]
            for x in range(d):
                w.F[column, x] += entry * w.own[row, x]
    return loss


def solve_user_vectors(
    fleet: Fleet, broadcast: Broadcast, start: Floats | None = None, solving: Mask | None = None
) -> Floats:
    """(n_phones, d): all phones' user vectors against a broadcast, eq. (10), in float64.

    With `solving` only of the phones in it; the others keep their row of `start`, by default 0.
    """
    found = np.zeros((len(fleet), broadcast.dim)) if start is None else start.copy()
    mask = np.ones(len(fleet), np.bool_) if solving is None else solving
    t, phones = terms(broadcast, np.float64), fleet.columns

    def work(first: int, last: int) -> None:
        _solve_range(first, last, phones, t, found, mask)

    list(each_range(len(fleet), work, size=256))
    return found


@fast
def _solve_range(
    first: int, last: int, fleet: Columns, t: Terms, user_vectors: Floats, solving: Mask
) -> None:
    w = new_workspace(most_apps(first, last, fleet), t.Q)
    for phone in range(first, last):
        if solving[phone]:
            k, c0 = prepare(phone, fleet, t, w)
            solve(k, c0, t, w)
            user_vectors[phone] = w.p
