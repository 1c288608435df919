"""docs/results.md says what the results files say, and so do the figures that pages quote."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from nextapp.studies.reproduce.rows import Row

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def make():
    """docs/make_results.py as a module."""
    spec = importlib.util.spec_from_file_location("make_results", ROOT / "docs" / "make_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def predictor(make):
    return json.loads(make.PREDICTOR.read_text(encoding="utf-8"))


def test_the_page_is_made_from_the_results_files(make):
    assert make.PAGE.read_text(encoding="utf-8") == make.page(), "python docs/make_results.py"


def test_a_figure_stands_with_its_interval_its_users_and_its_budget(make):
    """A few cells by hand, one of every kind of table."""
    page = make.PAGE.read_text(encoding="utf-8")
    assert "| LSApp twin (31 users) | nextapp | .623 | .896 | .953 |" in page
    assert "| largest total ε of a phone |" in page
    assert "`nextapp reproduce fig5`" in page
    assert "reality-a (42 phones) | nextapp | .554 (.523–.584) |" in page
    assert "| nextapp serve · fast · reports/s | 1139 |" in page


def test_the_lead_is_over_the_best_rival_of_its_kind(make, predictor):
    """One cell worked out by hand: android-a, rivals that learn on, HR@5."""
    models = predictor["android-a"]["paper"]
    name = max(make.ONLINE, key=lambda name: models[name]["HR"]["HR@5"][0])
    lead = models["nextapp"]["HR"]["HR@5"][0] - models[name]["HR"]["HR@5"][0]
    best, (mean, low, high) = make.leads(predictor, "HR@5")["android-a", "online"]
    assert best == name == "sr-od-online"
    assert mean == pytest.approx(lead, abs=2e-5)  # both are rounded to five digits
    assert low < mean < high


def test_what_is_kept_of_a_part_are_its_tables_without_those_by_cycle(make):
    rows = [
        Row("mean over cycles", "harmony", "HR@5", 0.5, 0.4, 0.6, 31),
        Row("mean over cycles", "harmony", "largest total ε of a phone", 13.5),
        Row("HR@5, by number of phones", "harmony", "HR@5", 0.7, 0.6, 0.8, at=3000),
        Row("by cycle", "harmony", "HR@5", 0.5, 0.4, 0.6, at=3),
    ]
    assert make.tables_of(rows) == {
        "mean over cycles": {
            "n_users": 31,
            "rows": {"harmony": {"HR@5": [0.5, 0.4, 0.6], "largest total ε of a phone": 13.5}},
        },
        "HR@5, by number of phones": {
            "n_users": None,
            "rows": {"harmony": {"HR@5, 3,000": [0.7, 0.6, 0.8]}},
        },
    }


def test_the_readme_quotes_the_share_of_launches_that_is_measured(predictor):
    rate = predictor["reality-a"]["paper"]["nextapp"]["HR"]["HR@5"][0]
    assert f"in **{100 * rate:.0f} %** of all launches" in (ROOT / "README.md").read_text("utf-8")


def test_findings_quote_the_leads_that_are_measured(make, predictor):
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    for (log, kind), (best, ends) in make.leads(predictor, "HR@5").items():
        if kind != "ranker":  # trained on everybody's launches: no rival
            mean, low, high = (f"{end:+.3f}".replace("0.", ".") for end in ends)
            assert f"| {best} {mean} ({low} to {high}) |" in page, (log, kind)
