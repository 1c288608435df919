"""The table of the commands of `nextapp`, and their one form in Click.

Options stand under headings, a command has examples, an error is one line on standard error and an
exit code, no traceback. Every command imports this module, so it imports neither Rich nor NumPy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from nextapp import __version__
from nextapp.cli import STOPPED, say_stopped

F = TypeVar("F", bound=Callable[..., Any])

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
    "memory": Listed(
        _MEASURE, "memory", "Measure the cold starts of apps by what is kept in memory."
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
    "issue": Listed(
        _SERVE, "serve", "Enrol phones and sign tokens in a process of its own, beside a server."
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


_METAVARS = {
    "integer": "N",
    "integer range": "N",
    "float": "X",
    "float range": "X",
    "path": "FILE",
    "folder": "FOLDER",
}

# Which extra of pyproject.toml installs a library, by the name under which it is imported.
EXTRAS = {
    "click": "cli",
    "rich": "cli",
    "polars": "lab",
    "numba": "lab",
    "scipy": "lab",
    "matplotlib": "lab",
    "optuna": "lab",
    "dp_accounting": "lab",
    "ray": "ray",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "uvloop": "serve",
    "cryptography": "serve",
    "prometheus_client": "serve",
    "trustme": "serve",
    "flwr": "flower",
}


class Option(click.Option):
    """An option under a heading of the help, which shows its default, or the ``shown_default``."""

    def __init__(
        self,
        *names: Any,
        heading: str = "Options",
        shown_default: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*names, **{"show_default": True, **settings})
        self.heading = heading
        self.shown_default = shown_default
        if self.metavar is None:
            self.metavar = _METAVARS.get(self.type.name)

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra: dict[str, Any] = {**super().get_help_extra(ctx)}
        extra.pop("range", None)
        return extra | ({"default": self.shown_default} if self.shown_default else {})


class Command(click.Command):
    """A command: errors are one line, and its epilog has examples, one per line.

    ``extra`` is the extra that brings all libraries it needs, where that is more than one.
    """

    def __init__(self, *args: Any, extra: str | None = None, **settings: Any) -> None:
        settings = {"context_settings": {"help_option_names": ["-h", "--help"]}, **settings}
        super().__init__(*args, **settings)
        self.extra = extra

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with clear_errors(self.extra):  # an option may refuse its value
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with clear_errors(self.extra):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None and not isinstance(each, click.Argument):
                sections.setdefault(getattr(each, "heading", "Options"), []).append(record)
        _write_sections(sections, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.epilog:
            return
        examples = self.epilog.split("\n")
        with formatter.section(f"Example{'s' * (len(examples) > 1)}"):
            for example in examples:
                formatter.write(_wrapped(example, formatter))


class Group(Command, click.Group):
    """A group of such commands, under the headings that ``command_headings`` gives them."""

    command_class = Command
    command_headings: dict[str, str]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": True, **settings})
        self.command_headings = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, each in self.commands.items():
            heading = self.command_headings.get(name, "Commands")
            sections.setdefault(heading, []).append((name, each.get_short_help_str(limit=120)))
        _write_sections(sections, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: they stand before the options."""


def option(*names: str, heading: str = "Options", **settings: Any) -> Callable[[F], F]:
    """An option of a command, under a heading of its help."""
    return click.option(*names, cls=Option, heading=heading, **settings)


def command(example: str, name: str | None = None, **settings: Any) -> Callable[..., Command]:
    """A command with examples of its use, one per line."""
    return click.command(name, cls=Command, epilog=example, **settings)


def _write_sections(
    sections: dict[str, list[tuple[str, str]]], formatter: click.HelpFormatter
) -> None:
    for heading, rows in sections.items():
        with formatter.section(heading):
            formatter.write_dl(rows)


def _wrapped(example: str, formatter: click.HelpFormatter) -> str:
    """A command that can be copied: where it is too long, a backslash at the end of a line."""
    lines: list[str] = []
    for part in re.split(" (?=-)", example):  # an option stays beside its value
        if lines and len(lines[-1]) + len(part) < formatter.width - 6:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return "  " + " \\\n    ".join(lines) + "\n"


@contextmanager
def clear_errors(extra: str | None = None) -> Iterator[None]:
    """Bad input or a missing library is one clear line and exit code 1.

    ``extra`` is the extra that brings all a command needs, where that is more than one.
    """
    try:
        with missing_library(extra):
            yield
    except (ValueError, OSError, FloatingPointError) as error:
        show_error(_in_words(error))
        raise click.exceptions.Exit(1) from error


@contextmanager
def missing_library(extra: str | None = None) -> Iterator[None]:
    """An optional library that is not installed is one line that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise  # not an optional library: a broken install or a bug
        show_error(
            f"this needs {library}, which is not installed: "
            f"pip install 'nextapp[{extra or EXTRAS[library]}]'"
        )
        raise click.exceptions.Exit(1) from error


def show_error(text: str) -> None:
    word = "error:" if os.environ.get("NO_COLOR") else click.style("error:", fg="red", bold=True)
    click.echo(f"{word} {text}", err=True)


def _in_words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"there is no file {error.filename}."
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


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
            say_stopped()
            raise click.exceptions.Exit(STOPPED) from None


app = LazyGroup(
    name="nextapp",
    help="Predict the next app a person will launch, learnt across phones without any phone giving "
    "its history away.",
    epilog="nextapp demo\nnextapp COMMAND --help",
)
click.version_option(
    __version__, message="nextapp %(version)s", help="Print the version and exit."
)(app)
