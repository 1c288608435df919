"""Options that several commands share, and options from the fields of settings classes.

The phone's commands import this module too: what reads logs is imported when a log is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args, get_origin, get_type_hints

import click

from nextapp.cli.commands import F, option
from nextapp.settings import read_toml, setting

if TYPE_CHECKING:
    from nextapp.data.importers.content import DateOrder
    from nextapp.data.log import LaunchLog

LARGEST_EPSILON = 100.0
"""Above this an ε is a typing error: it would promise nothing."""


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
    """A privacy budget."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return check_epsilon(super().convert(value, param, ctx))


def check_epsilon(epsilon: float) -> float:
    """Refuse what is no privacy budget."""
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


def settings_of(
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
device = option("--device", default="cpu", help="cpu, or gpu (needs pip install 'nextapp[gpu]').")


@dataclass(frozen=True)
class LogOptions:
    """How a log file is read."""

    HEADING: ClassVar[str] = "Reading the log"
    user_column: str | None = setting(None, "Name of the column of users.")
    time_column: str | None = setting(None, "Name of the column of times.")
    app_column: str | None = setting(None, "Name of the column of apps.")
    time_unit: str = setting("s", "Unit of numeric times: s or ms.")
    skip_bad_rows: bool = setting(False, "Skip bad rows and say how many there were.")
    zone: str | None = setting(None, "Time zone of local times. Default: this machine's.")
    dates: str | None = setting(None, "Order of dates such as 3/4/2024: day/month or month/day.")
    leave_out: Path | None = setting(None, "What is not an app; see nextapp data not-apps.")

    def __post_init__(self) -> None:
        if self.time_unit not in ("s", "ms"):
            raise ValueError(f"--time-unit must be s or ms, got {self.time_unit!r}.")
        if self.dates not in (None, "day/month", "month/day"):
            raise ValueError(f"--dates must be day/month or month/day, got {self.dates!r}.")

    def read(self, source: str, seed: int) -> LaunchLog:
        """The log of a file or of synthetic phones; the seed is for the latter."""
        from nextapp.data.importers.table import Columns
        from nextapp.data.loading import load

        return load(
            source,
            seed=seed,
            columns=Columns(self.user_column, self.time_column, self.app_column),
            time_unit="ms" if self.time_unit == "ms" else "s",
            skip_bad_rows=self.skip_bad_rows,
            zone=self.zone,
            leave_out=self.leave_out,
            dates=cast("DateOrder | None", self.dates),
        )


log_options = options_of(LogOptions, "log_options")
