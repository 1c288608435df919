"""What the phone's commands do: each gives lines to show. `__main__` has their options."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from nextapp.phone.limits import Limits
from nextapp.phone.phone import Phone, Status, Synced
from nextapp.phone.server_errors import ServerError
from nextapp.phone.store import DAY, DrawnReport, Store, StoreError
from nextapp.predictor import Reason
from nextapp.privacy.ledger import LedgerError

Lines = list[str]
ERRORS = (ValueError, OSError, StoreError, LedgerError, ServerError)
"""What goes wrong with what was given, to be shown as one line."""

_SOUND = ("new", "same")
_SETTLED = ("accepted", "done", "none", "budget")


def opened(path: Path) -> Phone:
    """The phone of this file, to be closed."""
    store = Store(path)
    try:
        return Phone(store)
    except BaseException:
        store.close()
        raise


def init(path: Path, *, days: float, witness: Path | None = None, **limits: Any) -> Lines:
    """Set up a phone; `limits` are those of `Limits` that were given."""
    given = {name: value for name, value in limits.items() if value is not None}
    with Store.create(path, window=days * DAY, witness=witness, **given) as store:
        allowed = store.limits
    return [
        f"{path}: a new phone. It keeps {days:g} days of launches.",
        *limit_lines(allowed),
        "Nothing leaves it before it has joined a server (sync --server URL --code CODE).",
    ]


def limits(path: Path, *, raise_them: bool = False, **limits: Any) -> Lines:
    """Show the owner's limits, or change those that are given."""
    given = {name: value for name, value in limits.items() if value is not None}
    with Store(path) as store:
        try:
            if given:
                store.limit(replace(store.limits, **given), loosen=raise_them)
        except ValueError as error:
            raise ValueError(str(error).replace("pass loosen=True", "give --raise")) from None
        return [*limit_lines(store.limits), *store.ledger.statement(time.time()).splitlines()]


def limit_lines(limits: Limits) -> Lines:
    """The owner's limits in words."""
    return [
        f"It may spend ε = {limits.per_report:g} on one report, {limits.per_day:g} in a day, "
        f"{limits.lifetime:g} in its life, with {limits.hours:g} hours or more between reports.",
        f"It reports by {', '.join(limits.mechanisms) or 'no mechanism'}; whatever else a server "
        f"asks for is refused.",
    ]


def log(path: Path, apps: Iterable[str], when: str | None = None) -> Lines:
    """Write launches down."""
    clock, zone = (None, None) if when is None else moment(when)
    with opened(path) as phone:
        for app in apps:
            phone.observe(app, clock, zone=zone)
    return []


def predict(path: Path, n: int = 5, when: str | None = None, why: bool = False) -> Lines:
    """Name the apps most likely launched next, and what speaks for them most."""
    with opened(path) as phone:
        told = phone.explain(n, None if when is None else moment(when)[0])
    if not told:
        return ["This phone has no launches yet: log some, or import them."]
    if not why:
        return [f"{place}. {name}" for place, (name, _) in enumerate(told, 1)]
    width = max(len(name) for name, _ in told)
    return [
        f"{place}. {name:<{width}}  {reason.share:>4.0%}  {_strongest(reason)}"
        for place, (name, reason) in enumerate(told, 1)
    ]


def _strongest(reason: Reason, n: int = 3) -> str:
    """The statistics that move an app most, for or against it."""
    return ", ".join(f"{name} {part:+.2f}" for name, part in reason.strongest[:n])


def sync(
    path: Path,
    *,
    server: str | None = None,
    code: str | None = None,
    ca: Path | None = None,
    proxy: str | None = None,
    trust_clock: bool = False,
    now: bool = False,
) -> tuple[Synced, Lines]:
    """Join a server if a code is given; then fetch, learn, report."""
    from nextapp.phone.client import Client  # slow to import, and no other command needs it

    with opened(path) as phone:
        url = server or phone.store.setting("server")
        if url is None:
            raise ValueError("this phone has no server yet: give --server URL and --code CODE.")
        authority = str(ca.resolve()) if ca is not None else phone.store.setting("ca")
        with Client(url, ca=authority, proxy=proxy) as client:
            if code is not None:
                phone.join(client, code)
            if ca is not None:
                phone.store.set(ca=authority)
            synced = phone.sync(client, trust_clock=trust_clock, now=now)
    lines = [synced.words]
    if synced.again is not None:
        lines.append(f"Worth trying again from {_day_and_time(synced.again)} on.")
    return synced, lines


def is_sound(synced: Synced) -> bool:
    """Whether a sync went as a person would wish, a spent budget included."""
    return synced.broadcast in _SOUND and synced.report in _SETTLED


def learn(path: Path, launches: Iterable[tuple[str, float, int]]) -> Lines:
    """Take launches from elsewhere."""
    with opened(path) as phone:
        n_new = phone.learn(launches)
        n_kept = phone.status().n_launches
    return [f"{n_new:,} launches taken over; {n_kept:,} are held, within the window."]


def launches_of_csv(file: Path, user: str | None = None) -> list[tuple[str, float, int]]:
    """The launches of a CSV file whose header names timestamp and app_name; of one user."""
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if not {"timestamp", "app_name"} <= set(reader.fieldnames or ()):
            raise ValueError(
                f"{file}: the first line must name the columns timestamp and app_name, got "
                f"{reader.fieldnames}."
            )
        launches = []
        users = set()
        for row in reader:
            if user is not None and row.get("user_id") != user:
                continue
            try:
                when = moment(row["timestamp"] or "")
            except ValueError as error:
                raise ValueError(f"{file}, line {reader.line_num}: {error}") from error
            launches.append((row["app_name"], *when))
            users.add(row.get("user_id"))
    if len(users) > 1:
        raise ValueError(
            f"{file} holds the launches of {len(users)} people; a phone takes those of one: "
            f"choose by --user."
        )
    if not launches and user is not None:
        raise ValueError(f"{file} has no user {user!r}.")
    return launches


def export(path: Path, form: str = "json") -> str:
    """Everything held, as JSON; or the launches alone, as CSV."""
    with opened(path) as phone:
        held = phone.export()
    if form == "json":
        return json.dumps(held, indent=1, ensure_ascii=False)
    if form != "csv":
        raise ValueError(f"the format must be json or csv, got {form!r}.")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("timestamp", "app_name"))
    for launch in held["launches"]:
        zone = timezone(timedelta(seconds=launch["zone"]))
        writer.writerow((datetime.fromtimestamp(launch["time"], zone).isoformat(), launch["app"]))
    return out.getvalue()


def forget(path: Path, app: str | None = None) -> Lines:
    """Erase, and say what cannot be taken back."""
    with opened(path) as phone:
        phone.forget(app)
        left = [report for report in phone.store.reports() if report.attempts]
    if app is not None:
        return [f"{app} and its launches are erased from {path}."]
    lines = [
        f"Erased from {path}, its bytes overwritten: all launches, all app names, the predictor, "
        f"the user vector, the model, and any report not yet acknowledged.",
        "Still there: your limits, the server's address, the privacy ledger and the list of "
        "reports, which name no app.",
    ]
    if left:
        total = math.fsum(report.epsilon for report in left)
        lines.append(
            f"What cannot be taken back: {_count(len(left), 'report')} left this phone, together "
            f"ε = {total:g}. {odds(total)} A report cannot be found again in the sum it went into."
        )
    else:
        lines.append("No report ever left this phone, so there is nothing to take back.")
    lines.append("Copies of the file, backups and what the flash memory keeps are out of reach.")
    return lines


def status(path: Path) -> Lines:
    """What is held, and what has ever left, in plain words."""
    with opened(path) as phone:
        return status_lines(path, phone.status(), time.time())


def status_lines(path: Path, found: Status, now: float) -> Lines:
    span = (
        ""
        if found.first is None or found.last is None
        else f", {_day_and_time(found.first)} to {_day_and_time(found.last)}"
    )
    lines = [
        f"{path}: {_count(found.n_launches, 'launch', 'launches')} of "
        f"{_count(found.n_apps, 'app')}{span}; {found.n_bytes / 1024:,.0f} KiB. Launches of "
        f"the last {found.window / DAY:g} days of use are kept."
    ]
    if found.server is None:
        lines.append("This phone has joined no server.")
    else:
        model = (
            "no model fetched yet"
            if found.round is None or found.fetched is None
            else f"round {found.round} fetched {_day_and_time(found.fetched)}, which knows "
            f"{found.n_known} of the {found.n_apps} apps; the others are never reported"
        )
        lines.append(
            f"Server: {found.server}{'' if found.enrolled else ', not enrolled'}; {model}."
        )
    if found.digest is not None:
        lines.append(f"Digest of that model, to compare with other phones: {found.digest}")
    if found.history_gaps:
        lines.append(
            f"{_count(found.history_gaps, 'time')} the server's history could not be connected "
            f"with what this phone had seen: it was away for long, or the server was set back."
        )
    lines += ["", "What its owner allows", *(f"  {line}" for line in limit_lines(found.limits))]
    lines += ["", "What has ever left this phone"]
    if not found.reports:
        lines.append("  No report. " + _BESIDES)
    else:
        lines += [_HEAD, *map(_line, found.reports), "", "  " + _BESIDES]
    lines += ["", "What it cost", *(f"  {line}" for line in found.statement.splitlines())]
    if found.reports:
        lines.append(f"  {odds(found.spent.lifetime)}")
    return lines


_BESIDES = (
    "Beside reports a server sees that this phone asks for the model, when, and from which network "
    "address; never a launch or an app's name."
)
_HEAD = (
    f"  {'drawn':<17} {'round':>6} {'mechanism':<14} {'ε':>6} {'bytes':>6}  "
    f"{'what became of it':<40} odds of a guess rise at most"
)


def _line(report: DrawnReport) -> str:
    return (
        f"  {_day_and_time(report.drawn):<17} {report.round:>6} {report.mechanism:<14} "
        f"{report.epsilon:>6g} {report.n_bytes:>6}  {_became(report):<40} {_times(report.epsilon)}"
    )


def _became(report: DrawnReport) -> str:
    if report.state == "drawn":
        sent = "sent, no answer yet" if report.attempts else "not sent yet"
        return f"{sent} ({_count(report.attempts, 'attempt')})"
    if report.state == "accepted":
        return "the server has it"
    reached = "may have been seen" if report.attempts else "never sent"
    return f"{report.state}, {reached}"


def odds(epsilon: float) -> str:
    """What an ε means, for a person."""
    return (
        f"Whoever saw all of it can raise the odds of any guess about what was launched here at "
        f"most {_times(epsilon)}."
    )


def _times(epsilon: float) -> str:
    if epsilon > math.log(1e6):
        return "over a million times: no real promise"
    return f"{math.exp(epsilon):,.3g} times"


def moment(text: str) -> tuple[float, int]:
    """Seconds since 1970 and the time zone's seconds ahead of UTC, of an ISO time or a number.

    A time without a zone is local.

    >>> moment("2026-11-15T10:00:00+02:00")
    (1794729600.0, 7200)
    """
    try:
        when = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"a time must be like 2026-11-15T10:00:00 or in seconds since 1970, got {text!r}."
            ) from None
        if parsed.tzinfo is None:
            parsed = parsed.astimezone()
        offset = parsed.utcoffset()
        return parsed.timestamp(), 0 if offset is None else int(offset.total_seconds())
    if not 0 <= when < math.inf:
        raise ValueError(f"seconds since 1970 must be 0 or more, got {text!r}.")
    return when, time.localtime(when).tm_gmtoff


def _day_and_time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%MZ")


def _count(n: int, word: str, words: str = "") -> str:
    return f"{n:,} {word if n == 1 else words or word + 's'}"
