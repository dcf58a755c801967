"""Groups of commands that load the one that runs: a start pays for no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


class HelpfulGroup(TyperGroup):
    """Commands with the whole first line of their help, where typer cuts it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line or two for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([*self.lines(ctx)])

    def lines(self, ctx: Any) -> Iterator[tuple[str, str]]:
        """Yield each command with what it is for."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            yield name, str(command and command.help).partition("\n")[0]


class CommandGroup(HelpfulGroup):
    """Commands that lie in a module each: `package.name`, with `command` or `group` in it.

    Attributes:
        package: Where the modules are.
        summaries: First line of the help of each command by name: the list of commands needs
            no module.
    """

    package: ClassVar[str]
    summaries: ClassVar[Mapping[str, str]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {  # their names are all that counts: what typer compares typos with
            name: TyperCommand(name=name, help=text) for name, text in self.summaries.items()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, built now, or None."""
        if cmd_name not in self.summaries:
            return None
        target = load_command(self.package, cmd_name)
        if not isinstance(target, typer.Typer):
            target = _alone(cmd_name, target)
        command = typer.main.get_command(target)
        command.name = cmd_name
        return command

    def lines(self, ctx: Any) -> Iterator[tuple[str, str]]:
        """Yield each command with what it is for."""
        yield from self.summaries.items()


def load_command(package: str, name: str) -> Any:
    """Return the function of a command, or the `typer.Typer` of a group of commands."""
    module = import_module(f"{package}.{name.replace('-', '_')}")
    return getattr(module, "group", None) or module.command


def _alone(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(function)
    return app
