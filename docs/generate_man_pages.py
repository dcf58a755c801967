"""Writes docs/man/aoe.1 and docs/man/aoebank.1 from the help of the commands.

python docs/generate_man_pages.py [--check]

The wheel has them in share/man/man1, where `man aoe` looks for the pages of a program on the PATH.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

FOLDER = Path(__file__).resolve().parent / "man"
_EXAMPLES = re.compile(r"\x08\n(?P<heading>\w+):\n(?P<lines>(?:  .+(?:\n|$))+)")
"""How the help of a command ends, see `CommandGroup`."""


def pages() -> dict[Path, str]:
    """Return the text of each manual page by file."""
    from aoe.cli.app import app
    from aoebank.cli import app as bank_app

    return {
        FOLDER / f"{name}.1": "\n".join(_page(program, name)) + "\n"
        for name, program in (("aoe", app), ("aoebank", bank_app))
    }


def _page(app: typer.Typer, name: str) -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name=name)
    summary, _, rest = " ".join((group.help or "").split()).partition(". ")
    yield '.\\" written by docs/generate_man_pages.py'
    yield f'.TH {name.upper()} 1 "" "aoebank" "User commands"'
    yield ".SH NAME"
    yield f"{name} \\- {_text(summary.rstrip('.').lower()[:1] + summary.rstrip('.')[1:])}"
    yield ".SH SYNOPSIS"
    yield f".B {name}"
    yield _text(" ".join(group.collect_usage_pieces(context)))
    if rest:
        yield ".SH DESCRIPTION"
        yield _text(rest)
    records = dict(_records(group, context))
    placed = {name for names in group.option_sections.values() for name in names}
    sections = {"Options": [name for name in records if name not in placed]}
    for heading, names in {**sections, **group.option_sections}.items():
        if known := [name for name in names if name in records]:
            yield f".SH {_text(heading.upper())}"
            yield from _options(records[name] for name in known)
    yield ".SH COMMANDS"
    for command in _commands(group, context):
        yield from _command(command, name)
    for heading, lines in {"Examples": group.examples.get("", ()), **group.notes}.items():
        if lines:
            yield f".SH {_text(heading.upper())}"
            yield from _verbatim(lines)
    other = "aoebank" if name == "aoe" else "aoe"
    yield ".SH SEE ALSO"
    yield f".BR {other} (1)"


def _commands(group: Any, context: Any, before: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each command, those of its groups included, with its words and its context."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        words = f"{before}{name}"
        if hasattr(command, "list_commands"):
            yield from _commands(command, inner, f"{words} ")
        else:
            yield words, command, inner


def _command(found: tuple[str, Any, Any], program: str) -> Iterator[str]:
    words, command, context = found
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f".SS {_text(' '.join((words, *arguments)))}"
    first, *others = (command.help or "").split("\n\n")
    yield _text(" ".join(first.split()))
    for paragraph in others:
        yield ".PP"
        yield _text(" ".join(paragraph.split()))
    records = dict(_records(command, context))
    records.pop("--help", None)
    yield from _options(records.values())
    for example in _EXAMPLES.finditer(command.epilog or ""):
        yield ".PP"
        yield f"{_text(example['heading'])}:"
        yield from _verbatim(example["lines"].splitlines())


def _records(command: Any, context: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the parameters that the help lists by their first long name, as it has them."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield next((o for o in parameter.opts if o.startswith("--")), record[0]), record


def _options(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    for names, text in records:
        yield ".TP"
        yield f"\\fB{_text(names)}\\fR"
        yield _text(" ".join(text.split()))


def _verbatim(lines: Sequence[str]) -> Iterator[str]:
    yield ".PP"
    yield ".nf"
    yield from (f"    {_text(line.strip() if line.startswith('  ') else line)}" for line in lines)
    yield ".fi"


_ROFF: Mapping[str, str] = {
    "\\": "\\e",
    "-": "\\-",
    "'": "\\(aq",
    "`": "\\(ga",
    "~": "\\(ti",
    "^": "\\(ha",
}


def _text(text: str) -> str:
    """Return a text that roff prints as it stands: no request, no other dash, no other quote."""
    escaped = "".join(_ROFF.get(letter, letter) for letter in text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    stale = [
        file for file, text in pages().items() if not file.exists() or file.read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.name} is out of date: run python docs/{Path(__file__).name}")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for file, text in pages().items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
