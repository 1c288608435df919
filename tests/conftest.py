"""Fixtures for all tests. The seed can be swept: NEXTAPP_TEST_SEED."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ.get("NEXTAPP_TEST_SEED", "0"))


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def real_logs() -> Path:
    """The folder of real logs, where there is one beside the project."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not (folder / "epm.csv.gz").exists():
        pytest.skip("the real logs are not here")
    return folder
