"""Writes docs/cli-aoe.md and docs/cli-aoebank.md from the commands themselves.

python docs/generate_cli_reference.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

FOLDER = Path(__file__).resolve().parent
NOTE = "<!-- written by docs/generate_cli_reference.py -->\n\n"


def references() -> dict[Path, str]:
    """Return the text of each reference page by file."""
    from aoe.cli.app import app
    from aoebank.cli.app import app as bank_app

    return {
        FOLDER / "cli-aoe.md": _page(app, "aoe"),
        FOLDER / "cli-aoebank.md": _page(bank_app, "aoebank"),
    }


def _page(app: typer.Typer, name: str) -> str:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name=name)
    text = get_docs_for_click(obj=command, ctx=context, name=name)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return NOTE + "\n".join(lines) + "\n"


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
