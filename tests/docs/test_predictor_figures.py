"""The page of the predictor's figures says what its results file says."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures():
    path = ROOT / "benchmarks" / "predictor_figures.py"
    spec = importlib.util.spec_from_file_location("predictor_figures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(figures):
    return json.loads((ROOT / figures.RESULTS).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(figures):
    return (ROOT / figures.PAGE).read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_results(figures, found, page):
    assert figures.with_tables(page, found) == page, (
        "python benchmarks/predictor_figures.py --write"
    )


def test_the_page_has_every_table_once(figures, page):
    assert sorted(re.findall(r"<!-- figures: (\w+) -->", page)) == sorted(figures.TABLES)
    assert page.count("<!-- end of figures -->") == len(figures.TABLES)


def test_a_digit_changed_by_hand_is_found(figures, found, page):
    cell = re.search(r"\| [+−]\.\d+ \(", page)[0]
    assert figures.with_tables(page.replace(cell, cell.replace(".", ".9", 1), 1), found) == page


def test_the_lead_is_over_the_best_rival_of_its_kind(figures, found):
    """One cell worked out by hand: android-a, rivals that learn on, HR@5."""
    models = found["android-a"]["paper"]
    names = ("mru-online", "mfu-online", "sr-online", "sr-od-online", "ppm")
    best = max(names, key=lambda name: models[name]["HR"]["HR@5"][0])
    lead = models["nextapp"]["HR"]["HR@5"][0] - models[best]["HR"]["HR@5"][0]
    row = figures.lead_table(found).splitlines()[-2]
    assert "learns on" in row
    cell = row.split("|")[-2].strip()
    assert cell.startswith(f"+.{round(1000 * lead):03d} (")
    assert cell.endswith(f", {best}")
