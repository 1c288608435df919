"""Phones and regions of these tests lie beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fixed_ports import fixed_port
from nextapp.server.flower import launching

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def ports_of_this_worker(monkeypatch):
    """Tests beside these, in other processes, have others."""
    monkeypatch.setattr(launching, "free_port", fixed_port)
