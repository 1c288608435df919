"""The three ways to count: as the authors did, as the paper says, as a phone would see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Preset:
    """How predictions are ranked and averaged (PAPER.md, R9 to R12, R15).

    ``candidates`` whose scores compete
        ``history+target``: the user's apps in train and validation; a target outside is added.
        ``whole``: all apps the user ever launches, the test part included.
        ``so-far``: apps the user launched before this moment; any other target is a miss.
    ``ties`` of the target with others
        ``pessimistic``: the target comes last among its equals.
        ``expected``: the expected value over all orders of its equals.
    ``by_session``
        predictions are averaged by session first, then by user; else by user at once.
    ``drop_unseen``
        test launches of users or apps unseen in train and validation are left out.
    ``collapse_inclusive``
        a repeat after exactly 3 s collapses too.
    """

    name: str
    candidates: Literal["history+target", "whole", "so-far"]
    ties: Literal["pessimistic", "expected"]
    by_session: bool
    drop_unseen: bool
    collapse_inclusive: bool


AUTHORS = Preset("authors", "history+target", "pessimistic", False, True, True)
PAPER = Preset("paper", "whole", "expected", True, False, False)
HONEST = Preset("honest", "so-far", "expected", True, False, False)

PRESETS = {preset.name: preset for preset in (AUTHORS, PAPER, HONEST)}


def preset_named(name: str) -> Preset:
    """A preset by its name: authors, paper or honest."""
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}.")
    return PRESETS[name]
