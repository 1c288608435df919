"""A launch to the next prediction, and a log to a cell, cross at most twenty files each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WALK = Path(__file__).parent.parent / "benchmarks" / "walk.py"


@pytest.mark.sweep
@pytest.mark.parametrize("walk", ["launch", "csv"])
def test_a_walk_crosses_few_files(walk):
    run = subprocess.run(
        [sys.executable, str(WALK), "--check", "--list", "--walk", walk],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
