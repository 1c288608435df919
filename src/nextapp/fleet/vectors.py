"""Transition and launch vectors of a fleet: their means, and the answers of copies of phones.

x            a phone's transition vector (`nextapp.crowd`) in the ℓ2 ball of the clip, by the clip,
             or its answer about launches (`PhoneCore.launches`)

`nextapp.fleet.walsh` simulates the phones' reports of these vectors bit by bit. `draw_copies` and
`draw_launches` draw in one step what a fleet of copies of the phones would teach.
"""

from __future__ import annotations

import math

import numpy as np

from nextapp.compiled import compiled
from nextapp.crowd import REPEATS
from nextapp.fleet.columns import Columns, Fleet, Longs
from nextapp.privacy.mechanism import check_clip
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

_REST, _LAUNCHES = "law-rest", "law-top"  # purposes of randomness
_REPEATS = REPEATS  # a constant of the loops


def mean_vector(fleet: Fleet, clip: float = 1.0) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' clipped vectors, with no privacy at all."""
    _check_some(fleet)
    total = np.zeros(fleet.n_apps * (fleet.n_apps + 1))
    _add_vectors(fleet.columns, check_clip(clip), fleet.n_apps + 1, total)
    return clip / len(fleet) * total.reshape(fleet.n_apps, -1)


def mean_shares(fleet: Fleet) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' shares, with no privacy at all.

    share(j, i) = n(j→i)/n(·→·),   share(j, n_apps) = n(j)/n(·)
    """
    _check_some(fleet)
    c, n_apps = fleet.columns, fleet.n_apps
    n_launches = np.add.reduceat(np.append(c.counts, 0), c.app_starts[:-1])
    n_launches[np.diff(c.app_starts) == 0] = 0
    total = np.zeros((n_apps, n_apps + 1))
    of_app = np.repeat(n_launches, np.diff(c.app_starts))
    total[:, n_apps] = np.bincount(c.apps, c.counts / of_app, minlength=n_apps)
    phone = np.repeat(np.arange(len(fleet)), np.diff(c.transition_starts))
    last, after = (c.apps[c.app_starts[phone] + each] for each in (c.previous, c.following))
    np.add.at(total, (last, after), c.times / np.maximum(n_launches - 1, 1)[phone])
    return total / len(fleet)


def _check_some(fleet: Fleet) -> None:
    if len(fleet) == 0:
        raise ValueError("a mean needs at least one phone.")


def draw_copies(fleet: Fleet, mechanism: Walsh, n_phones: int, seed: int) -> Floats:
    """(n_apps, n_apps + 1): the estimate from `n_phones` copies of the fleet's phones.

    All phones have equally many copies. Reports are independent given the launches, so this is the
    mean of the vectors and noise. The noise of every cell has the variance (clip/μ)²/n_phones,
    which is exact for a cell that few phones have. It costs the same for any number of phones.
    """
    check_question(fleet.n_apps, mechanism, "transitions")
    if n_phones < 1:
        raise ValueError(f"a fleet of copies has 1 phone or more, got {n_phones}.")
    bits = KeyedBits(seed, purpose=_REST).generator()
    error = mechanism.clip / (mechanism.mu * math.sqrt(n_phones))
    noise = bits.standard_normal((mechanism.n_apps, mechanism.d))
    return mean_vector(fleet, mechanism.clip) + error * noise


def draw_launches(fleet: Fleet, mechanism: Walsh, n_phones: int, seed: int) -> Floats:
    """(n_apps,): the same of launches: the mean of √(share of a phone's launches), and noise."""
    app_starts, apps, counts = fleet.columns[:3]
    n_each = np.diff(app_starts)
    phone = np.repeat(np.arange(len(fleet)), n_each)
    launches = np.bincount(phone, counts, minlength=len(fleet))
    root = np.sqrt(counts / launches[phone])
    mean = np.bincount(apps, root, minlength=fleet.n_apps) / max(1, len(fleet))
    bits = KeyedBits(seed, purpose=_LAUNCHES).generator()
    error = mechanism.clip / (mechanism.mu * math.sqrt(n_phones))
    found: Floats = mean + error * bits.standard_normal(fleet.n_apps)
    return found


def check_question(n_apps: int, mechanism: Walsh, question: str) -> None:
    """Raises where a mechanism is not for the answers to this question."""
    shape = (n_apps, 1) if question == "launches" else (n_apps, n_apps + 1)
    if (mechanism.n_apps, mechanism.d) != shape:
        raise ValueError(
            f"{mechanism.name} was made for answers of {(mechanism.n_apps, mechanism.d)}, "
            f"{question} of the fleet are {shape}: make one for the catalogue of the fleet."
        )


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
def _add_vectors(columns: Columns, clip: float, width: int, total: Floats) -> None:
    for phone in range(len(columns.app_starts) - 1):
        cells, x = transition_vector(phone, columns, clip, width)
        for i in range(len(cells)):
            total[cells[i]] += x[i]
