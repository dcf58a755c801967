"""A report on what was written: all of it, or what a dry run would write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank import Report

if TYPE_CHECKING:
    from aoebank import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWithFiles(Report):
    """A report, and what was written with it."""

    written: tuple[Path, ...] = ()  # Files
    is_dry_run: bool = False  # True if they were not written

    @property
    def writes_documents(self) -> bool:
        """False in a dry run."""
        return not self.is_dry_run

    def with_documents(self, files: tuple[Path, ...]) -> ReportWithFiles:
        """Return the report that names these files, too."""
        return replace(self, written=(*self.written, *files))

    @property
    def files(self) -> list[str]:
        """The files that are there now."""
        return [] if self.is_dry_run else [str(file) for file in self.written]

    @property
    def page(self) -> str | None:
        """The HTML page among them."""
        return next((file for file in self.files if file.endswith((".html", ".htm"))), None)

    def write_files(self, text: Text) -> None:
        """Write a line for each written file."""
        for file in self.written:
            text.line(f"{'would write' if self.is_dry_run else 'wrote'} {file}")
