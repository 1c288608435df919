"""Where the data of a part come from: the authors' files where given, else synthetic twins."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nextapp.data import LaunchLog, read

LSAPP_SHA256 = "61d84067352b139277b92d2218f8da1cd6b48e1552ab40b6c81f41d2d044638d"
LSAPP_BYTES = 178_930_494
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """A data set of the paper as it is at hand.

    ``where`` is a file or ``synthetic:…``; ``sha256`` is that of the launches' text, unpacked where
    the file is an archive; ``said`` is a sentence for the report.
    """

    name: str
    where: str
    sha256: str
    said: str

    @property
    def real(self) -> bool:
        return not self.where.startswith("synthetic:")

    @property
    def title(self) -> str:
        return f"{self.name} ({'the data' if self.real else 'synthetic twin'})"

    def log(self, seed: int) -> LaunchLog:
        return read(self.where, seed=seed)

    def as_values(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "where": Path(self.where).name if self.real else self.where,
            "real": self.real,
            "sha256": self.sha256,
            "said": self.said,
        }


NAMES: Mapping[str, str] = {
    "lsapp": "LSApp",
    "app-usage": "App Usage",
    "fleet": "synthetic phones",
}


def source(data: str, twin: str, path: Path | None) -> Source:
    """The file at `path`, checked against what its authors published, or else the twin."""
    if data == "fleet":
        return Source(NAMES[data], f"synthetic:{twin}", "", f"Fleets of any number, made: {twin}.")
    if path is None:
        return Source(
            NAMES[data],
            twin,
            "",
            f"{NAMES[data]} is not at hand: a synthetic twin, {twin}, stands in for it.",
        )
    digest, n_bytes = checksum(path)
    return Source(NAMES[data], str(path), digest, _compared(data, path, digest, n_bytes))


def _compared(data: str, path: Path, digest: str, n_bytes: int) -> str:
    if data != "lsapp":
        return (
            f"{path.name}: {n_bytes:,} bytes, sha256 {digest}. Its authors publish no checksum "
            f"to compare with."
        )
    if digest == LSAPP_SHA256:
        return f"{path.name} holds LSApp as published (sha256 as expected)."
    return (
        f"{path.name} is NOT LSApp as published: it holds {n_bytes:,} bytes with sha256 {digest}, "
        f"the published lsapp.tsv {LSAPP_BYTES:,} bytes with sha256 {LSAPP_SHA256}. Figures are of "
        f"the file given."
    )


def checksum(path: Path) -> tuple[str, int]:
    """sha256 and size of a file, or of the one .tsv in it if it is a tar archive."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".tsv"):
                    inside = archive.extractfile(member)
                    if inside is not None:
                        return _digest(inside)
    except tarfile.ReadError:
        pass
    with path.open("rb") as file:
        return _digest(file)


def _digest(file: IO[bytes]) -> tuple[str, int]:
    digest, n_bytes = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        n_bytes += len(block)
    return digest.hexdigest(), n_bytes
