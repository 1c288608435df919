"""Where only NumPy and pytest are installed, tests whose oracle is SciPy or Hypothesis stay out."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

collect_ignore = [
    file.name
    for file in Path(__file__).parent.glob("test_*.py")
    for library in ("scipy", "hypothesis")
    if find_spec(library) is None and f"from {library} import" in file.read_text(encoding="utf-8")
]
