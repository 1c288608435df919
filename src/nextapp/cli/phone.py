"""`nextapp phone`: the commands of `nextapp.phone`, which has its own parser and few imports."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from argparse import ArgumentParser


def phone(context: typer.Context) -> None:
    """Try a phone by hand: log launches, predict, take part in training."""
    if "numpy" not in sys.modules:  # threads take longer to start than a phone computes
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from nextapp.phone.commands import main

    raise typer.Exit(main(context.args, prog="nextapp phone"))


def commands_for_shell() -> typer.Typer:
    """The phone's commands and options, as its own parser has them, for the shell to complete."""
    from nextapp.phone.commands import subparsers

    group = typer.Typer(add_completion=False)
    for name, parser in subparsers("nextapp phone").items():
        group.command(name, help=parser.description)(_with_options_of(parser))
    return group


def _with_options_of(parser: ArgumentParser) -> Callable[..., None]:
    """A function that does nothing and has the options of a parser."""

    def nothing(**given: Any) -> None:
        pass

    options = [action for action in parser._get_optional_actions() if action.dest != "help"]
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
