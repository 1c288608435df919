"""What the phone's commands do: each gives lines to show. `__main__` has their options."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from nextapp.data.moments import moment
from nextapp.phone.core import LightReason
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


def open_phone(path: Path) -> Phone:
    """The phone of this file, to be closed."""
    store = Store(path)
    try:
        return Phone(store)
    except BaseException:
        store.close()
        raise


def init(
    path: Path,
    *,
    days: float,
    predictor: str = "nextapp",
    witness: Path | None = None,
    **limits: Any,
) -> Lines:
    """Set up a phone; `limits` are those of `Limits` that were given."""
    given = check_limits(limits, Limits())
    with Store.create(
        path, predictor=predictor, window=days * DAY, witness=witness, **given
    ) as store:
        allowed = store.limits
    return [
        f"{path}: a new phone. It keeps {days:g} days of launches.",
        predictor_line(predictor),
        *limit_lines(allowed),
        "Nothing leaves it before it has joined a server (sync --server URL --code CODE).",
    ]


def _others(by_bucket: bool) -> str:
    if by_bucket:
        return (
            "no names are sent, apps are known by hashes of them, and a report on which are in use "
            "may tell of any, under its ε"
        )
    return "the others are never reported"


def predictor_line(predictor: str) -> str:
    """How a phone predicts, and what it answers a server."""
    if predictor == "seqmf":
        return (
            "It predicts by SeqMF, the light scores of eq. (8), with the app vectors of its "
            "server. It reports a gradient under its ε, and nothing else."
        )
    return (
        "It predicts by its own habits and by what its server learnt from many phones. It reports "
        "launches and transitions under its ε, and nothing else."
    )


def limits(path: Path, *, raise_them: bool = False, **limits: Any) -> Lines:
    """Show the owner's limits, or change those that are given."""
    with Store(path) as store:
        given = check_limits(limits, store.limits)
        try:
            if given:
                store.limit(replace(store.limits, **given), loosen=raise_them)
        except ValueError as error:
            raise ValueError(str(error).replace("pass loosen=True", "give --raise")) from None
        return [*limit_lines(store.limits), *store.ledger.statement(time.time()).splitlines()]


LARGEST_EPSILON = 100.0
"""Above this an ε is a typing error: odds may rise by a number with 43 digits."""


def check_limits(limits: Mapping[str, Any], others: Limits) -> dict[str, Any]:
    """The limits that were given, if they make sense together with the `others`.

    A smaller lifetime takes the limits of a day and of a report with it, where they are not given.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    for name in ("lifetime", "per_day", "per_report"):
        value = given.get(name, 0.0)
        if value > LARGEST_EPSILON:
            raise ValueError(
                f"--{name.replace('_', '-')} must be an ε of at most {LARGEST_EPSILON:g}, got "
                f"{value:g}: an ε above 10 or so protects nobody."
            )
    lifetime = given.get("lifetime", others.lifetime)
    for name in ("per_day", "per_report"):
        if given.get(name, 0.0) > lifetime:
            raise ValueError(
                f"--{name.replace('_', '-')} must not be above --lifetime, got {given[name]:g} and "
                f"{lifetime:g}: give a smaller one, or a larger --lifetime."
            )
        if "lifetime" in given and getattr(others, name) > lifetime:
            given.setdefault(name, lifetime)
    return given


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
    with open_phone(path) as phone:
        for app in apps:
            phone.observe(app, clock, zone=zone)
    return []


def predict(
    path: Path,
    n: int = 5,
    when: str | None = None,
    why: bool = False,
    threshold: float | None = None,
) -> Lines:
    """Name the apps most likely launched next, and what speaks for them most."""
    with open_phone(path) as phone:
        clock = None if when is None else moment(when)[0]
        told = phone.explain(n, clock)
        likely = None if threshold is None else phone.predict(n, clock, threshold=threshold)
        round_ = phone.round
        by_seqmf = phone.store.predictor == "seqmf"
    if not told:
        return ["This phone has no launches yet: log some, or import them."]
    if likely is not None:
        told = [(name, reason) for name, reason in told if name in likely]
        if not told:
            return [f"No app is likelier than {threshold:.0%} next."]
    if not why:
        return [f"{place}. {name}" for place, (name, _) in enumerate(told, 1)]
    lines = reason_lines(told)
    if by_seqmf:
        lines.append(
            "The most recent apps first: by SeqMF, but no server has sent app vectors yet."
            if round_ is None
            else f"By SeqMF: the light scores of eq. (8), with the app vectors of round {round_}."
        )
    return lines


def reason_lines(told: Sequence[tuple[str, Reason | LightReason]], *, why: bool = True) -> Lines:
    """Apps with their probability, or SeqMF's light score, and what speaks for them most."""
    width = max(len(name) for name, _ in told)
    lines = []
    for place, (name, reason) in enumerate(told, 1):
        reasons = _strongest(reason) if why else ""
        lines.append(f"{place}. {name:<{width}}  {_likelihood(reason)}  {reasons}".rstrip())
    return lines


def _likelihood(reason: Reason | LightReason) -> str:
    if isinstance(reason, LightReason):
        return f"score {reason.score:+.3f}"
    return f"{reason.share:>4.0%}"


def _strongest(reason: Reason | LightReason, n: int = 3) -> str:
    """What moves an app most, for or against it."""
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

    with open_phone(path) as phone:
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


def launches_of_export(
    file: Path, user: str | None = None, zone: str | None = None, leave_out: Path | None = None
) -> tuple[list[tuple[str, float, int]], Lines] | None:
    """One person's launches from an export of a device, and what was done; None if it is none."""
    from nextapp.data.importers import import_file, read_list  # only this command needs it

    left_out = None if leave_out is None else read_list(leave_out)
    found = import_file(file, zone=zone, left_out=left_out)
    if found is None:
        return None
    users = found.users
    if user is None and len(users) > 1:
        raise ValueError(
            f"{file} holds the launches of {len(users)} devices or people: choose one by --user, "
            f"of {', '.join(users[:12])}."
        )
    if user is not None and user not in users:
        raise ValueError(f"{file} has no user {user!r}; there are {', '.join(users[:12])}.")
    launches = [launch[1:] for launch in found.launches if user in (None, launch.user)]
    return launches, [f"{file.name}: {found.format}.", *(f"  {note}." for note in found.notes)]


def learn(path: Path, launches: Iterable[tuple[str, float, int]]) -> Lines:
    """Take launches from elsewhere."""
    with open_phone(path) as phone:
        n_new = phone.learn(launches)
        n_kept = phone.status().n_launches
    return [f"{n_new:,} launches imported; {n_kept:,} are stored, within the days it keeps."]


def is_plain_csv(file: Path) -> bool:
    """Whether `launches_of_csv` can read a file."""
    from nextapp.data.importers import Content, three_columns
    from nextapp.data.importers.content import HEAD_BYTES, MOST_BYTES

    with file.open("rb") as opened:
        head = Content(opened.read(HEAD_BYTES), str(file))  # the header decides
    return file.stat().st_size <= MOST_BYTES and three_columns.recognise(head)


def launches_of_csv(
    file: Path, user: str | None = None, zone: str | None = None
) -> list[tuple[str, float, int]]:
    """The launches of a CSV file whose header names timestamp and app_name; of one user.

    ``zone`` is the time zone of times without one; None is this machine's.
    """
    from nextapp.data.importers import Content, list_formats, three_columns
    from nextapp.data.importers.local_time import find_zone

    content = Content.of_file(file)
    if not three_columns.recognise(content):
        raise ValueError(
            f"{file}: the first line must name the columns timestamp and app_name. It is no export "
            f"of a device either; looked for: {list_formats()}."
        )
    found = three_columns.read(content, find_zone(zone))
    users = {launch.user for launch in found}
    if user is None and len(users) > 1:
        raise ValueError(
            f"{file} holds the launches of {len(users)} people: choose one by --user, for "
            f"example --user {min(users)}."
        )
    if user is not None and user not in users:
        raise ValueError(f"{file} has no user {user!r}.")
    return [launch[1:] for launch in found if user in (None, launch.user)]


def export(path: Path, form: str = "json") -> str:
    """Everything held, as JSON; or the launches alone, as CSV."""
    with open_phone(path) as phone:
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
    with open_phone(path) as phone:
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
    with open_phone(path) as phone:
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
    lines.append(predictor_line(found.predictor))
    if found.server is None:
        lines.append("This phone has joined no server.")
    else:
        model = (
            "no model fetched yet"
            if found.round is None or found.fetched is None
            else f"round {found.round} fetched {_day_and_time(found.fetched)}, which knows "
            f"{found.n_known} of the {found.n_apps} apps; {_others(found.by_bucket)}"
        )
        lines.append(
            f"Server: {found.server}{'' if found.enrolled else ', not enrolled'}; {model}."
        )
    if found.digest is not None:
        lines.append(f"Digest of that model, to compare with other phones: {found.digest}")
    if found.history_gaps:
        lines.append(
            f"{_count(found.history_gaps, 'time')} the server's history could not be connected "
            f"with what this phone had seen: it was away for long, or the server was restored from "
            f"a backup."
        )
    lines += ["", "What its owner allows", *(f"  {line}" for line in limit_lines(found.limits))]
    lines += ["", "What has ever left this phone"]
    if not found.reports:
        lines.append("  No report. " + _BESIDES)
    else:
        lines += [_HEAD, *map(_line, found.reports), "  " + _ODDS, "", "  " + _BESIDES]
    lines += ["", "What it cost", *(f"  {line}" for line in found.statement.splitlines())]
    if found.reports:
        lines.append(f"  {odds(found.spent.lifetime)}")
    return lines


_BESIDES = (
    "Beside reports a server sees that this phone asks for the model, when, and from which network "
    "address; never a launch or an app's name."
)
_HEAD = (
    f"  {'drawn':<17} {'round':>5} {'mechanism':<9} {'ε':>5} {'bytes':>5} {'odds':>6}  "
    f"what became of it"
)
_ODDS = "odds: how much likelier a guess about this phone can get by the report, at most."


def _line(report: DrawnReport) -> str:
    """A line of 80 columns at most."""
    grown = math.exp(min(report.epsilon, 700.0))
    times = f"×{grown:.3g}" if grown < 1e4 else "×>1e4"
    return (
        f"  {_day_and_time(report.drawn):<17} {report.round:>5} {report.mechanism:<9} "
        f"{report.epsilon:>5g} {report.n_bytes:>5} {times:>6}  {_became(report)}"
    )


def _became(report: DrawnReport) -> str:
    if report.state == "drawn":
        if not report.attempts:
            return "not sent yet"
        return f"sent {_count(report.attempts, 'time')}, no answer"
    if report.state == "accepted":
        return "the server has it"
    return f"{report.state}, {'maybe seen' if report.attempts else 'never sent'}"


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


def _day_and_time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%MZ")


def _count(n: int, word: str, words: str = "") -> str:
    return f"{n:,} {word if n == 1 else words or word + 's'}"
