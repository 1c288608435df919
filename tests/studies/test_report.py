"""The report: what its tables, notes and badges say, from records made by hand."""

from __future__ import annotations

from nextapp.studies.reproduce import report
from nextapp.studies.reproduce.rows import Row
from nextapp.table import Measured


def test_the_report_says_which_of_its_parts_are_quick():
    def records(twin: bool, log: bool) -> dict:
        return {
            "fig1": {"quick": twin, "result": {"data": {"kind": "twin"}}},
            "fig1@mine": {"quick": log, "result": {"data": {"kind": "log"}}},
        }

    assert report._quick(records(False, False)) == ""
    assert "A quick run: few" in report._quick(records(True, True))
    assert "parts on other logs" in report._quick(records(False, True))
    assert "A quick run: few" in report._quick(records(True, False))


def test_a_quick_part_with_a_smaller_model_says_so():
    data = {"name": "LSApp", "kind": "twin"}
    result = {"data": data, "problem": "few"}
    settings = {"seqmf": {"dim": 16}}
    record = {"part": "fig6", "title": "Figure 6", "quick": True, "settings": settings,
              "result": result}  # fmt: skip
    assert report._small_print(record).endswith("; quick run with dim = 16, do not quote")
    assert "<p class=quick>LSApp: a synthetic twin, " in report._part(record, "")
    assert "quick run with dim = 16, do not quote.</p>" in report._part(record, "")
    assert report._small_print(record | {"quick": False}).endswith("not the paper's data")


def test_a_difference_has_digits_enough_and_zero_has_no_sign():
    column = report.column_of("HR@5 − rare")
    cell = column.html(Measured(-0.00001, -0.0012, 0.0011), "")
    assert "0.0000<small>-0.0012 to +0.0011<" in cell
    assert "-0.0000" not in cell
    assert "+0.030<small>+0.010 to +0.050<" in column.html(Measured(0.03, 0.01, 0.05), "")


def test_a_table_has_a_row_per_series_and_a_column_per_figure():
    rows = [
        Row("answers", "harmony", "ε per report", 4.5),
        Row("answers", "kashin", "bytes", 1234),
        Row("answers", "harmony", "HR@5 − frozen", 0.0123, -0.0004, 0.02),
        Row("by phones", "harmony", "HR@5", 0.5, at=300),
        Row("HR@5, by number of phones", "harmony", "HR@5", 0.5, at=3000),
    ]
    answers, phones = report.tables_of(rows)  # a table by phones is only in the CSV file
    assert [column.heading for column in answers.columns] == [
        "", "ε per report", "bytes", "HR@5 − frozen",
    ]  # fmt: skip
    assert [row[0] for row in answers.rows] == ["Harmony", "Kashin"]
    assert "<td>4.5</td><td></td><td>+0.0123<small>-0.0004 to +0.0200</small></td>" in (
        answers.html().replace("<td>–</td>", "<td></td>")
    )
    assert "<td>1,234</td>" in answers.html()
    assert [column.heading for column in phones.columns] == ["", "3,000"]


def test_the_best_of_a_static_table_is_marked_and_the_paper_stands_beside_it():
    rows = [
        Row("preset authors", name, metric, value, value - 0.1, value + 0.1, 31, 0.6)
        for name, value in (("mru", 0.5), ("sr", 0.7), ("ceiling", 0.9))
        for metric in report.METRICS
    ]
    html = report.tables_of(rows)[0].html()
    assert "<td><b>.700</b><small>.600–.800</small><small class=beside>.600</small></td>" in html
    assert "<td><i>.900</i>" in html
