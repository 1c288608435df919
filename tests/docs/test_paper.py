"""PAPER.md names only what exists: modules, functions, files and tests."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import nextapp

ROOT = Path(__file__).parents[2]
PACKAGE = Path(nextapp.__file__).parent
TEXT = (ROOT / "PAPER.md").read_text(encoding="utf-8")
CODE = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
FILES = [name for name in CODE if re.fullmatch(r"[\w/.-]+(\.py|\.md|\.toml|/)", name)]
NAMES = [name for name in CODE if re.fullmatch(r"[a-z_]+(\.\w+)+", name) and name not in FILES]


def test_the_page_names_many_things():
    assert len(FILES) > 15
    assert len(NAMES) > 25


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_page_names_exists(name):
    assert any((folder / name).exists() for folder in (ROOT, PACKAGE, ROOT / "docs")), name


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_code_that_the_page_names_exists(name):
    """The longest beginning that is a module, then its attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["nextapp", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"nextapp has no module {parts[0]!r}")
