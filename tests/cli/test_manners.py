"""Manners of the command line: refused before the work, answered at once, told how to go on."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from nextapp.cli import STOPPED, screen
from nextapp.cli.commands import COMMANDS, Group, app
from nextapp.cli.commands import load as load_command
from nextapp.cli.evaluate import in_short
from nextapp.data.importers import check_not_foreign
from nextapp.data.importers.content import UnreadableLog

SMALL = "synthetic:phones=8,apps=12,days=6"
ROWS = [f"u,{1_600_000_000 + 60 * k},app{k % 3}" for k in range(6)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    runner = CliRunner()

    def call(*arguments, code=0, stdin=None):
        result = runner.invoke(app, [str(word) for word in arguments], input=stdin)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result.output

    return call


def log(name: str, rows: list[str]) -> None:
    Path(name).write_text("user_id,timestamp,app_name\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "no-such.csv", "--json", "file/r.json"],
        ["evaluate", "no-such.csv", "--plot", "file/r"],
        ["train", "no-such.csv", "--out", "file/m"],
        ["tune", "no-such.csv", "--out", "file/t.toml"],
        ["new-phones", "no-such.csv", "--plot", "file/r"],
        ["data", "make", "no-such.csv", "--out", "file/l.csv"],
        ["data", "convert", "no-such.csv", "file/l.csv"],
        ["simulate", "--phones", "0", "--out", "file/r"],
        ["reproduce", "no-such", "--out", "file/r"],
        ["demo", "--out", "file/demo"],
        ["privacy", "compare", "--epsilon", "1", "--mechanisms", "no-such", "--json", "file/p"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_else(run, words):
    """Everything else about these commands is wrong too: it must not be noticed first."""
    Path("file").write_text("")
    if words[0] == "simulate":
        words = ["simulate", "--phones", "10", *words[3:]]
    text = " ".join(run(*words, code=1).split())
    assert text.startswith(f"error: cannot write {words[-1]}: ")
    assert "Not a directory" in text
    assert "no-such" not in text


COMMON = """{"timestamp": 1700000000, "app_name": "Mail"}
{"timestamp": 1700000030, "app_name": "Maps"}
{"timestamp": 1700000060, "app_name": "Mail"}
"""


@pytest.mark.parametrize(
    "words",
    [
        "data describe -",
        "data convert - out.csv",
        "evaluate - --models mru --split fraction:0.3,0,0.7",
        "train - --out model",
        "explain -",
        "explain --history -",
        "phone import -",
    ],
)
def test_a_log_and_a_history_are_also_read_from_standard_input(run, words):
    if words.startswith("phone"):
        run("phone", "init")
    run(*words.split(), stdin=COMMON)


@pytest.mark.parametrize("words", ["evaluate - --models mru", "explain -", "train - --out m"])
def test_nothing_is_said_to_come_next_beside_json_or_after_standard_input(run, words):
    rows = "".join(COMMON.replace("17000000", f"17{n:06}") for n in range(20))
    assert "Next: nextapp explain -" not in run(*words.split(), stdin=rows)
    Path("log.jsonl").write_text(rows)
    words = words.replace(" - ", " log.jsonl ").replace("explain -", "explain log.jsonl")
    assert "Next:" not in run(*words.split(), "--json", "-")


@pytest.mark.parametrize(
    "words",
    [
        "data describe ADDRESS",
        "open --data ADDRESS",
        "predict ADDRESS --history log.csv",
        "explain --history ADDRESS",
        "phone import ADDRESS",
    ],
)
def test_an_address_is_refused_in_words(run, words):
    run("phone", "init")
    text = run(*words.replace("ADDRESS", "https://x.y/log.csv").split(), code=1)
    assert "https://x.y/log.csv: is an address. Nothing is fetched" in " ".join(text.split())


@pytest.mark.parametrize(
    ("zone", "whose"), [([], "hour, UTC"), (["--zone", "Asia/Tokyo"], "hour, local")]
)
def test_the_hours_of_a_description_say_whose_they_are(run, zone, whose):
    Path("log.csv").write_text("timestamp,app_name\n2024-03-01 20:00:00,Mail\n")
    text = run("data", "describe", "log.csv", *zone)
    (line,) = (line for line in text.splitlines() if "launches by hour" in line)
    assert line.partition("|")[2].index("█") == 20
    assert whose in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("program", ["nextapp.phone", "nextapp phone"])
def test_a_closed_pipe_ends_without_a_word(tmp_path, program):
    """And a full disk is named, where it is standard output that has no room."""
    phone = [sys.executable, "-m", *program.split()]
    subprocess.run([*phone, "init"], cwd=tmp_path, check=True, capture_output=True)
    command = " ".join([*phone, "export"])
    for rest, said in (("| true", ""), ("> /dev/full", "No space left on device")):
        done = subprocess.run(
            f"{command} {rest}",
            shell=True,
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert said in done.stderr
        assert bool(said) == bool(done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("phone pedict", "'predict'"),
        ("data describe log.csv --zone Europe/Berln", "Europe/Berlin"),
        ("data describe syntetic:lsapp", "synthetic:lsapp"),
    ],
)
def test_the_nearest_of_what_there_is_is_named(run, words, meant):
    log("log.csv", ROWS)
    code = 2 if words.startswith("phone") else 1
    assert f"id you mean {meant}?" in " ".join(run(*words.split(), code=code).split())


def test_the_result_in_a_line_has_its_intervals_and_calls_level_models_level():
    figures = {"HR@5": 0.5, "ci95": {"HR@5": [0.4, 0.6]}}
    result = {"models": {"nextapp": figures, "mru": figures}, "intervals": "95 %, over users"}
    assert in_short(result).endswith(
        ": nextapp 50.0% (40.0–60.0) and mru 50.0% (40.0–60.0). Intervals: 95 %, over users."
    )


def test_every_command_that_takes_a_log_reads_it_by_one_door():
    """`LogOptions.read`, which takes - as well."""
    groups = {name: load_command(name) for name in COMMANDS}
    every = [*groups.values(), *groups["data"].commands.values()]
    taking = {each.name: {param.name for param in each.params} for each in every}
    takes = {name for name, taken in taking.items() if "source" in taken}
    assert takes > {"evaluate", "tune", "dynamic", "new-phones", "memory", "train", "describe"}
    assert all("time_column" in taking[name] for name in takes - {"make"})


def test_a_folder_is_no_file(run):
    Path("there").mkdir()
    assert "it is a folder" in run("evaluate", SMALL, "--json", "there", code=1)


def test_a_writable_output_is_left_as_it_was(run):
    Path("r.json").write_text("mine")
    run("evaluate", "no-such.csv", "--json", "r.json", code=1)
    run("evaluate", "no-such.csv", "--json", "new/r.json", code=1)
    assert Path("r.json").read_text() == "mine"
    assert not Path("new").exists()


def test_an_excel_file_is_recognised(run):
    with zipfile.ZipFile("book.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        for part in ("[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"):
            book.writestr(part, "<xml/>" * 1000)
    for words in (
        ["data", "describe", "book.xlsx"],
        ["evaluate", "book.xlsx", "--user-column", "who"],
        ["predict", "book.xlsx", "--history", "book.xlsx"],
    ):
        text = " ".join(run(*words, code=1).split())
        assert "book.xlsx: this is an Excel file: save it as CSV" in text, words


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (bytes.fromhex("d0cf11e0a1b11ae1"), "an Excel file"),
        (b"%PDF-1.7\n", "a PDF file"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
        (b"BZh91AY", "a bzip2 file"),
        (b"ARROW1\0\0", "an Arrow or Feather file"),
    ],
)
def test_other_foreign_files_are_recognised_by_their_first_bytes(head, says):
    with pytest.raises(UnreadableLog, match=says):
        check_not_foreign(head + bytes(100), "f")


def test_logs_are_not_foreign():
    for head in (
        b"user_id,timestamp,app_name\n",
        b"PAR1",
        b"\x1f\x8b\x08",
        b"",
    ):
        check_not_foreign(head, "f")


def test_the_page_takes_a_log_from_standard_input(run):
    """It would open, if the log had the person who is asked for."""
    stdin = "user_id,timestamp,app_name\n" + "\n".join(ROWS) + "\n"
    text = run("open", "--data", "-", "--user", "no-such", "--no-browser", stdin=stdin, code=1)
    assert "there is no user 'no-such' in this file; there are u." in text


def test_predict_says_what_is_no_model(run):
    log("log.csv", ROWS)
    text = " ".join(run("predict", "log.csv", "--history", "log.csv", code=1).split())
    assert "log.csv: this is no model: expected a file written by nextapp train" in text
    Path("folder").mkdir()
    assert "is a folder" in run("predict", "folder", "--history", "log.csv", code=1)


@pytest.mark.parametrize("split", ["days:3,1,1", "fraction:0.999,0,0.001"])
def test_a_log_too_small_for_its_split_is_told_one_that_fits(run, split):
    log("log.csv", ROWS)
    text = " ".join(run("evaluate", "log.csv", "--models", "mru", "--split", split, code=1).split())
    fits = text.partition("This split fits: ")[2].removesuffix(".")
    assert fits.startswith("fraction:")
    run("evaluate", "log.csv", "--models", "mru", "--split", fits)


def test_a_log_that_no_split_fits_is_told_why(run):
    log("log.csv", [f"u,{1_600_000_000 + 4000 * k},app{k}" for k in range(6)])
    assert "No split fits this log" in run("evaluate", "log.csv", "--models", "mru", code=1)
    log("log.csv", ["u,1600000000,app"])
    assert "this log of 1 launch:" in run("evaluate", "log.csv", "--models", "mru", code=1)
    assert "0 transitions between 1 app and" in " ".join(
        run("train", "log.csv", "--out", "m").split()
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["privacy", "account", "--epsilon", "1e9", "--reports", "1", "--phones", "9"], 1),
        (["privacy", "account", "--epsilon", "-1", "--reports", "1", "--phones", "9"], 1),
        (["simulate", "--phones", "10", "--epsilon", "1e9"], 1),
        (["new-phones", SMALL, "--epsilon", "1,1e9"], 1),
        (["dynamic", SMALL, "--epsilon", "1e9"], 1),
        (["serve", "--data", "federation", "--epsilon", "1e9"], 1),
        (["evaluate", SMALL, "--tune", "0"], 2),
        (["tune", SMALL, "--trials", "0"], 2),
        (["simulate", "--phones", "0"], 2),
    ],
)
def test_silly_values_are_refused(run, words, code):
    text = " ".join(run(*words, code=code).split())
    says = {1: "--epsilon must be a number > 0 and at most 100", 2: "Invalid value for"}
    assert says[code] in text
    assert not Path("federation").exists()


def test_data_is_not_overwritten_untold(run):
    run("data", "make", SMALL, "--out", "log.csv")
    made = Path("log.csv").read_bytes()
    assert "give another name, or --overwrite" in run(
        "data", "make", SMALL, "--out", "log.csv", "--seed", 1, code=1
    )
    assert "--overwrite" in run("data", "convert", "log.csv", "log.csv", code=1)
    assert Path("log.csv").read_bytes() == made
    run("data", "make", SMALL, "--out", "log.csv", "--seed", 1, "--overwrite")
    assert Path("log.csv").read_bytes() != made


def test_the_end_says_what_to_try_next(run):
    text = run("data", "make", SMALL, "--out", "log.csv")
    assert "Next: nextapp data describe log.csv" in text
    text = run("evaluate", "log.csv", "--models", "mru", "--json", "r.json")
    assert "Wrote r.json" in text
    assert "Next: nextapp explain log.csv" in text


@pytest.mark.parametrize("command", ["evaluate", "reproduce"])
def test_quiet_shows_the_result_and_errors_only(run, monkeypatch, command):
    """The same result as without it, and no progress, hint or notice, even on a terminal."""
    words = {
        "evaluate": [SMALL, "--models", "mru", "--json", "r.json"],
        "reproduce": ["fig1", "--quick", "--jobs", 1, "--out", "r"],
    }[command]
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(screen, "err", terminal)

    def shown():
        return re.sub(r"\d+(\.\d+)? s", "", run(command, *words, *quiet)), terminal.file.getvalue()

    quiet = ["--quiet"]
    result, noise = shown()
    assert noise == ""
    quiet = []
    assert result == shown()[0] != ""
    assert terminal.file.getvalue() != ""  # the next command is not quiet
    text = run("evaluate", "no-such.csv", "--quiet", code=1)
    assert text.startswith("error: ")


def test_tables_fit_80_columns(run):
    run("data", "make", SMALL, "--out", "log.csv")
    text = run(
        "evaluate", "log.csv", "--models", "mru,sr-od-online,nextapp,nextapp-alone", "--more"
    )
    assert max(map(len, text.splitlines())) <= 80
    assert "nextapp minus it" in text


def test_estimates_rest_on_what_was_seen():
    """Code is compiled in the first part; what the later half of the parts took is what counts."""
    now = [0.0]
    left = screen.TimeLeft(lambda: now[0])
    assert left.words(0, 100) == ""  # nothing is known yet
    now[0] = 60.0
    assert left.words(1, 100) == ""
    now[0] = 66.0
    assert left.words(3, 100) == ""  # two of a hundred: too few to tell
    now[0] = 72.0
    assert left.words(6, 100) == "about 3 min left"  # the last 3 took 6 s: 94 times 2 s
    now[0] = 132.0
    assert left.words(16, 100) == "about 8 min left"  # the last 10 took 60 s: 84 times 6 s
    for done in range(17, 27):
        now[0] += 600.0 if done == 21 else 1.0  # code is compiled in the middle, too
        words = left.words(done, 100)
    assert words == "about 4 min left"  # the other 19 of the last 20 took 69 s: 74 times 3.6 s
    now[0] += 30.0
    assert left.words(99, 100) == "a few seconds left"
    assert left.words(100, 100) == ""


def test_only_what_is_nearly_all_of_a_command_tells_its_end(monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(screen, "err", terminal)
    with screen.progress("round") as report:
        for step in ("making phones", "rounds"):
            for done in range(1, 4):
                report(step, done, 9)
    shown = terminal.file.getvalue()
    assert "a few seconds left" in shown
    assert "left" not in shown.split("rounds")[0]
    with screen.progress() as report:
        for done in range(1, 4):
            report("rounds", done, 9)
    assert "left" not in terminal.file.getvalue()[len(shown) :]


SLEEP = "import time; time.sleep(60)"
BUSY = """
import ctypes
ctypes.CDLL(None).sleep(60)  # in a function of C: Python cannot raise anything
"""
STARTED = """
import sys, threading
from nextapp import cli
cli.answer_ctrl_c()
cli.when_stopped_say("Try again.")
print("ready", flush=True)
try:
    exec(sys.argv[1])
except KeyboardInterrupt:
    cli.say_stopped()
    sys.exit(cli.STOPPED)
"""


READY = "from nextapp.cli import main; print('ready', flush=True); main()"


def interrupted(process: subprocess.Popen[str], within: float) -> str:
    """Send Ctrl-C, as a terminal does, and wait; what standard error said."""
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert time.monotonic() - start < within
    assert "Traceback" not in said, said
    assert process.returncode == 130
    return said


@pytest.mark.parametrize("work", [SLEEP, BUSY], ids=["python", "machine code"])
def test_ctrl_c_is_answered_long_before_the_work_ends(work):
    """It would go on for a minute; how soon is no matter of tests on a busy machine."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, work],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    assert interrupted(process, 30.0) == "\nstopped. Try again.\n"


def test_ctrl_c_while_a_class_is_made_is_ctrl_c(monkeypatch):
    """Python 3.11 wraps it in a RuntimeError; any other RuntimeError is none of it."""

    def work(self, ctx):
        raise RuntimeError("Error calling __set_name__") from cause

    monkeypatch.setattr(Group, "invoke", work)
    cause = KeyboardInterrupt()
    with pytest.raises(click.exceptions.Exit) as stopped:
        app.invoke(click.Context(app))
    assert stopped.value.exit_code == STOPPED
    cause = ValueError()
    with pytest.raises(RuntimeError, match="__set_name__"):
        app.invoke(click.Context(app))


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.3, 0.8, 2.0])
def test_ctrl_c_while_a_command_is_imported_or_works(tmp_path, after):
    words = ["data", "make", "synthetic:phones=200000,apps=50,days=90", "--out", "log.csv"]
    process = subprocess.Popen(
        [sys.executable, "-c", READY, *words], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after)
    assert "stopped. Nothing was kept" in interrupted(process, 60.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_does_not_interrupt_the_start_of_a_process():
    """Another thread takes the signal, and Python interrupted the main thread none the less: the
    child then found half of what it was sent, and showed a traceback."""
    code = """
import os, signal, threading, time
from nextapp.studies.reproduce.running import deaf_to_ctrl_c
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
try:
    with deaf_to_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(200):
            time.sleep(0.001)
        print("started")
    print("not heard")
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started", "heard"]


def test_ctrl_c_ends_a_tuning_without_a_traceback(tmp_path):
    words = ["tune", SMALL, "--trials", "500", "--out", "t.toml"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nextapp", *words], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not (tmp_path / "t.db").exists():
        time.sleep(0.1)
        assert process.poll() is None
    time.sleep(1.0)
    said = interrupted(process, 60.0)
    assert "Finished trials are in t.db: the same command continues from there." in said
