"""Write the table of settings into docs/environment.md, from the rows the program resolves.

python docs/generate_settings_table.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from aoe.runs.configuration.options import SETTINGS

PAGE = Path(__file__).resolve().parent / "environment.md"
_TABLE = re.compile(r"(\| setting \| option .*\n\|---.*\n)(?:\|.*\n|<!-- settings -->\n)*")


def settings_table() -> str:
    """Return a line per setting."""
    lines = []
    for row in SETTINGS.values():
        names = [row.option, row.key or row.ini_key, row.variable]
        cells = [f"`{name}`" if name else "" for name in names]
        lines.append(f"| {row.name} | {' | '.join(cells)} | {row.default_text} | {row.meaning} |\n")
    return "".join(lines)


def page_with_table() -> str:
    """Return the page as it should be."""
    return _TABLE.sub(lambda found: found[1] + settings_table(), PAGE.read_text())


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page_with_table())
    elif PAGE.read_text() != page_with_table():
        sys.exit("docs/environment.md: run python docs/generate_settings_table.py")
