"""Run where only NumPy and pytest are installed: the phone's layers import, the lab's do not
sneak in."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest

LAB = (
    "polars", "numba", "scipy", "click", "rich", "matplotlib", "optuna", "starlette", "uvicorn",
    "ray", "flwr", "cryptography", "prometheus_client", "trustme",
)  # fmt: skip
PHONE = (
    "nextapp",
    "nextapp.wire",
    "nextapp.model",
    "nextapp.crowd",
    "nextapp.predictor",
    "nextapp.randomness",
    "nextapp.privacy",
    "nextapp.data.importers",
    "nextapp.phone.core",
    "nextapp.learners",
    "nextapp.phone",
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("polars") is not None, reason="the lab libraries are installed here"
)


@pytest.mark.parametrize("name", LAB)
def test_no_lab_library_is_here(name):
    assert importlib.util.find_spec(name) is None


@pytest.mark.parametrize("name", PHONE)
def test_what_a_phone_needs_imports(name):
    importlib.import_module(name)


def test_the_command_names_the_extra_that_is_missing():
    done = subprocess.run(
        [sys.executable, "-m", "nextapp"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "install nextapp[lab], " in done.stderr
