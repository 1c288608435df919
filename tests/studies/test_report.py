"""The report: what its tables, notes and badges say, from records made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp.cli.reproduce import _verdicts
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.studies.reproduce import report
from nextapp.studies.reproduce.rows import Row, _spent
from nextapp.studies.reproduce.sources import has_clock, source
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


def test_every_row_that_spends_names_epsilon_reports_and_total():
    privacy = {"epsilon": 4.5, "worst": 13.5, "n_rounds": 3}
    rows = [(row.figure, row.mean) for row in _spent("", "harmony", privacy)]
    assert rows == [("ε per report", 4.5), ("most reports of a phone", "3"),
                    ("largest total ε of a phone", 13.5)]  # fmt: skip
    clear = {"epsilon": None, "worst": None, "n_rounds": 3}
    assert [row.mean for row in _spent("", "none", clear)] == ["no bound", "3", "no bound"]


def test_the_terminal_names_the_budget_beside_a_verdict_on_reports():
    row = {"claim": "fig5-level", "verdict": "confirmed", "of_paper": True, "opposed": "",
           "data": "LSApp", "people": "twin", "decides": "a − b"}  # fmt: skip
    for spent, words in (("4.5×3 = 13.5", "a − b; ε 4.5×3 = 13.5"), ("", "a − b")):
        assert _verdicts([row | {"spent": spent}]).rows[0][2] == words


def test_a_part_that_does_not_look_at_times_has_the_clock_of_its_log():
    def record(part, **data):
        return {"base": part, "result": {"data": {"name": "mine", "kind": "log", **data}}}

    records = {"fig3@mine": record("fig3", clock=False), "new-phones@mine": record("new-phones")}
    assert [report._people(each) for each in report._with_clocks(records)] == (
        ["people without clocks"] * 2
    )


def test_a_difference_has_digits_enough_and_zero_has_no_sign():
    column = report.column_of("HR@5 − rare")
    cell = column.html(Measured(-0.00001, -0.0012, 0.0011), "")
    assert "0.0000 <small>-0.0012 to +0.0011<" in cell
    assert "-0.0000" not in cell
    assert "+0.030 <small>+0.010 to +0.050<" in column.html(Measured(0.03, 0.01, 0.05), "")


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
    assert "<td>4.5</td><td></td><td>+0.0123 <small>-0.0004 to +0.0200</small></td>" in (
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
    assert "<td><b>.700</b> <small>.600–.800</small><small class=beside>.600</small></td>" in html
    assert "<td><i>.900</i>" in html


def times_of(kind: str) -> np.ndarray:
    """30 days of 40 launches: by a clock; the same to the minute; cut at midnight; made up."""
    generator = np.random.default_rng(4)
    by_clock = np.sort(generator.integers(0, 86_400, (30, 40)), axis=1)
    if kind == "minutes":
        by_clock = by_clock // 60 * 60
    if kind == "midnight":
        by_clock[::3, 0] = 0
    if kind == "from noon":
        by_clock = 43_200 + 30 * np.cumsum(generator.integers(1, 9, (30, 40)), axis=1)
    if kind == "equal pauses":
        return 10_000 * np.arange(1_200) + 1_800_000 * (np.arange(1_200) // 20)
    return (1000 * (by_clock + 86_400 * np.arange(30)[:, None])).ravel()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("clock", True), ("minutes", True), ("midnight", True),
     ("from noon", False), ("equal pauses", False)],
)  # fmt: skip
def test_made_up_times_are_noticed(kind, expected):
    apps = np.arange(1_200) % 7
    log = LaunchLog.from_columns(np.zeros(1_200), apps, times_of(kind), ["u"], list("abcdefg"))
    assert has_clock(log) == expected


def test_twins_have_clocks():
    assert has_clock(read_log("synthetic:lsapp,phones=8", seed=0))


def test_a_verdict_says_whose_launches_they_are_and_people_with_clocks_come_first():
    def record(name: str, **data) -> dict:
        data = {"name": name, "real": data["kind"] in ("log", "data"), **data}
        counts = {"n_users": [9.0] * 12}
        result = {"data": data, "by_day": counts, "by_cycle": counts}
        return {"base": "fig2", "part": f"fig2@{name}", "kind": "activity", "quick": False,
                "result": result}  # fmt: skip

    records = {
        "a": record("made-up", kind="log", clock=False),
        "b": record("LSApp", kind="twin", clock=True),
        "c": record("phones", kind="log", clock=True),
    }
    rows = [row for row in report.verdicts(records) if row["claim"] == "fig2-balanced"]
    assert [row["people"] for row in rows] == [
        "people with clocks", "twin", "people without clocks",
    ]  # fmt: skip
    data = {**records["a"]["result"]["data"], "said": "A log."}
    assert "only the order of launches" in report._data({"a": {"result": {"data": data}}})


def test_synthetic_phones_that_are_no_twin_are_not_called_one():
    """New phones are studied on a fleet where LSApp is not given; it was called LSApp's twin."""
    fleet = source("lsapp", "synthetic:fleet,phones=100000", None).as_values()
    assert report._people({"result": {"data": fleet}}) == "synthetic phones"
    assert "LSApp file not given: replaced by other synthetic phones" in fleet["said"]
    twin = source("lsapp", "synthetic:lsapp", None).as_values()
    assert report._people({"result": {"data": twin}}) == "twin"


def test_what_most_lines_of_a_claim_compare_stands_once_with_the_claim():
    def verdict(data, decides):
        return {"claim": "fig3-rare", "words": "rare helps", "where": "Figure 3", "rule": "r",
                "of_paper": True, "verdict": "confirmed", "opposed": "", "part": f"fig3@{data}",
                "data": data, "people": "people with clocks", "n_users": 12, "of_users": 17,
                "spent": "", "decides": decides}  # fmt: skip

    rows = [
        verdict("one", "rare − global, HR@5 +0.02 (+0.01 to +0.03)"),
        verdict("two", "full − global, HR@5 -0.02 (-0.03 to -0.01)"),
        verdict("three", "rare − global, HR@5 +0.04 (+0.03 to +0.05); rate at the edge: rare"),
    ]
    page = report._verdict_table(rows)
    assert page.count("rare − global") == 1
    assert "<small>rare − global</small>" in page
    assert "one</a> (12/17 people): +0.02 (+0.01 to +0.03)</p>" in page
    assert "two</a> (12/17 people): full − global -0.02 (-0.03 to -0.01)</p>" in page
    assert "(12/17 people): +0.04 (+0.03 to +0.05); rate at the edge: rare</p>" in page
