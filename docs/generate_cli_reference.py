"""Writes docs/cli-aoe.md and docs/cli-aoebank.md from the commands themselves.

python docs/generate_cli_reference.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

FOLDER = Path(__file__).resolve().parent
NOTE = "<!-- written by docs/generate_cli_reference.py -->\n\n"

_EXAMPLES = re.compile(r"\x08\nExamples:\n(?P<lines>(?:  .+\n)+)")
"""How the help of a command ends, see `CommandGroup`."""


def references() -> dict[Path, str]:
    """Return the text of each reference page by file."""
    from aoe.cli.app import app
    from aoebank.cli import app as bank_app

    return {
        FOLDER / "cli-aoe.md": _page(app, "aoe"),
        FOLDER / "cli-aoebank.md": _page(bank_app, "aoebank"),
    }


def _page(app: typer.Typer, name: str) -> str:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name=name)
    text = get_docs_for_click(obj=command, ctx=context, name=name)
    lines = _with_whole_summaries(text.strip().splitlines(), command, context)
    return NOTE + _EXAMPLES.sub(_fenced, "\n".join(lines) + "\n")


def _with_whole_summaries(lines: list[str], group: Any, context: Any) -> list[str]:
    """Return the lines with the first line of each command's help, which typer cuts, whole."""
    left = deque(_summaries(group, context))
    found = []
    for line in lines:
        if left and line.startswith(left[0][0]):
            line = "".join(left.popleft())
        found.append(line.rstrip())
    return found


def _summaries(group: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield each command of a group, then those of its groups: as the page lists them."""
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    for command in commands:
        yield f"* `{command.name}`: ", " ".join((command.help or "").partition("\n\n")[0].split())
    for command in commands:
        if hasattr(command, "list_commands"):
            yield from _summaries(command, context)


def _fenced(found: re.Match[str]) -> str:
    commands = "\n".join(f"$ {line.strip()}" for line in found["lines"].strip().splitlines())
    return f"Examples:\n\n```console\n{commands}\n```\n"


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    stale = [
        file for file, text in references().items() if not file.exists() or file.read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.name} is out of date: run python docs/{Path(__file__).name}")
        return 1 if stale else 0
    for file, text in references().items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
