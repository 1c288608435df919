"""The whole path: files as their authors publish them, all parts, a kill, the report.

The files are made here, a few hundred rows each: no person's data.
"""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import time
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.evaluation import METRICS, evaluate, exam, find_preset
from nextapp.predictors.rivals import MFU, MRU, SROnDevice
from nextapp.studies.reproduce import plan, report, running, sources
from nextapp.studies.reproduce.claims import CANNOT_TELL, CLAIMS
from nextapp.studies.reproduce.rows import PRINTED_TABLES, row_of_paper

N_USERS = 11
ON_LOGS = ("table1", "fig2", "fig3", "fig3-honest", "fig5", "window", "readings", "new-phones")
FILES = {name.removesuffix(plan.HONEST) for name in plan.PARTS}
LSAPP_DAYS, WEEK = 243, 7


def launches(n_days, sessions_a_user, seed):
    """(user, moment, app) of a few people: sessions spread over the days, some near the end."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(N_USERS):
        days = np.linspace(0, n_days - 1, sessions_a_user).astype(int)
        for day in days:
            moment = datetime(2018, 1, 1, 10) + timedelta(days=int(day), minutes=int(user))
            for _ in range(4):
                moment += timedelta(seconds=int(rng.integers(20, 60)))
                rows.append((user, moment, (user + int(rng.geometric(0.5))) % 6))
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """lsapp.tsv, the same in a tar.gz as it is published, and App_usage_trace.txt."""
    folder = tmp_path_factory.mktemp("published")
    lines = ["user_id\tsession_id\ttimestamp\tapp_name\tevent_type"]
    for user, moment, app in launches(LSAPP_DAYS, 9, 1):
        for event, later in (("Opened", 0), ("Closed", 5)):
            stamp = moment + timedelta(seconds=later)
            lines.append(f"{user}\t0\t{stamp:%Y-%m-%d %H:%M:%S}\tApp {app}\t{event}")
    text = "\n".join(lines) + "\n"
    (folder / "lsapp.tsv").write_text(text)
    with tarfile.open(folder / "lsapp.tsv.gz", "w:gz") as archive:
        member = tarfile.TarInfo("lsapp.tsv")
        member.size = len(text.encode())
        archive.addfile(member, io.BytesIO(text.encode()))
    trace = [
        f"{user} {moment:%Y%m%d%H%M%S}000 {user % 3} {app} 1024"
        for user, moment, app in launches(WEEK, 7, 2)
    ]
    (folder / "App_usage_trace.txt").write_text("\n".join(trace) + "\n")
    rows = [f"{user},{moment:%Y-%m-%d %H:%M:%S},a{app}" for user, moment, app in launches(40, 9, 3)]
    (folder / "my-log.csv").write_text("user_id,timestamp,app_name\n" + "\n".join(rows) + "\n")
    return {
        "lsapp": folder / "lsapp.tsv",
        "archive": folder / "lsapp.tsv.gz",
        "app-usage": folder / "App_usage_trace.txt",
        "log": folder / "my-log.csv",
    }


@pytest.fixture(scope="module")
def small_settings(tmp_path_factory) -> Path:
    """The settings as shipped, except for what does not shrink with the data."""
    folder = tmp_path_factory.mktemp("settings")
    for name in FILES:
        text = (plan.settings_folder() / f"{name}.toml").read_text(encoding="utf-8")
        text = text.replace("users:34", "users:6").replace("users:8", "users:5")
        text = re.sub(r"tune = [346]\n", "tune = 2\n", text).replace(
            "budgets = [3]", "budgets = [1]"
        )
        if name == "cost":
            text = text.replace("[87, 2000]", "[20]").replace("dim = 64", "dim = 4")
        if name == "phones":
            text = text.partition("[quick]")[0] + (
                '[quick]\nphones = [40]\nmechanisms = ["laplace"]\nrounds = 1\nrates = [0.01]\n'
                "seeds = 2\nsample = 20\nvalidation = 20\n"
            )
        (folder / f"{name}.toml").write_text(text)
    return folder


def command(files, settings, out, *parts):
    return [
        sys.executable, "-m", "nextapp", "reproduce", *parts, "--quick", "--out", str(out),
        "--lsapp", str(files["archive"]), "--app-usage", str(files["app-usage"]),
        "--settings", str(settings), "--log", str(files["log"]),
    ]  # fmt: skip


def made_part(name, published, settings, **others):
    given = {"lsapp": published["archive"], "app-usage": published["app-usage"]}
    options = {"quick": True, "seed": 0, "files": given, "folder": settings} | others
    return plan.part(name, **options)


def silent(what, done, total):
    pass


@pytest.fixture(scope="module")
def reproduced(files, small_settings, tmp_path_factory):
    """A run killed after its first part, then all parts; what was there before the second."""
    out = tmp_path_factory.mktemp("out")
    first = out / "parts" / "table1.json"
    line = command(files, small_settings, out, "table1", "fig2")
    running_ = subprocess.Popen([*line, "--jobs", "1"], stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 300
        while not first.exists() and running_.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
        running_.send_signal(signal.SIGKILL)
    finally:
        running_.wait(30)
    before = first.read_bytes()
    unfinished = not (out / "report.html").exists()
    done = subprocess.run(
        command(files, small_settings, out), check=True, capture_output=True, text=True
    )
    return out, before, unfinished, done


@pytest.mark.sweep
def test_a_killed_run_goes_on_part_by_part(reproduced, files, small_settings, tmp_path):
    out, before, unfinished, _ = reproduced
    assert unfinished
    assert (out / "parts" / "table1.json").read_bytes() == before  # not run again
    others = {f"{name}@my-log" for name in ON_LOGS}
    assert {path.stem for path in (out / "parts").iterdir()} == set(plan.PARTS) | others
    assert not (out / "scratch").exists()
    for name in ("table1", "fig3"):  # and what came out is what an undisturbed run gives
        whole = running.run_part(made_part(name, files, small_settings), tmp_path, silent)
        record = json.loads((out / "parts" / f"{name}.json").read_text())
        assert record["result"] == json.loads(json.dumps(whole))


def test_a_part_with_other_settings_data_or_seed_is_another(files, small_settings):
    same = made_part("table1", files, small_settings)
    assert same.fingerprint == made_part("table1", files, small_settings).fingerprint
    unpacked = {"lsapp": files["lsapp"]}  # the same launches, not in an archive
    assert made_part("table1", files, small_settings, files=unpacked).fingerprint == (
        same.fingerprint
    )
    others = [
        made_part("table1", files, small_settings, seed=1),
        made_part("table1", files, small_settings, quick=False),
        made_part("table1", files, small_settings, files={"lsapp": files["app-usage"]}),
    ]
    assert same.fingerprint not in {other.fingerprint for other in others}


@pytest.mark.sweep
def test_cells_are_those_of_the_evaluation(reproduced, files):
    """CSV and JSON against the evaluation asked directly, to the last bit."""
    out = reproduced[0]
    for name, source, split in (
        ("table1", "lsapp", "days:222,7,14"),
        ("table2", "app-usage", "days:5,1,1"),
    ):
        with (out / "csv" / f"{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        results = json.loads((out / "results.json").read_text())["parts"][name]["result"]
        for preset in ("authors", "honest"):
            ready = exam(read_log(files[source]), Split.parse(split), find_preset(preset))
            asked = evaluate(ready, [MRU(), MFU(), SROnDevice()], 0)
            for mark in asked.marks:
                means = dict(zip(METRICS, mark.tables["all"].mean(axis=0), strict=True))
                cells = {
                    row["figure"]: row
                    for row in rows
                    if (row["table"], row["series"]) == (f"preset {preset}", mark.name)
                }
                found = results["presets"][preset]["models"][mark.name]
                printed = row_of_paper(name, mark.name)
                for metric in METRICS:
                    assert float(cells[metric]["mean"]) == found[metric]
                    assert found[metric] == pytest.approx(means[metric], rel=1e-14)
                    in_paper = str(printed[metric]) if preset == "authors" else ""
                    assert cells[metric]["paper"] == in_paper
                    assert float(cells[metric]["low"]) <= found[metric]
                    assert found[metric] <= float(cells[metric]["high"])


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.outside, self.drawn, self.open = [], 0, []

    def handle_starttag(self, tag, attributes):
        self.drawn += tag == "svg"
        self.outside += [
            value
            for key, value in attributes
            if key in ("src", "href", "xlink:href", "srcset", "action", "data")
            and not (value or "").startswith("#")
        ]
        self.outside += [tag] if tag in ("script", "link", "iframe", "object") else []


@pytest.mark.sweep
def test_the_page_needs_nothing_outside_it_and_has_every_figure(reproduced):
    out = reproduced[0]
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    assert "url(http" not in text
    assert "@import" not in text
    page = Links()
    page.feed(text)
    assert page.outside == []
    drawn = {path.stem for path in (out / "figures").glob("*.svg")}
    for path in (out / "figures").glob("*.svg"):  # a saved figure says by itself what it shows
        smaller = not path.stem.startswith("fig2")  # which a quick run does not change
        assert ("quick run" in path.read_text()) == smaller, path
    assert drawn == {path.stem for path in (out / "figures").glob("*.png")}
    assert page.drawn == len(drawn)
    assert {"fig2", "fig3", "fig4", "fig5", "fig6", "phones", "new-phones"} <= drawn
    for name in plan.PARTS:
        assert f"id='{name}'" in text
        assert (out / "csv" / f"{name}.csv").exists()
    for name in ON_LOGS:
        assert f"id='{name}@my-log'" in text
        assert "<table" not in text.partition(f"id='{name}@my-log'")[2].partition("</section>")[0]
    rows = json.loads((out / "results.json").read_text())["verdicts"]
    named = {row["claim"] for row in rows}
    assert named >= {claim.name for claim in CLAIMS if not claim.needs}
    for claim in CLAIMS:
        if claim.name not in named:
            continue
        assert claim.rule.split(",")[0][:40] in text.replace("&#x27;", "'")


@pytest.mark.sweep
def test_a_file_that_is_not_the_published_one_is_named(reproduced, files):
    out, *_, done = reproduced
    digest, n_bytes = sources.checksum(files["archive"])
    assert (digest, n_bytes) == sources.checksum(files["lsapp"])  # of what is inside
    assert digest in done.stderr
    assert sources.LSAPP_SHA256 in done.stderr
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "NOT LSApp as published" in text
    assert digest in text


@pytest.mark.parametrize("n_launches", [6, 36])
def test_few_users_tell_nothing(files, tmp_path, small_settings, n_launches):
    """Data of one or two people: problems in words, every verdict open, and a report."""
    lines = files["lsapp"].read_text().splitlines()
    (tmp_path / "lsapp.tsv").write_text("\n".join(lines[: 1 + 2 * n_launches]) + "\n")
    trace = files["app-usage"].read_text().splitlines()
    (tmp_path / "App_usage_trace.txt").write_text("\n".join(trace[:n_launches]) + "\n")
    given = {"lsapp": tmp_path / "lsapp.tsv", "app-usage": tmp_path / "App_usage_trace.txt"}
    records = {}
    for name in plan.PARTS:
        if plan.PARTS[name] in running.ON_FLEETS:
            continue
        part = plan.part(name, quick=True, seed=0, files=given, folder=small_settings)
        record = running.record_of(part, running.run_part(part, tmp_path, silent), 0.0)
        records[name] = {**record, "quick": False}  # so that the verdicts are given
    open_ = {row["claim"] for row in report.verdicts(records) if row["verdict"] == CANNOT_TELL}
    need_no_users = {claim.name for claim in CLAIMS if re.search("budget|elements", claim.name)}
    assert open_ | need_no_users == {
        claim.name
        for claim in CLAIMS
        if claim.part in records and claim.is_put(records[claim.part]["result"])
    }
    text = report.write(tmp_path / "out", records).read_text(encoding="utf-8")
    assert ("could not be measured" in text) == any(
        "problem" in record["result"] for record in records.values()
    )


@pytest.mark.sweep
def test_a_twin_has_what_anyone_could_reach_beside_it_and_a_real_log_has_not(
    reproduced, files, small_settings, tmp_path
):
    real = json.loads((reproduced[0] / "results.json").read_text())["parts"]
    assert "ceiling" not in real["table1"]["result"]["presets"]["honest"]["models"]
    assert "ceiling" not in real["fig3"]["result"]["series"]
    for name in ("table1", "fig3"):
        text = (small_settings / f"{name}.toml").read_text()
        text = text.replace("synthetic:lsapp", "synthetic:lsapp,phones=40")
        (tmp_path / f"{name}.toml").write_text(text)
    records = {}
    for name in ("table1", "fig3"):
        part = plan.part(name, quick=True, seed=2, files={}, folder=tmp_path)
        records[name] = running.record_of(part, running.run_part(part, tmp_path, silent), 0.0)
    for found in records["table1"]["result"]["presets"].values():
        models = found["models"]
        assert all(models["ceiling"]["HR@5"] > models[name]["HR@5"] for name in ("mru", "sr-od"))
    means = {name: row["over_cycles"] for name, row in records["fig3"]["result"]["series"].items()}
    assert all(means["ceiling"]["HR@5"]["mean"] > means[name]["HR@5"]["mean"] for name in means
               if name != "ceiling")  # fmt: skip
    text = report.write(tmp_path / "out", records).read_text(encoding="utf-8")
    assert "the ceiling knows the odds behind synthetic phones" in text
    assert "The controls and the ceiling, in italics, are not ranked" in text


def test_settings_travel_with_the_package():
    """Every part has its file, with the paper's numbers in it; pyproject ships the same folder."""
    assert {path.stem for path in plan.settings_folder().glob("*.toml")} == FILES
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert '"experiments" = "nextapp/studies/reproduce/settings"' in project.read_text()
    named = {
        name: plan.part(name, quick=False, seed=0, files={}, folder=None) for name in plan.PARTS
    }
    assert named["table1"].settings["split"] == "days:222,7,14"
    assert named["table2"].settings["split"] == "days:6,1,1"
    # The first cycle is not predicted: 33 and 7 are, as in the paper's figures.
    assert (named["fig3"].settings["cycles"], named["fig3"].settings["q_every"]) == ("users:34", 10)
    assert (named["fig4"].settings["cycles"], named["fig4"].settings["q_every"]) == ("users:8", 2)
    for name in ("fig3", "fig4"):  # the same study, counted twice
        other = dict(named[f"{name}-honest"].settings)
        assert named[name].settings["preset"] == "authors"
        assert other == {**named[name].settings, "preset": "honest"}
    assert named["fig5"].settings["epsilon"] == 4.5
    assert named["fig6"].settings["epsilon"] == 1.1
    for name in ("fig5", "fig6"):  # the same effort for all, and the paper's mechanisms by name
        assert len(named[name].settings["rates"]) == 5
        asked = set(named[name].settings["mechanisms"])
        assert {"laplace", "laplace-l1", "harmony", "kashin", "qharmony-printed"} <= asked
    assert all(each.seconds > 0 for each in named.values())


def test_the_printed_tables_are_the_papers():
    """A few cells read off the paper by eye."""
    assert row_of_paper("table1", "seqmf")["HR@5"] == 0.871
    assert row_of_paper("table1", "sr-od")["NDCG@5"] == 0.765
    assert row_of_paper("table2", "mru")["MRR@3"] == 0.516
    assert row_of_paper("table2", "seqmf")["HR@1"] == 0.402
    for table in PRINTED_TABLES.values():
        for row in table.values():  # HR@1, MRR@1 and NDCG@1 are one number
            assert row[0] == row[3] == row[6]


def test_an_unknown_part_is_named():
    with pytest.raises(ValueError, match="unknown part 'tabel1'; did you mean 'table1'"):
        plan.parts_named(("tabel1",))


@pytest.mark.sweep
def test_a_log_is_played_in_every_part_and_never_called_the_papers(reproduced, files):
    out = reproduced[0]
    results = json.loads((out / "results.json").read_text())
    rows = [row for row in results["verdicts"] if row["kind_of_data"] == "log"]
    assert {row["part"] for row in rows} == {f"{name}@my-log" for name in ON_LOGS}
    assert {(row["data"], row["people"]) for row in rows} == {("my-log", "people with clocks")}
    mine = results["parts"]["table1@my-log"]["result"]["presets"]["honest"]
    ready = exam(read_log(files["log"]), Split.parse("fraction:0.8,0,0.2"), find_preset("honest"))
    asked = evaluate(ready, [MRU()], 0).marks[0].tables["all"].mean(axis=0)
    assert mine["models"]["mru"]["HR@5"] == pytest.approx(asked[METRICS.index("HR@5")])
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "my-log: a log given by --log, not the paper's data" in text.replace("&#x27;", "'")
    for people in ("people with clocks", "synthetic phones"):
        mine = [row for row in results["verdicts"] if row["of_paper"] and row["people"] == people]
        assert f"{len(mine)} verdicts on claims of the paper, {people}" in text


def test_two_logs_of_one_name_are_refused(files, tmp_path):
    (tmp_path / "my-log.tsv").write_text("x")
    given = {"quick": True, "seed": 0, "files": {}, "folder": None}
    with pytest.raises(ValueError, match="different file names, got my-log, my-log"):
        plan.parts_of(**given, logs=[files["log"], tmp_path / "my-log.tsv"])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("phones.csv.gz", "phones"),
        ("my log (2).csv", "my-log-2"),
        ("<b>'x'&.tsv", "b-x"),
        ("Händy.parquet", "Händy"),
        ("???.json", "log"),
    ],
)
def test_a_log_is_named_after_its_file_in_letters_that_a_link_can_have(tmp_path, file, name):
    (tmp_path / file).write_text("x")
    assert sources.log_source(tmp_path / file).name == name


def test_a_log_that_cannot_be_read_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "odd.tsv").write_text("person\twhen was it\tprogram\n1\t2\tmail\n")
    line = [sys.executable, "-m", "nextapp", "reproduce", "fig2", "--quick", "--log",
            str(tmp_path / "odd.tsv"), "--out", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "--user-column" in said
    assert "nextapp data convert odd.tsv launches.csv" in said
    assert "starting" not in said
    assert not (tmp_path / "out" / "parts").exists()
