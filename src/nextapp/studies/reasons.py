"""Explanations of predictions, and their reasons as sentences, for a command and the page."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from nextapp.predictor import Habits, Reason
from nextapp.predictors.pooled import Pooled
from nextapp.studies.model_file import OwnHistory

_LEAST = 0.05  # smallest part of a score that is mentioned
_LEAST_COUNT = 0.5  # smallest number of launches that is mentioned
_CHOICES = 3  # largest number of statistics that are mentioned
_OF_TIMES = ("seconds", "hour")  # evidence that rests on when launches were


def explain(asked: OwnHistory, launch: int | None, n: int) -> dict[str, Any]:
    """The n likeliest apps after the launches, or before number `launch`, with their reasons."""
    launches, before, target = asked.launches, asked.log, None
    if launch is not None:
        if not 2 <= launch <= len(launches):
            raise ValueError(
                f"launch must be from 2 to {len(launches)}, the launches of this user, "
                f"got {launch}: before the first nothing is known."
            )
        target = launches[launch - 1]
        launches = launches[: launch - 1]
    if not launches:
        raise ValueError("there is no launch to learn from: give at least one.")
    last, last_clock, last_zone = launches[-1]
    launched, moment, zone = target or (None, last_clock, last_zone)
    habits, numbers = Habits(), {}
    if before is not None:  # there from the start: the phone learns what it is worth
        if target is not None:
            before = before.where(before.time / 1000 < target[1])
        habits.crowd = Pooled(before).others(before.users.index(asked.name))
        numbers = {app: number for number, app in enumerate(before.apps)}
    for app, clock, ahead in launches:
        habits.observe(numbers.setdefault(app, len(numbers)), clock + ahead)
    names = list(numbers)
    own = list(dict.fromkeys(numbers[app] for app, *_ in launches))
    reasons = habits.explain(own, moment + zone)
    if not asked.timed:  # times were made up
        for reason in reasons:
            for name in _OF_TIMES:
                reason.evidence.pop(name, None)
    places = {names[reason.app]: place for place, reason in enumerate(reasons, 1)}
    return {
        "n_launches": len(launches),
        "last": last,
        "when": _local(last_clock, last_zone) if asked.timed else None,
        "moment": _local(moment, zone) if asked.timed else None,
        "apps": [
            {
                "app": names[reason.app],
                "share": reason.share,
                "score": reason.score,
                "speaks": reason.speaks,
                "evidence": reason.evidence,
                "words": words(reason, last),
            }
            for reason in reasons[:n]
        ],
        "launched": launched,
        "place": None if launched is None else places.get(launched),
    }


def _local(clock: float, zone: int) -> str:
    return datetime.fromtimestamp(clock, timezone(timedelta(seconds=zone))).isoformat()


def words(reason: Reason, last: str) -> str:
    """The strongest reasons as a sentence."""
    texts = {name: _describe(name, reason.evidence, last) for name, _ in reason.strongest}
    strongest = [
        (name, part) for name, part in reason.strongest if abs(part) >= _LEAST and texts[name]
    ]
    strongest = strongest[:_CHOICES]
    if not strongest:
        return "nothing sets it apart."
    pieces = []
    for sign, opening in ((1, "for: "), (-1, "against: ")):
        parts = [f"{texts[name]} ({part:+.2f})" for name, part in strongest if part * sign > 0]
        if parts:
            pieces.append(opening + ", ".join(parts))
    return "; ".join(pieces) + "."


def _describe(statistic: str, evidence: dict[str, float], last: str) -> str:
    """The evidence of a statistic as text; empty if there is none."""
    if statistic == "new" or not evidence:
        return "never launched here before"
    seen = evidence
    return {
        "frequency": f"{seen['launches']:.0f} of about {seen['of']:.0f} launches",
        "after": _describe_after(seen, last),
        "place": f"number {seen['place'] + 1:.0f} in the list of recently used apps",
        "since": f"last launched {_span(seen['seconds'])} ago" if "seconds" in seen else "",
        "hour": f"launched {_times(seen['hour'])} at this time of day" if "hour" in seen else "",
        "lesson": "correction of earlier mistakes after these apps",
        "again": "how often the same app is launched again",
        "crowd": f"what other phones launch after {last}",
    }.get(statistic, "")


def _describe_after(seen: dict[str, float], last: str) -> str:
    """How often the app came after the last one, and after the longest matching sequence."""
    text = f"came {_times(seen['after-1'])} after {last}"
    for length, number in ((4, "four"), (2, "two")):
        if seen[f"after-{length}"] >= _LEAST_COUNT:
            return f"{text}, {_times(seen[f'after-{length}'])} after the last {number} apps"
    return text


def _times(count: float) -> str:
    """A count in words; old launches count for less, so it is not a whole number."""
    whole = round(count)
    return {0: "hardly ever", 1: "about once", 2: "about twice"}.get(whole, f"about {whole} times")


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
