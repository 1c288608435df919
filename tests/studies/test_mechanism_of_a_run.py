"""The mechanism of a simulation."""

from __future__ import annotations

import math

import pytest

from nextapp.fleet.reporting import FLEET_MECHANISMS
from nextapp.studies.mechanisms import NONE, simulated_mechanism

CLIPS = {"linf": 0.1, "l1": 2.0, "l2": 0.5}


@pytest.mark.parametrize("name", FLEET_MECHANISMS)
def test_each_gets_the_clip_of_its_ball(name):
    made = simulated_mechanism(name, 1.5, 7, 3, CLIPS)
    assert (made.name, made.n_apps, made.d) == (name, 7, 3)
    if name == "identity":
        assert math.isinf(made.clip)
    else:
        assert made.epsilon == 1.5
        assert made.clip == CLIPS[made.ball]
        assert simulated_mechanism(name, 1.5, 7, 3, 0.7).clip == 0.7


def test_none_is_the_gradient_as_it_is_and_others_need_an_epsilon():
    assert simulated_mechanism(NONE, None, 7, 3, CLIPS).name == "identity"
    with pytest.raises(ValueError, match="epsilon"):
        simulated_mechanism("harmony", None, 7, 3, CLIPS)
    with pytest.raises(ValueError, match="unknown mechanism"):
        simulated_mechanism("harmny", 1.0, 7, 3, CLIPS)
