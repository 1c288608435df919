"""The help of every command: its form, its length, and its examples, which are run on tiny data."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nextapp.cli.commands import COMMANDS, app, load
from nextapp.phone.commands import main as phone_main
from nextapp.phone.commands import parsers

TINY = "synthetic:phones=8,apps=12,days=6"
# What an example has of size, and what stands for it here; everything else is run as it is.
SMALLER = {
    "synthetic:lsapp": TINY,
    "synthetic:app-usage": TINY,
    "synthetic:fleet,phones=100000": "synthetic:fleet,phones=60,apps=12",
    "--phones 100000": "--phones 30 --apps 12 --sample 20 --dim 2",
    "--rounds 5": "--rounds 2",
    "--trials 60": "--trials 2",
    "--preset authors": "--preset honest",
    "--seeds 2": "--seeds 1 --cycles 4",
    "--phones 292": "--phones 10 --rounds 1 --mechanisms harmony",
    "--reports 200000": "--quick",
    "--reports 10": "--reports 2 --phones 6 --mechanisms harmony",
    "usagestats.txt launches.csv": "usagestats.txt converted.csv",
}
# Not run here: they serve until they are stopped, need Flower, or take minutes. They are parsed.
PARSED = {
    "demo", "open", "reproduce", "serve", "issue", "play-phones", "admin roll-back",
    "admin close-round", "admin expel", "flower", "flower up", "flower superlink",
    "flower gateway", "flower run", "flower register",
}  # fmt: skip
ORDER = ("train", "predict")  # what one writes and another reads


def commands() -> dict[str, object]:
    """All commands but those of the phone, by what is typed."""
    found: dict[str, object] = {"": app}
    for name in COMMANDS:
        if name == "phone":
            continue
        command = load(name)
        found[name] = command
        for inner, each in getattr(command, "commands", {}).items():
            found[f"{name} {inner}"] = each
    return found


ALL = commands()
_, PHONE = parsers("nextapp phone")
EXAMPLES = [
    (name, line)
    for name, command in ALL.items()
    if name
    for line in (command.epilog or "").split("\n")
]


@pytest.mark.parametrize("name", [*ALL, "phone", *(f"phone {name}" for name in PHONE)])
def test_help_fits_a_screen_and_has_an_example(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, [*name.split(), "--help"]).output
    lines = text.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert lines[0].lower().startswith("usage: ")
    assert "\nExample:\n" in text or "\nExamples:\n" in text
    sentence = lines[2].strip()
    assert sentence[0].isupper()


@pytest.mark.parametrize("name", [name for name in ALL if name])
def test_every_option_has_a_sentence_of_help(name):
    for parameter in ALL[name].params:
        if parameter.param_type_name == "option" and parameter.name != "help":
            words = parameter.help
            assert words, parameter.name
            assert words[-1] in ".…", (parameter.name, words)


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=lambda text: text[:50])
def test_examples_can_be_parsed(name, line):
    words = shlex.split(line.partition(" > ")[0])
    assert " ".join(words).startswith(f"nextapp {name} ".rstrip())
    command = ALL[name]
    rest = words[1 + len(name.split()) :]
    if hasattr(command, "commands"):  # a group: the example is of one of its commands
        command, rest = ALL[f"{name} {rest[0]}"], rest[1:]
    with pytest.MonkeyPatch.context() as patch:
        for parameter in command.params:
            patch.setattr(parameter, "callback", None)
        command.make_context(name, rest, resilient_parsing=False).close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the examples name: a log, an export, a server's folder."""
    where = tmp_path_factory.mktemp("examples")
    rows = ["user_id,timestamp,app_name"]
    rows += [f"u,{1_600_000_000 + 50 * k},app{k * k % 5}" for k in range(90)]
    (where / "launches.csv").write_text("\n".join(rows) + "\n")
    (where / "usagestats.txt").write_text(
        "\n".join(
            f'    time="2024-03-01 10:{k:02d}:00" type=ACTIVITY_RESUMED package=com.app{k % 3} '
            f"class=com.app{k % 3}.Main flags=0x0"
            for k in range(20)
        )
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "nextapp", "serve", "--data", "federation", "--port", "0",
         "--operator", "off", "--dev-tls"],
        cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    assert b"https://127.0.0.1:" in server.stdout.readline()
    time.sleep(0.5)
    os.killpg(server.pid, signal.SIGINT)
    text = server.communicate(timeout=60)[0].decode()
    assert server.returncode == 0, text
    assert "Traceback" not in text
    assert "start again to continue" in text
    return where


def smaller(line: str) -> str:
    for large, small in SMALLER.items():
        line = re.sub(rf"{re.escape(large)}(?!\S)", small, line)
    return line


RUN = sorted(
    (pair for pair in EXAMPLES if pair[0] not in PARSED),
    key=lambda pair: (
        ORDER.index(pair[0]) if pair[0] in ORDER else -1,
        pair[0] == "admin restore",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), RUN, ids=lambda text: text[:50])
def test_examples_run(folder, monkeypatch, name, line):
    monkeypatch.chdir(folder)
    if name == "admin restore" and not Path("copy").exists():
        assert CliRunner().invoke(app, shlex.split("admin backup federation copy")).exit_code == 0
    if name == "admin backup" and Path("copy").exists():
        pytest.skip("done for admin restore")
    done = CliRunner().invoke(app, shlex.split(smaller(line.partition(" > ")[0]))[1:])
    assert done.exit_code == 0, done.output + repr(done.exception)


@pytest.mark.parametrize("name", [name for name in PHONE if name != "sync"])
def test_examples_of_the_phone_run(tmp_path, monkeypatch, name, capsys):
    monkeypatch.chdir(tmp_path)
    Path("usagestats.txt").write_text(
        '  time="2024-03-01 10:00:00" type=ACTIVITY_RESUMED package=com.a class=com.a.Main\n' * 2
    )
    words = shlex.split(PHONE[name].epilog.partition("\n")[2])
    assert words[:3] == ["nextapp", "phone", name]
    if name != "init":
        assert phone_main(["init"]) == 0
        assert phone_main(["log", "chess"]) == 0  # what examples hide was launched
        assert phone_main(["log", "maps"]) == 0
    assert phone_main(words[2:]) == 0, capsys.readouterr()
