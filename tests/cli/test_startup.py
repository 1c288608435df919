"""What a command imports, and that help, completion and suggestions work without the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nextapp.cli.commands import COMMANDS, app, load

LAB = {
    "polars", "numba", "scipy", "matplotlib", "optuna", "dp_accounting", "ray", "starlette",
    "uvicorn", "cryptography", "prometheus_client", "trustme", "pydantic",
}  # fmt: skip
MODULES = """
import json, sys
from nextapp.cli import main
try:
    main()
finally:
    names = [name for name, module in sys.modules.items() if module is not None]
    print(json.dumps(names), file=open("modules.json", "w"))
"""
COMPLETE = "import sys; sys.argv[0] = 'nextapp'; from nextapp.cli import main; main()"


def modules_after(folder: Path, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", MODULES, *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads((folder / "modules.json").read_text()))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_version_and_help_import_no_numpy(tmp_path, words):
    found = modules_after(tmp_path, *words)
    assert not packages(found) & (LAB | {"numpy"})
    assert {name for name in found if name.startswith("nextapp.")} <= {
        "nextapp.settings",
        "nextapp.cli",
        *(f"nextapp.cli.{name}" for name in
          ("commands", "phone")),
    }  # fmt: skip


def test_a_phones_commands_import_numpy_and_no_other_library(tmp_path):
    for words in (
        ["init", "--lifetime", "5", "--per-day", "1"],
        ["log", "maps", "mail", "maps"],
        ["predict", "-n", "2", "--why"],
        ["limits", "--lifetime", "4", "--per-day", "0.5"],
        ["status"],
        ["export", "--out", "mine.json"],
        ["forget", "--yes"],
    ):
        found = packages(modules_after(tmp_path, "phone", *words))
        assert "numpy" in found
        assert not found & (LAB | {"rich"}), words


def test_serve_needs_nothing_of_the_lab_for_its_help(tmp_path):
    for command in ("serve", "enrol-code"):
        found = packages(modules_after(tmp_path, command, "--help"))
        assert not found & LAB


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_tells_what_a_commands_own_help_tells(name):
    found = load(name)
    assert found.name == name
    assert " ".join(found.help.split("\n\n")[0].split()) == app.commands[name].help


def test_help_lists_all_commands_in_order():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    lines = [line.split() for line in text.partition("To begin with:")[2].splitlines()]
    listed = [words[0] for words in lines if len(words) > 2 and words[0] in COMMANDS]
    assert listed == list(COMMANDS)
    assert "Print the version and exit." in text


def test_help_of_a_command_has_its_options_and_its_example():
    text = CliRunner().invoke(app, ["enrol-code", "--help"], env={"COLUMNS": "200"}).output
    assert "--uses" in text
    assert "Example:\n  nextapp enrol-code federation --uses 10\n" in text


def test_a_mistyped_command_is_corrected():
    done = CliRunner().invoke(app, ["evalute"])
    assert done.exit_code == 2
    assert "Did you mean 'evaluate'?" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("nextapp e", ["enrol-code", "evaluate", "explain"]),
        ("nextapp serve --dead", ["--deadline"]),
        ("nextapp phone s", ["status", "sync"]),
        ("nextapp phone init --per", ["--per-report", "--per-day"]),
    ],
)
def test_the_shell_completes_commands_and_options(typed, completed):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE],
        env=os.environ | {"_NEXTAPP_COMPLETE": "bash_complete"} | words,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == [f"plain,{word}" for word in completed]
