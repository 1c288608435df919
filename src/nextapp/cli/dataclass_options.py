"""Options of a command from the fields of a dataclass.

    @dataclass(frozen=True)
    class LogOptions:
        user_column: Annotated[str | None, "Name of the user column."] = None

    @expand_options
    def describe(source: Source, log: LogOptions) -> None: ...

The command has the option --user-column and is called with one `LogOptions`. A bool is a flag
without a --no- form; a field without a default is an option that must be given. In the help the
options stand under the ``HEADING`` of the dataclass, where it has one. A field that needs more than
a help text, such as a bound or a metavar, has a ``typer.Option(help=…)`` in its place.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from nextapp.cli.errors import clear_errors


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every field of the dataclasses among its parameters."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind) and isinstance(kind, type):
            groups[parameter.name] = kind
            parameters += option_parameters(kind)
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=kind, kind=keyword))

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        with clear_errors():  # a dataclass may refuse its values
            for name, kind in groups.items():
                given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    signature = inspect.Signature(parameters)  # refuses two parameters of one name
    vars(expanded)["__signature__"] = signature
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded


def option_parameters(kind: type) -> list[inspect.Parameter]:
    """A parameter with a Typer option for every field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return [_option_parameter(kind, field, hints[field.name]) for field in fields(kind)]


def _option_parameter(kind: type, field: Field[Any], hint: Any) -> inspect.Parameter:
    where = f"{kind.__name__}.{field.name}"
    base, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    given = next((note for note in notes if isinstance(note, OptionInfo)), None)
    option: OptionInfo = typer.Option() if given is None else copy.copy(given)
    option.help = next((note for note in notes if isinstance(note, str)), option.help)
    if not (option.help and option.help.strip()):
        raise TypeError(f'{where} needs a help text: Annotated[type, "Help text."], got {hint!r}.')
    if field.default_factory is not MISSING:
        raise TypeError(f"{where} must have a plain default or none, got a default_factory.")
    needed = field.default is MISSING
    if base is bool:
        option.param_decls = (f"--{field.name.replace('_', '-')}",)
    option.show_default = not needed and field.default is not None
    option.rich_help_panel = getattr(kind, "HEADING", None)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else field.default,
        annotation=Annotated[base, option],
    )
