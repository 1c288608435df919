"""Phones and regions of these tests lie beside them; what all servers share, a folder up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fixed_ports import fixed_port
from nextapp.server.flower import launching

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

LONG = ("test_federation_processes.py", "test_quiet_network.py", "test_lost_gateway.py")


def pytest_collection_modifyitems(items):
    """The long files first, so that each worker begins with one of them."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(autouse=True)
def ports_of_this_worker(monkeypatch):
    """Tests beside these, in other processes, have others."""
    monkeypatch.setattr(launching, "free_port", fixed_port)
