"""The phone's commands: ``nextapp phone``, or ``python -m nextapp.phone`` with the base install."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nextapp.phone import commands
from nextapp.phone.limits import OPTIONS, Limits
from nextapp.phone.store import DAY, WINDOW

Launches = list[tuple[str, float, int]]
Reader = Callable[..., Launches]
"""Reads one person's launches from a log; the lab knows more formats than a phone does."""


def parser(prog: str = "python -m nextapp.phone") -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(
        prog=prog,
        description="A phone to try by hand: it logs launches, predicts, and takes part in "
        "training without giving its history away.",
    )
    main.add_argument("--store", type=Path, default=_default_store(), help=_STORE_HELP)
    actions = main.add_subparsers(dest="action", required=True, metavar="COMMAND")

    def add(name: str, words: str, example: str) -> argparse.ArgumentParser:
        action = actions.add_parser(
            name,
            help=words,
            description=f"{words[0].upper()}{words[1:]}.",
            epilog=f"Example: {prog} {name} {example}".rstrip(),
        )
        action.add_argument("--store", type=Path, default=argparse.SUPPRESS, help=_STORE_HELP)
        return action

    init = add("init", "set up a phone with its owner's limits", "--lifetime 10 --per-report 1")
    _add_limits(init, Limits())
    init.add_argument("--days", type=float, default=WINDOW / DAY, help="days of launches it keeps")
    init.add_argument(
        "--witness",
        type=Path,
        help="file outside of backups that shows if an old copy of the store is put back "
        "(default: beside the store)",
    )

    limits = add("limits", "show or change the owner's limits", "--lifetime 5")
    _add_limits(limits, None)
    limits.add_argument("--raise", dest="raise_them", action="store_true", help="allow more")

    log = add("log", "write launches down", "maps mail")
    log.add_argument("apps", nargs="+", metavar="APP")
    log.add_argument("--when", help="an ISO time or seconds since 1970 (default: now)")

    predict = add("predict", "name the apps most likely launched next", "-n 3 --why")
    predict.add_argument("-n", type=int, default=5, help="how many (default: 5)")
    predict.add_argument("--when", help="as in log")
    predict.add_argument("--why", action="store_true", help="say what speaks for each")

    sync = add(
        "sync",
        "fetch the model, and send the round's report after a random pause",
        "--server https://localhost:8443 --ca ca.pem --code CODE --now",
    )
    sync.add_argument("--server", help="https://host:port; kept")
    sync.add_argument("--code", help="the operator's code, to join")
    sync.add_argument("--ca", type=Path, help="file with the only certificates to trust; kept")
    sync.add_argument("--proxy", help="http://host:port, or 'environment' (default: none)")
    sync.add_argument("--trust-clock", action="store_true", help="vouch for this machine's clock")
    sync.add_argument(
        "--now",
        action="store_true",
        help="send at once, for trying by hand: the pause hides how long the report took to make",
    )

    add("status", "show what is held, and what has ever left", "")

    learn = add("import", "take one person's launches from a log", "launches.csv")
    learn.add_argument("data", metavar="DATA", help="a log file, or synthetic:… with the lab")
    learn.add_argument("--user", help="whose launches, where there are several people")
    for column in ("user", "time", "app"):
        learn.add_argument(f"--{column}-column", help=f"name of the {column} column")
    learn.add_argument("--time-unit", choices=("s", "ms"), help="of times that are numbers")
    learn.add_argument("--skip-bad-rows", action="store_true", help="leave bad rows out")

    export = add("export", "write everything held", "--out mine.json")
    export.add_argument("--format", dest="form", choices=("json", "csv"), default="json")
    export.add_argument("--out", type=Path, help="a file (default: the screen)")

    forget = add("forget", "erase the history, or an app that is gone", "--app maps")
    forget.add_argument("--app", help="only this app")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    return main


_STORE_HELP = "the phone's file (default: phone.db, or the variable NEXTAPP_PHONE)"


def _default_store() -> Path:
    return Path(os.environ.get("NEXTAPP_PHONE") or "phone.db")


def _add_limits(action: argparse.ArgumentParser, defaults: Limits | None) -> None:
    """The owner's limits as options; without defaults those not given stay as they are."""

    def words(text: str, name: str) -> str:
        return text if defaults is None else f"{text} (default: {getattr(defaults, name):g})"

    for name, text in (
        ("lifetime", "largest ε it may spend in its life"),
        ("per_day", "largest ε it may spend in a day"),
        ("per_report", "largest ε of one report"),
        ("hours", "hours that must lie between two reports"),
    ):
        option = f"--{name.replace('_', '-')}"
        action.add_argument(option, type=float, help=words(text, name))
    action.add_argument(
        "--mechanisms",
        type=lambda text: tuple(text.split(",")),
        help=f"what it may report by, with commas between; of {', '.join(OPTIONS)}"
        + ("" if defaults is None else f" (default: {','.join(defaults.mechanisms)})"),
    )


def main(
    arguments: Sequence[str] | None = None,
    *,
    prog: str = "python -m nextapp.phone",
    read_log: Reader | None = None,
) -> int:
    """Run a command; `read_log` reads other logs than the CSV files that a phone knows."""
    given = vars(parser(prog).parse_args(arguments))
    action, store = given.pop("action"), given.pop("store")
    if action == "import":
        given["read_log"] = read_log or _read_csv
    try:
        lines, code = _ACTIONS[action](store, **given)
    except commands.ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
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


def _learn(store: Path, data: str, user: str | None, read_log: Reader, **options: Any) -> Done:
    if not store.exists():
        raise ValueError(f"{store} is missing: set up a phone first, by init.")
    return commands.learn(store, read_log(data, user, **options)), 0


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
