"""The data of a part: the authors' files if given, else synthetic twins.

Any other launch log can be given too; it is never presented as the paper's data.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nextapp.data.cutting import DAY_MS
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog

LSAPP_SHA256 = "61d84067352b139277b92d2218f8da1cd6b48e1552ab40b6c81f41d2d044638d"
LSAPP_BYTES = 178_930_494
_SHARED_STARTS = 0.1  # largest share of days that begin at one second; 5 % in real logs
_FEW_DAYS = 4  # begin at the same minute by chance, in a log of minutes
_MIDNIGHT = 5  # times as many may begin at midnight, where some loggers split a use
_SAME_PAUSE = 0.9  # of the pauses of real logs at most a quarter are of one length
Kind = Literal["data", "twin", "log", "made"]


@dataclass(frozen=True)
class Source:
    """A data set of the paper, its synthetic twin, or another log.

    ``where`` is a file or ``synthetic:…``; ``sha256`` is the hash of the launches' text, unpacked
    if the file is an archive; ``said`` is a sentence for the report. ``kind`` is ``data`` for a
    file of the paper's data, ``twin`` for its synthetic twin, ``log`` for any other log, and
    ``made`` for synthetic phones that are not a twin of any data.
    """

    name: str
    where: str
    sha256: str
    said: str
    kind: Kind

    @property
    def real(self) -> bool:
        return self.kind in ("data", "log")

    def log(self, seed: int) -> LaunchLog:
        return read_log(self.where, seed=seed)

    def check(self) -> None:
        """Raise if the file cannot be read, so that a long run does not find out half-way."""
        try:
            self.log(0)
        except ValueError as error:
            name = Path(self.where).name
            raise ValueError(
                f"{error} 'nextapp reproduce' has no options for columns: write the log anew by "
                f"'nextapp data convert {name} launches.csv', with such options, and give that."
            ) from None

    def as_values(self) -> dict[str, Any]:
        where = Path(self.where).name if self.real else self.where
        return {**asdict(self), "where": where, "real": self.real}


def log_source(path: Path) -> Source:
    """A log that is not the paper's, named after its file.

    The name is part of file names and links, so other characters than letters, digits, '.', '_'
    and '-' become '-'.
    """
    digest, n_bytes = checksum(path)
    name = re.sub(r"(\.(csv|tsv|parquet|gz|tar|txt|json))+$", "", path.name)
    name = re.sub(r"[^\w.-]+", "-", name).strip("-") or "log"
    sentence = f"{path.name}, a log given by --log: {n_bytes:,} bytes, sha256 {digest}."
    return Source(name, str(path), digest, sentence, "log")


def has_clock(log: LaunchLog) -> bool:
    """Whether the times look like those of a clock, and not made up from an order of launches.

    Made-up times give themselves away: many days of people begin at the same second, or nearly all
    pauses have the same length.
    """
    seconds = log.time // 1000
    same_user = np.diff(log.user) == 0
    begins = np.append(True, ~same_user | (np.diff(log.time // DAY_MS) != 0))
    starts, n_days = np.unique(log.time[begins] % DAY_MS // 1000, return_counts=True)
    n_days[starts == 0] //= _MIDNIGHT
    pauses = np.diff(seconds)[same_user]
    _, n_pauses = np.unique(pauses[pauses > 0], return_counts=True)
    shared = n_days.max() > max(_FEW_DAYS, _SHARED_STARTS * begins.sum())
    return not (shared or n_pauses.max(initial=0) > _SAME_PAUSE * max(n_pauses.sum(), 10))


NAMES: Mapping[str, str] = {
    "lsapp": "LSApp",
    "app-usage": "App Usage",
    "fleet": "synthetic phones",
}


def source(data: str, twin: str, path: Path | None) -> Source:
    """The file at `path`, compared with the published checksum, or without a file the twin."""
    name, missing = NAMES[data], f"{NAMES[data]} file not given: replaced by"
    if path is not None:
        digest, n_bytes = checksum(path)
        if data != "lsapp":
            said = (
                f"{path.name}: {n_bytes:,} bytes, sha256 {digest}. Its authors publish no checksum "
                f"to compare with."
            )
        elif digest == LSAPP_SHA256:
            said = f"{path.name} contains LSApp as published (sha256 as expected)."
        else:
            said = (
                f"{path.name} is NOT LSApp as published: it has {n_bytes:,} bytes with sha256 "
                f"{digest}, the published lsapp.tsv has {LSAPP_BYTES:,} bytes with sha256 "
                f"{LSAPP_SHA256}. The figures are for the file given."
            )
        return Source(name, str(path), digest, said, "data")
    if data == "fleet":
        said = f"Simulated fleets of any size: {twin}."
        return Source(name, f"synthetic:{twin}", "", said, "made")
    if twin.startswith(f"synthetic:{data}"):
        return Source(name, twin, "", f"{missing} a synthetic twin, {twin}.", "twin")
    return Source(NAMES["fleet"], twin, "", f"{missing} other synthetic phones, {twin}.", "made")


def checksum(path: Path) -> tuple[str, int]:
    """sha256 and size of a file; for a tar archive those of the first .tsv file in it."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".tsv"):
                    inside: Any = archive.extractfile(member)
                    return hashlib.file_digest(inside, "sha256").hexdigest(), member.size
    except tarfile.ReadError:
        pass
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
