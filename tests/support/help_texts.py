"""Examples in help texts are command lines that can be meant."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from aoebank.report.documents import read_documents

_NAMES_RESULT = {"merge", "pack", "unpack", "convert"}  # with -o


def parse_example(app: typer.Typer, line: str) -> None:
    """Take an example apart as the program does, and run nothing.

    Raises:
        typer.BadParameter: or another usage error: nobody can call it like that.
    """
    program, *arguments = shlex.split(line, comments=True)
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    takes_output = arguments[0] not in _NAMES_RESULT
    _, arguments = read_documents(arguments, schema=program, takes_output=takes_output)
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name=program)
    while arguments and hasattr(command, "get_command") and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, f"{line}: no command {name}"
    command.make_context(program, arguments, parent=context)


def missing_examples(
    app: typer.Typer, program: str, examples: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return commands without an example, those in groups too."""
    command = typer.main.get_command(app)
    members = _members(command, typer.Context(command, info_name=program))
    return [name for name in members if not examples.get(name)]


def _members(group: Any, context: Any, before: str = "") -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _members(command, context, f"{before}{name} ")
        else:
            yield f"{before}{name}"
