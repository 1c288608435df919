"""Fixtures for all tests. The seed can be swept: NEXTAPP_TEST_SEED."""

from __future__ import annotations

import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:  # the light tests have NumPy alone
    pass
else:
    settings.register_profile(
        "nextapp",
        deadline=None,  # a busy machine is no fault of the code
        derandomize="NEXTAPP_TEST_SEED" not in os.environ,  # the same examples in every run
    )
    settings.load_profile("nextapp")

# What a shell runs in the background ignores Ctrl-C, and so would what tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
# Where only NumPy and pytest are installed, tests whose oracle is another library stay out.
missing = [each for each in ("scipy", "hypothesis", "cryptography") if find_spec(each) is None]
imported = re.compile(rf"^from ({'|'.join(missing)})[. ]", re.MULTILINE)
collect_ignore = [
    str(file.relative_to(HERE))
    for file in HERE.rglob("test_*.py")
    if missing and imported.search(file.read_text(encoding="utf-8"))
]

SWEEPS = (  # statistical tests, and compiling from nothing: make sweeps
    "audit/test_planted_bugs.py",
    "audit/test_replay.py",
    "test_compiled_cache.py",
    "fleet/test_law_of_the_sum.py",
    "privacy/test_law.py",
    "privacy/test_unbiased.py",
)
SLOW = (  # seconds each: left out of make quick, and begun first
    "cli/test_commands.py",
    "docs/test_tutorials.py",
    "phone/test_any_answer.py",
    "phone/test_hostile_server.py",
    "phone/test_with_gateway.py",
    "privacy/test_cosine.py",
    "privacy/test_epsilon.py",
    "phone/test_ledger.py",
    "server/test_faults.py",
    "server/test_simulated_phones.py",
    "studies/test_on_ray.py",
    "studies/test_simulation.py",
    "studies/test_tuning.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.as_posix()
        if path.endswith(SWEEPS):
            item.add_marker(pytest.mark.sweep)
        if path.endswith(SLOW):
            item.add_marker(pytest.mark.slow)

    # All workers end at the same time if the files with long tests are begun first.
    long = {
        item.path for item in items for mark in ("slow", "sweep") if item.get_closest_marker(mark)
    }
    items.sort(key=lambda item: item.path not in long)


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


@pytest.fixture(params=["plain Python", "compiled"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All loops in one of their forms, whatever the size of a log."""
    from nextapp.compiled import Loop

    def choose(loop: Loop, *_: object):
        return loop.as_numba_divides if request.param == "plain Python" else loop.machine

    monkeypatch.setattr(Loop, "form", choose)
    monkeypatch.setattr(Loop, "__call__", lambda loop, *arguments: choose(loop)(*arguments))
    return request.param
