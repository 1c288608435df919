"""Transition vectors of a fleet: their mean, and what `walsh` makes of them by law.

x            a phone's transition vector (`nextapp.shares`) in the ℓ2 ball of the clip, by the clip,
             or what it tells of its launches (`PhoneCore.launches`)
t, g, z, ζ   as in `sum_law`

A report is t x + g − (x·g) x up to the factor clip/μ. Only a phone's own cells are drawn phone by
phone; in all others its report is g, and the sum of those is one Gaussian draw per cell
(docs/fleet.md). So a million phones with millions of cells take seconds. `nextapp.fleet.walsh`
plays the same phones bit by bit.
"""

from __future__ import annotations

import math

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import Key, normal, stream
from nextapp.fleet.columns import Columns, Fleet, Ints, Longs, Mask
from nextapp.fleet.sum_law import LAW, REST, Lean, draw_lean, draw_normals, lean_of, normal_table
from nextapp.privacy.mechanism import Mechanism, check_clip
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import KeyedBits
from nextapp.shares import REPEATS
from nextapp.wire import Floats

_LAUNCHES = "law-top"
_REPEATS = REPEATS  # a constant of the loops


def mean_vector(fleet: Fleet, clip: float = 1.0, *, reporting: Mask | None = None) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' clipped vectors, with no privacy at all."""
    mask = _mask(fleet, reporting)
    total = np.zeros(fleet.n_apps * (fleet.n_apps + 1))
    _add_vectors(fleet.columns, mask, check_clip(clip), fleet.n_apps + 1, total)
    return clip / _count(mask) * total.reshape(fleet.n_apps, -1)


def mean_shares(fleet: Fleet) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' shares, with no privacy at all.

    share(j, i) = n(j→i)/n(·→·),   share(j, n_apps) = n(j)/n(·)
    """
    if len(fleet) == 0:
        raise ValueError("a mean needs at least one phone.")
    total = np.zeros((fleet.n_apps, fleet.n_apps + 1))
    _add_shares(fleet.columns, total)
    return total / len(fleet)


def draw_estimate(
    fleet: Fleet,
    mechanism: Walsh,
    seed: int,
    *,
    round: int = 0,
    reporting: Mask | None = None,
) -> Floats:
    """(n_apps, n_apps + 1): ``mechanism.decode`` of a report of every phone, drawn from its law.

    What is drawn for a phone depends on (seed, phone, round), what is drawn for all of them
    together on (seed, round).
    """
    check_shares_of(fleet.n_apps, mechanism)
    mask = _mask(fleet, reporting)
    n_reports = _count(mask)
    total, owners = np.zeros(mechanism.D), np.zeros(mechanism.D, np.int64)
    law, _ = lean_of(mechanism)
    keys = (np.uint64(seed), np.uint64(fleet.first_phone), np.uint64(round))
    _draw_own_cells(
        fleet.columns, mask, mechanism.clip, mechanism.d, law, normal_table(), keys, total, owners
    )
    return add_rest(mechanism, total, owners, n_reports, seed, round)


def add_rest(
    mechanism: Walsh, total: Floats, owners: Longs, n_reports: int, seed: int, round: int
) -> Floats:
    """The estimate from what was drawn at own cells and how many phones have each: the others'
    reports of a cell sum to one normal number. `total` is used up."""
    rest = KeyedBits(seed, round=round, purpose=REST).generator().standard_normal(mechanism.D)
    rest *= np.sqrt(n_reports - owners)
    total += rest
    total *= mechanism.clip * lean_of(mechanism)[1] / n_reports
    return total.reshape(mechanism.n_apps, mechanism.d)


def draw_copies(
    fleet: Fleet, mechanism: Walsh, n_phones: int, seed: int, *, round: int = 0
) -> Floats:
    """(n_apps, n_apps + 1): what `n_phones` copies of the fleet's phones would teach, each as often
    as the other.

    Reports are independent given the launches, so this is the mean of the vectors and noise with
    the variance (clip/μ)²/n_phones in every cell, which is that of `draw_estimate` where few phones
    have the cell. It costs the same for any number of phones.
    """
    check_shares_of(fleet.n_apps, mechanism)
    if n_phones < 1:
        raise ValueError(f"a fleet of copies has 1 phone or more, got {n_phones}.")
    bits = KeyedBits(seed, round=round, purpose=REST).generator()
    error = mechanism.clip / (mechanism.mu * math.sqrt(n_phones))
    noise = bits.standard_normal((mechanism.n_apps, mechanism.d))
    return mean_vector(fleet, mechanism.clip) + error * noise


def draw_launches(fleet: Fleet, mechanism: Walsh, n_phones: int, seed: int) -> Floats:
    """(n_apps,): what `n_phones` copies of the fleet's phones would tell of launches, as
    `draw_copies`: the mean of √(part of a phone's launches), and noise."""
    n_each = np.diff(fleet.app_starts)
    phone = np.repeat(np.arange(len(fleet)), n_each)
    launches = np.bincount(phone, fleet.counts, minlength=len(fleet))
    root = np.sqrt(fleet.counts / launches[phone])
    mean = np.bincount(fleet.apps, root, minlength=fleet.n_apps) / max(1, len(fleet))
    bits = KeyedBits(seed, purpose=_LAUNCHES).generator()
    error = mechanism.clip / (mechanism.mu * math.sqrt(n_phones))
    found: Floats = mean + error * bits.standard_normal(fleet.n_apps)
    return found


def check_shares_of(n_apps: int, mechanism: Mechanism) -> None:
    if (mechanism.n_apps, mechanism.d) != (n_apps, n_apps + 1):
        raise ValueError(
            f"{mechanism.name} was made for shares of {(mechanism.n_apps, mechanism.d)}, those of "
            f"the fleet are {(n_apps, n_apps + 1)}: make one for the catalogue at hand."
        )


def _mask(fleet: Fleet, reporting: Mask | None) -> Mask:
    return np.ones(len(fleet), np.bool_) if reporting is None else reporting


def _count(mask: Mask) -> int:
    if not mask.any():
        raise ValueError("a mean needs at least one phone.")
    return int(mask.sum())


@compiled
def transition_vector(
    phone: int, columns: Columns, clip: float, width: int
) -> tuple[Longs, Floats]:
    """The cells of one phone, ascending, and x; `width` is n_apps + 1."""
    app_starts, apps, _, transition_starts, previous, following, times = columns
    begin, move = app_starts[phone], transition_starts[phone]
    size = transition_starts[phone + 1] - move
    cells, x = np.empty(size, np.int64), np.empty(size)
    n_after = np.zeros(app_starts[phone + 1] - begin, np.int64)
    for i in range(size):
        n_after[previous[move + i]] += times[move + i]
    for i in range(size):
        last, after = previous[move + i], following[move + i]
        cells[i] = np.int64(apps[begin + last]) * width + apps[begin + after]
        x[i] = times[move + i] / math.sqrt(n_after[last])
        if last == after:
            x[i] *= _REPEATS
    _into_ball(x, 0.0)  # length 1
    _into_ball(x, clip)
    return cells, x


@compiled
def launch_vector(phone: int, columns: Columns, clip: float) -> tuple[Longs, Floats]:
    """The own apps of one phone, ascending, and x: √(share of the launches)."""
    app_starts, apps, counts = columns[:3]
    own = slice(app_starts[phone], app_starts[phone + 1])
    cells = apps[own].astype(np.int64)
    x = np.sqrt(counts[own] / counts[own].sum())
    _into_ball(x, clip)
    return cells, x


@compiled
def _into_ball(x: Floats, clip: float) -> None:
    """`nextapp.privacy.mechanism.into_ball` in ℓ2, in place; a clip of 0: to length 1."""
    largest = 0.0
    for value in x:
        largest = max(largest, abs(value))
    if largest == 0.0:
        return
    square = 0.0
    for i in range(len(x)):
        x[i] /= largest
        square += x[i] * x[i]
    norm = math.sqrt(square)
    for i in range(len(x)):
        x[i] = x[i] / norm if largest > clip / norm else x[i] * (largest / clip)


@compiled
def _add_vectors(columns: Columns, reporting: Mask, clip: float, width: int, total: Floats) -> None:
    for phone in range(len(reporting)):
        if reporting[phone]:
            cells, x = transition_vector(phone, columns, clip, width)
            for i in range(len(cells)):
                total[cells[i]] += x[i]


@compiled
def _draw_own_cells(
    columns: Columns,
    reporting: Mask,
    clip: float,
    width: int,
    law: Lean,
    entries: Ints,
    keys: tuple[Key, Key, Key],
    total: Floats,
    owners: Longs,
) -> None:
    """The part of Σ (t x + g − (x·g) x) at phones' own cells."""
    for phone in range(len(reporting)):
        if not reporting[phone]:
            continue
        cells, x = transition_vector(phone, columns, clip, width)
        bits = stream(keys[0], keys[1] + np.uint64(phone), keys[2], LAW)
        t = draw_lean(law, bits)
        completing = math.sqrt(max(0.0, 1.0 - (x * x).sum()))
        product = completing * normal(bits)  # becomes x·g
        z = np.empty(len(x))
        draw_normals(bits, entries, z)
        for i in range(len(x)):
            product += x[i] * z[i]
        for i in range(len(x)):
            owners[cells[i]] += 1
            total[cells[i]] += (t - product) * x[i] + z[i]


@compiled
def _add_shares(
    columns: Columns,
    total: Floats,
) -> None:
    app_starts, apps, counts, transition_starts, previous, following, times = columns
    n_apps = total.shape[0]
    for phone in range(len(app_starts) - 1):
        begin, end = app_starts[phone], app_starts[phone + 1]
        n_launches = 0
        for place in range(begin, end):
            n_launches += counts[place]
        for place in range(begin, end):
            total[apps[place], n_apps] += counts[place] / n_launches
        for move in range(transition_starts[phone], transition_starts[phone + 1]):
            row, column = apps[begin + previous[move]], apps[begin + following[move]]
            total[row, column] += times[move] / max(1, n_launches - 1)
