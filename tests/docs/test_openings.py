"""Every page opens with what its reader gets."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = {"decisions", "results.md"}  # records and a generated page, each in its own form
PAGES = [
    page
    for page in sorted((ROOT / "docs").glob("**/*.md"))
    if page.relative_to(ROOT / "docs").parts[0] not in OTHERS
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_opens_with_what_the_reader_gets(page):
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line]
    assert lines[0].startswith("# ")
    assert lines[1].startswith(("You get: ", "**In short.** "))
