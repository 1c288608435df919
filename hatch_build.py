"""Package metadata that depends on the project's public address: links of the README, and URLs.

A package index shows the README alone, where links to files of the repository lead nowhere. With an
address (``repository`` in pyproject.toml, or the variable NEXTAPP_REPOSITORY) they become absolute.
Without one, links are shown as their words, and pictures and their captions are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"^!\[[^\]]*\]\([^)\s]+\)\n\n(\*[^*]+\*\n\n)?", re.M)  # with its caption


class PublicAddress(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get("NEXTAPP_REPOSITORY") or self.config.get("repository", "")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_for_index(text, address),
        }
        if address:
            metadata["urls"] = urls(address)


def urls(address: str) -> dict[str, str]:
    """The links that a package index shows beside the README."""
    address = address.rstrip("/")
    return {
        "Homepage": address,
        "Source": address,
        "Documentation": f"{address}/tree/main/docs",
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }


def readme_for_index(text: str, address: str) -> str:
    """A README whose links and pictures work outside of the repository."""
    address = address.rstrip("/")
    if not address:
        text = _PICTURE.sub("", text)

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        if not address:
            return words
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({address}/{kind}/main/{target})"

    return _LINK.sub(link, text)
