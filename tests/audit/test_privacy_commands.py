"""`nextapp privacy` as a person runs it."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from nextapp.cli.privacy import app
from nextapp.privacy.harmony import Harmony
from nextapp.randomness import SystemBits

SMALL = ["--apps", 20, "--dim", 4, "--phones", 25]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    runner = CliRunner()

    def call(*arguments, code=0):
        result = runner.invoke(app, [str(word) for word in arguments])
        assert result.exit_code == code, result.output + repr(result.exception)
        return " ".join(result.output.split())

    return call


@pytest.mark.parametrize("command", ["compare", "audit", "account", "attack"])
def test_every_command_has_an_example(run, command):
    assert f"nextapp privacy {command}" in run(command, "--help")


def test_compare_shows_all_mechanisms(run, tmp_path):
    text = run("compare", *SMALL, "--epsilon", 4.5, "--rounds", 2, "--json", "r.json")
    assert "Even " in text
    assert "phones for as much gradient as noise" in " ".join(text.split())
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["settings"]["epsilon"] == 4.5
    assert len(found["mechanisms"]) == 7
    for name, figures in found["mechanisms"].items():
        assert name in text
        assert -1 <= figures["cosine"] <= 1.0000001
        assert figures["leak"]["low"] <= figures["leak"]["auc"] <= figures["leak"]["high"]
        assert figures["n_bytes"] > 0
        assert figures["microseconds"] > 0
    assert found["mechanisms"]["identity"]["cosine"] == pytest.approx(1.0)


def test_the_audit_passes_right_mechanisms(run, tmp_path):
    text = run("audit", "harmony", "kashin", "--reports", 5000, "--quick", "--json", "r.json")
    assert "at most once in 1,000 audits" in text
    assert "(SystemBits, 65,536 words): hold." in text
    assert "Not checked here: reports at the sizes of a deployment." in text
    assert "one of all these at most with probability 0.002" in text
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["settings"] == {"epsilon": 4.5, "reports": 1000, "quick": True, "seed": 0}
    assert written["bits"]["holds"]
    assert written["bits"]["false_alarm"] == 1e-6
    found = written["mechanisms"]
    assert found["harmony"]["exact"]["tight"]
    assert found["kashin"]["verdict"] in ("holds", "holds, no power")


def test_the_audits_table_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["audit", "qharmony", "--reports", "1000", "--quick"])
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    head, row = lines[:2]
    for column in ("mechanism", "exact", "fit p", "from outside", "verdict"):
        assert column in head
    assert row.split()[-1] == "fails"


class SignInThePayload(Harmony):
    """The sign of the first entry is sent without noise."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        return replace(report, payload=report.payload + bytes([int(np.ravel(F)[0] > 0)]))


def test_a_mechanism_that_fails_ends_in_code_1(run, monkeypatch):
    monkeypatch.setattr("nextapp.privacy.harmony.Harmony", SignInThePayload)
    text = run("audit", "harmony", "--reports", 1000, "--quick", code=1)
    assert "harmony fails (" in text


def test_bits_that_are_not_random_end_in_code_1(run, monkeypatch):
    monkeypatch.setattr(SystemBits, "words", lambda self, n: np.zeros(n, np.uint64))
    text = run("audit", "harmony", "--reports", 1000, "--quick", code=1)
    assert "(SystemBits, 65,536 words): fail." in text
    assert "words are repeats" in text


def test_the_printed_mechanism_fails_the_audit_as_it_must(run):
    text = run("audit", "qharmony", "--reports", 1000, code=1)
    assert "qharmony fails" in text
    assert "as it must" in text


def test_without_a_name_the_printed_mechanism_is_left_out(run, monkeypatch):
    from nextapp.audit import verdict

    few = {name: verdict.CASES[name] for name in ("harmony", "qharmony")}
    monkeypatch.setattr(verdict, "CASES", few)
    assert "qharmony" not in run("audit", "--reports", 1000, "--quick")


def test_account_shows_the_plan(run, tmp_path):
    pytest.importorskip("dp_accounting")
    text = run("account", "--epsilon", 4.5, "--reports", 3, "--phones", 292, "--json", "r.json")
    assert "too few phones" in text
    assert "292 phones are too few: shuffling hides next to nothing." in text
    assert "the honest ones of that round" in text
    assert "A phone promises ε = 4.5 a report" in text
    plan = json.loads((tmp_path / "r.json").read_text())["plan"]
    assert plan["total_by_sum"] == pytest.approx(13.5)
    assert plan["simple_bound"] is None
    text = run("account", "--epsilon", 1, "--reports", 1, "--phones", 100_000, "--delta", 1e-8)
    assert "simple bound 0.08239" in " ".join(text.split())
    assert "too few" not in text


def test_account_names_the_pip_line_where_dp_accounting_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    text = run("account", "--epsilon", 4.5, "--reports", 3, "--phones", 292, code=1)
    assert "this needs dp_accounting, which is not installed: install nextapp[lab]" in text
    assert "Traceback" not in text


def test_attack_answers_for_one_report_and_for_many(run, tmp_path):
    text = run(
        "attack", *SMALL, "--epsilon", 4.5, "--reports", 3,
        "--mechanisms", "identity,harmony,walsh", "--json", "r.json",
    )  # fmt: skip
    assert "one report" in text
    assert "3 reports of each phone" in text
    leaks = json.loads((tmp_path / "r.json").read_text())["mechanisms"]["walsh"]
    asked = {(leak["attacker"], leak["question"], leak["n_reports"]) for leak in leaks}
    assert len(asked) == len(leaks) == 2 * 2 + 3 * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit", "harmnoy"], "did you mean 'harmony'"),
        (["audit", "identity"], "has no privacy guarantee"),
        (["audit", "harmony", "--epsilon", "-1"], "epsilon must be"),
        (["compare", "--epsilon", "4.5", "--mechanisms", "wolsh"], "did you mean 'walsh'"),
        (["attack", "--epsilon", "nan", *SMALL], "epsilon must be"),
    ],
)
def test_what_goes_wrong_is_one_clear_line_and_code_1(run, arguments, says):
    text = run(*arguments, code=1)
    assert text.startswith("error: ")
    assert says in text
    assert "Traceback" not in text


def test_there_is_no_default_epsilon(run):
    assert "Missing option '--epsilon'" in run("compare", code=2).replace("│ ", "")


def test_the_cap_of_an_auc_is_never_reached_by_a_private_mechanism(run, tmp_path):
    run("attack", *SMALL, "--epsilon", 0.2, "--mechanisms", "walsh", "--reports", 1,
        "--json", "r.json")  # fmt: skip
    cap = 1 / (1 + math.exp(-0.2))
    for leak in json.loads((tmp_path / "r.json").read_text())["mechanisms"]["walsh"]:
        assert leak["low"] <= cap
