"""Mechanisms that send a few positions with a sign each: harmony, qharmony, qharmony-paper.

The compiled form of `nextapp.privacy.harmony` and its kin; symbols as there.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.compiled import compiled
from nextapp.compiled_bits import stream, word
from nextapp.fleet.columns import Longs
from nextapp.fleet.draws import distinct, is_positive
from nextapp.fleet.encoder import LARGEST, REPORT, Arrays, Encoder, Round, State, Totals
from nextapp.fleet.gradients import Gradients, Mask, background, entry, taste
from nextapp.privacy.harmony import Harmony
from nextapp.privacy.packing import SignedPositions
from nextapp.privacy.qharmony import QHarmony
from nextapp.privacy.qharmony_paper import QHarmonyPaper
from nextapp.wire import Floats


class SignsOfEntries(Encoder):
    """`Harmony` and `QHarmony`."""

    def __init__(self, mechanism: Harmony) -> None:
        self.mechanism = mechanism
        self._fields = SignedPositions(mechanism.k, mechanism.D)
        self.payload_bytes = self._fields.n_bytes

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        return _signs_of_entries(x, r, self.mechanism.k, np.uint64(self.mechanism.floor))

    def nothing(self) -> State:
        return no_signs(self.mechanism.D)

    def add(self, state: State, reports: Arrays) -> None:
        count_signs(reports[0], reports[1], state["positive"], state["negative"])

    def mean(self, totals: Totals) -> Floats:
        m = self.mechanism
        signs = sum_of_signs(totals.state)
        if isinstance(m, QHarmony) and m.scale == "paper":
            return (m.clip * _over_z_max(signs, totals.state)).reshape(m.n_apps, m.d)
        return m.D / (m.k * totals.n_reports) * m.c * m.clip * signs.reshape(m.n_apps, m.d)

    def payloads(self, reports: Arrays) -> list[bytes]:
        return signed_positions(self._fields, reports)


class SignsAsPrinted(Encoder):
    """`QHarmonyPaper`: the phones' f_max travels along, and the largest scales the mean."""

    def __init__(self, mechanism: QHarmonyPaper) -> None:
        self.mechanism = mechanism
        self._fields = SignedPositions(mechanism.k, mechanism.D)
        self.payload_bytes = self._fields.n_bytes + 8

    def encoded(self, x: Gradients, r: Round) -> Arrays:
        m = self.mechanism
        unit = m.clip if math.isfinite(m.clip) else 1.0
        lean = math.tanh(m.epsilon / (2 * m.k))
        return _signs_as_printed(x, r, m.k, unit, lean)

    def nothing(self) -> State:
        return no_signs(self.mechanism.D) | {LARGEST: np.array([-math.inf])}

    def add(self, state: State, reports: Arrays) -> None:
        count_signs(reports[0], reports[1], state["positive"], state["negative"])
        state[LARGEST][0] = max(state[LARGEST][0], reports[2].max(initial=-math.inf))

    def mean(self, totals: Totals) -> Floats:
        signs = sum_of_signs(totals.state)
        f_max = float(totals.state[LARGEST][0])
        mean = f_max * _over_z_max(signs, totals.state)
        return mean.reshape(self.mechanism.n_apps, self.mechanism.d)

    def payloads(self, reports: Arrays) -> list[bytes]:
        signs = signed_positions(self._fields, reports)
        return [
            payload + f_max.astype("<f8").tobytes()
            for payload, f_max in zip(signs, reports[2], strict=True)
        ]


def signed_positions(fields: SignedPositions, reports: Arrays) -> list[bytes]:
    return [
        fields.packed(positions, positive)
        for positions, positive in zip(reports[0].tolist(), reports[1].tolist(), strict=True)
    ]


def no_signs(n: int) -> State:
    """Of n positions, how often each came with either sign."""
    return {"positive": np.zeros(n, np.int64), "negative": np.zeros(n, np.int64)}


def sum_of_signs(state: State) -> npt.NDArray[np.int64]:
    return state["positive"] - state["negative"]


def _over_z_max(signs: npt.NDArray[np.int64], state: State) -> Floats:
    """S / z_max of Algorithm 2; 0, with a warning, where no sign is positive (PAPER.md, R5)."""
    z_max = int(state["positive"].max())
    if z_max == 0:
        warnings.warn(
            "no report has a positive sign, so z_max = 0 and the update is zero (PAPER.md, R5).",
            RuntimeWarning,
            stacklevel=4,
        )
        return np.zeros(signs.shape)
    return signs / z_max


@compiled
def count_signs(positions: Any, positive: Any, n_positive: Any, n_negative: Any) -> None:
    for i in range(positions.shape[0]):
        for place in range(positions.shape[1]):
            if positive[i, place]:
                n_positive[positions[i, place]] += 1
            else:
                n_negative[positions[i, place]] += 1


@compiled
def _signs_of_entries(x: Gradients, r: Round, k: int, floor: Any) -> tuple[Longs, Mask]:
    n = len(x.phones)
    positions, positive = np.empty((n, k), np.int64), np.empty((n, k), np.bool_)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        distinct(bits, r.Q.size, positions[i])
        for place in range(k):
            f = entry(x, i, r.Q, positions[i, place])
            positive[i, place] = is_positive(word(bits), f, floor)
    return positions, positive


@compiled
def _signs_as_printed(
    x: Gradients, r: Round, k: int, unit: float, lean: float
) -> tuple[Longs, Mask, Floats]:
    """The entries are x in units of `unit`; `lean` is tanh(ε/2k)."""
    n = len(x.phones)
    positions, positive = np.empty((n, k), np.int64), np.empty((n, k), np.bool_)
    largest = np.empty(n)
    for i in range(n):
        phone = r.first_phone + np.uint64(x.phones[i])
        bits = stream(r.seed, phone, r.number, REPORT)
        f_max = unit * _largest_entry(x, i, r.Q)
        largest[i] = f_max
        distinct(bits, r.Q.size, positions[i])
        for place in range(k):
            f = unit * entry(x, i, r.Q, positions[i, place])
            f = f / f_max if f_max > 0 else float(np.sign(f))
            p = 0.5 + 0.5 * f * lean
            drawn = word(bits)
            positive[i, place] = p >= 1.0 or (p > 0.0 and drawn < np.uint64(p * 2.0**64))
    return positions, positive, largest


@compiled
def _largest_entry(x: Gradients, i: int, Q: Floats) -> float:
    """max x: of a background row it is (q·p) times the largest or the smallest entry of p."""
    start, stop = x.starts[i], x.starts[i + 1]
    largest = 0.0 if stop - start < len(Q) and x.c0[i] == 0 else -math.inf
    for row in range(start, stop):
        largest = max(largest, x.rows[row].max())
    if x.c0[i] > 0:
        high, low = x.p[i].argmax(), x.p[i].argmin()
        own = start
        for app in range(len(Q)):
            if own < stop and x.apps[own] == app:
                own += 1
                continue
            product = taste(Q, app, x.p[i])
            largest = max(largest, background(x, i, product, high if product > 0 else low))
    return largest
