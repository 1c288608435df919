"""The command `nextapp` and the table of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import click

from nextapp import __version__
from nextapp.cli import stopping
from nextapp.cli.errors import missing_library
from nextapp.cli.forms import Group

_TRY, _PREDICT, _MEASURE, _SERVE = "To begin with", "Predict", "Measure", "Servers"


class Listed(NamedTuple):
    """Where a command is, and what the help of the program shows of it.

    ``help`` equals the first paragraph of the command's own help.
    """

    module: str
    attribute: str
    help: str
    heading: str

    def load(self) -> click.Command:
        """The command; imports its module."""
        found: click.Command = getattr(import_module(f"nextapp.cli.{self.module}"), self.attribute)
        return found


COMMANDS = {
    "demo": Listed(
        "data", "demo", "Measure all models on synthetic phones; write tables and plots.", _TRY
    ),
    "open": Listed(
        "data", "open_page", "Show a phone, a crowd and your own log in a browser.", _TRY
    ),
    "data": Listed(
        "data", "app", "Describe a launch log, convert one, or make a synthetic one.", _TRY
    ),
    "train": Listed(
        "predict", "train", "Train a model on all phones of a log and write it to a file.", _PREDICT
    ),
    "predict": Listed(
        "predict", "predict", "Predict the next apps of one phone with a model file.", _PREDICT
    ),
    "explain": Listed(
        "predict", "explain", "Explain one prediction: the reasons for each app.", _PREDICT
    ),
    "phone": Listed(
        "phone",
        "app",
        "Try a phone by hand: log launches, predict, take part in training.",
        _PREDICT,
    ),
    "evaluate": Listed(
        "evaluate",
        "evaluate",
        "Measure models on a launch log: HR, MRR and NDCG @1, 3, 5.",
        _MEASURE,
    ),
    "tune": Listed(
        "evaluate",
        "tune",
        "Choose the settings of mf and seqmf on launches before the test.",
        _MEASURE,
    ),
    "dynamic": Listed(
        "dynamic", "dynamic", "Predict a log cycle by cycle, and learn after each cycle.", _MEASURE
    ),
    "new-phones": Listed(
        "new_phones",
        "new_phones",
        "Measure new phones with and without what the crowd knows.",
        _MEASURE,
    ),
    "simulate": Listed(
        "simulate",
        "simulate",
        "Train app vectors on many synthetic phones, with privacy.",
        _MEASURE,
    ),
    "privacy": Listed(
        "privacy", "app", "Compare, audit, add up and attack privacy mechanisms.", _MEASURE
    ),
    "reproduce": Listed(
        "reproduce",
        "reproduce",
        "Reproduce the paper: tables, figures, a verdict on each claim.",
        _MEASURE,
    ),
    "serve": Listed(
        "serve", "serve", "Run a server that learns from the reports of phones.", _SERVE
    ),
    "enrol-code": Listed("admin", "enrol_code", "Issue an enrolment code for phones.", _SERVE),
    "admin": Listed(
        "admin", "app", "Look after a server: status, rounds, devices, codes, backup.", _SERVE
    ),
    "play-phones": Listed(
        "serve",
        "play_phones",
        "Play synthetic phones against a server.",
        _SERVE,
    ),
    "flower": Listed("flower", "app", "Run gateways in several regions, joined by Flower.", _SERVE),
}


RENAMED = {"coldstart": "new-phones"}
"""Earlier names of commands; they are refused with the present name."""


class LazyGroup(Group):
    """A group that imports a command when it is used; until then it has the name and help only."""

    def __init__(self, name: str, listed: Mapping[str, Listed], **settings: Any) -> None:
        super().__init__(name, **settings)
        self._listed = listed
        for each, row in listed.items():
            self.add_command(click.Command(each, help=row.help))
            self.command_headings[each] = row.heading

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Called to run a command, to show its help and to complete its options."""
        if args[0] in RENAMED:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {RENAMED[args[0]]!r}?")
        if args[0] in self._listed:
            # While the shell completes nothing may be printed.
            with suppress(ModuleNotFoundError) if ctx.resilient_parsing else missing_library():
                return args[0], self._listed[args[0]].load(), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Import and run a command; Ctrl-C in either ends it with a line that says how to go on."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            stopping.say_stopped()
            raise click.exceptions.Exit(stopping.CODE) from None


app = LazyGroup(
    "nextapp",
    COMMANDS,
    help="Predict the next app a person will launch, learnt across phones without any phone giving "
    "its history away.",
    epilog="nextapp demo\nnextapp COMMAND --help",
)
click.version_option(
    __version__, message="nextapp %(version)s", help="Print the version and exit."
)(app)
