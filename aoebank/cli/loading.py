"""Groups of commands that load the one that runs: a start pays for no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        sections: Names of commands by heading; those of no section come first.
        option_sections: Names of options (`--model`) by heading, likewise.
        examples: Command lines by what they are examples of: the name of a command, of one in a
            group ("git check"), or the empty string for the program itself.
        notes: Further sections at the end of the program's help: heading and lines as they are.
    """

    package: ClassVar[str]
    summaries: ClassVar[Mapping[str, str]]
    sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    option_sections: ClassVar[Mapping[str, Sequence[str]]] = {}
    examples: ClassVar[Mapping[str, Sequence[str]]] = {}
    notes: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {  # their names are all that counts: what typer compares typos with
            name: TyperCommand(name=name, help=text) for name, text in self.summaries.items()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, built now, or None."""
        if cmd_name not in self.summaries:
            return None
        target = self.load(cmd_name)
        if not isinstance(target, typer.Typer):
            target = _alone(cmd_name, target)
        command = typer.main.get_command(target)
        command.name = cmd_name
        self._add_examples(cmd_name, command)
        return command

    @classmethod
    def load(cls, name: str) -> Any:
        """Return the function of a command, or the `typer.Typer` of a group of commands."""
        return load_command(cls.package, name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options under their headings, then the commands."""
        records = {
            _name_of(parameter.opts): record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
        }
        sections = _sorted_into(self.option_sections, records, "Options")
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line or two for each command, under their headings."""
        for title, names in _sorted_into(self.sections, self.summaries, "Commands").items():
            with formatter.section(title):
                formatter.write_dl([(name, self.summaries[name]) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples and what else a person wants to know, as it stands."""
        notes = {"Examples": self.examples.get("", ()), **self.notes}
        for title, lines in notes.items():
            if lines:
                with formatter.section(title):
                    formatter.write("".join(f"  {line}\n" for line in lines))

    def _add_examples(self, name: str, command: Any) -> None:
        """Put the examples of a command behind its help, and those of its members behind theirs."""
        lines = self.examples.get(name, ())
        if lines:
            command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        for member, inner in getattr(command, "commands", {}).items():
            self._add_examples(f"{name} {member}", inner)


def _name_of(spellings: Sequence[str]) -> str:
    """Return the first long one: the spellings of `--help` are in no certain order."""
    return next((word for word in spellings if word.startswith("--")), spellings[0])


def _sorted_into(
    sections: Mapping[str, Sequence[str]], names: Iterable[str], rest: str
) -> dict[str, list[str]]:
    """Return names by heading: those of no section first, headings without a name left out."""
    known = list(names)
    placed = {name for members in sections.values() for name in members}
    found = {rest: [name for name in known if name not in placed]}
    found |= {title: [n for n in members if n in known] for title, members in sections.items()}
    return {title: members for title, members in found.items() if members}


def load_command(package: str, name: str) -> Any:
    """Return the function of a command, or the `typer.Typer` of a group of commands."""
    module = import_module(f"{package}.{name.replace('-', '_')}")
    return getattr(module, "group", None) or module.command


def _alone(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(function)
    return app
