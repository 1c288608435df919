"""Reports of shares by a whole fleet, as `PhoneCore.draw_report` draws them; their true mean.

Every phone plays its own bits, ``KeyedBits(seed, phone, round, "report")``, so a report is that of
the phone alone, in a shard, in any order. A report costs a walk over the phone's transitions: no
law of the sum is needed, a million phones take about a second.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.compiled_bits import Key, below, stream, word
from nextapp.fleet.columns import Columns, Fleet, Longs, Mask, in_ranges
from nextapp.fleet.encoder import REPORT
from nextapp.privacy import FrequencyMechanism, Mechanism
from nextapp.privacy.frequency import GRID
from nextapp.privacy.hadamard import Hadamard
from nextapp.privacy.packing import pack_fields, width
from nextapp.privacy.subset import Subset
from nextapp.shares import POPULARITY, check_popularity
from nextapp.wire import Floats, Report


def tally_reports(
    fleet: Fleet,
    oracle: FrequencyMechanism,
    seed: int,
    *,
    round: int = 0,
    reporting: Mask | None = None,
    popularity: float = POPULARITY,
    threads: int | None = None,
) -> Longs:
    """(n_outputs,): ``oracle.tally`` of the reports of the phones in `reporting`, or of all."""
    drawn = _draw_outputs(fleet, oracle, seed, round, reporting, popularity, threads)
    return np.bincount(drawn[drawn >= 0], minlength=oracle.n_outputs).astype(np.int64)


def encode_reports(
    fleet: Fleet,
    oracle: FrequencyMechanism,
    seed: int,
    *,
    round: int = 0,
    reporting: Mask | None = None,
    popularity: float = POPULARITY,
    threads: int | None = None,
) -> list[Report]:
    """The reports themselves, in the order of the phones."""
    drawn = _draw_outputs(fleet, oracle, seed, round, reporting, popularity, threads)
    widths = [width(oracle.n_outputs)]
    return [
        Report(oracle.name, round, pack_fields([output], widths))
        for output in drawn[drawn >= 0].tolist()
    ]


def mean_shares(fleet: Fleet, popularity: float = POPULARITY) -> Floats:
    """(n_apps, n_apps + 1): the mean of the phones' shares, with no privacy at all."""
    check_popularity(popularity)
    if len(fleet) == 0:
        raise ValueError("a mean needs at least one phone.")
    total = np.zeros((fleet.n_apps, fleet.n_apps + 1))
    _add_shares(fleet.columns, popularity, total)
    return total / len(fleet)


def _draw_outputs(
    fleet: Fleet,
    oracle: FrequencyMechanism,
    seed: int,
    round: int,
    reporting: Mask | None,
    popularity: float,
    threads: int | None,
) -> Longs:
    """The output that each phone reports, −1 for phones that do not."""
    check_popularity(popularity)
    check_shares_of(fleet.n_apps, oracle)
    if isinstance(oracle, Subset):
        geometry = (oracle.q, oracle.t)
    elif isinstance(oracle, Hadamard):
        geometry = (2, 0)
    else:
        raise ValueError(f"a fleet reports shares by 'subset' or 'hadamard', not {oracle.name!r}.")
    mask = np.ones(len(fleet), np.bool_) if reporting is None else reporting
    drawn = np.full(len(fleet), -1, np.int64)
    sizes = np.array(
        [oracle.n_apps, oracle.D, oracle.scattering, oracle.n_blocks, oracle.block,
         oracle.n_favoured, oracle.n_outputs, *geometry], np.int64,
    )  # fmt: skip
    columns = fleet.columns
    keys = (np.uint64(seed), np.uint64(fleet.first_phone), np.uint64(round))
    threshold = np.uint64(oracle.threshold)

    def work(first: int, last: int) -> None:
        _draw(first, last, columns, mask, popularity, sizes, threshold, keys, drawn)

    in_ranges(len(fleet), work, threads)
    return drawn


def check_shares_of(n_apps: int, mechanism: Mechanism) -> None:
    if (mechanism.n_apps, mechanism.d) != (n_apps, n_apps + 1):
        raise ValueError(
            f"{mechanism.name} was made for shares of {(mechanism.n_apps, mechanism.d)}, those of "
            f"the fleet are {(n_apps, n_apps + 1)}: make one for the catalogue at hand."
        )


_GRID = float(GRID)


@compiled
def _draw(
    first: int,
    last: int,
    columns: Columns,
    reporting: npt.NDArray[np.bool_],
    popularity: float,
    sizes: Longs,
    threshold: Key,
    keys: tuple[Key, Key, Key],
    drawn: Longs,
) -> None:
    n_apps, n_cells, step, n_blocks, block, n_favoured, n_outputs, q, t = sizes
    v, u = np.zeros(max(1, t), np.int64), np.zeros(max(1, t), np.int64)
    for phone in range(first, last):
        if not reporting[phone]:
            continue
        bits = stream(keys[0], keys[1] + np.uint64(phone), keys[2], REPORT)
        pick, coin = int(word(bits) >> np.uint64(12)), word(bits)
        place, other = below(bits, n_favoured), below(bits, n_outputs)
        cell = _cell(phone, columns, n_apps, popularity, pick)
        drawn[phone] = other
        if cell >= 0 and coin < threshold:
            scattered = cell * step % n_cells
            point = scattered // n_blocks
            favoured = _orthogonal(point, place, q, v, u) if t > 0 else _even(point, place)
            drawn[phone] = scattered % n_blocks * block + favoured


@compiled
def _cell(
    phone: int,
    columns: Columns,
    n_apps: int,
    popularity: float,
    pick: int,
) -> int:
    """The cell that `pick` falls on, `nextapp.shares` and `FrequencyMechanism` in one; −1: none."""
    app_starts, apps, counts, transition_starts, previous, following, times = columns
    begin, end = app_starts[phone], app_starts[phone + 1]
    move, last_move = transition_starts[phone], transition_starts[phone + 1]
    n_launches = 0
    for place in range(begin, end):
        n_launches += counts[place]
    reach = 0
    for place in range(begin, end):
        row = np.int64(apps[place]) * (n_apps + 1)
        while move < last_move and previous[move] == place - begin:
            share = (1.0 - popularity) * (times[move] / max(1, n_launches - 1))
            reach += math.floor(share * _GRID)
            if pick < reach:
                return int(row + apps[begin + following[move]])
            move += 1
        share = popularity * (counts[place] / n_launches)
        reach += math.floor(share * _GRID)
        if pick < reach:
            return int(row + n_apps)
    return -1


@compiled
def _even(point: int, place: int) -> int:
    """`Hadamard._favoured_output`."""
    row = point + 1
    top = 0
    while row >> (top + 1):
        top += 1
    column = (place >> top) << (top + 1) | (place & ((1 << top) - 1))
    shared, odd = column & row, 0
    while shared:
        odd ^= 1
        shared &= shared - 1
    return int(column | odd << top)


@compiled
def _orthogonal(point: int, place: int, q: int, v: Longs, u: Longs) -> int:
    """`Subset._favoured_output`; v and u have room for a vector."""
    t = len(v)
    lead = _vector(point, q, v)
    _vector(place, q, u[1:])
    for entry in range(lead):  # make room at `lead`
        u[entry] = u[entry + 1]
    u[lead] = 0
    product = 0
    for entry in range(t):
        product += u[entry] * v[entry]
    u[lead] = (q - product % q) % q
    first = 0
    while u[first] == 0:
        first += 1
    inverse = 1
    for _ in range(q - 2):  # Fermat
        inverse = inverse * u[first] % q
    rest, before, power = 0, 0, 1
    for entry in range(first + 1, t):
        rest = rest * q + u[entry] * inverse % q
        before += power
        power *= q
    return int(before + rest)


@compiled
def _vector(point: int, q: int, into: Longs) -> int:
    """`subset.vector`, and the place of its leading 1."""
    t = len(into)
    k, before, power = 0, 0, 1
    while point >= before + power:
        before += power
        power *= q
        k += 1
    rest = point - before
    into[:] = 0
    for digit in range(k):
        into[t - 1 - digit] = rest % q
        rest //= q
    into[t - 1 - k] = 1
    return int(t - 1 - k)


@compiled
def _add_shares(
    columns: Columns,
    popularity: float,
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
            total[apps[place], n_apps] += popularity * (counts[place] / n_launches)
        for move in range(transition_starts[phone], transition_starts[phone + 1]):
            row, column = apps[begin + previous[move]], apps[begin + following[move]]
            total[row, column] += (1.0 - popularity) * (times[move] / max(1, n_launches - 1))
