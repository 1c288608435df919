"""Verdicts on a real run in which one mechanism does nothing and another destroys."""

from __future__ import annotations

import pytest

from nextapp.data.loading import read_log
from nextapp.evaluation.dynamic_environment import FROZEN
from nextapp.predictors.training import Training
from nextapp.studies import dynamic
from nextapp.studies.dynamic import DynamicExperiment
from nextapp.studies.mechanisms import NONE
from nextapp.studies.reproduce.claims import CLAIMS, CONFIRMED, NO_GAIN, NOT_CONFIRMED, judge
from nextapp.wire import ModelSettings

BY_NAME = {claim.name: claim for claim in CLAIMS}


class Planted(dynamic._Start):
    """QHarmony as printed never moves Q; Laplace in the ℓ1 ball throws it far away."""

    def private(self, rate, names=()):
        runs = {each.model.name: each for each in super().private(rate, names)}
        planted = {
            "qharmony-printed": (FROZEN, rate),
            "laplace-l1": (self.mechanism(NONE), 1e9 * rate),
        }
        for name in planted.keys() & runs.keys():
            runs[name].model = self._federation(name, "full", *planted[name]).model
        return list(runs.values())


@pytest.fixture(scope="module")
def result():
    """Few columns, a weak λ and no pre-training: there training has something to gain."""
    data = "synthetic:lsapp,phones=60,days=12"
    experiment = DynamicExperiment(
        data,
        cycles="users:20",
        q_every=1,
        regimes=(),
        models=(),
        mechanisms=("qharmony-printed", "laplace-l1", "harmony-noise"),
        pretraining="none",
        rates=(0.01, 0.1, 1.0),
        seqmf=Training(model=ModelSettings(lam=0.01), dim=16, scale=0.03),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic, "_Start", Planted)
        return dynamic.run(experiment, read_log(data, seed=0)).as_json() | {"variants": {}}


def test_training_without_privacy_gains_in_this_run(result):
    assert judge(BY_NAME["fig5-plain"], result).verdict == CONFIRMED


@pytest.mark.parametrize("name", ["fig5-level", "fig5-higher", "fig5-laplace-l1", "fig5-controls"])
def test_neither_is_said_to_cost_nothing(result, name):
    finding = judge(BY_NAME[name], result)
    assert finding.verdict == NOT_CONFIRMED, finding


def test_where_nothing_is_gained_no_mechanism_costs_nothing(result):
    """The same run, had training without privacy never moved Q either."""
    differences = {first: dict(row) for first, row in result["differences"].items()}
    differences["none"] = dict(differences["frozen"])
    differences["none"]["frozen"] = {"HR@5": {"mean": 0.0, "low": 0.0, "high": 0.0}}
    differences["qharmony-printed"]["none"] = differences["none"]["frozen"]
    found = judge(BY_NAME["fig5-level"], result | {"differences": differences})
    assert found.verdict == NO_GAIN
