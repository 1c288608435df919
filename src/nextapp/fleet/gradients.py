"""The clipped gradients of a block of phones as columns: what every mechanism starts from.

Q, p, F, c0 as in `nextapp.model`; x is F moved into the ball of the clip, in units of it, as in
`nextapp.privacy`. A phone's own rows stand in columns, the background that all other apps share
(α > 0) as two factors, so that norms and single entries cost what the phone's own apps cost.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.fleet.columns import Ints, Longs
from nextapp.fleet.stepping import Columns, Terms, desk, fast, most_apps, prepare, slope, solve
from nextapp.wire import Floats

Mask = npt.NDArray[np.bool_]

BALLS = {"none": 0, "linf": 1, "l1": 2, "l2": 3}
LINF, L1, L2 = BALLS["linf"], BALLS["l1"], BALLS["l2"]


class Gradients(NamedTuple):
    """F, or later x, of the phones of a block that report; row i is phone ``phones[i]``'s.

    at an own app      ``rows``, from ``starts[i]`` to ``starts[i + 1]``, one an app in ``apps``
    at any other app   c0 (Q p) pᵀ, cut off at ±``limit``
    """

    phones: Longs  # (n,) within the fleet
    starts: Longs  # (n + 1,)
    apps: Ints  # (n_own,)
    rows: Floats  # (n_own, d)
    c0: Floats  # (n,)
    p: Floats  # (n, d)
    squares: Floats  # (n,) ‖F‖², then ‖x‖² if the ball is "l2"
    limit: float  # of an entry of x: 1 for the ball "linf", else infinite


@fast
def gradients(
    first: int,
    last: int,
    fleet: Columns,
    t: Terms,
    user_vectors: Floats,
    reporting: Mask,
    solving: bool,
    limit: float,
) -> tuple[Gradients, float]:
    """F of the phones of a block that report, eq. (12), and the sum of their losses, eq. (3)."""
    d = t.Q.shape[1]
    n, n_own = 0, 0
    for phone in range(first, last):
        if reporting[phone]:
            n += 1
            n_own += fleet.app_starts[phone + 1] - fleet.app_starts[phone]
    g = Gradients(
        np.empty(n, np.int64),
        np.zeros(n + 1, np.int64),
        np.empty(n_own, np.int32),
        np.empty((n_own, d)),
        np.empty(n),
        np.empty((n, d)),
        np.empty(n),
        limit,
    )
    w = desk(most_apps(first, last, fleet), t.Q)
    i, losses = 0, 0.0
    for phone in range(first, last):
        if not reporting[phone]:
            continue
        k, c0 = prepare(phone, fleet, t, w)
        if solving:
            solve(k, c0, t, w)
            user_vectors[phone] = w.p
        else:
            w.p[:] = user_vectors[phone]
        loss = slope(phone, k, c0, fleet, t, w)
        length = 0.0  # ‖p‖²
        for x in range(d):
            length += w.p[x] * w.p[x]
        start = g.starts[i]
        rest = 0.0  # Σ (q·p)² over the apps that are not the phone's own
        if c0 > 0:
            for x in range(d):
                for y in range(d):
                    rest += t.gram[x, y] * w.p[x] * w.p[y]
            loss += 0.5 * c0 * rest
        square = 0.0
        for own in range(k):
            g.apps[start + own] = fleet.apps[fleet.app_starts[phone] + own]
            taste = 0.0
            if c0 > 0:
                for x in range(d):
                    taste += w.own[own, x] * w.p[x]
                rest -= taste * taste
            for x in range(d):
                entry = w.F[own, x] + c0 * taste * w.p[x]
                g.rows[start + own, x] = entry
                square += entry * entry
        g.squares[i] = square + c0 * c0 * length * max(rest, 0.0)
        g.phones[i], g.c0[i], g.p[i] = phone, c0, w.p
        g.starts[i + 1] = start + k
        losses += loss + 0.5 * t.lam * length
        i += 1
    return g, losses


@fast
def into_balls(g: Gradients, Q: Floats, ball: int, clip: float) -> None:
    """F becomes x, in place: `nextapp.privacy.mechanism.into_ball` for every phone."""
    n_apps, d = Q.shape
    for i in range(len(g.phones)):
        start, stop = g.starts[i], g.starts[i + 1]
        if ball == LINF:
            for row in range(start, stop):
                for x in range(d):
                    g.rows[row, x] = min(max(g.rows[row, x], -clip), clip) / clip
            g.c0[i] /= clip
            continue
        norm = math.sqrt(g.squares[i])
        if ball == L1:
            norm = 0.0
            for row in range(start, stop):
                for x in range(d):
                    norm += abs(g.rows[row, x])
            if g.c0[i] > 0:
                size, tastes = 0.0, 0.0
                for x in range(d):
                    size += abs(g.p[i, x])
                own = start
                for app in range(n_apps):
                    if own < stop and g.apps[own] == app:
                        own += 1
                        continue
                    taste = 0.0
                    for x in range(d):
                        taste += Q[app, x] * g.p[i, x]
                    tastes += abs(taste)
                norm += g.c0[i] * size * tastes
        divisor = max(norm, clip)
        for row in range(start, stop):
            for x in range(d):
                g.rows[row, x] /= divisor
        g.c0[i] /= divisor
        g.squares[i] = min(g.squares[i] / (divisor * divisor), 1.0)


@fast
def background(g: Gradients, i: int, Q: Floats, app: int, column: int) -> float:
    """The entry of x at an app that is not the phone's own."""
    if g.c0[i] == 0:
        return 0.0
    taste = 0.0
    for x in range(Q.shape[1]):
        taste += Q[app, x] * g.p[i, x]
    return min(max(g.c0[i] * taste * g.p[i, column], -g.limit), g.limit)


@fast
def entry(g: Gradients, i: int, Q: Floats, position: int) -> float:
    """One entry of x, row by row; the phone's own apps are searched by halves."""
    app, column = position // Q.shape[1], position % Q.shape[1]
    low, stop = g.starts[i], g.starts[i + 1]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if g.apps[middle] < app:
            low = middle + 1
        else:
            high = middle
    if low < stop and g.apps[low] == app:
        return g.rows[low, column]  # type: ignore[no-any-return]
    return background(g, i, Q, app, column)


@fast
def spread_out(g: Gradients, i: int, Q: Floats, x: Floats) -> None:
    """All entries of x, row by row, into a vector that is 0 before; `swept` makes it 0 again."""
    n_apps, d = Q.shape
    if g.c0[i] > 0:
        for app in range(n_apps):
            taste = 0.0
            for y in range(d):
                taste += Q[app, y] * g.p[i, y]
            for y in range(d):
                x[app * d + y] = min(max(g.c0[i] * taste * g.p[i, y], -g.limit), g.limit)
    for row in range(g.starts[i], g.starts[i + 1]):
        for y in range(d):
            x[g.apps[row] * d + y] = g.rows[row, y]


@fast
def swept(g: Gradients, i: int, d: int, x: Any) -> None:
    """Undo `spread_out`."""
    if g.c0[i] > 0:
        x[:] = 0
    for row in range(g.starts[i], g.starts[i + 1]):
        for y in range(d):
            x[g.apps[row] * d + y] = 0


@fast
def add_up(g: Gradients, Q: Floats, total: Floats, common: Floats) -> None:
    """Σ x into `total` (n_apps, d); of the background only Σ c0 p pᵀ, into `common` (d, d).

    The sum is ``total + Q @ common``. A background that the ℓ∞ clip might cut is added entry by
    entry instead.
    """
    n_apps, d = Q.shape
    longest = 0.0
    if g.limit == 1.0 and (g.c0 > 0).any():
        for app in range(n_apps):
            square = 0.0
            for x in range(d):
                square += Q[app, x] * Q[app, x]
            longest = max(longest, math.sqrt(square))
    for i in range(len(g.phones)):
        start, stop = g.starts[i], g.starts[i + 1]
        c0 = g.c0[i]
        for row in range(start, stop):
            for x in range(d):
                total[g.apps[row], x] += g.rows[row, x]
        if c0 == 0:
            continue
        square, largest = 0.0, 0.0
        for x in range(d):
            square += g.p[i, x] * g.p[i, x]
            largest = max(largest, abs(g.p[i, x]))
        if c0 * longest * math.sqrt(square) * largest > g.limit:
            own = start
            for app in range(n_apps):
                if own < stop and g.apps[own] == app:
                    own += 1
                    continue
                for x in range(d):
                    total[app, x] += background(g, i, Q, app, x)
            continue
        for x in range(d):
            for y in range(d):
                common[x, y] += c0 * g.p[i, x] * g.p[i, y]
        for row in range(start, stop):
            taste = 0.0
            for x in range(d):
                taste += Q[g.apps[row], x] * g.p[i, x]
            for x in range(d):
                total[g.apps[row], x] -= c0 * taste * g.p[i, x]
