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

from nextapp.cli.errors import missing_library
from nextapp.cli.plain_values import take_plain_values


class LazyCommand(NamedTuple):
    """Where a command is, and the line that the help of its group shows for it.

    ``attribute`` of ``module`` is a function, or a `typer.Typer` with commands of its own.
    ``help`` must equal the first paragraph of the command's own help. A command that
    ``has_own_parser`` gets its arguments as they are, `--help` included.
    """

    module: str
    attribute: str
    help: str
    example: str | None = None
    has_own_parser: bool = False

    def load(self, name: str) -> Any:
        """The real command; imports its module."""
        found = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
            command.name = name
        else:
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
            epilog = None if self.example is None else f"Example: {self.example}"
            settings: dict[str, Any] = {"epilog": epilog}
            if self.has_own_parser:
                unread = {"allow_extra_args": True, "ignore_unknown_options": True}
                settings = {"context_settings": unread, "add_help_option": False}
            alone.command(name, **settings)(found)
            command = get_command(alone)
        take_plain_values(command)
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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Called to run a command, to show its help and to complete its options."""
        if args and args[0] in self._stubs:
            name = args[0]
            completing = suppress(ModuleNotFoundError)  # it must not print: the stub stays
            with completing if ctx.resilient_parsing else missing_library():
                self.commands[name] = self.lazy_commands[name].load(name)
                self._stubs.remove(name)
        return super().resolve_command(ctx, args)
