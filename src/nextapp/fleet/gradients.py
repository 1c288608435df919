"""The clipped gradients of a block of phones as columns: what every mechanism starts from.

Q, p, F, c0 as in `nextapp.model`; x is F moved into the ball of the clip, in units of it, as in
`nextapp.privacy`. A phone's own rows stand in columns, the background that all other apps share
(α > 0) as two factors, so that norms and single entries cost what the phone's own apps cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nextapp.compiled import compiled, fast
from nextapp.compiled_bits import stream
from nextapp.fleet.columns import Columns, Ints, Longs, Mask
from nextapp.fleet.stepping import (
    Terms,
    Workspace,
    gradient_rows,
    most_apps,
    new_workspace,
    prepare,
    solve,
)
from nextapp.randomness import Words, purpose_word
from nextapp.wire import Floats

REPORT = np.uint64(purpose_word("report"))
BALLS = {"none": 0, "linf": 1, "l1": 2, "l2": 3}
LINF, L1 = BALLS["linf"], BALLS["l1"]


class Gradients(NamedTuple):
    """F, or later x, of the phones of a block that report; row i is phone ``phones[i]``'s.

    at an own app      ``rows``, from ``starts[i]`` to ``starts[i + 1]``, one per app in ``apps``
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


class ShardRound(NamedTuple):
    """What is the same for all phones of a shard: Q, QᵀQ, and what their bits depend on."""

    Q: Floats
    gram: Floats
    seed: np.uint64
    first_phone: np.uint64
    number: np.uint64


@compiled
def report_bits(x: Gradients, i: int, r: ShardRound) -> Words:
    """``KeyedBits(seed, phone, round, "report")`` of the phone in row i of a block."""
    return stream(r.seed, r.first_phone + np.uint64(x.phones[i]), r.number, REPORT)


@fast
def taste(Q: Floats, app: int, p: Floats) -> float:
    """q·p of one app."""
    product = 0.0
    for x in range(len(p)):
        product += Q[app, x] * p[x]
    return product


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
    n, n_own = 0, 0
    for phone in range(first, last):
        if reporting[phone]:
            n += 1
            n_own += fleet.app_starts[phone + 1] - fleet.app_starts[phone]
    d = t.Q.shape[1]
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
    w = new_workspace(most_apps(first, last, fleet), t.Q)
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
        losses += gradient_rows(phone, k, c0, fleet, t, w)
        start = g.starts[i]
        g.starts[i + 1] = start + k
        g.apps[start : start + k] = fleet.apps[fleet.app_starts[phone] :][:k]
        g.phones[i], g.c0[i], g.p[i] = phone, c0, w.p
        losses += _with_background(g, i, k, t, w)
        i += 1
    return g, losses


@fast
def _with_background(g: Gradients, i: int, k: int, t: Terms, w: Workspace) -> float:
    """The rows and ‖F‖² of one phone, and the part of its loss that is not of its own apps."""
    d = t.Q.shape[1]
    c0, length = g.c0[i], 0.0
    for x in range(d):
        length += w.p[x] * w.p[x]
    everywhere = 0.0  # ‖Q p‖²
    if c0 > 0:
        for x in range(d):
            for y in range(d):
                everywhere += t.gram[x, y] * w.p[x] * w.p[y]
    square, here = 0.0, 0.0
    for own in range(k):
        share = 0.0
        if c0 > 0:
            product = taste(w.own, own, w.p)
            here += product * product
            share = c0 * product
        for x in range(d):
            entry_ = w.F[own, x] + share * w.p[x]
            g.rows[g.starts[i] + own, x] = entry_
            square += entry_ * entry_
    g.squares[i] = square + c0 * c0 * length * max(everywhere - here, 0.0)
    return 0.5 * (c0 * everywhere + t.lam * length)  # type: ignore[no-any-return]


@fast
def into_balls(g: Gradients, Q: Floats, ball: int, clip: float) -> None:
    """F becomes x, in place: `nextapp.privacy.mechanism.into_ball` for every phone."""
    d = Q.shape[1]
    for i in range(len(g.phones)):
        start, stop = g.starts[i], g.starts[i + 1]
        if ball == LINF:
            for row in range(start, stop):
                for x in range(d):
                    g.rows[row, x] = min(max(g.rows[row, x], -clip), clip) / clip
            g.c0[i] /= clip
            continue
        norm = _sum_of_sizes(g, i, Q) if ball == L1 else math.sqrt(g.squares[i])
        divisor = max(norm, clip)
        for row in range(start, stop):
            for x in range(d):
                g.rows[row, x] /= divisor
        g.c0[i] /= divisor
        g.squares[i] = min(g.squares[i] / (divisor * divisor), 1.0)


@fast
def _sum_of_sizes(g: Gradients, i: int, Q: Floats) -> float:
    """‖F‖₁ of one phone."""
    start, stop = g.starts[i], g.starts[i + 1]
    norm = 0.0
    for row in range(start, stop):
        for x in range(Q.shape[1]):
            norm += abs(g.rows[row, x])
    if g.c0[i] > 0:
        size, tastes = np.abs(g.p[i]).sum(), 0.0
        for app in range(len(Q)):
            tastes += abs(taste(Q, app, g.p[i]))
        for row in range(start, stop):
            tastes -= abs(taste(Q, g.apps[row], g.p[i]))
        norm += g.c0[i] * size * max(tastes, 0.0)
    return norm


@fast
def background(g: Gradients, i: int, product: float, column: int) -> float:
    """The entry of x at an app that is not the phone's own; `product` is its q·p."""
    value: float = g.c0[i] * product * g.p[i, column]
    return min(max(value, -g.limit), g.limit)


@fast
def entry(g: Gradients, i: int, Q: Floats, position: int) -> float:
    """One entry of x, row by row; binary search among the own apps."""
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
    return background(g, i, taste(Q, app, g.p[i]), column) if g.c0[i] > 0 else 0.0


@fast
def spread_out(g: Gradients, i: int, Q: Floats, x: Floats) -> None:
    """All entries of x, row by row, into a vector that is 0 before; `sweep` makes it 0 again."""
    n_apps, d = Q.shape
    if g.c0[i] > 0:
        for app in range(n_apps):
            product = taste(Q, app, g.p[i])
            for y in range(d):
                x[app * d + y] = background(g, i, product, y)
    for row in range(g.starts[i], g.starts[i + 1]):
        for y in range(d):
            x[g.apps[row] * d + y] = g.rows[row, y]


@fast
def sweep(g: Gradients, i: int, d: int, x: Floats) -> None:
    """Undo `spread_out`."""
    if g.c0[i] > 0:
        x[:] = 0.0
    for row in range(g.starts[i], g.starts[i + 1]):
        for y in range(d):
            x[g.apps[row] * d + y] = 0.0


@fast
def add_up(g: Gradients, Q: Floats, total: Floats, common: Floats) -> None:
    """Σ x into `total` (n_apps, d); of the background only Σ c0 p pᵀ, into `common` (d, d).

    The sum is ``total + Q @ common``. A background that the ℓ∞ clip might cut is added entry by
    entry instead.
    """
    n_apps, d = Q.shape
    longest = math.inf
    if g.limit < math.inf:
        longest = 0.0
        for app in range(n_apps):
            longest = max(longest, math.sqrt(taste(Q, app, Q[app])))
    for i in range(len(g.phones)):
        if g.c0[i] > 0:
            reach = g.c0[i] * math.sqrt((g.p[i] ** 2).sum()) * np.abs(g.p[i]).max()
            if g.limit < math.inf and longest * reach > g.limit:
                for app in range(n_apps):
                    product = taste(Q, app, g.p[i])
                    for x in range(d):
                        total[app, x] += background(g, i, product, x)
            else:
                for x in range(d):
                    for y in range(d):
                        common[x, y] += g.c0[i] * g.p[i, x] * g.p[i, y]
        for row in range(g.starts[i], g.starts[i + 1]):
            product = taste(Q, g.apps[row], g.p[i]) if g.c0[i] > 0 else 0.0
            for x in range(d):
                total[g.apps[row], x] += g.rows[row, x] - background(g, i, product, x)
