"""The phone's commands: ``nextapp phone``, or ``python -m nextapp.phone`` with the base install."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nextapp.phone import commands
from nextapp.phone.limits import OPTIONS, PREDICTORS, Limits
from nextapp.phone.store import DAY, WINDOW

Launches = list[tuple[str, float, int]]
Reader = Callable[..., Launches]
"""Reads one person's launches from a table; the lab knows more kinds than a phone does."""


class Parser(argparse.ArgumentParser):
    """Help in the form of all commands of nextapp: usage in one line, headings, an example."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Form, add_help=False, allow_abbrev=False, **settings)
        self._positionals.title = "Arguments"
        self._optionals.title = "Options"
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)

    def optional_actions(self) -> list[argparse.Action]:
        """The options, without arguments and commands."""
        return [action for action in self._actions if action.option_strings]

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}. Try: {self.prog} --help\n")


class _Form(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        width = max(60, min(100, shutil.get_terminal_size().columns)) - 1
        super().__init__(prog, max_help_position=24, width=width)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: ")

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        if isinstance(action, argparse._SubParsersAction):
            return textwrap.indent(textwrap.dedent(text.partition("\n")[2]), "  ")
        return text

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("Example"):
            return super()._fill_text(text, width, indent)
        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


def parser(prog: str = "python -m nextapp.phone") -> Parser:
    """The parser of all commands of a phone."""
    return _parsers(prog)[0]


def subparsers(prog: str = "python -m nextapp.phone") -> dict[str, Parser]:
    """The parser of each command."""
    return _parsers(prog)[1]


def _parsers(prog: str) -> tuple[Parser, dict[str, Parser]]:
    main = Parser(
        prog=prog,
        usage=f"{prog} [OPTIONS] COMMAND [ARGS]...",
        description="Try a phone by hand: log launches, predict, take part in training. A phone "
        "is one file.",
        epilog=f"Examples:\n  {prog} init\n  {prog} log maps mail\n  {prog} predict --why",
    )
    main.add_argument("--store", metavar="FILE", type=Path, default=_default_store(),
                      help=_STORE_HELP)  # fmt: skip
    actions = main.add_subparsers(
        dest="action", required=True, metavar="COMMAND", title="Commands", parser_class=Parser
    )
    found: dict[str, Parser] = {}

    def add(name: str, words: str, example: str, arguments: str = "") -> Parser:
        action: Parser = actions.add_parser(
            name,
            help=words,
            prog=f"{prog} {name}",
            usage=f"{prog} {name} [OPTIONS] {arguments}".rstrip(),
            description=words,
            epilog=f"Example:\n  {prog} {name} {example}".rstrip(),
        )
        action.add_argument("--store", metavar="FILE", type=Path, default=argparse.SUPPRESS,
                            help=_STORE_HELP)  # fmt: skip
        found[name] = action
        return action

    init = add("init", "Set up a phone with its owner's limits.", "--lifetime 10 --per-report 1")
    _add_limits(init, Limits())
    init.add_argument(
        "--predictor",
        metavar="NAME",
        choices=tuple(PREDICTORS),
        default="nextapp",
        help="nextapp (its own habits and the crowd) or seqmf (the paper's model, which needs a "
        "server that trains it). [default: nextapp]",
    )
    init.add_argument(
        "--days",
        metavar="DAYS",
        type=float,
        default=WINDOW / DAY,
        help=f"Days of launches it keeps. [default: {WINDOW / DAY:g}]",
    )
    init.add_argument(
        "--witness",
        metavar="FILE",
        type=Path,
        help="File outside of backups that shows if an old copy of the phone's file is put back. "
        "Default: beside it.",
    )

    limits = add("limits", "Show or change the owner's limits.", "--lifetime 5")
    _add_limits(limits, None)
    limits.add_argument(
        "--raise", dest="raise_them", action="store_true", help="Allow more than before."
    )

    log = add("log", "Log launches of apps.", "maps mail", "APP...")
    log.add_argument("apps", nargs="+", metavar="APP", help="Name of an app that was launched.")
    log.add_argument("--when", metavar="TIME", help="ISO time or seconds since 1970. Default: now.")

    predict = add("predict", "Predict the apps launched next.", "-n 3 --why")
    predict.add_argument("-n", metavar="N", type=_at_least_one, default=5,
                         help="Number of apps to name. [default: 5]")  # fmt: skip
    predict.add_argument("--when", metavar="TIME", help="Time of the prediction, as in log.")
    predict.add_argument("--why", action="store_true", help="Show the reasons for each app.")
    predict.add_argument(
        "--threshold", metavar="X", type=float, help="Only apps with at least this probability."
    )

    sync = add(
        "sync",
        "Fetch the model, and send a report after a random pause.",
        "--server https://localhost:8443 --code CODE --now",
    )
    sync.add_argument("--server", metavar="URL", help="https://host:port; remembered.")
    sync.add_argument("--code", metavar="CODE", help="Enrolment code of the operator, to join.")
    sync.add_argument(
        "--ca", metavar="FILE", type=Path, help="The only certificates to trust, PEM; remembered."
    )
    sync.add_argument(
        "--proxy", metavar="URL", help="http://host:port, or environment. Default: none."
    )
    sync.add_argument(
        "--trust-clock", action="store_true", help="Say that this machine's clock is right."
    )
    sync.add_argument(
        "--now",
        action="store_true",
        help="Send at once, to try it: the pause hides how long the report took to make.",
    )

    add("status", "Show what is stored, and what has ever been sent.", "")

    learn = add(
        "import",
        "Take launches from a log, or from what a phone exports.",
        "usagestats.txt",
        "DATA",
    )
    learn.add_argument(
        "data", metavar="DATA", help="A log file; with nextapp[lab] also synthetic:…"
    )
    learn.add_argument(
        "--user", metavar="NAME", help="Person whose launches to use, if there are several."
    )
    learn.add_argument(
        "--zone", metavar="NAME", help="Time zone of local times. Default: this machine's."
    )
    learn.add_argument(
        "--leave-out", metavar="FILE", type=Path, help="List of entries that are not apps."
    )
    for column in ("user", "time", "app"):
        learn.add_argument(
            f"--{column}-column", metavar="NAME", help=f"Name of the column of {column}s."
        )
    learn.add_argument("--time-unit", choices=("s", "ms"), help="Unit of numeric times: s or ms.",
                       metavar="UNIT")  # fmt: skip
    learn.add_argument("--skip-bad-rows", action="store_true", help="Skip bad rows.")

    export = add("export", "Write everything that is stored.", "--out mine.json")
    export.add_argument(
        "--format",
        dest="form",
        metavar="FORM",
        choices=("json", "csv"),
        default="json",
        help="json, or csv (launches only). [default: json]",
    )
    export.add_argument(
        "--out", metavar="FILE", type=Path, help="File to write. Default: standard output."
    )

    forget = add("forget", "Erase the history, or one app.", "--app maps")
    forget.add_argument("--app", metavar="APP", help="Only this app.")
    forget.add_argument("--yes", action="store_true", help="Do not ask.")
    return main, found


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


_STORE_HELP = "The phone's file. Default: $NEXTAPP_PHONE or phone.db."


def _default_store() -> Path:
    return Path(os.environ.get("NEXTAPP_PHONE") or "phone.db")


def _add_limits(action: argparse.ArgumentParser, defaults: Limits | None) -> None:
    """The owner's limits as options; without defaults those not given stay as they are."""

    def words(text: str, name: str) -> str:
        return text if defaults is None else f"{text} [default: {getattr(defaults, name):g}]"

    for name, text in (
        ("lifetime", "Largest ε it may spend in its life."),
        ("per_day", "Largest ε it may spend in a day."),
        ("per_report", "Largest ε of one report."),
        ("hours", "Hours between two reports, at least."),
    ):
        option = f"--{name.replace('_', '-')}"
        action.add_argument(option, metavar="X", type=float, help=words(text, name))
    action.add_argument(
        "--mechanisms",
        type=lambda text: tuple(text.split(",")),
        metavar="NAMES",
        help=f"Mechanisms it may report by, of {', '.join(OPTIONS)}."
        + ("" if defaults is None else f" Default: all but {_left_out(defaults)}."),
    )


def _left_out(limits: Limits) -> str:
    return " and ".join(name for name in OPTIONS if name not in limits.mechanisms)


def main(
    arguments: Sequence[str] | None = None,
    *,
    prog: str = "python -m nextapp.phone",
    read_log: Reader | None = None,
) -> int:
    """Run a command; `read_log` reads other tables than the CSV files that a phone knows."""
    given = vars(parser(prog).parse_args(arguments))
    action, store = given.pop("action"), given.pop("store")
    if action == "import":
        given["read_log"] = read_log or _read_csv
    try:
        lines, code = _ACTIONS[action](store, **given)
    except commands.ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped. Run the command again to continue.", file=sys.stderr)
        return 130
    for line in lines:
        print(line)
    return code


Done = tuple[commands.Lines, int]


def _plainly(command: Callable[..., commands.Lines]) -> Callable[..., Done]:
    return lambda store, **given: (command(store, **given), 0)


def _sync(store: Path, **given: Any) -> Done:
    synced, lines = commands.sync(store, **given)
    return lines, 0 if commands.is_sound(synced) else 1


def _read_csv(data: str, user: str | None, **options: Any) -> Launches:
    if any(options.values()):
        raise ValueError(
            "the base install reads CSV files with the columns timestamp and app_name only; for "
            "other columns install nextapp[lab]."
        )
    return commands.launches_of_csv(Path(data), user)


def _learn(
    store: Path,
    data: str,
    user: str | None,
    read_log: Reader,
    zone: str | None,
    leave_out: Path | None,
    **options: Any,
) -> Done:
    if not store.exists():
        raise ValueError(f"{store} is missing: set up a phone first, by init.")
    found = None
    if not any(options.values()) and Path(data).is_file():
        found = commands.launches_of_export(Path(data), user, zone, leave_out)
        if found is None and commands.is_plain_csv(Path(data)):
            found = commands.launches_of_csv(Path(data), user, zone), []
    launches, lines = found or (read_log(data, user, **options), [])
    return [*lines, *commands.learn(store, launches)], 0


def _export(store: Path, form: str, out: Path | None) -> Done:
    text = commands.export(store, form)
    if out is None:
        return [text], 0
    out.write_text(text, encoding="utf-8")
    return [], 0


def _forget(store: Path, app: str | None, yes: bool) -> Done:
    if app is None and not yes:
        print(f"Erase the whole history of {store}? Type 'yes': ", end="", flush=True)
        if sys.stdin.readline().strip() != "yes":
            return ["Nothing was erased."], 1
    return commands.forget(store, app), 0


_ACTIONS: dict[str, Callable[..., Done]] = {
    "init": _plainly(commands.init),
    "limits": _plainly(commands.limits),
    "log": _plainly(commands.log),
    "predict": _plainly(commands.predict),
    "sync": _sync,
    "status": _plainly(commands.status),
    "import": _learn,
    "export": _export,
    "forget": _forget,
}


if __name__ == "__main__":
    sys.exit(main())
