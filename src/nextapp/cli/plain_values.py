"""Values of options that need no validation, taken without Pydantic.

Some versions of Typer check every value, even None, by a Pydantic adapter. Importing Pydantic takes
as long as Typer itself, 0.1 s of processor time, which is a third of what a phone's command may
take. A value that is plainly of its type is taken as it is; all others still go through Typer.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_DIGITS = re.compile("[0-9]{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
_NOT_PLAIN = object()


def take_plain_values(command: Any) -> None:
    """Let the parameters of a command, and of the commands in it, take plain values themselves."""
    get_params = command.get_params

    def get_plain_params(ctx: Any) -> Any:
        parameters = get_params(ctx)
        for parameter in parameters:
            _take_plain_values(parameter)
        return parameters

    command.get_params = get_plain_params
    for inner in getattr(command, "commands", {}).values():
        take_plain_values(inner)


def _take_plain_values(parameter: Any) -> None:
    # Versions of Typer without type descriptors do not use Pydantic.
    if not hasattr(parameter, "type_descriptor") or "process_value" in vars(parameter):
        return
    validate = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        plain = _plain(parameter, value)
        if plain is _NOT_PLAIN:
            return validate(ctx, value)
        return parameter.callback(ctx, parameter, plain) if parameter.callback else plain

    parameter.process_value = process_value


def _plain(parameter: Any, value: Any) -> Any:
    """The value as Typer would give it, or _NOT_PLAIN where Typer must look at it."""
    kind, settings = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    if parameter.multiple or parameter.nargs != 1:
        plain = kind == list[str] and value and all(isinstance(one, str) for one in value)
        return list(value) if plain and settings.parser is None else _NOT_PLAIN
    if value is None:
        return _NOT_PLAIN if parameter.required else None
    if settings.parser is not None:
        return _NOT_PLAIN
    if kind is str:
        return value if isinstance(value, str) else _NOT_PLAIN
    if kind is Path:
        return Path(value) if _is_plain_path(settings, value) else _NOT_PLAIN
    return _plain_number(kind, settings, str(value))


def _plain_number(kind: Any, settings: Any, text: str) -> Any:
    form = {int: _DIGITS, float: _DECIMAL}.get(kind)
    if form is None or not form.fullmatch(text):
        return _NOT_PLAIN
    number = kind(text)
    too_small = settings.min is not None and number < settings.min
    too_large = settings.max is not None and number > settings.max
    return _NOT_PLAIN if too_small or too_large else number


def _is_plain_path(settings: Any, value: Any) -> bool:
    checked = settings.exists or settings.writable or settings.resolve_path or settings.allow_dash
    if checked or not (settings.file_okay and settings.dir_okay):
        return False
    return os.access(value, os.R_OK) or not os.path.exists(value)
