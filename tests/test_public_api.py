"""What users import, and what the README says, works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nextapp

README = Path(__file__).parents[1] / "README.md"


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


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)


def test_the_readmes_python_runs_as_written(tmp_path, monkeypatch):
    """All of it, one after the other, as a reader would; a server of this machine takes part."""
    assert len(snippets()) >= 2
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for snippet in snippets():
        exec(compile(snippet, str(README), "exec"), namespace)
