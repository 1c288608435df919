"""The command `nextapp` and the table of its commands."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import click

from nextapp import __version__
from nextapp.cli import stopping
from nextapp.cli.forms import Group, missing_library

_TRY, _PREDICT, _MEASURE, _SERVE = "To begin with", "Predict", "Measure", "Servers"


class Listed(NamedTuple):
    """What the help of the program shows of a command, and the module that has it by its name.

    ``help`` equals the first paragraph of the command's own help.
    """

    heading: str
    module: str
    help: str


COMMANDS = {
    "demo": Listed(
        _TRY, "data", "Measure all models on synthetic phones; write a table and a plot."
    ),
    "open": Listed(_TRY, "data", "Show a phone, a crowd and your own log in a browser."),
    "data": Listed(_TRY, "data", "Describe a launch log, convert one, or make a synthetic one."),
    "train": Listed(
        _PREDICT, "predict", "Train a model on all phones of a log and write it to a file."
    ),
    "predict": Listed(_PREDICT, "predict", "Predict the next apps of one phone with a model file."),
    "explain": Listed(_PREDICT, "predict", "Explain one prediction: the reasons for each app."),
    "phone": Listed(
        _PREDICT, "phone", "Try a phone by hand: log launches, predict, take part in training."
    ),
    "evaluate": Listed(
        _MEASURE, "evaluate", "Measure models on a launch log: HR, MRR and NDCG @1, 3, 5."
    ),
    "tune": Listed(
        _MEASURE, "evaluate", "Choose the settings of mf and seqmf on launches before the test."
    ),
    "dynamic": Listed(
        _MEASURE, "dynamic", "Predict a log cycle by cycle, and learn after each cycle."
    ),
    "new-phones": Listed(
        _MEASURE, "new_phones", "Measure new phones with and without what the crowd knows."
    ),
    "simulate": Listed(
        _MEASURE, "simulate", "Train app vectors on many synthetic phones, with privacy."
    ),
    "privacy": Listed(_MEASURE, "privacy", "Compare, audit, add up and attack privacy mechanisms."),
    "reproduce": Listed(
        _MEASURE, "reproduce", "Reproduce the paper: tables, figures, a verdict on each claim."
    ),
    "serve": Listed(_SERVE, "serve", "Run a server that learns from the reports of phones."),
    "enrol-code": Listed(_SERVE, "admin", "Issue an enrolment code for phones."),
    "admin": Listed(
        _SERVE, "admin", "Look after a server: status, rounds, devices, codes, backup."
    ),
    "play-phones": Listed(_SERVE, "serve", "Play synthetic phones against a server."),
    "flower": Listed(_SERVE, "flower", "Run gateways in several regions, joined by Flower."),
}

RENAMED = {"coldstart": "new-phones"}
"""Earlier names of commands; they are refused with the present name."""


def load(name: str) -> click.Command:
    """The command of this name, from its module."""
    module = import_module(f"nextapp.cli.{COMMANDS[name].module}")
    found = (each for each in vars(module).values() if isinstance(each, click.Command))
    return next(each for each in found if each.name == name)


class LazyGroup(Group):
    """A group that imports a command when it is used; until then it has the name and help only."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, row in COMMANDS.items():
            self.add_command(click.Command(name, help=row.help))
            self.command_headings[name] = row.heading

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Called to run a command, to show its help and to complete its options."""
        if args[0] in RENAMED:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {RENAMED[args[0]]!r}?")
        if args[0] in COMMANDS:
            # While the shell completes nothing may be printed.
            with suppress(ModuleNotFoundError) if ctx.resilient_parsing else missing_library():
                return args[0], load(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Import and run a command; Ctrl-C ends it with a line that says how to continue."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, RuntimeError) as error:
            # Up to Python 3.11, what happens while a class is made is wrapped: Ctrl-C in an import.
            if not isinstance(error.__cause__ or error, KeyboardInterrupt):
                raise
            stopping.say_stopped()
            raise click.exceptions.Exit(stopping.CODE) from None


app = LazyGroup(
    name="nextapp",
    help="Predict the next app a person will launch, learnt across phones without any phone giving "
    "its history away.",
    epilog="nextapp demo\nnextapp COMMAND --help",
)
click.version_option(
    __version__, message="nextapp %(version)s", help="Print the version and exit."
)(app)
