"""Whether the write-ahead log of an SQLite file still holds all that was committed to it.

After a kill what was committed last is in this log only. SQLite then reads it up to the first frame
whose checksum is wrong, and leaves out the rest without a word: one flipped bit costs all commits
behind it. Here they are counted before SQLite opens the file, since it may delete the log then.

The format is that of https://www.sqlite.org/fileformat2.html, section 4: a header of eight words,
then frames of six words and a page each. The checksum of a frame goes on from that of the one
before it; over words x₀, x₁ of a frame, two by two, it is (modulo 2³²)

    s ← s + x₀ + t
    t ← t + x₁ + s

Only the log is read here, never the file that it is of: closing that one would end the locks that
this process holds on it (https://www.sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_HEADER_WORDS, _FRAME_WORDS = 8, 6  # of 32 bits, highest byte first
_CHECKED_WORDS = 2  # of a frame's header: the page, and how large the file is after a commit
_MAGIC = 0x377F0682  # and one more where checksums are over words with the highest byte first
_PAGE_BYTES = 4096  # where the header is damaged: what SQLite takes if it is asked for nothing else
_IN_USE_SECONDS = 0.2


def lost_commits(path: Path) -> int:
    """Commits to the SQLite file at `path` that its log holds behind a damaged frame.

    The last transaction of a log may be incomplete, as it is after a power cut: it was never
    acknowledged. So there are 0, or 2 and more. A log that is just written to, by a server that
    runs, is not looked at: who writes it has read it.
    """
    log = path.with_name(path.name + "-wal")
    while True:
        try:
            before = log.stat()
            found = _commits_behind_damage(log.read_bytes())
            if found < 2:
                return 0
            time.sleep(_IN_USE_SECONDS)
            after = log.stat()
        except FileNotFoundError:
            return 0
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
            return found


def _commits_behind_damage(log: bytes) -> int:
    if len(log) < 4 * _HEADER_WORDS:
        return 0
    header = np.frombuffer(log, ">u4", _HEADER_WORDS)
    order = ">u4" if header[0] == _MAGIC + 1 else "<u4"
    first = header[6:8].astype(np.uint32)
    start = np.zeros((1, 2), np.uint32)
    whole = bool((_checksums(header[None, :6].view(order), start) == first).all())
    n_words = _FRAME_WORDS + (int(header[2]) if whole else _PAGE_BYTES) // 4
    n_frames = (len(log) // 4 - _HEADER_WORDS) // n_words
    if n_frames == 0:
        return 0
    words = np.frombuffer(log, ">u4", n_frames * n_words, 4 * _HEADER_WORDS)
    frames = words.reshape(n_frames, n_words)
    heads = frames[:, :_FRAME_WORDS].astype(np.uint32)
    salts = header[4:6] if whole else heads[0, 2:4]
    own = (heads[:, 2:4] == salts).all(axis=1)  # frames of this log, and not of one before
    kept = heads[:, 4:6]
    parts = [frames[:, :_CHECKED_WORDS], frames[:, _FRAME_WORDS:]]
    checked = np.concatenate(parts, axis=1).astype(">u4").view(order)
    sums = _checksums(checked, np.vstack([first, kept[:-1]]))
    good = own & (sums == kept).all(axis=1) & whole  # SQLite takes nothing behind a bad header
    if good.all():
        return 0
    end = int(np.argmin(good))
    return int((own & (heads[:, 1] != 0))[end:].sum())


def _checksums(frames: Words, before: Words) -> Words:
    """Of each frame (n_frames, 2 n_pairs), going on from the one before it (n_frames, 2)."""
    matrix, weights = _weights(frames.shape[1] // 2)
    return before @ matrix.T + frames.astype(np.uint32) @ weights


@cache
def _weights(n_pairs: int) -> tuple[Words, Words]:
    """(2, 2) and (2 n_pairs, 2): what the checksum before, and each word, counts in that after.

    A step is linear, (s, t) ← M (s, t) + N (x₀, x₁); so n steps are Mⁿ (s, t) + Σ Mⁿ⁻¹⁻ᵏ N x_k.
    """
    step = np.array([[1, 1], [1, 2]], np.uint32)
    power, weights = np.eye(2, dtype=np.uint32), []
    for _ in range(n_pairs):
        weights.append(power @ np.array([[1, 0], [1, 1]], np.uint32))
        power = power @ step
    return power, np.concatenate([each.T for each in reversed(weights)])
