"""Settings: conversion between frozen dataclasses and plain values of TOML, JSON or options.

And words for messages about what was given: unknown names, numbers of things.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

LARGEST_EPSILON = 100.0
"""Above this an ε is a typing error: odds may rise by a number with 43 digits."""


def setting(
    default: Any = MISSING,
    text: str = "",
    *,
    metavar: str | None = None,
    least: float | None = None,
    heading: str | None = None,
    option: str | None = None,
) -> Any:
    """A field of a settings class that is also an option of commands, with the help it shows.

    ``least`` is the smallest value and ``heading`` what it stands under in the help. The ``option``
    is named like the field if nothing else is said.
    """
    shown = {"metavar": metavar, "least": least, "heading": heading, "option": option}
    return field(default=default, metadata={"help": text, **shown})


def settings_from(
    kind: type[T],
    values: Mapping[str, Any],
    tables: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
) -> T:
    """An instance of this dataclass with these values; an unknown key or a wrong type is an error.

    ``tables`` are functions that read nested tables, by key.
    """
    hints = get_type_hints(kind)
    check_keys(values, [each.name for each in fields(kind)])  # type: ignore[arg-type]
    given = {}
    for key, value in values.items():
        if tables is not None and key in tables:
            given[key] = tables[key](check_type(value, dict, key))
        else:
            given[key] = _convert(value, hints[key], key)
    for each in fields(kind):  # type: ignore[arg-type]
        if each.default is MISSING and each.default_factory is MISSING and each.name not in given:
            raise ValueError(f"the settings name no {each.name}: give it by its option or file.")
    return kind(**given)


def check_keys(values: Mapping[str, Any], known: list[str], where: str = "") -> None:
    for key in values:
        if key not in known:
            raise ValueError(f"{where}{unknown('setting', key, known)}")


def check_type(value: Any, kind: type, where: str) -> Any:
    """The value, if it has this type; an int is accepted as a float, but a bool is not."""
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{where} must be true or false, got {value!r}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{where} must be of type {kind.__name__}, got {value!r}.")
    return value


def _convert(value: Any, hint: Any, where: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in parts:
            return None
        return _convert(value, next(part for part in parts if part is not NoneType), where)
    if origin is tuple:
        given = list(value) if isinstance(value, tuple) else check_type(value, list, where)
        return tuple(_convert(each, parts[0], where) for each in given)
    if origin is Literal:
        return check_type(value, str, where)
    if origin is not None:  # a table of any values
        return check_type(value, dict, where)
    return check_type(value, hint, where)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file; only its syntax is checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error


def as_toml(values: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in values.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


# --- Words for messages


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """An error message with the unknown name, the most similar known one, and all known ones.

    >>> unknown("model", "seqfm", ["mru", "seqmf"])
    "unknown model 'seqfm'; did you mean 'seqmf'? Known: mru, seqmf."
    """
    names = list(known)
    near = nearest(name, names, least=0.6)
    guess = f"; did you mean {near!r}?" if near else "."
    return f"unknown {kind} {name!r}{guess} Known: {', '.join(names)}."


def nearest(name: str, names: Iterable[str], least: float = 0.4) -> str | None:
    """The most similar of these names, in small or capital letters; None if none is similar.

    The first that begins with the name, else the most similar one, of likeness ``least`` or more.

    >>> nearest("UserID", ["time", "user_id"])
    'user_id'
    """
    by_lower = {other.lower(): other for other in names}
    begun = [other for other in by_lower if len(name) > 1 and other.startswith(name.lower())]
    close = begun or difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=least)
    return by_lower[close[0]] if close else None


def count(n: int, word: str, words: str = "") -> str:
    """A number of things in words.

    >>> count(1, "user"), count(1_200, "user"), count(2, "launch", "launches")
    ('1 user', '1,200 users', '2 launches')
    """
    return f"{n:,} {word if n == 1 else words or word + 's'}"
