"""The command line: global options, the commands, one place where errors end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from aoebank.cli import (
    blame,
    diff,
    explain,
    git,
    log,
    ls,
    merge,
    merge_driver,
    quarantine,
    resolve,
    restore,
    revert,
    schema,
    show,
    snapshot,
    tag,
    textconv,
    validate,
)
from aoebank.cli.errors import Program, run_program
from aoebank.cli.options import Session
from aoebank.errors import UsageError
from aoebank.report.output import ColorMode

# a typer.Typer is a group of commands, such as `aoebank git check`
COMMANDS: dict[str, Callable[..., int] | typer.Typer] = {
    "resolve": resolve.command,
    "validate": validate.command,
    "explain": explain.command,
    "schema": schema.group,
    "ls": ls.command,
    "show": show.command,
    "diff": diff.command,
    "textconv": textconv.command,
    "merge": merge.command,
    "git": git.group,
    "merge-driver": merge_driver.command,
    "snapshot": snapshot.command,
    "log": log.command,
    "tag": tag.command,
    "restore": restore.command,
    "revert": revert.command,
    "blame": blame.command,
    "quarantine": quarantine.group,
}
EXIT_DRIVER = 129  # git reads more than 128 as: not merged; 2 to 4 would mean conflicts

app = typer.Typer(
    name="aoebank",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
for _name, _command in COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


@app.callback()
def start(
    context: typer.Context,
    color: Annotated[
        ColorMode, typer.Option("--color", help="Colour the text; see also NO_COLOR.")
    ] = ColorMode.AUTO,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=lambda asked: _print_version(asked),
        ),
    ] = False,
) -> None:
    """Manage tuning knowledge banks: find, check, read and compare them."""
    context.obj = Session(color=color, debug=debug)


def _print_version(asked: bool) -> None:
    if asked:
        from aoebank import __version__

        print(f"aoebank {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = run_program(PROGRAM, arguments or ["--help"])
    if not arguments:
        return UsageError.exit_code
    return EXIT_DRIVER if code > 1 and _verb(arguments) == "merge-driver" else code


def _verb(arguments: Sequence[str]) -> str:
    """Return the name of the command, of one in a group as in `git-check`."""
    place = next((n for n, word in enumerate(arguments) if word in COMMANDS), None)
    if place is None:
        return "error"
    verb, group = arguments[place], COMMANDS[arguments[place]]
    if not isinstance(group, typer.Typer):
        return verb
    members = {command.name for command in group.registered_commands}
    member = next((word for word in arguments[place + 1 :] if word in members), None)
    return f"{verb}-{member}" if member else verb


PROGRAM = Program(name="aoebank", app=app, schema=lambda arguments: f"aoebank.{_verb(arguments)}/1")
