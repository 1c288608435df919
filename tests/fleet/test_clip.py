"""The public clip against single phones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nextapp.data import synthetic
from nextapp.fleet.rounds import public_clips, public_seed
from nextapp.wire import Broadcast, ModelSettings
from slow_seqmf import phones_of_log

POPULATION = replace(synthetic.fleet_parameters(21, 30), days=1)


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_the_clip_is_the_median_length_of_what_the_phones_would_send(rng, seed, alpha):
    broadcast = Broadcast(0, rng.normal(0, 0.3, (30, 4)), ModelSettings(alpha=alpha))
    sent = []
    for device in phones_of_log(synthetic.make(POPULATION, seed)):
        device.take(broadcast)
        sent.append(device.gradient().dense().ravel())
    expected = {
        ball: np.median(np.linalg.norm(sent, norm, axis=1))
        for ball, norm in (("linf", np.inf), ("l1", 1), ("l2", 2))
    }
    assert public_clips(POPULATION, seed, broadcast) == pytest.approx(expected, rel=1e-10)


def test_phones_without_a_launch_are_left_out(rng, monkeypatch):
    broadcast = Broadcast(0, rng.normal(0, 0.3, (5, 2)), ModelSettings(alpha=0.0))
    apps = np.array([1, 2, 1, 4, 4], np.int32)
    found = []
    for starts in ([0, 0, 3, 3, 5], [0, 3, 5]):
        made = np.array(starts), apps
        monkeypatch.setattr(synthetic, "histories", lambda *_, made=made: made)
        found.append(public_clips(POPULATION, 0, broadcast))
    assert found[0] == found[1]


def test_the_public_seed_is_another_one():
    seeds = [0, 1, 2, (1 << 64) - 1]
    assert len({*seeds, *map(public_seed, seeds)}) == 2 * len(seeds)
