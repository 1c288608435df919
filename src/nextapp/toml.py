"""Settings as TOML text: read from a file, written beside a result."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file; only its syntax is checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error


def as_toml(values: Mapping[str, Any]) -> str:
    """Settings as a TOML file that gives them back."""
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
