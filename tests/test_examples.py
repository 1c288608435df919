"""The examples run as their docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_predictor_of_ones_own():
    example = Path(__file__).parents[1] / "examples" / "own_predictor.py"
    done = subprocess.run(
        [sys.executable, str(example), "synthetic:phones=20,apps=30,days=20"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "recent-often",
        "mru",
        "mfu",
        "sr-od",
    ]
