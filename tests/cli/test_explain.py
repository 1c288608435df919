"""`nextapp explain` as a person runs it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from nextapp.cli.commands import app

HISTORY = "timestamp,app_name\n" + "".join(
    f"{1_700_000_000 + 30 * step},{'mail' if step % 2 else 'maps'}\n" for step in range(9)
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phone.csv").write_text(HISTORY)

    def call(*arguments, code=0):
        result = CliRunner().invoke(app, ["explain", *(str(word) for word in arguments)])
        assert result.exit_code == code, result.output + repr(result.exception)
        return " ".join(result.output.split())

    return call


def test_a_history_is_explained_in_words_and_numbers(run, tmp_path):
    """maps, mail, maps, …: after the last maps comes mail, and order 1 is why."""
    text = run("--history", "phone.csv", "--json", "why.json")
    assert "1. mail" in text
    assert "times after maps" in text
    result = json.loads((tmp_path / "why.json").read_text())
    best = result["apps"][0]
    assert best["app"] == "mail"
    assert best["speaks"]["after-1"] > 0
    assert best["evidence"]["after-1"] == pytest.approx(1 + 0.97 + 0.97**2 + 0.97**3)
    assert result["n_launches"] == 9


def test_a_launch_of_a_log_is_explained_and_told(run):
    text = run("synthetic:phones=3,apps=20,days=5", "--user", "phone-0001", "--launch", 30, "-n", 2)
    assert "phone-0001: 29 launches" in text
    assert "Launched was app-" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either a log or --history"),
        (("synthetic:phones=3,apps=20,days=5", "--user", "phone-1"), "unknown user"),
        (("synthetic:phones=3,apps=20,days=5", "--launch", "1"), "launch must be from 2"),
    ],
)
def test_what_cannot_be_explained_is_said(run, arguments, says):
    assert says in run(*arguments, code=1)
