"""Commands and options of Click, with help in one form: what it does, options in groups, examples.

The help is plain text without frames, so that all options of a command fit a screen.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from nextapp.cli.errors import clear_errors

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_AT_MOST = 24
_CONTINUED = " \\"
_METAVARS = {"integer": "N", "integer range": "N", "float": "X", "float range": "X", "path": "FILE"}


class Option(click.Option):
    """An option under a heading of the help."""

    def __init__(self, *names: Any, heading: str = "Options", **settings: Any) -> None:
        super().__init__(*names, **{"show_default": True, **settings})
        self.heading = heading


class Command(click.Command):
    """A command: errors are one line, and its epilog has examples, one per line.

    ``extra`` is the extra that brings all libraries it needs, where that is more than one.
    """

    def __init__(self, *args: Any, extra: str | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.extra = extra

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with clear_errors(self.extra):  # an option may refuse its value
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with clear_errors(self.extra):
            return super().invoke(ctx)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_text(ctx, self))


class Group(click.Group):
    """A group of such commands. A command in it may say under which ``heading`` it is listed."""

    command_class = Command

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": True, **settings})

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_text(ctx, self))


def option(*names: str, heading: str = "Options", **settings: Any) -> Callable[[F], F]:
    """An option of a command, under a heading of its help."""
    return click.option(*names, cls=Option, heading=heading, **settings)


def command(example: str, name: str | None = None, **settings: Any) -> Callable[..., Command]:
    """A command with examples of its use, one per line."""
    return click.command(name, cls=Command, epilog=example, **settings)


def help_text(ctx: click.Context, shown: click.Command) -> str:
    """The help of a command or a group."""
    width = max(60, min(100, shutil.get_terminal_size().columns)) - 1
    parameters = shown.get_params(ctx)
    arguments = [each for each in parameters if isinstance(each, click.Argument)]
    lines = [_usage(ctx, shown, arguments), ""]
    for paragraph in (shown.help or "").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), width), ""]
    sections: dict[str, list[tuple[str, str]]] = {}

    def add(heading: str, name: str, words: str) -> None:
        sections.setdefault(heading, []).append((name, words))

    for argument in arguments:
        if argument.help:
            add("Arguments", _metavar(argument), argument.help)
    for name, inner in getattr(shown, "commands", {}).items():
        heading = getattr(inner, "heading", "Commands")
        add(heading, name, inner.get_short_help_str(limit=120))
    for each in parameters:
        if isinstance(each, click.Option) and not each.hidden:
            add(getattr(each, "heading", "Options"), _names(each), _words(each))
    for heading, rows in sections.items():
        lines += _section(heading, rows, width)
    if shown.epilog:
        examples = shown.epilog.split("\n")
        lines += [f"Example{'s' * (len(examples) > 1)}:"]
        for example in examples:
            lines += _command_line(example, width)
    return "\n".join(lines).rstrip() + "\n"


def _usage(ctx: click.Context, shown: click.Command, arguments: Iterable[click.Argument]) -> str:
    words = [_metavar(each) if each.required else f"[{_metavar(each)}]" for each in arguments]
    inside = ["COMMAND [ARGS]..."] if isinstance(shown, click.Group) else []
    return " ".join([f"Usage: {ctx.command_path}", "[OPTIONS]", *words, *inside])


def _metavar(parameter: click.Parameter) -> str:
    several = "..." if parameter.nargs != 1 or parameter.multiple else ""
    if parameter.metavar:
        return f"{parameter.metavar}{several}"
    if isinstance(parameter, click.Argument):
        return f"{str(parameter.name).upper()}{several}"
    return f"{_METAVARS.get(parameter.type.name, 'TEXT')}{several}"


def _names(shown: click.Option) -> str:
    names = ", ".join(shown.opts)
    if shown.secondary_opts:
        return f"{names}, {', '.join(shown.secondary_opts)}"
    return names if shown.is_flag else f"{names} {_metavar(shown)}"


def _words(shown: click.Option) -> str:
    words = shown.help or ""
    if shown.required:
        return f"{words} [required]"
    if isinstance(shown.show_default, str):
        return f"{words} [default: {shown.show_default}]"
    has_default = shown.show_default and not shown.is_flag
    default = shown.to_info_dict()["default"] if has_default else None
    return words if default in (None, "") else f"{words} [default: {default}]"


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
