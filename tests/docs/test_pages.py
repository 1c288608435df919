"""What README and docs show works: Python runs, commands and their options exist."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nextapp.cli.commands import app
from nextapp.phone.commands import parser as phone_parser

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
LIBRARY = ROOT / "docs" / "how-to" / "use-as-a-library.md"
NO_COMMANDS = {"protocol.md"}  # `nextapp vector` and the like are words that are hashed there
PAGES = [README, *sorted((ROOT / "docs").glob("**/*.md")), *sorted(ROOT.glob("deploy/*.md"))]
_SHOWN = re.compile(r"(?:^ {4}|`|^)((?:\.venv/bin/)?nextapp [a-z][^`\n]*)", flags=re.MULTILINE)


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


@pytest.mark.parametrize("page", [README, LIBRARY], ids=lambda page: page.stem)
def test_python_of_a_page_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert snippets(page)
    for _ in range(2):  # a second time over the files of the first
        names: dict[str, object] = {}
        for snippet in snippets(page):
            exec(compile(snippet, str(page), "exec"), names)


def test_the_readme_is_short_and_one_python_block_has_five_lines():
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    (block,) = snippets(README)
    assert len([line for line in block.splitlines() if line]) == 5


@pytest.mark.slow
def test_the_two_commands_of_the_readme_run(tmp_path):
    text = README.read_text(encoding="utf-8").split("## Two commands")[1]
    commands = re.findall(r"^    nextapp (.*)$", text.split("## ")[0], flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = [sys.executable, "-m", "nextapp", *shlex.split(command)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "HR@5" in done.stdout


def shown_commands() -> list[tuple[str, str]]:
    """Every command that a page shows, by page; several on a line are several."""
    found = []
    for page in PAGES:
        if page.name in NO_COMMANDS:
            continue
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in _SHOWN.findall(text):
            parts = map(str.strip, re.split(r"\s&&\s|\s\|\s|;\s", line.split("  #")[0]))
            found += [
                (str(page.relative_to(ROOT)), part.rstrip(".:,"))
                for part in parts
                if part.startswith(("nextapp ", ".venv/bin/nextapp "))
            ]
    return sorted(set(found))


def options_of(words: list[str]) -> set[str]:
    """The options of the command that these words begin with; an unknown command is an error."""
    if words[0] == "phone":
        (actions,) = (each for each in phone_parser()._actions if each.dest == "action")
        assert isinstance(actions, argparse._SubParsersAction)
        names = [word for word in words[1:2] if re.fullmatch(r"[a-z][a-z-]*", word)]
        parsers = [actions.choices[name] for name in names] or [phone_parser()]
        return {option for each in parsers for option in each._option_string_actions}
    command: Any = app
    for word in words:
        if not hasattr(command, "resolve_command") or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        context = command.make_context("nextapp", [word], resilient_parsing=True)
        _, command, _ = command.resolve_command(context, [word])
    return {
        option
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
        if option.startswith("-")
    } | {"--help", "--version"}


def test_every_command_that_a_page_shows_exists_with_its_options():
    shown = shown_commands()
    assert len(shown) > 100
    wrong = []
    for page, line in shown:
        words = line.split("nextapp ", 1)[1].split()
        if not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            continue
        try:
            known = options_of(words)
        except Exception as problem:
            wrong.append(f"{page}: {line}: {problem}")
            continue
        for word in words:
            option = word.split("=")[0].rstrip(",;)…")
            if re.fullmatch(r"--[a-z][a-z-]*", option) and option not in known:
                wrong.append(f"{page}: {line}: no {option}")
    assert not wrong, "\n".join(wrong)
