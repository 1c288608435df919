"""What users import is there."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import nextapp

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "docs/how-to/use-as-a-library.md"
TAUGHT = [LIBRARY, *sorted((ROOT / "docs/tutorials").glob("*.md"))]
TAUGHT += sorted((ROOT / "notebooks").glob("*.ipynb")) + sorted((ROOT / "examples").glob("*.py"))


def code_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return "\n".join(re.findall(r"^```python[^\n]*\n(.*?)^```$", text, re.M | re.S))
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return "\n".join("".join(cell["source"]) for cell in cells)
    return text


def listed() -> set[tuple[str, str]]:
    """The modules and names of the table of public names."""
    rows = re.findall(
        r"^\| `(nextapp[\w.]*)` \| (.*) \|$", LIBRARY.read_text(encoding="utf-8"), re.M
    )
    return {(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("path", TAUGHT, ids=lambda path: path.name)
def test_what_a_page_imports_is_public(path):
    """From `nextapp` or the module it comes from, or listed in the table of public names."""
    public = listed() | {(home, name) for name, home in nextapp._HOMES.items()}
    public |= {("nextapp", name) for name in nextapp.__all__}
    for node in ast.walk(ast.parse(code_of(path))):
        if isinstance(node, ast.Import):
            assert not any(each.name.startswith("nextapp.") for each in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nextapp"):
            assert {(node.module, each.name) for each in node.names} <= public


def test_what_the_table_of_public_names_lists_is_there():
    assert len(listed()) >= 10
    for module, name in listed():
        assert hasattr(import_module(module), name), (module, name)
        assert not name.startswith("_")


@pytest.mark.parametrize("name", nextapp._HOMES)
def test_a_public_name_has_a_docstring_and_loads_when_it_is_used(name):
    assert getattr(nextapp, name).__doc__
    assert name in dir(nextapp)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'phone_number'"):
        _ = nextapp.phone_number


def test_importing_the_package_imports_nothing_else():
    code = "import sys, nextapp; print([n for n in sys.modules if n.startswith('numpy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
