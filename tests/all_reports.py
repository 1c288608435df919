"""A learner's round closed with reports, as a server does it by their sum."""

from __future__ import annotations

from collections.abc import Sequence

from nextapp.learners import Learner
from nextapp.wire import Broadcast, Report


def apply_reports(learner: Learner, reports: Sequence[Report]) -> Broadcast:
    mechanism = learner.mechanism
    total = mechanism.total(mechanism.decode(reports), len(reports))
    return learner.apply_sum(total, len(reports))
