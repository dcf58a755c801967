"""The command line: global options, the commands, one place where errors end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from aoebank.cli.errors import Program, run_program
from aoebank.cli.help import EXAMPLES, NOTES, SECTIONS
from aoebank.cli.loading import CommandGroup
from aoebank.cli.options import Session
from aoebank.cli.verbs import GROUPS, VERBS
from aoebank.errors import UsageError
from aoebank.report.output import ColorMode

# what each is for, in a line
COMMANDS: dict[str, str] = {
    name: GROUPS[name] if name in GROUPS else VERBS[name].summary
    for name in dict.fromkeys(place.partition(" ")[0] for place in VERBS)
}
EXIT_DRIVER = 129  # git reads more than 128 as: not merged; 2 to 4 would mean conflicts


class _Commands(CommandGroup):
    summaries = COMMANDS
    sections = SECTIONS
    examples = EXAMPLES
    notes = NOTES

    @classmethod
    def load(cls, name: str) -> Any:
        """Return the function of a command, or the `typer.Typer` of a group of commands."""
        from aoebank.cli.making import load_verb

        return load_verb(name)


app = typer.Typer(
    name="aoebank",
    cls=_Commands,
    subcommand_metavar="COMMAND [ARGS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


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
    arguments = _spread(sys.argv[1:] if argv is None else argv)
    code = run_program(PROGRAM, arguments or ["--help"])
    if not arguments:
        return UsageError.exit_code
    return EXIT_DRIVER if code > 1 and _verb(arguments) == "merge-driver" else code


def _spread(arguments: Sequence[str]) -> list[str]:
    """Return arguments with `--fix=order,text` as what it stands for.

    Typer knows no option that may have a value and need not.
    """
    spread: list[str] = []
    for number, word in enumerate(arguments):
        if word == "--":
            return [*spread, *arguments[number:]]
        option, _, classes = word.partition("=")
        if option == "--fix" and classes:
            spread += ["--fix", *(f"--fix-class={name}" for name in classes.split(","))]
        else:
            spread.append(word)
    return spread


def load(name: str) -> Any:
    """Return the function of a command, or the `typer.Typer` of a group of commands."""
    return _Commands.load(name)


def _verb(arguments: Sequence[str]) -> str:
    """Return the name of the command, of one in a group as in `git-check`."""
    place = next((n for n, word in enumerate(arguments) if word in COMMANDS), None)
    if place is None:
        return "error"
    verb = arguments[place]
    group = load(verb)
    if not isinstance(group, typer.Typer):
        return verb
    members = {command.name for command in group.registered_commands}
    member = next((word for word in arguments[place + 1 :] if word in members), None)
    return f"{verb}-{member}" if member else verb


PROGRAM = Program(name="aoebank", app=app, schema=lambda arguments: f"aoebank.{_verb(arguments)}/1")
