"""docs/results.md says what the results files say, and so do the figures that pages quote."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from nextapp.studies.reproduce import plan, report, running
from nextapp.studies.reproduce.claims import CLAIMS
from nextapp.studies.reproduce.rows import Row, rows_of

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
    found = json.loads(make.REPRODUCTION.read_text(encoding="utf-8"))
    table = found["parts"]["table1"]["tables"]["preset authors"]
    cells = [
        "{:.3f} ({:.3f}–{:.3f})".format(*table["rows"]["seqmf"][metric]).replace("0.", ".")
        for metric in ("HR@1", "HR@3", "HR@5")
    ]
    assert f"| LSApp twin ({table['n_users']} users) | SeqMF | {' | '.join(cells)} |" in page
    row = next(row for row in found["verdicts"] if row["part"] == "fig5@ubiqlog-a")
    assert f"| {row['n_users']} of 17 | {row['spent']} |" in page
    assert "| largest total ε of a phone |" in page
    assert "`nextapp reproduce fig5`" in page
    assert "UbiqLog (17 phones) | nextapp, no crowd | .404 (.360–.445) |" in page
    assert "| nextapp serve · fast | 1139 | 200.8 | 715.8 |" in page


def table_in(text):
    """The first table of a piece of the page: a dict by column for each row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [line.strip("|").split("|") for line in lines]
    head, body = rows[0], rows[2:]
    return [
        {name.strip(): cell.strip() for name, cell in zip(head, row, strict=True)} for row in body
    ]


def test_every_claim_has_its_verdict_on_every_data_set_it_was_judged_on(make):
    page = make.PAGE.read_text(encoding="utf-8")
    found = json.loads(make.REPRODUCTION.read_text(encoding="utf-8"))
    overview, by_how_much = page.split("## By how much?")
    marks = {
        name: line
        for line in table_in(overview)
        for name in re.findall(r"\[([^]]+)\]\(#", line[""])
    }
    assert len(marks) == len(CLAIMS)
    for row in found["verdicts"]:
        turned = "±" if row["opposed"] else ""
        head = f"{row['data']} twin" if row["people"] == "twin" else row["data"]
        assert marks[row["claim"]][head] == f"{make.MARK[row['verdict']]}{turned}"
        section = by_how_much.split(f"### {row['claim']}\n")[1].split("\n### ")[0]
        [line] = [line for line in table_in(section) if line["data"] == row["data"]]
        assert line["kind"] == row["people"]
        assert line["verdict"].startswith(make.MARK[row["verdict"]])
        assert line.get("ε", "") == row["spent"]
        whole = " ".join(line.values())
        for part in re.split(r", HR@\d |; rate at the edge: |: ", row["decides"]):
            assert part in whole, row["claim"]
        for setting, (verdict, decides) in row["settings"].items():
            figure = decides.partition("; rate at the edge")[0].rpartition(" (")[2]
            assert setting in section
            if setting not in line:  # the same as the first on all data
                continue
            if line[setting] == "the same":
                assert [verdict, decides] == next(iter(row["settings"].values()))
            else:
                assert figure in line[setting]
        base = row["part"].partition("@")[0]
        assert f"`nextapp reproduce {base}`" in section


def test_the_settings_of_a_claim_stand_side_by_side(make):
    row = {"data": "epm", "people": "people with clocks", "verdict": "confirmed", "opposed": "",
           "of_paper": True, "decides": "a − b, HR@5 +0.020 (+0.010 to +0.030)", "n_users": 18,
           "of_users": 115, "spent": "",
           "settings": {
               "tuned": ["confirmed", "a − b, HR@5 +0.020 (+0.010 to +0.030)"],
               "default": ["confirmed", "a − b, HR@1 +0.040 (+0.020 to +0.060)"],
               "authors": ["not confirmed", "c − b, HR@5 -0.03 (-0.04 to -0.02)"],
               "again": ["confirmed", "a − b, HR@5 +0.020 (+0.010 to +0.030)"],
           }}  # fmt: skip
    assert make._by_settings([row]).splitlines() == [
        "| data | kind | verdict | compared | tuned | default | authors | users |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| epm | people with clocks | ✓ confirmed | a − b, HR@5 | +0.020 (+0.010 to +0.030) "
        "| ✓ HR@1 +0.040 (+0.020 to +0.060) | ✗ c − b, HR@5 -0.03 (-0.04 to -0.02) | 18 of 115 |",
        "",
        "The same with: again.",
    ]


def test_a_part_that_is_run_again_takes_the_place_of_the_same_part(make):
    def verdict(claim, part, decides):
        return {"claim": claim, "part": part, "decides": decides}

    level = verdict("fig5-level", "fig5", "a")
    kept = {"verdicts": [verdict("cost-kashin", "cost", "b"), level],
            "parts": {"cost": 1, "fig5": 2}}  # fmt: skip
    again = verdict("cost-kashin", "cost", "c")
    new = {"verdicts": [again], "parts": {"cost": 3}}
    assert make.taken_over(kept, new) == {
        "verdicts": [level, again],  # in the order of the claims
        "parts": {"cost": 3, "fig5": 2},
    }


def test_what_is_published_was_no_quick_run_and_names_the_people(make):
    found = json.loads(make.REPRODUCTION.read_text(encoding="utf-8"))
    assert not any(part["quick"] for part in found["parts"].values())
    people = {row["data"]: row["people"] for row in found["verdicts"]}
    assert people["ubiqlog-a"] == people["android-a"] == "people with clocks"
    assert people["reality-a"] == people["schonlau"] == "people without clocks"
    assert people["App Usage"] == "twin"
    rules = {row["claim"]: row["rule"] for row in found["verdicts"]}
    assert rules == {claim.name: claim.rule for claim in CLAIMS}


def test_the_verdicts_of_the_published_run_are_short_in_the_report(make):
    """A third of the 24,500 words that the report once had; the rest takes 3,950."""
    claims = {claim.name: claim for claim in CLAIMS}
    found = json.loads(make.REPRODUCTION.read_text(encoding="utf-8"))["verdicts"]
    rows = [
        {**row, "of_paper": claim.of_paper, "words": claim.words, "where": claim.where}
        for row in found
        for claim in [claims[row["claim"]]]
    ]
    text = re.sub(r"<[^>]+>", " ", report._verdict_table(rows) + report._in_short(rows))
    assert len(text.split()) < 24_500 / 3 - 3_950


def test_a_tuned_setting_is_not_below_the_default(make):
    """Figures 3 and 4 on every data set: Full with the chosen settings, less Full by default."""
    found = json.loads(make.REPRODUCTION.read_text(encoding="utf-8"))
    n_figures = 0
    for part in found["parts"].values():
        rows = part["tables"].get("regimes by settings of SeqMF", {"rows": {}})["rows"]
        if rows:
            tuned, default, authors = (row["HR@5 full"][0] for row in rows.values())
            assert tuned > default - 0.005
            assert 0 < authors < 1
            n_figures += 1
    assert n_figures >= 10


def test_a_lead_is_over_the_best_rival_of_its_kind(predictor):
    """Worked out from the hit rates, of every log that was measured so."""
    n_leads = 0
    for presets in predictor.values():
        for models in presets.values():
            for model, row in models.items():
                for tables in row.get("leads", {}).values():
                    rival, mean, low, high = tables["all"]["HR@5"]
                    lead = row["HR"]["HR@5"][0] - models[rival]["HR"]["HR@5"][0]
                    assert mean == pytest.approx(lead, abs=2e-5), model  # rounded to five digits
                    assert low <= mean <= high
                    n_leads += 1
    assert n_leads >= 3


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


def test_the_readme_quotes_what_a_phone_alone_reaches_and_the_best_rule_beside_it(predictor):
    models = predictor["ubiqlog-a"]["honest"]
    mine, readme = models["nextapp-alone"], (ROOT / "README.md").read_text("utf-8")
    leads = mine["leads"]["on the phone"]
    for table, key in (("all", "HR"), ("different", "different"), ("openings", "openings")):
        rate = mine[key]["HR@5"][0]
        best = rate - leads[table]["HR@5"][1]
        assert f"**{100 * rate:.0f} %**" in readme
        assert f"{100 * best:.0f} %)" in readme, table
    quoted = "{:.3f} ({:.3f} to {:.3f})".format(*leads["all"]["HR@5"][1:]).replace("0.", ".")
    assert f"{quoted} ahead" in " ".join(readme.split())
    findings = (ROOT / "docs" / "findings.md").read_text("utf-8")
    for table in ("all", "openings"):
        rival, *ends = leads[table]["HR@5"]
        words = "by {:.3f} ({:.3f} to {:.3f})".format(*ends).replace("0.", ".")
        assert words in findings
        assert f"`{rival}`" in findings


def test_the_card_quotes_the_hit_rates_of_both_forms(predictor):
    card = (ROOT / "docs" / "cards" / "model.md").read_text("utf-8")
    for log in predictor:
        cells = [
            " / ".join(f"{row['HR'][f'HR@{k}'][0]:.3f}".lstrip("0") for k in (1, 3, 5))
            for row in (predictor[log]["honest"][name] for name in ("nextapp", "nextapp-alone"))
        ]
        assert f"| {cells[0]} | {cells[1]} |" in card, log


def test_no_page_says_more_of_rivals_than_was_measured(predictor):
    """In HR@5 of all launches: the network level on one log of five, the trees ahead on two."""

    def less_nextapp(name):
        ends = {log: predictor[log]["paper"][name]["less nextapp"]["HR@5"] for log in predictor}
        return {log: (low > 0) - (high < 0) for log, (_, low, high) in ends.items()}

    for form in ("appusage2vec", "appusage2vec-online"):
        assert [log for log, side in less_nextapp(form).items() if side >= 0] == ["reality-a"]
    ahead = {log for log, side in less_nextapp("ranker").items() if side > 0}
    assert ahead == {"epm", "schonlau"}
    page = (ROOT / "docs" / "how-it-predicts.md").read_text("utf-8")
    assert "behind on four of five logs and level on one" in page
    assert "ahead by up to .008 on two logs of PCs and level on three of phones" in page


def test_the_findings_name_the_phones_that_each_mechanism_needs(make):
    tables = json.loads(make.REPRODUCTION.read_text("utf-8"))["parts"]["phones"]["tables"]
    needed = {name: row["phones needed to beat all controls"]
              for name, row in tables["answers"]["rows"].items()}  # fmt: skip
    gains = tables["HR@5 − frozen, by number of phones"]["rows"]
    walsh, laplace, none = (
        f"{gains[name]['HR@5 − frozen, 100,000'][0]:.3f}".lstrip("0")
        for name in ("walsh", "laplace", "none")
    )
    assert needed["kashin"] == "300"
    assert needed["walsh"] == needed["laplace"] == "10,000"
    for name in ("harmony", "laplace-l1", "qharmony-printed"):
        assert needed[name] == "not reached with 100,000"
    findings = " ".join((ROOT / "docs" / "findings.md").read_text("utf-8").split())
    assert "Kashin has from 300 phones on" in findings
    assert "walsh and Laplace in the ℓ∞ ball from 10,000" in findings
    assert f"walsh gains {walsh} over frozen Q, Laplace {laplace}, no privacy {none}" in findings


def test_figure_1_is_that_of_this_code(make):
    """The one part that takes no time is played again: what is stored must not grow old."""
    part = next(
        part
        for part in plan.parts_of(quick=False, seed=0, files={}, folder=None)
        if part.name == "fig1"
    )
    record = running.record_of(part, running.run_part(part, ROOT, lambda *_: None), 0.0)
    stored = json.loads(make.REPRODUCTION.read_text("utf-8"))["parts"]["fig1"]["tables"]
    assert json.loads(json.dumps(make.tables_of(rows_of(record)))) == stored


def test_a_small_crowd_changes_as_little_as_the_page_says(make):
    parts = json.loads(make.REPRODUCTION.read_text("utf-8"))["parts"]
    gains = [
        row["gain@5"][0]
        for name, part in parts.items()
        if name.startswith("new-phones@")
        for prior, row in part["tables"]["launches 10 to 50"]["rows"].items()
        if prior.startswith("ε")
    ]
    assert [round(end, 3) for end in (min(gains), max(gains))] == [-0.004, 0.004]
    assert "by −.004 to +.004" in (ROOT / "docs" / "crowd.md").read_text("utf-8")
