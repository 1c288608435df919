"""Summary statistics of a log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.data.cutting import DAY_MS, collapse_repeats, session_starts
from nextapp.data.log import LaunchLog


def description(log: LaunchLog) -> dict[str, Any]:
    """Sizes, sessions, repeats, and activity by day and hour, after collapsing 3-second repeats."""
    clean = collapse_repeats(log)
    sessions = session_starts(clean)
    length = np.diff(sessions)
    inside = np.ones(len(clean), bool)
    inside[sessions[:-1]] = False
    again = inside.copy()
    again[1:] &= clean.app[1:] == clean.app[:-1]
    pairs = np.unique(clean.user.astype(np.int64) * clean.n_apps + clean.app)
    day = clean.time // DAY_MS
    first = int(day.min())
    days = day - first
    active = np.unique(days * clean.n_users + clean.user) // clean.n_users
    return {
        "n_users": len(np.unique(clean.user)),
        "n_apps": len(np.unique(clean.app)),
        "n_launches": len(log),
        "n_launches_collapsed": len(clean),
        "from": _moment(clean.time.min()),
        "to": _moment(clean.time.max()),
        "n_days": int(days.max()) + 1,
        "n_sessions": len(length),
        "sessions_per_user": _spread(np.bincount(clean.user[sessions[:-1]])),
        "launches_per_session": _spread(length),
        "apps_per_user": _spread(np.bincount(pairs // clean.n_apps)),
        "launches_per_user": _spread(np.bincount(clean.user)),
        "repeat_share": float(again.sum() / max(1, inside.sum())),
        "launches_by_day": np.bincount(days).tolist(),
        "users_by_day": np.bincount(active, minlength=int(days.max()) + 1).tolist(),
        "launches_by_hour": np.bincount(clean.time // 3_600_000 % 24, minlength=24).tolist(),
        "notes": list(clean.notes),
    }


def _moment(milliseconds: np.int64) -> str:
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).isoformat(" ", "seconds")


def _spread(counts: npt.NDArray[np.integer]) -> dict[str, float]:
    """Mean, median and largest of the counts that are not 0."""
    counts = counts[counts > 0]
    return {
        "mean": float(counts.mean()),
        "median": float(np.median(counts)),
        "largest": float(counts.max()),
    }
