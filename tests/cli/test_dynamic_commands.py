from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from nextapp.cli.commands import app

runner = CliRunner()
SOURCE = "synthetic:phones=20,apps=15,days=10,sessions=4"


def test_dynamic_prints_a_row_a_series_and_writes_what_it_found(tmp_path):
    out = tmp_path / "out.json"
    found = runner.invoke(
        app,
        ["dynamic", SOURCE, "--cycles", "5", "--q-every", "2", "--regimes", "full,rare",
         "--models", "sr-od,mru", "--mechanisms", "harmony,qharmony", "--seeds", "2",
         "--metrics", "all", "--epsilon", "2", "--json", str(out)],
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    result = json.loads(out.read_text())
    names = ["sr-od", "mru", "full", "rare", "none", "frozen", "zero", "harmony", "qharmony"]
    assert list(result["series"]) == names
    for name in names:
        assert name in found.output
    assert result["settings"]["cycles"] == "users:5"
    assert len(result["settings"]["metrics"]) == 9
    assert "qharmony is not private" in " ".join(found.output.split())
    assert result["series"]["harmony"]["epsilon_spent"] == 2.0  # Q moves once, after cycle 3


def test_the_forms_of_nextapp_can_be_played(tmp_path):
    out = tmp_path / "out.json"
    models = "nextapp,nextapp-alone,mf"
    found = runner.invoke(
        app,
        [
            "dynamic",
            SOURCE,
            "--cycles",
            "4",
            "--models",
            models,
            "--seeds",
            "2",
            "--json",
            str(out),
        ],
    )
    assert found.exit_code == 0, found.output
    series = json.loads(out.read_text())["series"]
    assert series["nextapp-alone"]["seeds"] == [0]
    assert series["mf"]["seeds"] == [0, 1]  # its start depends on the seed


def test_settings_of_a_file_are_overridden_by_options(tmp_path):
    toml, out = tmp_path / "dynamic.toml", tmp_path / "out.json"
    toml.write_text('cycles = "days"\nmodels = []\nseeds = 2\n[seqmf]\ndim = 3\n')
    found = runner.invoke(
        app, ["dynamic", SOURCE, "--settings", str(toml), "--cycles", "4", "--json", str(out)]
    )
    assert found.exit_code == 0, found.output
    settings = json.loads(out.read_text())["settings"]
    assert (settings["cycles"], settings["seeds"], settings["seqmf"]["dim"]) == ("users:4", 2, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cycles", "none"], "cycles must be 'users:34'"),
        (["--mechanisms", "harmonie"], "did you mean"),
        (["--cycles", "100000"], "give fewer cycles"),
    ],
)
def test_a_wrong_option_is_one_clear_line(options, message):
    found = runner.invoke(app, ["dynamic", SOURCE, *options])
    assert found.exit_code == 1
    assert message in " ".join(found.output.split())
