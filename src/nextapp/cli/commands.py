"""The table of the commands of `nextapp`, their one form in Click, and the options they share.

Options stand under headings and may come from the fields of a settings class, a command has
examples, an error is one line on standard error and an exit code, no traceback. Every command
imports this module, the phone's too, so it imports neither Rich nor NumPy: what reads logs is
imported when a log is read.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from nextapp import __version__
from nextapp.cli import STOPPED, interrupt_was_lost, say_stopped
from nextapp.settings import LARGEST_EPSILON, read_toml, setting

if TYPE_CHECKING:
    from nextapp.data.log import LaunchLog

F = TypeVar("F", bound=Callable[..., Any])

HEADINGS = {
    "To begin with": {
        "demo": ("data", "Measure all models on synthetic phones; write a table and a plot."),
        "open": ("data", "Show a phone, a crowd and your own log in a browser."),
        "data": ("data", "Describe a launch log, convert one, or make a synthetic one."),
    },
    "Predict": {
        "train": ("predict", "Train a model on all phones of a log and write it to a file."),
        "predict": ("predict", "Predict the next apps of one phone with a model file."),
        "explain": ("predict", "Explain one prediction: the reasons for each app."),
        "phone": ("phone", "Try a phone by hand: log launches, predict, take part in training."),
    },
    "Measure": {
        "evaluate": ("evaluate", "Measure models on a launch log: HR, MRR and NDCG @1, 3, 5."),
        "tune": ("evaluate", "Choose the settings of mf and seqmf on launches before the test."),
        "dynamic": ("dynamic", "Predict a log cycle by cycle, and learn after each cycle."),
        "new-phones": ("new_phones", "Measure new phones with and without what the crowd knows."),
        "memory": ("memory", "Measure the cold starts of apps by what is kept in memory."),
        "simulate": ("simulate", "Train app vectors on many synthetic phones, with privacy."),
        "privacy": ("privacy", "Compare, audit, add up and attack privacy mechanisms."),
        "reproduce": (
            "reproduce",
            "Reproduce the paper: tables, figures, a verdict on each claim.",
        ),
    },
    "Servers": {
        "serve": ("serve", "Run a server that learns from the reports of phones."),
        "enrol-code": ("admin", "Issue an enrolment code for phones."),
        "admin": ("admin", "Look after a server: status, rounds, devices, codes, backup."),
        "issue": (
            "serve",
            "Enrol phones and sign tokens in a process of its own, beside a server.",
        ),
        "play-phones": ("serve", "Play synthetic phones against a server."),
        "flower": ("flower", "Run gateways in several regions, joined by Flower."),
    },
}
"""The commands as the help of the program shows them, under headings: the module that has each, and
its help, which equals the first paragraph of the command's own."""

COMMANDS = {name: module for rows in HEADINGS.values() for name, (module, _) in rows.items()}


def load(name: str) -> click.Command:
    module = import_module(f"nextapp.cli.{COMMANDS[name]}")
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
    except BrokenPipeError:
        raise  # nobody reads on: Click ends without a word
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
            f"install nextapp[{extra or EXTRAS[library]}] (docs/install.md)"
        )
        raise click.exceptions.Exit(1) from error


def show_error(text: str) -> None:
    word = "error:" if os.environ.get("NO_COLOR") else click.style("error:", fg="red", bold=True)
    click.echo(f"{word} {text}", err=True)


def _in_words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"there is no file {error.filename}."
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.filename or 'standard output or a temporary file'}: {error.strerror}."
    return str(error)


class _Output(click.Path):
    """What a command writes: refused before any work is done if it cannot be written.

    ``stdout``: - is standard output, which then has nothing else.
    """

    def __init__(self, *, is_file: bool, stdout: bool = False) -> None:
        super().__init__(path_type=Path)
        self.name = "path" if is_file else "folder"
        self._is_file = is_file
        self._stdout = stdout

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        path = Path(value)
        if self._stdout and value == "-":
            from nextapp.cli import screen  # with Rich, which a phone's commands do not need

            ctx.call_on_close(screen.silence(screen.out))
            return path
        if self._is_file and path.is_dir():
            raise ValueError(f"cannot write {path}: it is a folder. Give the name of a file.")
        _check_writable(path)
        return path


def _check_writable(path: Path) -> None:
    """By writing: what a folder allows is best known to the system."""
    try:
        if path.exists() and not path.is_dir():
            with path.open("ab"):
                return
        if not (path.exists() or path.parent.exists() or path.parent.parent.exists()):
            raise ValueError(f"cannot write {path}: there is no folder {path.parent.parent}.")
        there = path
        while not there.exists():
            there = there.parent
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"cannot write {path}: {reason}. Give another path.") from None


class _Epsilon(click.types.FloatParamType):
    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return epsilon_in_range(super().convert(value, param, ctx))


def epsilon_in_range(epsilon: float) -> float:
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise ValueError(
            f"--epsilon must be a number > 0 and at most {LARGEST_EPSILON:g}, got {epsilon:g}: "
            f"an ε above 10 or so protects nobody. For no privacy at all name the mechanism "
            f"identity, where a command takes it."
        )
    return epsilon


class _Several(click.ParamType[Any]):
    """Names or numbers separated by commas."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.name = "names" if kind is str else "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(self._kind(word.strip()) for word in value.split(",") if word.strip())
        except ValueError:
            raise ValueError(
                f"{param.opts[0]} takes numbers separated by commas, got {value!r}."
            ) from None


FILE, FOLDER = click.Path(path_type=Path), click.Path(path_type=Path)
FOLDER.name = "folder"
OUTPUT_FILE, OUTPUT_FOLDER = _Output(is_file=True), _Output(is_file=False)
EPSILON = _Epsilon()
NAMES, INTEGERS, NUMBERS = _Several(str), _Several(int), _Several(float)


def options_of(kind: type, into: str) -> Callable[..., Callable[..., None]]:
    """An option for every field of a settings class; the command gets them as one such object."""

    def build(given: dict[str, Any]) -> Any:
        return kind(**given)

    return _gathered(_options(kind, all_needed=True), into, build)


def options_and_file(
    kind: type, into: str, *names: str, **more: Any
) -> Callable[..., Callable[..., None]]:
    """Options for these fields of a settings class, and --settings FILE for all of its fields.

    The command gets a mapping: the values of the file, overridden by options that were given.
    ``more`` are options for further keys of the file.
    """
    described = _options(kind, all_needed=False)
    made = more | {name: described[name] for name in names}
    made["settings"] = option(
        "--settings",
        type=FILE,
        help="TOML settings file; options override it.",
        heading=_heading(kind),
    )

    def build(given: dict[str, Any]) -> dict[str, Any]:
        file = given.pop("settings", None)
        return (read_toml(file) if file else {}) | given

    return _gathered(made, into, build)


def _gathered(
    made: Mapping[str, Any], into: str, build: Callable[[dict[str, Any]], Any]
) -> Callable[..., Callable[..., None]]:
    """A decorator: the options by name, and one argument built of those that were given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def gathered(**given: Any) -> None:
            values = {name: given.pop(name) for name in made}
            given[into] = build({key: one for key, one in values.items() if one is not None})
            command(**given)

        for one in reversed(list(made.values())):
            gathered = one(gathered)
        return gathered

    return decorate


def _options(kind: type, *, all_needed: bool) -> dict[str, Any]:
    """The options of a settings class, by field: of those with a help text (`setting`)."""
    hints = get_type_hints(kind)
    return {
        each.name: _option_of(
            each,
            hints[each.name],
            heading=each.metadata["heading"] or _heading(kind),
            required=all_needed and each.default is MISSING,
        )
        for each in fields(kind)
        if "help" in each.metadata
    }


def _heading(kind: type) -> str:
    return getattr(kind, "HEADING", "Options")


def _option_of(each: Field[Any], hint: Any, **settings: Any) -> Any:
    shown = each.metadata
    base = next((part for part in get_args(hint) if part is not NoneType), hint)
    least = shown["least"]
    name = shown["option"] or f"--{each.name.replace('_', '-')}"
    settings |= {"help": shown["help"], "metavar": shown["metavar"]}
    if base is bool:
        return option(name, each.name, is_flag=True, default=None, **settings)
    if get_origin(hint) is tuple:
        value_type: Any = {int: INTEGERS, float: NUMBERS}.get(base, NAMES)
    elif each.name == "epsilon":
        value_type = EPSILON
    elif base is Path:
        value_type = FILE
    elif least is not None:
        value_type = {int: click.IntRange, float: click.FloatRange}[base](min=least)
    else:
        value_type = base if base in (int, float) else str
    return option(name, each.name, type=value_type, shown_default=_in_help(each), **settings)


def _in_help(each: Field[Any]) -> str | None:
    """The default as the help shows it; nothing where its text says what happens without."""
    if each.default in (MISSING, None, "", ()) or "Default:" in each.metadata["help"]:
        return None
    several = each.default if isinstance(each.default, tuple) else (each.default,)
    return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in several)


def output(name: str, kind: click.Path, text: str, **settings: Any) -> Callable[[F], F]:
    """An option that names what a command writes, under a heading of its own in the help."""
    return option(name, type=kind, help=text, heading="Output", **settings)


def plot_file(text: str) -> Callable[[F], F]:
    """--plot: the two files of a plot, by their name without its ending."""
    return output("--plot", OUTPUT_FOLDER, f"{text}, as FILE.svg and FILE.png.", metavar="FILE")


source = click.argument(
    "source",
    metavar="DATA",
    help="A log file or export, - for stdin, or synthetic:phones=50,apps=40.",
)
_json = _Output(is_file=True, stdout=True)


def _be_quiet(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        from nextapp.cli import screen

        ctx.call_on_close(screen.silence(screen.err))


quiet = option(
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_be_quiet,
    help="Show results and errors only.",
    heading="Output",
)


def json_file(command: F) -> F:
    """--json and --quiet, of every command that has a result."""
    text = "Also write the result as JSON; - prints nothing else."
    return output("--json", _json, text)(quiet(command))


seed = option("--seed", type=int, default=0, help="Random seed.")
device = option("--device", default="cpu", help="cpu, or gpu (needs the extra nextapp[gpu]).")


ZONE_HELP = "Time zone of local times. Default: of tables UTC, else this machine's."


@dataclass(frozen=True)
class LogOptions:
    """How a log file is read."""

    HEADING: ClassVar[str] = "Reading the log"
    user_column: str | None = setting(None, "Name of the column of users.")
    time_column: str | None = setting(None, "Name of the column of times.")
    app_column: str | None = setting(None, "Name of the column of apps.")
    skip_bad_rows: bool = setting(False, "Skip bad rows and say how many there were.")
    zone: str | None = setting(None, ZONE_HELP)
    dates: str | None = setting(None, "Order of dates such as 3/4/2024: day/month or month/day.")
    leave_out: Path | None = setting(None, "What is not an app; see nextapp data not-apps.")

    def read(self, source: str, seed: int = 0) -> LaunchLog:
        """The log of a file or of synthetic phones; the seed is for the latter."""
        from nextapp.data.loading import read_log

        given: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return read_log(source, seed=seed, **given)


log_options = options_of(LogOptions, "log_options")


class LazyGroup(Group):
    """A group that imports a command when it is used; until then it has the name and help only."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for heading, rows in HEADINGS.items():
            for name, (_, words) in rows.items():
                self.add_command(click.Command(name, help=words))
                self.command_headings[name] = heading

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Called to run a command, to show its help and to complete its options."""
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
            stopped = isinstance(error.__cause__ or error, KeyboardInterrupt)
            if not (stopped or interrupt_was_lost.is_set()):
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
