"""Pages say what the results file says: their tables are made from it, and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nextapp.studies.reproduce import docs, showing, writing
from nextapp.table import Measured

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found():
    return json.loads((ROOT / docs.RESULTS).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", docs.pages(ROOT), ids=lambda path: path.name)
def test_every_table_is_that_of_the_results(path, found):
    text = path.read_text(encoding="utf-8")
    assert docs.with_tables(text, found) == text, (
        f"{path.name} differs from {docs.RESULTS}: nextapp reproduce --docs . writes both"
    )


def test_pages_have_tables_and_all_tables_are_somewhere():
    text = "".join(path.read_text(encoding="utf-8") for path in docs.pages(ROOT))
    assert set(re.findall(r"<!-- results: ([\w-]+) -->", text)) == set(docs.TABLES)
    assert text.count("<!-- results: ") == text.count("<!-- end of results -->")


def test_a_figure_changed_by_hand_is_found(found):
    """The comparison fails where it must: one digit in one cell."""
    page = (ROOT / "docs" / "dynamic.md").read_text(encoding="utf-8")
    cell = re.search(r"\| [+-]0\.\d+ \(", page)[0]
    other = cell.replace("0.", "1.", 1)
    assert docs.with_tables(page.replace(cell, other, 1), found) == page


def test_a_table_nobody_makes_is_named():
    with pytest.raises(ValueError, match="unknown table 'regims'; did you mean 'regimes'"):
        docs.with_tables("<!-- results: regims -->\n<!-- end of results -->\n", {"quick": []})


@pytest.mark.parametrize(
    ("quick", "said"),
    [
        ([], "| part |"),
        (["fig1@mine", "fig1@hers"], "*Twins: the full run. Other logs: a quick run"),
        (["fig1@hers"], "*The full run, but for hers: a quick run"),
        (["fig1", "fig1@mine"], "*From a quick run"),
    ],
)
def test_a_table_says_which_of_its_figures_are_of_a_quick_run(quick, said):
    seconds = {name: [1.0, 1.0] for name in ("fig1", "fig1@mine", "fig1@hers")}
    found = {"quick": quick, "seconds": seconds}
    page = docs.with_tables("<!-- results: time -->\n<!-- end of results -->\n", found)
    assert page.splitlines()[1].startswith(said)


def test_the_report_says_which_of_its_parts_are_quick():
    def records(twin: bool, log: bool) -> dict:
        return {
            "fig1": {"quick": twin, "result": {"data": {"kind": "twin"}}},
            "fig1@mine": {"quick": log, "result": {"data": {"kind": "log"}}},
        }

    assert writing._quick(records(False, False)) == ""
    assert "A quick run: few" in writing._quick(records(True, True))
    assert "parts on other logs" in writing._quick(records(False, True))
    assert "A quick run: few" in writing._quick(records(True, False))


def test_a_quick_part_with_a_smaller_model_says_so():
    record = {"quick": True, "settings": {"seqmf": {"dim": 16}},
              "result": {"data": {"name": "LSApp", "kind": "twin"}}}  # fmt: skip
    assert "few trials and seeds, and dim = 16" in writing._quick_words(record)
    assert writing._small_print(record).endswith("; quick run with dim = 16, do not quote")
    assert writing._small_print(record | {"quick": False}).endswith("not the paper's data")


def test_a_difference_has_digits_enough_and_zero_has_no_sign():
    column = showing._Difference("full − rare")
    cell = column.html(Measured(-0.00001, -0.0012, 0.0011), "")
    assert "0.0000<small>-0.0012 to +0.0011<" in cell
    assert "-0.0000" not in cell
    assert "+0.030<small>+0.010 to +0.050<" in column.html(Measured(0.03, 0.01, 0.05), "")


def test_a_table_by_hand():
    row = {"mean": 0.0123, "low": -0.0004, "high": 0.02}
    found = {
        "quick": [],
        "parts": {
            "fig5": {"base": "fig5", "data": "LSApp", "kind_of_data": "twin",
                     "over_frozen": {"harmony": row}},
            "fig5@mine": {"base": "fig5", "data": "mine", "kind_of_data": "log",
                          "over_frozen": {"harmony": row | {"low": 0.01}}},
        },
    }  # fmt: skip
    page = "before\n<!-- results: controls -->\nold\n<!-- end of results -->\nafter\n"
    assert docs.with_tables(page, found) == (
        "before\n<!-- results: controls -->\n"
        "| less frozen Q, HR@5 | LSApp twin | mine |\n| --- | --- | --- |\n"
        "| Harmony | +0.0123 (-0.0004 to +0.0200) | +0.012 (+0.010 to +0.020) |\n"
        "<!-- end of results -->\nafter\n"
    )
