from __future__ import annotations

import json

import numpy as np
import pytest

from nextapp.predictors.training import Training
from nextapp.studies import simulation
from nextapp.studies.phones_needed import (
    PhonesNeeded,
    PhonesNeededResult,
    _World,
    run,
)
from nextapp.wire import ModelSettings

TRAINING = Training(ModelSettings(alpha=0.0), dim=4)
SMALL = PhonesNeeded(
    2.0,
    phones=(40, 120),
    mechanisms=("harmony", "walsh", "kashin"),
    apps=30,
    rounds=3,
    rates=(0.01, 0.03),
    seeds=2,
    sample=50,
    validation=40,
    tune_up_to=40,
    exact_up_to=40,
    training=TRAINING,
)


@pytest.mark.parametrize("name", ["identity", "harmony", "walsh"])
def test_a_point_is_a_simulated_federation(seed, name):
    """Beside `nextapp simulate` with the same phones, mechanism and rate."""
    world = _World(SMALL, seed, SMALL.sample)
    settings = simulation.SimulationSettings(
        phones=120,
        apps=30,
        dim=4,
        rounds=3,
        mechanism=name,
        seed=seed,
        epsilon=None if name == "identity" else 2.0,
        sample=50,
        training=Training(TRAINING.model, dim=4, rate=0.03),
    )
    expected = simulation.run(settings)
    own = "none" if name == "identity" else name
    assert world.hit_rates("frozen", 0, 0.0).mean() == pytest.approx(expected["frozen"]["hr5"])
    found = world.hit_rates(own, 120, 0.03)
    assert found.mean() == pytest.approx(expected["rounds"][-1]["hr5"])
    if own != "none":
        assert world.mechanism(own).clip == pytest.approx(expected["clip"])


def result_of(**gains) -> PhonesNeededResult:
    """Three worlds whose phones have HR@5 of .5 frozen, .4 under zero, .3 under noise.

    ``gains`` are those over frozen for 10, 100 and 1,000 phones, .01 less in the first world and
    .01 more in the last.
    """
    phones = (10, 100, 1000)
    worlds = [np.full(8, 0.5)] * 3
    pairs = [(name, n) for name in gains for n in phones]
    wobble = np.linspace(-0.1, 0.1, 8)
    return PhonesNeededResult(
        PhonesNeeded(1.0, phones=phones, mechanisms=tuple(x for x in gains if x != "none")),
        {("zero", 0): 0.01} | dict.fromkeys(pairs, 0.01),
        {
            (name, n): [
                world + gain + wobble + shift
                for world, shift in zip(worlds, (-0.01, 0.0, 0.01), strict=True)
            ]
            for name in gains
            for n, gain in zip(phones, gains[name], strict=True)
        }
        | {(f"{name}-noise", n): [np.full(8, 0.3)] * 3 for name, n in pairs
           if name != "none" and n < 1000}
        | {("frozen", 0): worlds, ("zero", 0): [np.full(8, 0.4)] * 3},
    )  # fmt: skip


def test_the_answer_is_the_number_from_which_on_all_controls_are_beaten():
    found = result_of(
        none=(0.1, 0.1, 0.1),
        walsh=(0.0, 0.1, 0.1),
        kashin=(0.1, -0.1, 0.1),
        laplace=(0.1, 0.1, 0.0),
        harmony=(-0.1, -0.1, -0.1),
    )
    assert found.as_json()["answer"] == {
        "none": 10, "walsh": 100, "kashin": 1000, "laplace": None, "harmony": None,
    }  # fmt: skip


def test_gains_are_paired_with_each_control_and_worlds_are_the_tries():
    figures = result_of(none=(0.1, 0.1, 0.1), walsh=(0.1, 0.2, 0.3)).figures("walsh", 100)
    assert figures["HR@5"]["mean"] == pytest.approx(0.7)
    half = 4.302653 * 0.01 / 3**0.5  # Student's t, two degrees of freedom, from a table
    for control, gain in (("frozen", 0.2), ("zero", 0.3), ("noise", 0.4)):
        found = figures[f"gain_over_{control}"]
        assert found == pytest.approx({"mean": gain, "low": gain - half, "high": gain + half})


def test_one_mechanism_that_lies_below_a_control_has_not_beaten_it():
    """Above frozen, level with zero: no answer."""
    found = result_of(none=(0.1,) * 3, walsh=(0.1,) * 3)
    zero = {("zero", 0): [each + 0.2 for each in found.hit_rates["zero", 0]]}
    other = PhonesNeededResult(found.study, found.rates, found.hit_rates | zero)
    assert other.answer("walsh") is None


def test_a_small_study_runs_through_and_comes_out_the_same(seed):
    heard = []
    result = run(SMALL, lambda what, done, total: heard.append((done, total))).as_json()
    json.dumps(result, allow_nan=False)
    assert heard[-1][0] == heard[-1][1] - 1
    assert set(result["mechanisms"]) == {"none", "harmony", "walsh", "kashin"}
    assert result["mechanisms"]["kashin"]["phones"] == [40]
    assert result["largest_tried"] == {"none": 120, "harmony": 120, "walsh": 120, "kashin": 40}
    assert result["mechanisms"]["walsh"]["epsilon_spent"] == 6.0
    rates = result["mechanisms"]["walsh"]["rate"]
    assert rates[0] == rates[1]  # not chosen anew beyond tune_up_to
    assert run(SMALL).as_json() == result


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phones": (100, 10)}, "phones must be increasing"),
        ({"mechanisms": ("wolsh",)}, "did you mean 'walsh'"),
        ({"rates": ()}, "at least one learning rate"),
        ({"tune_up_to": 10}, "tune_up_to must be at least"),
        ({"rounds": 0}, "rounds must be 1 or more"),
        ({"seeds": 1}, "seeds must be 2 or more"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PhonesNeeded(**{"epsilon": 1.0, **changes})
