"""Mechanisms that send real numbers: laplace, piecewise, hybrid, and privunit as a vector.

The compiled form of `nextapp.privacy.laplace` and the others; symbols as there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nextapp.compiled import compiled
from nextapp.compiled_bits import below, stream, word
from nextapp.fleet.columns import Longs
from nextapp.fleet.draws import inside, is_positive, normal_quantile
from nextapp.fleet.encoder import REPORT, Arrays, Encoder, Round, State, Totals
from nextapp.fleet.gradients import Gradients, Mask, entry, spread_out, sweep
from nextapp.privacy.exact import W
from nextapp.privacy.hybrid import Hybrid
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.packing import n_bytes, packed, width
from nextapp.privacy.piecewise import Piecewise
from nextapp.privacy.privunit import PrivUnit
from nextapp.wire import Floats

_NUMBERS_AT_ONCE = 1 << 19


class NoisyEntries(Encoder):
    """`Laplace`."""

    size = 256

    def __init__(self, mechanism: Laplace) -> None:
        self.mechanism = mechanism
        self.payload_bytes = 4 * mechanism.D
        self.block = max(1, _NUMBERS_AT_ONCE // mechanism.D)

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        return [_noisy_entries(x, r, self.mechanism.scale)]

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [row.astype("<f4").tobytes() for row in reports[0]]

    def nothing(self) -> State:
        return {"sum": np.zeros(self.mechanism.D)}

    def add(self, state: State, reports: Arrays) -> None:
        add_rows(reports[0], state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        return m.clip / totals.n_reports * totals.state["sum"].reshape(m.n_apps, m.d)


class LeaningVectors(Encoder):
    """`PrivUnit` with ``form="dense"``."""

    size = 256

    def __init__(self, mechanism: PrivUnit) -> None:
        self.mechanism = mechanism
        self.payload_bytes = 4 * (mechanism.D + 1)
        self.block = max(1, _NUMBERS_AT_ONCE // mechanism.D)

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        return [_leaning_vectors(x, r, self.mechanism.q, self.mechanism._Z)]

    def payloads(self, reports: Arrays) -> list[bytes]:
        return [row.astype("<f4").tobytes() for row in reports[0]]

    def nothing(self) -> State:
        return {"sum": np.zeros(self.mechanism.D)}

    def add(self, state: State, reports: Arrays) -> None:
        add_rows(reports[0], state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        total = totals.state["sum"].reshape(m.n_apps, m.d)
        return m.clip / (m.mu * totals.n_reports) * total


class OneValue(Encoder):
    """`Piecewise` and `Hybrid`: one entry each. A sign of `Hybrid` stands for ±c."""

    def __init__(self, mechanism: Piecewise | Hybrid) -> None:
        self.mechanism = mechanism
        self._widths = [width(mechanism.D)] + [1] * isinstance(mechanism, Hybrid)
        self.payload_bytes = n_bytes(self._widths) + 4

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        m = self.mechanism
        law = m.law.A, m.law.inside, m.law.largest
        if isinstance(m, Hybrid):
            return _one_value(x, r, *law, True, np.uint64(m.alpha * W), np.uint64(m.floor))
        return _one_value(x, r, *law, False, np.uint64(0), np.uint64(0))

    def payloads(self, reports: Arrays) -> list[bytes]:
        fields = reports[: len(self._widths)]
        return [
            packed(values, self._widths) + y.astype("<f4").tobytes()
            for *values, y in zip(*fields, reports[2], strict=True)
        ]

    def nothing(self) -> State:
        return {"sum": np.zeros(self.mechanism.D)}

    def add(self, state: State, reports: Arrays) -> None:
        c = self.mechanism.c if isinstance(self.mechanism, Hybrid) else 1.0
        positions, piecewise, values = reports
        _add_values(positions, piecewise, values, c, state["sum"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        total = totals.state["sum"].reshape(m.n_apps, m.d)
        return m.clip * m.D / totals.n_reports * total


@compiled
def add_rows(rows: Any, total: Floats) -> None:
    """Add rows to a total; what they hold beyond its length is left out."""
    for i in range(len(rows)):
        for j in range(len(total)):
            total[j] += rows[i, j]


@compiled
def _noisy_entries(x: Gradients, r: Round, scale: float) -> Any:
    n, size = len(x.phones), r.Q.size
    noisy = np.empty((n, size), np.float32)
    dense = np.zeros(size)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        spread_out(x, i, r.Q, dense)
        for j in range(size):
            u = inside(bits) - 0.5
            noisy[i, j] = dense[j] - scale * np.sign(u) * math.log1p(-2.0 * abs(u))
        sweep(x, i, r.Q.shape[1], dense)
    return noisy


@compiled
def _leaning_vectors(x: Gradients, r: Round, q: float, Z: float) -> Any:
    n, size = len(x.phones), r.Q.size + 1
    half = (size + 1) // 2
    leaning = np.empty((n, size), np.float32)
    dense, g, radius = np.zeros(size), np.empty(2 * half), np.empty(half)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        for j in range(half):
            radius[j] = math.sqrt(-2.0 * math.log(inside(bits)))
        for j in range(half):
            angle = 2.0 * math.pi * inside(bits)
            g[j], g[half + j] = radius[j] * math.cos(angle), radius[j] * math.sin(angle)
        coin, u = inside(bits), inside(bits)
        s = -normal_quantile(u * q) if coin < q / Z else normal_quantile(u * (1.0 - q))
        spread_out(x, i, r.Q, dense)
        dense[size - 1] = math.sqrt(max(0.0, 1.0 - x.squares[i]))
        product = 0.0
        for j in range(size):
            product += dense[j] * g[j]
        for j in range(size):
            leaning[i, j] = g[j] + (s - product) * dense[j]
        sweep(x, i, r.Q.shape[1], dense)
    return leaning


@compiled
def _one_value(
    x: Gradients,
    r: Round,
    A: float,
    share: float,
    largest: float,
    hybrid: bool,
    threshold: Any,
    floor: Any,
) -> tuple[Longs, Mask, Any]:
    """`PiecewiseLaw.draw`, or a sign where `hybrid` and the coin say so."""
    n = len(x.phones)
    positions, piecewise = np.empty(n, np.int64), np.ones(n, np.bool_)
    values = np.empty(n, np.float32)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        positions[i] = below(bits, r.Q.size)
        f = entry(x, i, r.Q, positions[i])
        if hybrid:
            piecewise[i] = word(bits) < threshold
        if piecewise[i]:
            left = (A + 1.0) / 2.0 * f - (A - 1.0) / 2.0
            right = left + A - 1.0
            coin, u = inside(bits), inside(bits)
            if coin < share:
                y = left + u * (right - left)
            else:
                y = u * (A + 1.0) - A
                y += right - left if y >= left else 0.0
            values[i] = min(max(float(np.float32(y)), -largest), largest)
        else:
            values[i] = 1.0 if is_positive(word(bits), f, floor) else -1.0
    return positions, piecewise, values


@compiled
def _add_values(positions: Longs, piecewise: Mask, values: Any, c: float, total: Floats) -> None:
    for i in range(len(positions)):
        value = float(values[i])
        total[positions[i]] += value if piecewise[i] else c * value
