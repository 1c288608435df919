"""The directed model's phone step for a block of phones, compiled.

The second form of `nextapp.directed`, held to it by tests (float64, 1e-10); symbols as there. The
scores r_jᵀq_i are the same for all phones, so they are exponentiated once a round:

    P(i | j, u) ∝ E_ji exp(q_iᵀp),   E_ji = exp(r_jᵀq_i − max_i r_jᵀq_i)

The slope in Q is dense, that in R has a row for each app that anything came after.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nextapp.compiled import fast
from nextapp.directed import NEWTON_STEPS
from nextapp.fleet.columns import Columns, Ints, Mask
from nextapp.fleet.gradients import Gradients
from nextapp.fleet.stepping import most_apps
from nextapp.wire import Broadcast, Floats

_STEPS = NEWTON_STEPS
_LEAST = 1e-200  # a smaller sum of a row is made anew from its scores


class Terms(NamedTuple):
    """What a broadcast of Q above R says to every phone."""

    Q: Floats  # (n_apps, d)
    R: Floats  # (n_apps, d)
    E: Floats  # (n_apps, n_apps)
    lam: float


def terms(broadcast: Broadcast) -> Terms:
    """Of a broadcast whose vectors are Q and below it R, (2 n_apps, d)."""
    n_rows = broadcast.n_apps
    if n_rows % 2:
        raise ValueError(
            f"the vectors of the directed model are Q and below it R, two rows per app; got "
            f"{n_rows} rows."
        )
    Q, R = np.split(np.ascontiguousarray(broadcast.app_vectors), 2)
    scores = R @ Q.T
    return Terms(Q, R, np.exp(scores - scores.max(axis=1)[:, None]), broadcast.settings.lam)


class Desk(NamedTuple):
    """Room for the work on one phone, used again for the next."""

    last: Ints  # (most,)   apps that something came after
    weight: Floats  # (most,)   shares of the transitions from them
    chance: Floats  # (most, n_apps)   P(i | j, u), then the error
    factor: Floats  # (n_apps,)   exp(q_iᵀp − max)
    all: Floats  # (n_apps,)   Σ_j weight_j P(i | j)
    means: Floats  # (most, d)
    H: Floats  # (d, d)
    slope: Floats  # (d,)
    p: Floats  # (d,)


@fast
def desk(most: int, t: Terms) -> Desk:
    n, d = t.Q.shape
    return Desk(
        np.empty(most, np.int32),
        np.empty(most),
        np.empty((most, n)),
        np.empty(n),
        np.empty(n),
        np.empty((most, d)),
        np.empty((d, d)),
        np.empty(d),
        np.empty(d),
    )


@fast
def _rows(phone: int, fleet: Columns, w: Desk) -> tuple[int, float]:
    """last and weight of one phone; returns how many there are, and all its transitions."""
    first, end = fleet.transition_starts[phone], fleet.transition_starts[phone + 1]
    start = fleet.app_starts[phone]
    total = 0.0
    for e in range(first, end):
        total += fleet.times[e]
    k = 0
    for e in range(first, end):  # by ascending `previous`
        if e == first or fleet.previous[e] != fleet.previous[e - 1]:
            w.last[k] = fleet.apps[start + fleet.previous[e]]
            w.weight[k] = 0.0
            k += 1
        w.weight[k - 1] += fleet.times[e] / total
    return k, total


@fast
def _chances(k: int, t: Terms, w: Desk) -> None:
    """P(i | j, u) for the last apps j of one phone with this p."""
    n, d = t.Q.shape
    highest = -math.inf
    for i in range(n):
        score = 0.0
        for x in range(d):
            score += t.Q[i, x] * w.p[x]
        w.factor[i] = score
        highest = max(highest, score)
    for j in range(k):
        if j == 0:
            for i in range(n):
                w.factor[i] = math.exp(w.factor[i] - highest)
        row, E = w.chance[j], t.E[w.last[j]]
        total = 0.0
        for i in range(n):
            row[i] = E[i] * w.factor[i]
            total += row[i]
        if total < _LEAST:
            total = _from_scores(w.last[j], t, w.p, row)
        share = 1.0 / total
        for i in range(n):
            row[i] *= share


@fast
def _from_scores(last: int, t: Terms, p: Floats, row: Floats) -> float:
    """exp(q_iᵀ(p + r_j) − max) into `row`; returns the sum."""
    n, d = t.Q.shape
    highest = -math.inf
    for i in range(n):
        row[i] = 0.0
        for x in range(d):
            row[i] += t.Q[i, x] * (p[x] + t.R[last, x])
        highest = max(highest, row[i])
    total = 0.0
    for i in range(n):
        row[i] = math.exp(row[i] - highest)
        total += row[i]
    return total


@fast
def _solve(phone: int, k: int, total: float, fleet: Columns, t: Terms, w: Desk) -> None:
    """p of one phone by Newton's steps from 0."""
    n, d = t.Q.shape
    start = fleet.app_starts[phone]
    w.p[:] = 0.0
    for _ in range(_STEPS if k else 0):
        _chances(k, t, w)
        w.all[:] = 0.0
        for j in range(k):
            weight = w.weight[j]
            for i in range(n):
                w.all[i] += weight * w.chance[j, i]
        _second(k, t, w)
        for x in range(d):
            w.slope[x] = t.lam * w.p[x]
        for e in range(fleet.transition_starts[phone], fleet.transition_starts[phone + 1]):
            w.all[fleet.apps[start + fleet.following[e]]] -= fleet.times[e] / total
        _add_rows(w.all, t.Q, w.slope)
        _newton(w)


@fast
def _second(k: int, t: Terms, w: Desk) -> None:
    """H: the second slope of L in p, its lower half."""
    n, d = t.Q.shape
    w.H[:] = 0.0
    i = 0
    while i + 4 <= n:  # four apps at a time: H is read and written a quarter as often
        a, b, c, e = t.Q[i], t.Q[i + 1], t.Q[i + 2], t.Q[i + 3]
        for x in range(d):
            wa, wb = w.all[i] * a[x], w.all[i + 1] * b[x]
            wc, we = w.all[i + 2] * c[x], w.all[i + 3] * e[x]
            for y in range(x + 1):
                w.H[x, y] += (wa * a[y] + wb * b[y]) + (wc * c[y] + we * e[y])
        i += 4
    while i < n:
        for x in range(d):
            scaled = w.all[i] * t.Q[i, x]
            for y in range(x + 1):
                w.H[x, y] += scaled * t.Q[i, y]
        i += 1
    w.means[:k] = 0.0
    for j in range(k):
        _add_rows(w.chance[j], t.Q, w.means[j])
        for x in range(d):
            scaled = w.weight[j] * w.means[j, x]
            for y in range(x + 1):
                w.H[x, y] -= scaled * w.means[j, y]
    for x in range(d):
        w.H[x, x] += t.lam


@fast
def _add_rows(weights: Floats, rows: Floats, total: Floats) -> None:
    """total += weights @ rows, four rows at a time."""
    n, d = rows.shape
    i = 0
    while i + 4 <= n:
        a, b, c, e = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        wa, wb, wc, we = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for x in range(d):
            total[x] += (wa * a[x] + wb * b[x]) + (wc * c[x] + we * e[x])
        i += 4
    while i < n:
        for x in range(d):
            total[x] += weights[i] * rows[i, x]
        i += 1


@fast
def _newton(w: Desk) -> None:
    """p −= H⁻¹ slope, by Cholesky in place."""
    H, b = w.H, w.slope
    d = len(b)
    for x in range(d):
        for y in range(x):
            left = H[x, y]
            for z in range(y):
                left -= H[x, z] * H[y, z]
            H[x, y] = left / H[y, y]
        left, right = H[x, x], b[x]
        for z in range(x):
            left -= H[x, z] * H[x, z]
            right -= H[x, z] * b[z]
        H[x, x] = math.sqrt(left)
        b[x] = right / H[x, x]
    for x in range(d - 1, -1, -1):
        b[x] /= H[x, x]
        for z in range(x):
            b[z] -= H[x, z] * b[x]
        w.p[x] -= b[x]


@fast
def _slopes(
    phone: int, k: int, total: float, fleet: Columns, t: Terms, w: Desk, g: Gradients, at: int
) -> float:
    """The rows of the gradient from row `at` on; returns the loss L."""
    n, d = t.Q.shape
    start = fleet.app_starts[phone]
    _chances(k, t, w)
    loss = 0.0
    for x in range(d):
        loss += 0.5 * t.lam * w.p[x] * w.p[x]
    j = 0
    for e in range(fleet.transition_starts[phone], fleet.transition_starts[phone + 1]):
        while w.last[j] != fleet.apps[start + fleet.previous[e]]:
            j += 1
        following = fleet.apps[start + fleet.following[e]]
        loss -= fleet.times[e] / total * math.log(w.chance[j, following])
    for j in range(k):
        for i in range(n):
            w.chance[j, i] *= w.weight[j]
    j = 0
    for e in range(fleet.transition_starts[phone], fleet.transition_starts[phone + 1]):
        while w.last[j] != fleet.apps[start + fleet.previous[e]]:
            j += 1
        w.chance[j, fleet.apps[start + fleet.following[e]]] -= fleet.times[e] / total
    g.rows[at : at + n + k] = 0.0
    for j in range(k):
        g.apps[at + n + j] = n + w.last[j]
        _add_rows(w.chance[j], t.Q, g.rows[at + n + j])
        for x in range(d):
            w.means[j, x] = w.p[x] + t.R[w.last[j], x]
    for i in range(n):
        g.apps[at + i] = i
        _add_rows(w.chance[:k, i], w.means[:k], g.rows[at + i])
    return loss


@fast
def directed_gradients(
    first: int,
    last: int,
    fleet: Columns,
    t: Terms,
    user_vectors: Floats,
    reporting: Mask,
    solving: bool,
    limit: float,
) -> tuple[Gradients, float]:
    """The slopes of L in Q and R of the phones of a block that report, and the sum of their L.

    As `gradients.gradients`, for apps 0 to 2 n_apps − 1: row i of Q is app i, row j of R is app
    n_apps + j. A phone without a transition has no rows.
    """
    n, d = t.Q.shape
    w = desk(most_apps(first, last, fleet), t)
    n_phones, n_rows = 0, 0
    for phone in range(first, last):
        if reporting[phone]:
            n_phones += 1
            k, _ = _rows(phone, fleet, w)
            n_rows += n + k if k else 0
    g = Gradients(
        np.empty(n_phones, np.int64),
        np.zeros(n_phones + 1, np.int64),
        np.empty(n_rows, np.int32),
        np.empty((n_rows, d)),
        np.zeros(n_phones),
        np.zeros((n_phones, d)),
        np.empty(n_phones),
        limit,
    )
    i, losses = 0, 0.0
    for phone in range(first, last):
        if not reporting[phone]:
            continue
        k, total = _rows(phone, fleet, w)
        if solving:
            _solve(phone, k, total, fleet, t, w)
            user_vectors[phone] = w.p
        else:
            w.p[:] = user_vectors[phone]
        at = g.starts[i]
        g.phones[i], g.starts[i + 1] = phone, at
        square = 0.0
        if k:
            losses += _slopes(phone, k, total, fleet, t, w, g, at)
            g.starts[i + 1] = at + n + k
            for row in range(at, at + n + k):
                for x in range(d):
                    square += g.rows[row, x] * g.rows[row, x]
        g.squares[i] = square
        i += 1
    return g, losses
