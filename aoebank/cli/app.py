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
from aoebank.errors import UsageError
from aoebank.report.output import ColorMode

# what each is for, in a line; it lies in the module of its name, groups of commands too
COMMANDS: dict[str, str] = {
    "resolve": "Print which bank directories and files each reader would use.",
    "validate": "Check bank files and trees; tell everything that is wrong in one run.",
    "stale": "List records measured in another environment than this one, with the reasons.",
    "fmt": "Write bank files as their tuner would: records by key, no byte that only disturbs.",
    "explain": "Tell what finding codes mean, why they matter and what to do; "
    "without CODE, list them.",
    "schema": "What releases of the toolkit read from runtime banks.",
    "ls": "List the files of a bank; without PATH, of the bank the environment names.",
    "show": "Print records with their workload, strategy, time and provenance.",
    "query": "Ask banks in SQL; without SQL, list the tables there are.",
    "report": "Tell what banks hold as a whole: coverage, gains, age, staleness, outliers.",
    "stats": "Count records and their times, by operator and target or by what you like.",
    "hits": "Tell which look-ups found a record, and which records of a bank nobody used.",
    "diff": "Compare two bank files or trees, record by record.",
    "textconv": "Print a bank file as text, one line per member, as git shows it in diffs.",
    "merge": "Merge banks record by record, with a base or without.",
    "edit": "Set or unset fields in all records of an operator, over all files at once.",
    "prune": "Take out records nobody is served by; by default those shadowed, or slower than "
    "built-in.",
    "merge-driver": "Merge one bank file for git; `aoebank git install` tells git about it.",
    "snapshot": "Record the state of a bank in .aoebank/history.db beside it.",
    "log": "List the versions of a bank, newest first, with what each changed.",
    "tag": "Name a snapshot, or list the names.",
    "restore": "Put a bank, or a part of it, back to how a version has it.",
    "revert": "Take back what one version changed, record by record; later changes stay.",
    "blame": "Tell which version brought a record, who made it, and what was there before.",
    "pack": "Put a bank into one file, with a manifest and a digest of everything in it.",
    "unpack": "Take a bank out of a pack, after every byte of it was checked.",
    "convert": "Turn a bank into JSON lines or an SQLite table, or back: byte for byte, or not at "
    "all.",
    "git": "Let git merge and show banks record by record, and check merges it made.",
    "quarantine": "Keep known-bad records out of a bank, whoever brings them back.",
}
PACKAGE = "aoebank.cli"
EXIT_DRIVER = 129  # git reads more than 128 as: not merged; 2 to 4 would mean conflicts


class _Commands(CommandGroup):
    package = PACKAGE
    summaries = COMMANDS
    sections = SECTIONS
    examples = EXAMPLES
    notes = NOTES

    @classmethod
    def load(cls, name: str) -> Any:
        """Return a command that is made from its function, or one of a module."""
        from aoebank.cli.verbs import VERBS, verb_command

        return verb_command(name, COMMANDS[name]) if name in VERBS else super().load(name)


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
