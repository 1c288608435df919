"""`nextapp phone`: the commands of `nextapp.phone`, whose own parser reads the arguments.

Help and completion are made from the parser's arguments and options.
"""

from __future__ import annotations

import os
import sys
from argparse import Action, ArgumentParser

import click

from nextapp.cli.commands import Command, Group, Option

PROGRAM = "nextapp phone"


class PhoneGroup(Group):
    """The commands of a phone: arguments go to its parser as they are, except --help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing or not args or {"-h", "--help"} & {*args}:
            return super().parse_args(ctx, args)
        ctx.obj = args
        return []

    def invoke(self, ctx: click.Context) -> None:
        if ctx.obj is None:
            super().invoke(ctx)
        from nextapp.phone.commands import main

        ctx.exit(main(ctx.obj, prog=PROGRAM))


def _parameters(parser: ArgumentParser) -> list[click.Parameter]:
    actions = [*parser._get_positional_actions(), *parser._get_optional_actions()]
    return [_parameter(each) for each in actions if each.dest not in ("help", "action")]


def _parameter(action: Action) -> click.Parameter:
    if action.option_strings:
        return Option(
            action.option_strings,
            is_flag=action.nargs == 0,
            metavar=action.metavar,
            help=action.help,
        )
    several = action.nargs == "+"
    metavar = f"{action.metavar}{'...' * several}"
    return click.Argument(
        [action.dest], nargs=-1 if several else 1, metavar=metavar, help=action.help
    )


def _examples(parser: ArgumentParser) -> str:
    return "\n".join(line.strip() for line in (parser.epilog or "").split("\n")[1:])


def _phone() -> PhoneGroup:
    if "numpy" not in sys.modules:  # threads take longer to start than a phone computes
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from nextapp.phone.commands import parsers

    whole, commands = parsers(PROGRAM)
    words = (whole.description or "").replace("\n", "\n\n")
    group = PhoneGroup("phone", help=words, params=_parameters(whole), epilog=_examples(whole))
    for name, each in commands.items():
        group.add_command(
            Command(name, help=each.description, params=_parameters(each), epilog=_examples(each))
        )
    return group


app = _phone()
