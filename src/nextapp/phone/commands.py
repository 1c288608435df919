"""A phone's commands: ``nextapp phone``, or ``python -m nextapp.phone`` with the base install.

One parser has their options; each command gives lines to show.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nextapp.data.times import time_and_offset
from nextapp.phone.core import MOST_APPS, OPTIONS, PREDICTORS, LightReason, Limits, ServerError
from nextapp.phone.ledger import DAY, StoreError
from nextapp.phone.phone import Phone, rows_and_buckets
from nextapp.phone.store import WINDOW, DrawnReport, Mark, Store, check_name
from nextapp.predictor import STEADY, Reason
from nextapp.settings import LARGEST_EPSILON, count, nearest
from nextapp.storage import create_atomically

if TYPE_CHECKING:
    from nextapp.data.importers.content import DateOrder

Lines = list[str]
PROGRAM = "python -m nextapp.phone"
ERRORS = (ValueError, OSError, StoreError, ServerError)
"""Errors that are shown as one line."""

MARKING = {
    "hide": "Suggest apps no more.",
    "unhide": "Suggest apps again that were hidden or dismissed.",
    "dismiss": "Do not suggest apps for a while.",
    "installed": "Give new apps a place among the suggestions.",
    "removed": "Suggest apps no more that are gone.",
}
"""What the owner says of apps; kept on the phone, never reported."""

_SHOWN_APPS = 10  # the commonest of an import
_SHOWN_REASONS = 3  # what moves an app most, for or against it
_SOUND = ("new", "same")
_SETTLED = ("accepted", "done", "none", "budget", "waiting", "tokens")
_STORE_HELP = "The phone's file. Default: $NEXTAPP_PHONE or phone.db."


class Failed(Exception):
    """A command that could not do all; its lines are shown, and the exit code is 1."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(*lines)
        self.lines = lines


def main(arguments: Sequence[str] | None = None, *, prog: str = PROGRAM) -> int:
    """Run a command and show its lines; the exit code."""
    given = vars(parser(prog).parse_args(arguments))
    command: Callable[..., Lines] = COMMANDS[given.pop("action")]
    code = 0
    try:
        lines = command(given.pop("store"), **given)
    except Failed as failed:
        lines, code = failed.lines, 1
    except ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped. Run the command again to continue.", file=sys.stderr)
        return 130
    try:
        print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed at the end
        if not isinstance(error, BrokenPipeError):  # nobody reads on
            print(f"error: standard output: {error.strerror}.", file=sys.stderr)
        return 1
    return code


# --- options -----------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """What is nearest to a choice that there is not stands before the others."""
        if match := re.match(r"(.*invalid choice: '(.+)')( \(choose from )(.+)\)", message):
            near = nearest(match[2], re.findall(r"[\w/-]+", match[4]), least=0.6)
            message = (
                f"{match[1]}{f'; did you mean {near!r}?' if near else ''}{match[3]}{match[4]})"
            )
        super().error(message)


def parser(prog: str = PROGRAM) -> argparse.ArgumentParser:
    return parsers(prog)[0]


def parsers(prog: str) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of a program, and those of its commands by name."""
    layout: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    main = _Parser(
        prog=prog,
        usage=f"{prog} [OPTIONS] COMMAND [ARGS]...",
        description="Try a phone by hand: log launches, predict, take part in training.\n"
        "A phone is one file.",
        epilog=f"Examples:\n  {prog} init\n  {prog} log maps mail\n  {prog} predict --why",
        **layout,
    )
    store: Any = {"metavar": "FILE", "type": Path, "help": _STORE_HELP}
    default_store = Path(os.environ.get("NEXTAPP_PHONE") or "phone.db")
    main.add_argument("--store", default=default_store, **store)
    commands = main.add_subparsers(
        dest="action", required=True, metavar="COMMAND", title="Commands"
    )
    found: dict[str, argparse.ArgumentParser] = {}

    def add(name: str, text: str, example: str, arguments: str = "") -> _Add:
        found[name] = commands.add_parser(
            name,
            help=text,
            usage=f"{prog} {name} [OPTIONS] {arguments}".rstrip(),
            description=text,
            epilog=f"Example:\n  {prog} {name} {example}".rstrip(),
            **layout,
        )
        found[name].add_argument("--store", default=argparse.SUPPRESS, **store)
        return partial(_add_option, found[name])

    _add_commands(add)
    return main, found


def _add_commands(add: Callable[..., _Add]) -> None:
    init = add("init", "Set up a phone with its owner's limits.", "--lifetime 10 --per-report 1")
    _add_limits(init, Limits())
    init(
        "--predictor",
        "NAME",
        "nextapp (its own habits and the crowd) or seqmf (the paper's model, which needs a server "
        "that trains it).",
        choices=tuple(PREDICTORS),
        default="nextapp",
    )
    init("--days", "DAYS", "Days of launches it keeps.", type=float, default=WINDOW / DAY)
    init(
        "--witness",
        "FILE",
        "File outside of backups that shows if an old copy of the phone's file is put back. "
        "Default: beside it.",
        type=Path,
    )

    limits = add("limits", "Show or change the owner's limits.", "--lifetime 0.5")
    _add_limits(limits, None)
    limits("--raise", None, "Allow more than before.", dest="raise_them")

    log = add("log", "Log launches of apps.", "maps mail", "APP...")
    log("apps", "APP", "Name of an app that was launched.", nargs="+")
    log("--when", "TIME", "ISO time or seconds since 1970. Default: now.")

    predict = add("predict", "Predict the apps launched next.", "-n 3 --why")
    predict("-n", "N", "Apps to name.", type=_at_least_one, default=5)
    predict("--when", "TIME", "Time of the prediction, as in log.")
    predict("--why", None, "Show the reasons for each app.")
    predict("--threshold", "X", "Only apps with at least this probability.", type=float)
    predict("--with-open", None, "Name the app that is open, too.")
    predict(
        "--shown",
        "APPS",
        "Apps on the screen, in their places: each stays unless another is clearly better.",
        type=_names,
        default=(),
    )
    predict(
        "--steady",
        "X",
        "How many times as likely another must be to be clearly better.",
        type=float,
        default=STEADY,
    )

    for name, text in MARKING.items():
        marking = add(name, text, "chess", "APP...")
        marking("apps", "APP", "Name of an app.", nargs="+")
        if name == "dismiss":
            marking("--hours", "X", "How long.", type=float, default=24.0)

    sync = add(
        "sync",
        "Fetch the model, and send a report after a random pause.",
        "--server https://localhost:8443 --code CODE --now",
    )
    sync("--server", "URL", "https://host:port; remembered.")
    sync("--code", "CODE", "Enrolment code of the operator, to join.")
    sync("--ca", "FILE", "The only certificates to trust, PEM; remembered.", type=Path)
    sync(
        "--relay",
        "URL",
        "http://host:port of a relay that hides this phone's address; remembered. Or none.",
    )
    sync("--trust-clock", None, "Say that this machine's clock is right.")
    sync("--now", None, "Send at once, to try it: waiting hides whose report it is.")

    add("status", "Show what is stored, and what has ever been sent.", "")

    words = "Take launches from a log, or from what a phone exports."
    take = add("import", words, "usagestats.txt", "DATA")
    take("data", "DATA", "An export of a device, or a CSV file; - reads standard input.", type=Path)
    take("--user", "NAME", "Person whose launches to use, if there are several.")
    take(
        "--zone",
        "NAME",
        "Time zone of local times. Default: of tables UTC, else this machine's.",
    )
    take(
        "--dates",
        "ORDER",
        "Order of dates such as 3/4/2024: day/month or month/day.",
        choices=("day/month", "month/day"),
    )
    take("--leave-out", "FILE", "List of entries that are not apps.", type=Path)

    export = add("export", "Write everything that is stored.", "--out mine.json")
    text, forms = "json, or csv (launches only).", ("json", "csv")
    export("--format", "FORM", text, dest="form", choices=forms, default="json")
    export("--out", "FILE", "File to write. Default: standard output.", type=Path)

    forget = add("forget", "Erase the history, or one app.", "--app maps")
    forget("--app", "APP", "Only this app.")
    forget("--yes", None, "Do not ask.")


_Add = Callable[..., None]


def _add_option(
    command: argparse.ArgumentParser, name: str, metavar: str | None, text: str, **more: Any
) -> None:
    """An argument, or an option with its default in its help; a flag where it takes no value."""
    if metavar is None:
        command.add_argument(name, action="store_true", help=text, **more)
        return
    if default := more.get("default"):
        text += f" [default: {default if isinstance(default, str) else format(default, 'g')}]"
    command.add_argument(name, metavar=metavar, help=text, **more)


def _add_limits(add: _Add, defaults: Limits | None) -> None:
    """The owner's limits as options; without defaults those not given stay as they are."""
    for each in fields(Limits):
        if "help" in each.metadata:
            default = "" if defaults is None else f" [default: {each.default:g}]"
            name = f"--{each.name.replace('_', '-')}"
            add(name, "X", each.metadata["help"] + default, type=float)
    others = "" if defaults is None else f" Default: {', '.join(defaults.mechanisms)}."
    text = f"Mechanisms it may report by, of {', '.join(OPTIONS)}.{others}"
    add("--mechanisms", "NAMES", text, type=_names)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


# --- commands ----------------------------------------------------------------------------------


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


def predictor_line(predictor: str) -> str:
    """How a phone predicts, and what it answers a server."""
    if predictor == "seqmf":
        return (
            "It predicts by SeqMF, the light scores of eq. (8), with the app vectors of its "
            "server. It reports a gradient under its ε, and nothing else."
        )
    return (
        "It predicts by its own habits and, once it has joined a server, by what the server learnt "
        "from many phones. It reports which apps follow which, randomised under its ε, and nothing "
        "else."
    )


def limits(path: Path, *, raise_them: bool = False, **limits: Any) -> Lines:
    with Store(path) as store:
        given = check_limits(limits, store.limits)
        if given:
            store.limit(replace(store.limits, **given), loosen=raise_them)
        return [*limit_lines(store.limits), *store.ledger.statement(time.time()).splitlines()]


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
    return [
        f"It may spend ε = {limits.per_report:g} on one report, {limits.per_day:g} in a day, "
        f"{limits.lifetime:g} in its life, with {limits.hours:g} hours or more between reports.",
        f"It reports by {', '.join(limits.mechanisms) or 'no mechanism'}; any other request of a "
        f"server is refused.",
    ]


def log(path: Path, apps: Iterable[str], when: str | None = None) -> Lines:
    clock, zone = (None, None) if when is None else time_and_offset(when)
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
    with_open: bool = False,
    shown: Sequence[str] = (),
    steady: float = STEADY,
) -> Lines:
    clock, zone = time_and_offset(str(time.time()) if when is None else when)
    moment = datetime.fromtimestamp(clock, timezone(timedelta(seconds=zone)))
    with open_phone(path) as phone:
        names = phone.predict(
            n, moment, threshold=threshold, with_open=with_open, shown=shown, steady=steady
        )
        reasons = dict(phone.explain(MOST_APPS, moment, with_open=with_open)) if why else {}
        open_only = not names and not with_open and bool(phone.predict(1, moment, with_open=True))
        n_launches = phone.store.n_launches()
        round_ = phone.round
        by_seqmf = phone.store.predictor == "seqmf"
    if not n_launches and not names:
        return ["This phone has no launches yet: log some, or import them."]
    if not names:
        if threshold is not None:
            return [f"No app is likelier than {threshold:.0%} next."]
        if open_only:
            return ["There is no other app to suggest than the open one; --with-open names it."]
        return ["All apps are hidden, dismissed or removed: 'nextapp phone status' lists them."]
    lines = [f"{place}. {name}" for place, name in enumerate(names, 1)]
    if why:
        lines = reason_lines([(name, reasons[name]) for name in names])
    if why and by_seqmf:
        lines.append(
            "The most recent apps first: by SeqMF, but no server has sent app vectors yet."
            if round_ is None
            else f"By SeqMF: the light scores of eq. (8), with the app vectors of round {round_}. "
            f"What stands beside a score is its parts, less those of the average app."
        )
    lines.append(f"Predicted for {moment.isoformat(' ', 'minutes')}, local time.")
    return lines


def reason_lines(reasons: Sequence[tuple[str, Reason | LightReason]], *, why: bool = True) -> Lines:
    """Apps with their probability, or SeqMF's light score, and their strongest reasons."""
    width = max(len(name) for name, _ in reasons)
    lines = []
    for place, (name, reason) in enumerate(reasons, 1):
        strongest = reason.strongest[:_SHOWN_REASONS] if why else []
        parts = ", ".join(f"{name} {part:+.2f}" for name, part in strongest)
        likely = (
            f"{reason.share:>4.0%}" if isinstance(reason, Reason) else f"score {reason.score:+.3f}"
        )
        lines.append(f"{place}. {name:<{width}}  {likely}  {parts}".rstrip())
    return lines


def mark(path: Path, action: str, apps: Sequence[str], hours: float = 24.0) -> Lines:
    """What the owner says of apps: hide, unhide, dismiss, installed or removed."""
    lines = []
    with open_phone(path) as phone:
        for app in apps if action in ("hide", "dismiss", "removed") else ():
            check_name(app)
            if app not in phone.store.names:
                near = nearest(app, phone.store.names, least=0.6)
                raise ValueError(
                    f"{app} was never launched on this phone"
                    + (f": did you mean {near}?" if near else ".")
                    + f" If the name is right, say first 'installed {app}'."
                )
        for app in apps:
            if action == "hide":
                phone.hide(app)
                lines.append(f"{app} is not suggested any more; unhide takes this back.")
            elif action == "unhide":
                was = phone.unhide(app)
                lines.append(f"{app} {'is suggested again' if was else 'was not hidden'}.")
            elif action == "dismiss":
                until = phone.dismiss(app, 3600 * hours)
                lines.append(f"{app} is not suggested until {_day_and_time(until)}.")
            elif action == "installed":
                phone.installed([app])
                lines.append(
                    f"{app} is installed: it has a place, and leaves it unless it is used."
                )
            else:
                phone.removed(app)
                lines.append(f"{app} is not suggested until it is installed or launched again.")
    return lines


def sync(
    path: Path,
    *,
    server: str | None = None,
    code: str | None = None,
    ca: Path | None = None,
    relay: str | None = None,
    trust_clock: bool = False,
    now: bool = False,
) -> Lines:
    """Join a server if a code is given; then fetch, learn, report. `Failed` if that went wrong."""
    from nextapp.phone.client import Client  # slow to import, and no other command needs it

    with open_phone(path) as phone:
        url = server or phone.store.setting("server")
        if url is None:
            raise ValueError("this phone has no server yet: give --server URL and --code CODE.")
        authority = str(ca.resolve()) if ca is not None else phone.store.setting("ca")
        relay = relay or phone.store.setting("relay")
        with Client(url, ca=authority, relay=None if relay == "none" else relay) as client:
            phone.store.set(relay=relay)  # before anything is sent: no later visit forgets it
            if code is not None:
                phone.join(client, code)
            phone.store.set(ca=authority)
            synced = phone.sync(client, trust_clock=trust_clock, now=now)
    lines = [synced.message]
    if synced.again is not None:
        lines.append(f"Worth trying again from {_day_and_time(synced.again)} on.")
    if synced.broadcast in _SOUND and synced.report in _SETTLED:
        return lines
    raise Failed(lines)


def import_launches(
    path: Path,
    data: Path,
    user: str | None = None,
    zone: str | None = None,
    leave_out: Path | None = None,
    dates: DateOrder | None = None,
) -> Lines:
    """Take one person's launches from an export of a device or a CSV file.

    ``zone`` is the time zone of times without one; None is this machine's.
    """
    # Only this command needs the importers.
    from nextapp.data.importers import read_any
    from nextapp.data.importers.content import Content
    from nextapp.data.importers.events import read_list

    if not path.exists():
        raise ValueError(f"{path} is missing: set up a phone first, by init.")
    not_apps = None if leave_out is None else read_list(leave_out)
    found = read_any(Content.of_file(data, dates), zone=zone, not_apps=not_apps)
    users = found.users
    if user is None and len(users) > 1:
        raise ValueError(
            f"{data} holds the launches of {len(users)} people or devices: choose one by --user, "
            f"of {', '.join(users[:12])}."
        )
    if user is not None and user not in users:
        raise ValueError(f"{data} has no user {user!r}; there are {', '.join(users[:12])}.")
    launches = [launch[1:] for launch in found.launches if user in (None, launch.user)]
    with open_phone(path) as phone:
        n_before = phone.store.n_launches()
        n_new = phone.learn(launches)
        n_kept = phone.store.n_launches()
        days = phone.store.window / DAY
    apps = Counter(app for app, *_ in launches).most_common(_SHOWN_APPS)
    name = "Standard input" if str(data) == "-" else data.name
    lines = [
        f"{name}: {found.format}, {count(len(launches), 'launch', 'launches')}.",
        *(f"  {note}." for note in found.notes),
        f"  Most often: {', '.join(f'{app} {n:,}' for app, n in apps)}.",
        f"{count(n_new, 'launch', 'launches')} imported.",
    ]
    if n_new < len(launches):
        lines.append(
            f"  {len(launches) - n_new:,} are there already, or repeat an app in the same moment."
        )
    if n_kept < n_before + n_new:
        lines.append(
            f"  {n_before + n_new - n_kept:,} are older than the {days:g} days it keeps; "
            f"{n_kept:,} are stored."
        )
    return lines


def export(path: Path, form: str = "json", out: Path | None = None) -> Lines:
    with open_phone(path) as phone:
        stored = phone.export()
    if form == "json":
        text = json.dumps(stored, indent=1, ensure_ascii=False)
    else:
        text = _launches_as_csv(stored["launches"])
    if out is None:
        return [text]
    try:
        with create_atomically(out) as draft:
            draft.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ValueError(f"{out} is there already: give another name, or delete it.") from None
    return []


def _launches_as_csv(launches: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("timestamp", "app_name"))
    for launch in launches:
        zone = timezone(timedelta(seconds=launch["zone"]))
        writer.writerow((datetime.fromtimestamp(launch["time"], zone).isoformat(), launch["app"]))
    return out.getvalue()


def forget(path: Path, app: str | None = None, yes: bool = False) -> Lines:
    """Erase, if `yes` or the person says so, and say what cannot be taken back."""
    if app is None and not yes:
        print(f"Erase the whole history of {path}? Type 'yes': ", end="", flush=True)
        if sys.stdin.readline().strip() != "yes":
            raise Failed(["Nothing was erased."])
    with open_phone(path) as phone:
        phone.forget(app)
        left = _what_left(phone.store)
    if app is not None:
        return [f"{app} and its launches are erased from {path}."]
    return [
        f"Erased from {path}, its bytes overwritten: all launches, all app names, the predictor, "
        f"the user vector, the model, and any report not yet acknowledged.",
        "Still there: your limits, the server's address, the privacy ledger and the list of "
        "reports, which name no app.",
        left,
        "Copies of the file, backups and what the flash memory keeps are out of reach.",
    ]


def _what_left(store: Store) -> str:
    """What cannot be taken back, by the ledger and its witness."""
    try:
        store.ledger.budgets()  # notes it where an older copy of the file was put back
    except StoreError as error:
        return f"What left this phone is not known: {error}"
    sent = [report for report in store.reports() if report.attempts]
    if not sent:
        return "No report ever left this phone, so there is nothing to take back."
    total = math.fsum(report.epsilon for report in sent)
    restored = any(report.state == "lost" for report in sent)
    return (
        f"What cannot be taken back: {count(len(sent), 'report')} {'or more ' * restored}left "
        f"this phone, together ε = {total:g}. {odds(total)} A report cannot be found again in the "
        f"sum it went into."
        + " An older copy of this file was put back; of what it lacked only the ε is known."
        * restored
    )


def status(path: Path) -> Lines:
    with open_phone(path) as phone:
        return status_lines(phone, time.time())


def status_lines(phone: Phone, now: float) -> Lines:
    store, broadcast = phone.store, phone.broadcast
    launches, held, server = store.launches(), store.broadcast(), store.setting("server")
    names = {launch.name for launch in launches}
    n_apps = count(len(names), "app")
    span = ""
    if launches:
        first, last = launches[0].clock, launches[-1].clock
        span = f", {_day_and_time(first)} to {_day_and_time(last)}"
    lines = [
        f"{store.path}: {count(len(launches), 'launch', 'launches')} of {n_apps}{span}; "
        f"{store.n_bytes / 1024:,.0f} KiB. Launches of the last {store.window / DAY:g} days of use "
        f"are kept.",
        predictor_line(store.predictor),
    ]
    if server is None:
        lines.append("This phone has joined no server.")
    else:
        model = "no model fetched yet"
        if held is not None and broadcast is not None:
            row_of, _ = rows_and_buckets(broadcast)
            n_known = sum(row_of(name) >= 0 for name in names)
            others = "the others are never reported"
            if broadcast.buckets is not None:
                others = (
                    "no names are sent, apps are known by hashes of them, and a report on which "
                    "are in use may tell of any, under its ε"
                )
            model = (
                f"round {held.round} fetched {_day_and_time(held.fetched)}, which knows {n_known} "
                f"of the {n_apps}; {others}"
            )
        enrolled = "" if store.setting("secret") else ", not enrolled"
        lines.append(f"Server: {server}{enrolled}; {model}.")
    if held is not None:
        lines.append(f"Digest of that model, to compare with other phones: {held.digest}")
    if store.history_gaps:
        lines.append(
            f"{count(store.history_gaps, 'time')} the server's history could not be connected "
            f"with what this phone had seen: it was away for long, or the server was restored from "
            f"a backup."
        )
    lines += _mark_lines(store.marks(), now)
    lines += ["", "What its owner allows", *(f"  {line}" for line in limit_lines(store.limits))]
    lines += ["", "What has ever left this phone"]
    reports, ledger = store.reports(), store.ledger
    if not reports:
        lines.append("  No report. " + _BESIDES)
    else:
        lines += [_HEAD, *map(_line, reports), "  " + _ODDS, "", "  " + _BESIDES]
    lines += ["", "What it cost", *(f"  {line}" for line in ledger.statement(now).splitlines())]
    if reports:
        lines.append(f"  {odds(ledger.spent(now).lifetime)}")
    return lines


def _mark_lines(marks: Iterable[Mark], now: float) -> Lines:
    """What the owner said of apps, a line for each kind."""
    said: dict[str, list[str]] = {}
    for each in marks:
        until = f" until {_day_and_time(each.clock)}" if each.mark == "dismissed" else ""
        if each.mark != "dismissed" or each.clock > now:
            said.setdefault(each.mark, []).append(each.name + until)
    return [f"{mark.capitalize()}, never reported: {', '.join(said[mark])}." for mark in said]


_BESIDES = (
    "Beside reports a server sees that this phone asks for the model, when, and from which network "
    "address (with --relay, the relay's); never a launch or an app's name."
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
        return f"sent {count(report.attempts, 'time')}, no answer"
    if report.state == "accepted":
        return "the server has it"
    return f"{report.state}, {'maybe seen' if report.attempts else 'never sent'}"


def odds(epsilon: float) -> str:
    """What an ε means, for a person."""
    if epsilon > math.log(1e6):
        times = "over a million times: no real promise"
    else:
        times = f"{math.exp(epsilon):,.3g} times"
    return (
        f"Whoever saw all of it can raise the odds of any guess about what was launched here at "
        f"most {times}."
    )


def _day_and_time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%MZ")


COMMANDS: dict[str, Callable[..., Lines]] = {
    "init": init,
    "limits": limits,
    "log": log,
    "predict": predict,
    **{name: partial(mark, action=name) for name in MARKING},
    "sync": sync,
    "status": status,
    "import": import_launches,
    "export": export,
    "forget": forget,
}
