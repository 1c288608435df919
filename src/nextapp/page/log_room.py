"""A person's own log: statistics, how predictable it is, and which model predicts it best.

Everything is computed in memory from the uploaded bytes; nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.data.cutting import Split
from nextapp.data.importers import Imported, read_any
from nextapp.data.importers.content import Content, DateOrder, UnreadableLog
from nextapp.data.log import LaunchLog
from nextapp.evaluation import metrics
from nextapp.evaluation.revealing import Exam, Preset, exam, ranks
from nextapp.evaluation.static import score_predictions
from nextapp.page.catalogue import app_entry
from nextapp.phone.ledger import DAY
from nextapp.predictor import SESSION_GAP
from nextapp.predictors.nextapp import NextApp
from nextapp.predictors.rivals import OnlineMFU, OnlineSROnDevice, Recents
from nextapp.table import bootstrap_means, measured
from nextapp.wire import Floats

MOST_BYTES = 64 << 20  # of an upload, packed and unpacked
MOST_LINES, MOST_FIELDS, MOST_EVENTS = 500_000, 3_000_000, 500_000  # of an upload
MOST_MEASURED = 10_000  # largest number of launches measured: the latest ones
LEAST_LAUNCHES = 20  # smallest number of launches that can be measured
SHOWN_APPS, SHOWN_FLOW, SHOWN_LAST = 10, 8, 40
HIT_RATES = [f"HR@{cutoff}" for cutoff in metrics.CUTOFFS]
PRESET = Preset("page", "so-far", "expected", "prediction", False, "kept", "all")
DATES: Mapping[str, DateOrder] = {"day": "day/month", "month": "month/day"}  # by what is first
MODELS = {
    "nextapp": "this project",
    "mru": "most recently used apps",
    "mfu": "most used apps",
    "sr-od": "what followed the last app",
}


@dataclass(frozen=True)
class PersonLog:
    """One person's launches: app and local time (s), oldest first."""

    name: str
    format: str
    notes: tuple[str, ...]
    users: tuple[str, ...]
    launches: tuple[tuple[str, float], ...]
    is_synthetic: bool = False
    user: str = ""
    clock: str = "local time"
    found: Imported | None = None  # the launches of everybody in the file


def upload(data: bytes, name: str, dates: DateOrder | None = None) -> Content:
    """An uploaded file, unpacked, if reading it takes some seconds and .5 GiB at the most.

    Each line and each field of a text costs as much, even if it is empty.
    """
    content = Content(data, name or "the file", MOST_BYTES, MOST_EVENTS, dates).unzip()
    if not content.is_database:
        n_fields = sum(map(content.data.count, (b",", b"{", b"[")))
        for what, n, most in (
            ("lines", content.data.count(b"\n"), MOST_LINES),
            ("fields", n_fields, MOST_FIELDS),
        ):
            if n > most:
                raise UnreadableLog(
                    f"{content.name}: a file may have up to {most:,} {what} here, but this one has "
                    f"{n:,}. Export a shorter period, or open it by `nextapp open --data`."
                )
    return content


def read_log(content: Content, zone: str | None = None, user: str | None = None) -> PersonLog:
    """The log of one person in a file; if there are several, the one with most launches."""
    return from_import(read_any(content, zone=zone), Path(content.name).name, user)


def from_import(found: Imported, name: str, user: str | None = None) -> PersonLog:
    counts = Counter(launch.user for launch in found.launches)
    if user is not None and user not in counts:
        known = ", ".join(name for name, _ in counts.most_common(12))
        raise UnreadableLog(f"there is no user {user!r:.60} in this file; there are {known:.300}.")
    chosen = user if user is not None else counts.most_common(1)[0][0]
    own = [each for each in found.launches if each.user == chosen]
    clock = "local time" if any(each.zone for each in own) else "UTC"
    launches = [(each.app, each.clock + each.zone) for each in own]
    launches.sort(key=lambda each: each[1])  # local time goes back when summer time ends
    users = tuple(user for user, _ in counts.most_common(50))
    return PersonLog(
        name, found.format, found.notes, users, tuple(launches), False, chosen, clock, found
    )


def of_person(name: str, launches: Sequence[tuple[str, float]]) -> PersonLog:
    """The log of a synthetic person."""
    return PersonLog(name, "made up, not data of a person", (), (name,), tuple(launches), True)


def portrait(log: PersonLog) -> dict[str, Any]:
    """Everything that the page shows of a log."""
    apps = [app for app, _ in log.launches]
    seconds = np.array([when for _, when in log.launches])
    names = sorted(set(apps))
    numbers = {name: number for number, name in enumerate(names)}
    codes = np.fromiter((numbers[app] for app in apps), np.int64, len(apps))
    counts = np.bincount(codes)
    order = np.argsort(-counts, kind="stable")
    sizes = session_sizes(seconds)
    return {
        "name": log.name,
        "format": log.format,
        "notes": list(log.notes),
        "users": list(log.users),
        "user": log.user,
        "n_launches": len(apps),
        "n_apps": len(names),
        "first": _day(seconds[0]),
        "last": _day(seconds[-1]),
        "n_days": len(np.unique(seconds // DAY)),
        "apps": [
            {**app_entry(names[i]), "count": int(counts[i])} for i in order[:SHOWN_APPS].tolist()
        ],
        "clock": log.clock,
        "hours": by_hour(seconds).tolist(),
        "flow": flow(codes, names, order[:SHOWN_FLOW]),
        "sessions": {
            "n": len(sizes),
            "median": float(np.median(sizes)),
            "sizes": np.bincount(np.minimum(sizes, 21), minlength=22)[1:].tolist(),
        },
        "measured": measure(codes, seconds, names),
    }


def _day(when: float) -> str:
    return datetime.fromtimestamp(float(when), UTC).strftime("%Y-%m-%d")


def by_hour(seconds: Floats) -> Any:
    """(7, 24): launches by weekday, Monday first, and hour."""
    weekday = (seconds // DAY + 3).astype(np.int64) % 7  # 1970-01-01 was a Thursday
    hour = (seconds % DAY // 3600).astype(np.int64)
    return np.bincount(weekday * 24 + hour, minlength=168).reshape(7, 24)


def session_sizes(seconds: Floats) -> Any:
    """(n_sessions,): the launches of each session; it ends after 15 minutes without a launch."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(seconds) > SESSION_GAP]))
    return np.diff(np.append(starts, len(seconds)))


def flow(codes: Any, names: Sequence[str], shown: Any) -> dict[str, Any]:
    """Counts of transitions between the most used apps, without repeats."""
    place = {int(code): number for number, code in enumerate(shown.tolist())}
    counts = np.zeros((len(place), len(place)), np.int64)
    for last, following in zip(codes[:-1].tolist(), codes[1:].tolist(), strict=True):
        if last in place and following in place and last != following:
            counts[place[last], place[following]] += 1
    return {"apps": [app_entry(names[i]) for i in shown.tolist()], "counts": counts.tolist()}


def measure(codes: Any, seconds: Floats, names: Sequence[str]) -> dict[str, Any] | None:
    """Measure every model on the second half of the latest launches, each before it is seen.

    Intervals are over days. None if there are too few launches.
    """
    first = max(0, len(codes) - MOST_MEASURED)
    codes, seconds = codes[first:], seconds[first:]
    if len(codes) < LEAST_LAUNCHES:
        return None
    used, codes = np.unique(codes, return_inverse=True)  # a file may name a million other apps
    names = [names[code] for code in used.tolist()]
    n_learnt = len(codes) // 2
    hits, places, chances = _hits_of_all(_second_half(codes, seconds, len(names)))
    days = (seconds[n_learnt:] // DAY).astype(np.int64)
    drawn = _by_days(hits, days)
    means = hits.mean(axis=0)
    models: dict[str, dict[str, Any]] = {}
    for number, (name, meaning) in enumerate(MODELS.items()):
        columns = zip(metrics.CUTOFFS, range(3 * number, 3 * number + 3), strict=True)
        models[name] = {
            "meaning": meaning,
            **{f"at_{n}": measured(means[column], drawn[:, column]) for n, column in columns},
        }
    at_5 = {name: figures["at_5"]["mean"] for name, figures in models.items()}
    ranked = sorted(at_5, key=lambda name: -at_5[name])
    best, second = (list(MODELS).index(name) for name in ranked[:2])
    difference = drawn[:, 3 * best + 2] - drawn[:, 3 * second + 2]
    recent = range(max(0, len(places) - SHOWN_LAST), len(places))
    counts = np.bincount(codes[n_learnt:], minlength=len(names))
    shares = counts[counts > 0] / counts.sum()
    perplexity = float(2 ** -np.mean(np.log2(np.maximum(chances, 1e-6))))
    return {
        "n": len(hits),
        "n_days": len(np.unique(days)),
        "models": models,
        "best": ranked[0],
        "second": ranked[1],
        "ahead": measured(at_5[ranked[0]] - at_5[ranked[1]], difference),
        "choices": {
            "apps": int((counts > 0).sum()),
            "by_frequency": float(2 ** -(shares * np.log2(shares)).sum()),
            "by_nextapp": min(perplexity, float((counts > 0).sum())),  # all, if it knew nothing
        },
        "lately": [
            {
                **app_entry(names[int(codes[n_learnt + i])]),
                "place": int(places[i]),
                "clock": datetime.fromtimestamp(float(seconds[n_learnt + i]), UTC).strftime(
                    "%a %H:%M"
                ),
            }
            for i in recent
        ],
    }


def _hits_of_all(test: Exam) -> tuple[Floats, Any, Floats]:
    """(n, 3·models) hits at 1, 3 and 5; (n,) nextapp's rank of the app, 0 if it is new; (n,) the
    probability that nextapp gave the app."""
    (chunk,) = test.chunks  # one person
    nextapp, asked = NextApp(), chunk.predictions
    nextapp.fit(test.history)
    scores, competes = nextapp.score(chunk.questions), chunk.competes(asked)
    better, equal, _ = ranks(asked, competes, scores)
    hits = [metrics.values(better, equal, PRESET.ties, HIT_RATES)]
    for rival in (Recents(), OnlineMFU(), OnlineSROnDevice()):
        rival.fit(test.history)
        hits.append(score_predictions(test, rival, HIT_RATES)[0])
    known = equal > 0
    chances = known * np.exp(scores[asked.cell + asked.target])
    return np.hstack(hits), known * (better + 1), chances


def _second_half(codes: Any, seconds: Floats, n_apps: int) -> Exam:
    """As one session."""
    times, names = (1000 * seconds).astype(np.int64), tuple(map(str, range(n_apps)))
    whole = LaunchLog(np.zeros(len(codes), np.int32), codes.astype(np.int32), times, ("",), names)
    return exam(whole, Split("fraction", 0.5, 0.0, 0.5), PRESET)


def _by_days(hits: Floats, days: Any) -> Floats:
    """(draws, columns): bootstrap means over days, with the same resamples for all columns."""
    _, place = np.unique(days, return_inverse=True)
    sums = np.zeros((place.max() + 1, hits.shape[1]))
    np.add.at(sums, place, hits)
    return bootstrap_means(sums, 0, weights=np.bincount(place).astype(float))
