"""``python -m nextapp.phone``: the phone's commands with the base install alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nextapp.phone import commands
from nextapp.phone.store import DAY, WINDOW


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(
        prog="python -m nextapp.phone",
        description="A phone to try by hand: it logs launches, predicts, and takes part in "
        "training without giving its history away.",
    )
    main.add_argument("--store", type=Path, default=Path("phone.db"), help="the phone's file")
    actions = main.add_subparsers(dest="action", required=True)

    init = actions.add_parser("init", help="set up a phone with its owner's limits")
    init.add_argument("--lifetime", type=float, required=True, help="ε it may spend in its life")
    init.add_argument("--per-day", type=float, required=True, help="ε it may spend in a day")
    init.add_argument("--days", type=float, default=WINDOW / DAY, help="days of launches it keeps")

    limits = actions.add_parser("limits", help="set the owner's limits anew")
    limits.add_argument("--lifetime", type=float, required=True)
    limits.add_argument("--per-day", type=float, required=True)
    limits.add_argument("--raise", dest="raise_them", action="store_true", help="allow larger ones")

    log = actions.add_parser("log", help="write launches down")
    log.add_argument("apps", nargs="+", metavar="APP")
    log.add_argument("--when", help="an ISO time or seconds since 1970; default: now")

    predict = actions.add_parser("predict", help="name the apps most likely launched next")
    predict.add_argument("-n", type=int, default=5)
    predict.add_argument("--when", help="as in log")
    predict.add_argument("--why", action="store_true", help="say what speaks for each")

    sync = actions.add_parser("sync", help="fetch the model, learn, send the round's report")
    sync.add_argument("--server", help="https://host:port; kept")
    sync.add_argument("--code", help="the operator's code, to join")
    sync.add_argument("--ca", type=Path, help="file with the only certificates to trust; kept")
    sync.add_argument("--proxy", help="http://host:port, or 'environment'")
    sync.add_argument("--trust-clock", action="store_true", help="vouch for this machine's clock")

    actions.add_parser("status", help="what is held, and what has ever left")

    learn = actions.add_parser("import", help="take launches from a CSV file")
    learn.add_argument("data", type=Path, metavar="DATA")

    export = actions.add_parser("export", help="everything held")
    export.add_argument("--format", dest="form", choices=("json", "csv"), default="json")
    export.add_argument("--out", type=Path)

    forget = actions.add_parser("forget", help="erase the history, or an app that is gone")
    forget.add_argument("--app")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    given = vars(parser().parse_args(arguments))
    try:
        lines, code = _ACTIONS[given.pop("action")](given.pop("store"), **given)
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


def _learn(store: Path, data: Path) -> Done:
    return commands.learn(store, commands.launches_of_csv(data)), 0


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
