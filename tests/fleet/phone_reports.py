"""The reports that a fleet adds up, as the phones would send them one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nextapp.fleet import encoders, walsh
from nextapp.fleet.columns import cut
from nextapp.fleet.gradients import spread_out
from nextapp.fleet.rounds import gradients_of_blocks, round_of
from nextapp.model import PhoneGradient
from nextapp.randomness import KeyedBits
from nextapp.wire import Report


class Reports(NamedTuple):
    phones: list[int]
    reports: list[Report]


def encode_reports(fleet, broadcast, mechanism, seed, user_vectors, reporting, *, solving=True):
    """A report of each phone in `reporting`, by the phone's own bits."""
    encoder = encoders.ENCODERS[mechanism.name](mechanism)
    r = round_of(seed, fleet.first_phone, broadcast)
    block_gradients = gradients_of_blocks(
        fleet, broadcast, mechanism, user_vectors, reporting, solving=solving
    )
    phones, reports = [], []
    for start, stop in cut(0, len(fleet), encoder.block):
        x, _ = block_gradients(start, stop)
        phones += (x.phones + fleet.first_phone).tolist()
        reports += [
            Report(mechanism.name, broadcast.round, payload) for payload in payloads(encoder, x, r)
        ]
    return Reports(phones, reports)


def payloads(encoder, x, r) -> list[bytes]:
    """The payload of every report of a block."""
    m = encoder.mechanism
    if isinstance(encoder, encoders.IdentityEncoder):
        gradients = [gradient(m, x, i, r.Q) for i in range(len(x.phones))]
        return [m.encode(each, KeyedBits(0)).payload for each in gradients]
    columns = encoder.encode(x, r)
    if isinstance(encoder, encoders.LaplaceEncoder):
        return [row.astype("<f4").tobytes() for row in columns]
    columns = [column.tolist() for column in columns]
    if isinstance(encoder, encoders.WalshEncoder):
        return [m.payload(seed, j) for seed, j in zip(*columns, strict=True)]
    found = [m._fields.pack(*signs) for signs in zip(*columns[:2], strict=True)]
    if isinstance(encoder, encoders.QHarmonyEncoder):
        tails = [np.float64(f_max).astype("<f8").tobytes() for f_max in columns[2]]
        return [head + tail for head, tail in zip(found, tails, strict=True)]
    return found


def gradient(mechanism, x, i, Q):
    """x of one phone, as `Identity` sends it."""
    if mechanism.ball != "none":
        dense = np.zeros(Q.size)
        spread_out(x, i, Q, dense)
        return mechanism.clip * dense.reshape(Q.shape)
    own = slice(x.starts[i], x.starts[i + 1])
    apps, c0, p = x.apps[own], float(x.c0[i]), x.p[i]
    above = x.rows[own] - c0 * np.outer(Q[apps] @ p, p)
    return PhoneGradient(apps, above, c0, p, Q)


def answers(fleet, mechanism, question, seed) -> list[Report]:
    """The reports on one of the crowd's two questions, in the order of the phones."""
    return reports_of(*walsh.draw_answers(fleet, mechanism, question, seed), mechanism)


def reports_of(seeds, chosen, mechanism) -> list[Report]:
    pairs = zip(seeds.tolist(), chosen.tolist(), strict=True)
    return [Report(mechanism.name, 0, mechanism.payload(seed, j)) for seed, j in pairs]
