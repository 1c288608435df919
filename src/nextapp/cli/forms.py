"""Commands and options of Click in one form: errors in words, options under headings, examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from nextapp.cli.errors import clear_errors

F = TypeVar("F", bound=Callable[..., Any])

_METAVARS = {
    "integer": "N",
    "integer range": "N",
    "float": "X",
    "float range": "X",
    "path": "FILE",
    "folder": "FOLDER",
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
