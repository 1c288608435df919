from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Report, WireError


def test_it_says_that_it_protects_nothing():
    guarantee = mechanism("identity", n_apps=3, d=2).guarantee
    assert guarantee.epsilon == math.inf
    assert guarantee.sent_in_clear == ("the whole gradient",)


def test_the_mean_of_dense_gradients_comes_back(rng):
    identity = mechanism("identity", n_apps=6, d=2)
    gradients = rng.normal(size=(3, 6, 2)) * (rng.random((3, 6, 1)) < 0.5)
    reports = [identity.encode(F, KeyedBits(0)) for F in gradients]
    np.testing.assert_allclose(identity.decode(reports), gradients.mean(axis=0), atol=1e-15)


@pytest.mark.parametrize(
    "payload", [b"", bytes(88), bytes(97), bytes(88) + struct.pack("<d", math.nan)]
)
def test_a_payload_that_does_not_fit_is_refused(payload):
    with pytest.raises(WireError):
        mechanism("identity", n_apps=6, d=2).decode([Report("identity", 0, payload)])


def test_an_unknown_name_is_an_error():
    with pytest.raises(ValueError, match="unknown mechanism 'laplas'"):
        mechanism("laplas", n_apps=3, d=2)
