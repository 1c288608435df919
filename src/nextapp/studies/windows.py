"""The history window t of the paper's H_u^(t): from how many past days should a phone learn?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nextapp.data import LaunchLog, collapse_repeats
from nextapp.data.cutting import launches_in_window
from nextapp.evaluation.dynamic import Courses
from nextapp.progress import Progress, silent
from nextapp.studies import dynamic
from nextapp.studies.dynamic import DynamicExperiment

ALL = "all history"


def window_name(days: float) -> str:
    return f"{days:g} days" if days else ALL


def run(
    experiment: DynamicExperiment,
    windows: Sequence[float],
    log: LaunchLog,
    report: Progress = silent,
) -> dict[str, Any]:
    """The regime Full in the dynamic environment, with all history and with each window.

    ``n_launches`` is the number of launches within the window at the end of the log, ``seconds``
    the processor time of the run.
    """
    clean = collapse_repeats(log)
    by_user, rows = {}, {}
    cycles: list[dict[str, Any]] = []
    for days in (0.0, *windows):
        start = time.process_time()
        alone = replace(experiment, regimes=("full",), models=(), mechanisms=(), window=days)

        def report_window(what: str, done: int, total: int, days: float = days) -> None:
            report(f"{window_name(days)}: {what}", done, total)

        result = dynamic.run(alone, log, report_window)
        by_user[window_name(days)] = result.courses.by_user["full"]
        rows[window_name(days)] = {
            "days": days,
            "n_launches": len(launches_in_window(clean, days)),
            "seconds": time.process_time() - start,
        }
        cycles = [{"n_users_asked": each.n_users} for each in result.cycles.parts]
    courses = Courses(by_user, experiment.metrics, experiment.seed)
    return {
        "windows": {
            name: {
                **row,
                "HR@5": dynamic.point(courses.overall(name, "HR@5")),
                "gain": dynamic.point(courses.overall(name, "HR@5", ALL)) if name != ALL else None,
            }
            for name, row in rows.items()
        },
        "cycles": cycles,
        "settings": {**experiment.as_plain_values(), "windows": list(windows)},
        "intervals": "95 %, paired bootstrap over users and seeds",
    }
