"""Words for messages: unknown names, numbers of things."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """An error message with the unknown name, the most similar known one, and all known ones.

    >>> unknown("model", "seqfm", ["mru", "seqmf"])
    "unknown model 'seqfm'; did you mean 'seqmf'? Known: mru, seqmf."
    """
    names = list(known)
    near = nearest(name, names, least=0.6)
    guess = f"; did you mean {near!r}?" if near else "."
    return f"unknown {kind} {name!r}{guess} Known: {', '.join(names)}."


def nearest(name: str, names: Iterable[str], least: float = 0.4) -> str | None:
    """The most similar of these names, in small or capital letters; None if none is similar.

    The first that begins with the name, else one whose likeness is at ``least`` so much.

    >>> nearest("UserID", ["time", "user_id"])
    'user_id'
    """
    by_lower = {other.lower(): other for other in names}
    begun = [other for other in by_lower if len(name) > 1 and other.startswith(name.lower())]
    close = begun or difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=least)
    return by_lower[close[0]] if close else None


def count(n: int, word: str, words: str = "") -> str:
    """A number of things in words.

    >>> count(1, "user"), count(1_200, "user"), count(2, "launch", "launches")
    ('1 user', '1,200 users', '2 launches')
    """
    return f"{n:,} {word if n == 1 else words or word + 's'}"
