"""The help of a command, in one form for all: what it does, options in groups, examples.

It is plain text without frames, so that all options of a command fit a screen, and needs no
library but the standard one.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_NAMES_AT_MOST = 24
_CONTINUED = " \\"
_METAVARS: Mapping[Any, str] = {
    int: "N", float: "X", Path: "FILE", "integer": "N", "integer range": "N", "float": "X",
    "float range": "X", "path": "FILE",
}  # fmt: skip


def set_help_form(command: Any) -> None:
    """Let a command, and the commands in it, show their help in this form."""

    def format_help(ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(ctx, command))

    command.format_help = format_help
    for inner in getattr(command, "commands", {}).values():
        set_help_form(inner)


def help_text(ctx: Any, command: Any, groups: Mapping[str, Iterable[str]] | None = None) -> str:
    """The help of a command; `groups` says under which headings the commands in it stand."""
    width = max(60, min(100, shutil.get_terminal_size().columns)) - 1
    parameters = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    lines = [_usage(ctx, command, arguments), ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), width), ""]
    sections: dict[str, list[tuple[str, str]]] = {}
    for each in arguments:
        if getattr(each, "help", None):
            sections.setdefault("Arguments", []).append((_metavar(each), each.help))
    for heading, names in (groups or {"Commands": getattr(command, "commands", {})}).items():
        rows = [(name, command.commands[name].get_short_help_str(limit=120)) for name in names]
        sections[heading] = rows
    for each in parameters:
        if each.param_type_name == "option":
            heading = getattr(each, "rich_help_panel", None) or "Options"
            sections.setdefault(heading, []).append((_names(each), _words(each)))
    for heading, rows in sections.items():
        lines += _section(heading, rows, width)
    if command.epilog:
        examples = command.epilog.removeprefix("Example: ").split("\n")
        lines += [f"Example{'s' * (len(examples) > 1)}:"]
        for example in examples:
            lines += _command_line(example, width)
    return "\n".join(lines).rstrip() + "\n"


def _usage(ctx: Any, command: Any, arguments: Iterable[Any]) -> str:
    words = [_metavar(each) if each.required else f"[{_metavar(each)}]" for each in arguments]
    inside = ["COMMAND [ARGS]..."] if hasattr(command, "commands") else []
    return " ".join([f"Usage: {ctx.command_path}", "[OPTIONS]", *words, *inside])


def _metavar(parameter: Any) -> str:
    several = "..." if parameter.nargs != 1 or getattr(parameter, "multiple", False) else ""
    if parameter.metavar:
        return f"{parameter.metavar}{several}"
    if parameter.param_type_name == "argument":
        return f"{parameter.name.upper()}{several}"
    described = getattr(parameter, "type_descriptor", None)
    if described is not None:
        return f"{_METAVARS.get(described.annotation, 'TEXT')}{several}"
    return f"{_METAVARS.get(parameter.type.name, 'TEXT')}{several}"


def _names(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        return f"{names}, {', '.join(option.secondary_opts)}"
    return names if option.is_flag else f"{names} {_metavar(option)}"


def _words(option: Any) -> str:
    words = option.help or ""
    if option.required:
        return f"{words} [required]"
    shown = option.show_default and option.default not in (None, "") and not option.is_flag
    return f"{words} [default: {option.default}]" if shown else words


def _section(heading: str, rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    rows = list(rows)
    if not rows:
        return []
    longest = max((len(name) for name, _ in rows if len(name) <= _NAMES_AT_MOST), default=0)
    at = longest + 4
    lines = [f"{heading}:"]
    for name, words in rows:
        wrapped = _wrap(words, width - at) or [""]
        if len(name) > longest:
            lines += [f"  {name}", *(" " * at + line for line in wrapped)]
        else:
            lines += [f"  {name:<{longest}}  {wrapped[0]}".rstrip()]
            lines += [" " * at + line for line in wrapped[1:]]
    return [*lines, ""]


def _wrap(words: str, width: int) -> list[str]:
    """Lines of text; a list of names without spaces is broken after a comma, never in a name."""
    pieces = [
        word.replace(",", ",\0") if len(word) > width // 2 else word for word in words.split()
    ]
    lines: list[str] = []
    for piece in pieces:
        for number, part in enumerate(piece.split("\0")):
            space = "" if number else " "
            if lines and len(lines[-1]) + len(space) + len(part) <= width:
                lines[-1] += space + part
            else:
                lines.append(part)
    return lines


def _command_line(text: str, width: int) -> list[str]:
    """A command that can be copied: where it is too long, a backslash at the end of a line."""
    lines: list[str] = []
    for part in re.split(" (?=-)", text):  # an option stays beside its value
        if lines and len(lines[-1]) + len(part) < width - 6:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return [
        f"  {'' if number == 0 else '  '}{line}{_CONTINUED if number < len(lines) - 1 else ''}"
        for number, line in enumerate(lines)
    ]
