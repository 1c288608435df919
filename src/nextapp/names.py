"""The error message for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """An error message with the unknown name, the most similar known one, and all known ones.

    >>> unknown("model", "seqfm", ["mru", "seqmf"])
    "unknown model 'seqfm'; did you mean 'seqmf'? Known: mru, seqmf."
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{guess} Known: {', '.join(names)}."
