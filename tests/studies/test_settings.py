from __future__ import annotations

import tomllib

import pytest

from nextapp.settings import as_toml, read_toml
from nextapp.studies.experiment import MODELS, Experiment, plain_values, settings_on_data


def test_settings_survive_their_toml():
    experiment = settings_on_data(
        Experiment,
        {
            "data": 'a "quoted" \\ name.csv',
            "split": "fraction:0.7,0.1,0.2",
            "preset": "paper",
            "models": ["mru", "seqmf"],
            "seed": 7,
            "seqmf": {"dim": 8, "lam": 1, "reading": "authors", "inference": "window:3"},
            "mf": {"rounds": 3},
        },
    )
    assert experiment.seqmf.model.lam == 1.0
    back = settings_on_data(Experiment, tomllib.loads(as_toml(plain_values(experiment))))
    assert back == experiment


def test_defaults_follow_the_data():
    assert Experiment("synthetic:lsapp").split == "days:222,7,14"
    assert Experiment("synthetic:lsapp,phones=40").split == "days:222,7,14"
    assert Experiment("synthetic:app-usage").split == "days:6,1,1"
    assert Experiment("my.csv").split == "fraction:0.8,0,0.2"
    assert Experiment("my.csv").models == MODELS


def test_mf_never_sees_the_sequence():
    mf = settings_on_data(
        Experiment, {"data": "x", "mf": {"reading": "example", "inference": "sum"}}
    ).mf
    assert (mf.model.reading, mf.model.inference) == ("none", "none")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"data": "x", "presets": "paper"}, "unknown setting 'presets'; did you mean 'preset'"),
        ({"data": "x", "seqmf": {"lamda": 1}}, r"\[seqmf\]: unknown setting 'lamda'; did you mean"),
        ({"data": "x", "models": ["seqfm"]}, "did you mean 'seqmf'"),
        ({"data": "x", "models": []}, "at least one"),
        ({"data": "x", "models": ["mru", "mru"]}, "once"),
        ({"data": "x", "models": ["ceiling"]}, "ceiling needs synthetic data, .* got 'x'"),
        ({"data": "x", "preset": "fair"}, "unknown preset"),
        ({"data": "x", "split": "half"}, "a split is written"),
        ({"data": "x", "seed": -1}, "seed must be"),
        ({"data": "x", "seed": "1"}, "seed must be of type int, got '1'"),
        ({"data": "x", "seed": True}, "seed must be of type int"),
        ({"data": "x", "tune": -1}, "tune must be"),
        ({"data": "x", "seqmf": {"dim": 2.5}}, "seqmf.dim must be of type int"),
        ({"data": "x", "seqmf": {"dim": 0}}, "dim and solve_every"),
        ({"data": "x", "seqmf": {"gamma": 2.0}}, "gamma must lie"),
        ({"data": "x", "seqmf": 3}, "seqmf must be of type dict"),
        ({"data": "x", "models": [1]}, "models must be of type str"),
        ({"preset": "paper"}, "name no data"),
    ],
)
def test_what_cannot_be_is_an_error_that_names_it(values, says):
    with pytest.raises(ValueError, match=says):
        settings_on_data(Experiment, values)


def test_a_file_that_is_not_toml_is_named(tmp_path):
    (tmp_path / "s.toml").write_text("data = ")
    with pytest.raises(ValueError, match=r"s\.toml is not a TOML file"):
        read_toml(tmp_path / "s.toml")
