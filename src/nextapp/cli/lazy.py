"""A group of commands whose modules are imported when a command is used, not before.

Typer has no such groups. Some versions of it use Click and others carry a copy, so this module
builds on `typer.core` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from nextapp.cli import stopping
from nextapp.cli.errors import missing_library
from nextapp.cli.help_text import help_text, set_help_form
from nextapp.cli.plain_values import take_plain_values


class LazyCommand(NamedTuple):
    """Where a command is, and the line that the help of its group shows for it.

    ``attribute`` of ``module`` is a function, or a `typer.Typer` with commands of its own.
    ``help`` must equal the first paragraph of the command's own help, and the help of the program
    shows it under the heading ``group``. A command that ``has_own_parser`` gets its arguments as
    they are, `--help` included; ``completing`` of its module builds a `typer.Typer` with the same
    commands and options, for the shell.
    """

    module: str
    attribute: str
    help: str
    example: str | None = None
    group: str = "Commands"
    has_own_parser: bool = False
    completing: str | None = None

    def load(self, name: str) -> Any:
        """The real command; imports its module."""
        found = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
            command.name = name
        else:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            settings: dict[str, Any] = {"epilog": self.example}
            if self.has_own_parser:
                unread = {"allow_extra_args": True, "ignore_unknown_options": True}
                settings = {"context_settings": unread, "add_help_option": False}
            alone.command(name, **settings)(found)
            command = get_command(alone)
        take_plain_values(command)
        if not self.has_own_parser:
            set_help_form(command)
        return command

    def load_for_shell(self, name: str) -> Any:
        """What the shell completes by: for most commands the command itself."""
        if self.completing is None:
            return self.load(name)
        built = getattr(import_module(self.module), self.completing)()
        command = get_group(built)
        command.name = name
        return command


class LazyGroup(TyperGroup):
    """A group that holds stubs (name and help) until a command is resolved."""

    lazy_commands: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        take_plain_values(self)
        for name, command in self.lazy_commands.items():
            self.commands[name] = TyperCommand(name, help=command.help)
        self._stubs = set(self.lazy_commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[str]] = {}
        for name, command in self.lazy_commands.items():
            groups.setdefault(command.group, []).append(name)
        formatter.write(help_text(ctx, self, groups))

    def invoke(self, ctx: Any) -> Any:
        """Import and run a command; Ctrl-C in either ends it with a line that says how to go on."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            stopping.say_stopped()
            raise typer.Exit(stopping.CODE) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Called to run a command, to show its help and to complete its options."""
        if args and args[0] in self._stubs:
            name = args[0]
            lazy = self.lazy_commands[name]
            if ctx.resilient_parsing:  # the shell completes: nothing may be printed
                with suppress(ModuleNotFoundError):
                    self.commands[name] = lazy.load_for_shell(name)
            else:
                with missing_library():
                    self.commands[name] = lazy.load(name)
                    self._stubs.remove(name)
        return super().resolve_command(ctx, args)
