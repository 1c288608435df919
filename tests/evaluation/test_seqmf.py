from __future__ import annotations

import numpy as np
import pytest

from nextapp.data.log import LaunchLog
from nextapp.evaluation.seqmf import SeqMF
from nextapp.predictors.training import Training
from nextapp.wire import ModelSettings
from slow_seqmf import SlowSeqMF


def some_log(rng, n_users=7, n_apps=12) -> LaunchLog:
    user = np.sort(rng.integers(0, n_users - 1, 400))  # the last phone has launched nothing
    app = (user + rng.geometric(0.3, 400)) % n_apps
    names = [str(k) for k in range(max(n_users, n_apps))]
    return LaunchLog.from_columns(
        user, app, np.arange(400) * 60_000, names[:n_users], names[:n_apps]
    )


@pytest.mark.parametrize("reading", ["example", "equation", "authors", "none"])
@pytest.mark.parametrize(("alpha", "solve_every"), [(0.0, 1), (0.01, 3)])
def test_compiled_rounds_are_those_of_the_devices(rng, reading, alpha, solve_every):
    log = some_log(rng)
    model = ModelSettings(alpha=alpha, gamma=0.5, reading=reading)
    training = Training(model, dim=9, scale=0.3, rate=0.01, rounds=7, solve_every=solve_every)
    slow, fast = SlowSeqMF(training, seed=3), SeqMF(training, seed=3)
    slow.fit(log)
    fast.fit(log)
    np.testing.assert_allclose(fast.app_vectors, slow.app_vectors, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fast.user_vectors, slow.user_vectors, rtol=1e-9, atol=1e-12)


def test_an_overflow_is_an_error_that_says_what_to_do(rng):
    predictor = SeqMF(Training(optimiser="sgd", rate=1e200, dim=4, rounds=5), seed=0)
    with pytest.raises(FloatingPointError, match="learning rate"), np.errstate(all="ignore"):
        predictor.fit(some_log(rng))
