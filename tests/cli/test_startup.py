"""What a command imports, and that help, completion and suggestions work without the rest."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nextapp.cli.commands import COMMANDS, app
from nextapp.cli.plain_values import take_plain_values

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


@pytest.fixture(scope="module")
def brought_by_typer() -> set[str]:
    """Older versions of Typer import Rich themselves."""
    code = "import json, sys, typer; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return packages(set(json.loads(done.stdout)))


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_version_and_help_import_no_numpy(tmp_path, words):
    found = modules_after(tmp_path, *words)
    assert not packages(found) & (LAB | {"numpy"})
    assert {name for name in found if name.startswith("nextapp.")} <= {
        "nextapp.settings",
        "nextapp.cli",
        *(f"nextapp.cli.{name}" for name in
          ("commands", "errors", "help_text", "lazy", "options", "dataclass_options", "phone",
           "plain_values", "stopping")),
    }  # fmt: skip


def test_a_phones_commands_import_numpy_and_no_other_library(tmp_path, brought_by_typer):
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
        assert not found & (LAB | ({"rich"} - brought_by_typer)), words


def test_serve_needs_nothing_of_the_lab_for_its_help(tmp_path):
    for command in ("serve", "enrol-code"):
        found = packages(modules_after(tmp_path, command, "--help"))
        assert not found & LAB


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_tells_what_a_commands_own_help_tells(name):
    row = COMMANDS[name]
    found = getattr(import_module(row.module), row.attribute)
    own = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert " ".join(own.split("\n\n")[0].split()) == row.help
    if row.example is not None:
        assert f"nextapp {name} " in row.example


def test_help_lists_all_commands_in_order():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    lines = [line.split() for line in text.splitlines()]
    listed = [words[0] for words in lines if len(words) > 2 and words[0] in COMMANDS]
    assert listed == list(COMMANDS)
    assert "Print the version and exit." in text


def test_help_of_a_command_has_its_options_and_its_example():
    text = CliRunner().invoke(app, ["enrol-code", "--help"], env={"COLUMNS": "200"}).output
    assert "--uses" in text
    assert "Example:\n  nextapp enrol-code federation --uses 10\n" in text


@pytest.mark.skipif(not hasattr(app, "suggest_commands"), reason="this Typer suggests nothing")
def test_a_mistyped_command_is_corrected():
    done = CliRunner().invoke(app, ["evalute"])
    assert done.exit_code == 2
    assert "Did you mean 'evaluate'?" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("nextapp e", ["explain", "evaluate", "enrol-code"]),
        ("nextapp serve --dead", ["--deadline"]),
        ("nextapp phone s", ["sync", "status"]),
        ("nextapp phone init --per", ["--per-day", "--per-report"]),
    ],
)
def test_the_shell_completes_commands_and_options(typed, completed):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE],
        env=os.environ | {"_NEXTAPP_COMPLETE": "complete_bash"} | words,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == completed


VALUES = [
    [],
    *(
        ["--number", text]
        for text in ("3", "03", "0", "11", "-1", "3.0", "x", "", " 4", "1_0", "٣")
    ),
    *(["--share", text] for text in ("1", "0.5", ".5", "1e3", "nan", "1_0", "x", "", "-2", "1.")),
    *(["--path", text] for text in ("file", "gone", "", "-", "..")),
    *(["--word", text] for text in ("a", "", "1")),
    ["a", "b", "--flag"],
]


@pytest.mark.parametrize("words", VALUES, ids=" ".join)
def test_values_taken_without_pydantic_are_those_typer_gives(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    found = []

    def command(
        rest: list[str] = typer.Argument(None),  # noqa: B008
        number: int = typer.Option(2, min=1, max=10),
        share: float = 0.5,
        path: Path = Path("here"),
        word: str = typer.Option(None),
        flag: bool = False,
    ) -> None:
        found.append((rest, number, share, path, word, flag))

    def run(*, plain: bool) -> tuple[int, str]:
        one = typer.Typer(add_completion=False)
        one.command()(command)
        built = typer.main.get_command(one)
        if plain:
            take_plain_values(built)
        with pytest.raises(SystemExit) as ended:
            built(words, prog_name="x")
        return ended.value.code

    assert run(plain=True) == run(plain=False)
    assert len(found) in (0, 2)
    assert repr(found[:1]) == repr(found[1:])  # repr: nan, and 1 is not 1.0
