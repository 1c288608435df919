"""The two non-private crowds, of fleets and of logs, tell the same."""

from __future__ import annotations

import numpy as np

from nextapp.crowd import LEAST_SHARE, crowd_without_noise
from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import mean_shares
from nextapp.predictors.pooled import Pooled


def test_a_fleet_and_a_log_tell_the_same_but_for_the_smallest_shares(rng):
    users = np.repeat(np.arange(6), 40)
    apps = rng.integers(0, 9, 240)
    names = [f"u{user}" for user in range(6)], [f"a{number}" for number in range(9)]
    log = LaunchLog.from_columns(users, apps, 60_000 * np.arange(240), *names)
    of_fleet = crowd_without_noise(mean_shares(Fleet.of_log(log)))
    of_log = Pooled(log, pairs=False).others(-1)
    for last in range(9):
        told, _ = of_fleet.shares(np.arange(9), last)
        counted, _ = of_log.shares(np.arange(9), last)
        np.testing.assert_allclose(told, np.where(counted >= LEAST_SHARE, counted, 0), atol=1e-12)
    np.testing.assert_allclose(of_fleet.popularity, 0.99 * of_log.popularity + 0.01 / 9)
