"""The package on an index: links of its README, its addresses, and one version everywhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import nextapp

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.org/owner/nextapp"
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def hook(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delenv("NEXTAPP_REPOSITORY", raising=False)
    import hatch_build

    yield hatch_build
    del sys.modules["hatch_build"]


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_links_of_the_readme_are_absolute_and_lead_to_files_that_exist(hook):
    found = targets(hook.readme_for_index(TEXT, ADDRESS))
    assert len(found) == len(targets(TEXT)) > 30
    for target in found:
        assert target.startswith((f"{ADDRESS}/blob/main/", f"{ADDRESS}/raw/main/"))
        assert (ROOT / target.split("/main/")[1].partition("#")[0]).exists(), target
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", hook.readme_for_index(TEXT, ADDRESS))
    assert pictures
    assert all("/raw/" in picture for picture in pictures)


def test_without_an_address_no_link_is_broken(hook):
    text = hook.readme_for_index(TEXT, "")
    assert targets(text) == []
    assert "privacy for engineers" in text
    assert "Drawn by" in TEXT
    assert "Drawn by" not in text  # a caption without its picture
    assert "![" not in text


def test_metadata_has_the_readme_and_with_an_address_the_urls(hook, monkeypatch):
    metadata: dict[str, object] = {}
    hook.PublicAddress(str(ROOT), {}).update(metadata)
    assert metadata["readme"]["content-type"] == "text/markdown"
    assert "urls" not in metadata
    monkeypatch.setenv("NEXTAPP_REPOSITORY", ADDRESS)
    hook.PublicAddress(str(ROOT), {}).update(metadata)
    assert {"Homepage", "Source", "Documentation", "Issues", "Changelog"} == set(metadata["urls"])


def test_one_version_in_package_citation_and_changelog():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, day = re.search(r"^## (\d\S+) \((\d{4}-\d\d-\d\d)\)", changelog, flags=re.M).groups()
    assert version == nextapp.__version__
    assert f"version: {version}\ndate-released: {day}\n" in citation
