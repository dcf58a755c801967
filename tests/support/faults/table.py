"""The table of faults: what each one changes and breaks, and which tests should notice."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
AREAS = ("kernels", "tuning", "merge", "formats", "cli", "om", "seams")
_TABLE = Path(__file__).with_name("table.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One wrong edit of the product."""

    name: str  # For the command line
    area: str  # One of `AREAS`
    file: str  # From the root of the repository
    old: str  # Text of that file, there once
    new: str  # What stands in its place
    breaks: str  # What goes wrong, in one sentence
    tests: tuple[str, ...]  # Paths, or test ids, of which one should fail

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault.

        Raises:
            ValueError: the old text is not there exactly once.
        """
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: the old text is {count} times in {self.file}")
        return text.replace(self.old, self.new)


def load_faults() -> tuple[Fault, ...]:
    """Return the faults of the table."""
    rows = tomllib.loads(_TABLE.read_text())["fault"]
    return tuple(Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows)
