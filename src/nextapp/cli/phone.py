"""`nextapp phone`: the commands of `nextapp.phone`, which has its own parser and few imports."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextapp.cli.options import LogOptions

if TYPE_CHECKING:
    from nextapp.phone.__main__ import Parser


def phone(context: typer.Context) -> None:
    """Try a phone by hand: log launches, predict, take part in training."""
    if "numpy" not in sys.modules:  # threads take longer to start than a phone computes
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from nextapp.phone.__main__ import main

    raise typer.Exit(main(context.args, prog="nextapp phone", read_log=_read_log))


def commands_for_shell() -> typer.Typer:
    """The phone's commands and options, as its own parser has them, for the shell to complete."""
    from nextapp.phone.__main__ import subparsers

    group = typer.Typer(add_completion=False)
    for name, parser in subparsers("nextapp phone").items():
        group.command(name, help=parser.description)(_with_options_of(parser))
    return group


def _with_options_of(parser: Parser) -> Callable[..., None]:
    """A function that does nothing and has the options of a parser."""

    def nothing(**given: Any) -> None:
        pass

    options = [action for action in parser.optional_actions() if action.dest != "help"]
    kinds = {
        action.dest: Annotated[
            bool if action.nargs == 0 else str,
            typer.Option(*action.option_strings, help=action.help),
        ]
        for action in options
    }
    vars(nothing)["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
            for name, kind in kinds.items()
        ]
    )
    nothing.__annotations__ = kinds
    return nothing


def _read_log(source: str, user: str | None, **options: Any) -> list[tuple[str, float, int]]:
    """One person's launches from any log that the lab can read."""
    given = {name: value for name, value in options.items() if value is not None}
    log = LogOptions(**given).read(source, seed=0)
    if user is None and log.n_users != 1:
        raise ValueError(
            f"{source} holds the launches of {log.n_users:,} people: choose one by --user, for "
            f"example --user {log.users[0]}."
        )
    if user is not None and user not in log.users:
        raise ValueError(f"{source} has no user {user!r}; one there is {log.users[0]!r}.")
    one = 0 if user is None else log.users.index(user)
    part = slice(*log.starts[one : one + 2])
    return [
        (log.apps[app], when / 1000, 0)
        for app, when in zip(log.app[part], log.time[part].tolist(), strict=True)
    ]
