"""Evaluation protocols: as the authors did, as the paper's text says, as a phone would see it, and
as papers on neural networks do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nextapp.data.cutting import collapse_repeats
from nextapp.data.log import LaunchLog


@dataclass(frozen=True)
class Preset:
    """How predictions are ranked and averaged (PAPER.md, R9 to R12, R15).

    ``candidates``, the apps that are ranked
        ``history+target``: the user's apps in train and validation; a target outside is added.
        ``whole``: all apps the user ever launches, the test part included.
        ``so-far``: apps the user launched before this launch; any other target is a miss.
        ``catalogue``: all apps of the log.
    ``ties`` of the target with others
        ``pessimistic``: the target is ranked last among equal scores.
        ``expected``: the expected value over all orders of equal scores.
    ``average``
        ``session``: first over the predictions of a session, then over a user's sessions.
        ``user``: over all predictions of a user.
        ``prediction``: all predictions of all users have the same weight.
    ``drop_unseen``
        leave out test launches of users or apps that do not occur in train or validation.
    ``repeats`` of an app within 3 s
        ``collapsed``, ``collapsed-inclusive`` (also after exactly 3 s) or ``kept``.
    ``sessions``
        all launches of a session except the first are predicted. A session ends with a ``gap`` of
        15 minutes, or is the user's whole test part (``all``).
    """

    name: str
    candidates: Literal["history+target", "whole", "so-far", "catalogue"]
    ties: Literal["pessimistic", "expected"]
    average: Literal["session", "user", "prediction"]
    drop_unseen: bool
    repeats: Literal["collapsed", "collapsed-inclusive", "kept"]
    sessions: Literal["gap", "all"] = "gap"

    def collapse_repeats(self, log: LaunchLog) -> LaunchLog:
        """The log with repeats within 3 s collapsed or kept, as in this preset."""
        if self.repeats == "kept":
            return log
        return collapse_repeats(log, inclusive=self.repeats == "collapsed-inclusive")


AUTHORS = Preset("authors", "history+target", "pessimistic", "user", True, "collapsed-inclusive")
PAPER = Preset("paper", "whole", "expected", "session", False, "collapsed")
HONEST = Preset("honest", "so-far", "expected", "session", False, "collapsed")
# As in papers on neural networks, e.g. arXiv 2502.16957; windows of five launches are up to models.
NEURAL = Preset("neural", "catalogue", "expected", "prediction", False, "kept", "all")

PRESETS = {preset.name: preset for preset in (AUTHORS, PAPER, HONEST, NEURAL)}


def find_preset(name: str) -> Preset:
    """A preset by its name: authors, paper, honest or neural."""
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}.")
    return PRESETS[name]
