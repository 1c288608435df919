"""What users import is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nextapp


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
