"""Tell which files are in the form their tuner would write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.report.output import Text, plural
from aoebank.validation.fix import FixOutcome
from aoebank.validation.report.fixes import fixes_document, write_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatReport:
    """A line for each file that is not, and what became of it."""

    outcomes: tuple[FixOutcome, ...]
    is_check: bool
    has_diff: bool = False
    schema: str = "aoebank.fmt/1"

    @property
    def error(self) -> AoebankError | None:
        """Return why a file could not be written."""
        return next((outcome.error for outcome in self.outcomes if outcome.error), None)

    @property
    def exit_code(self) -> int:
        """Return 1 if a file that was only looked at is in another form."""
        if self.error is not None:
            return self.error.exit_code
        return int(self.is_check and bool(self.outcomes))

    def document(self) -> Mapping[str, object]:
        """Return each file with what it would take."""
        return {"check": self.is_check, "files": fixes_document(self.outcomes)}

    def write(self, text: Text) -> None:
        """Write the files, with the difference if it was asked for, and how many they are."""
        for outcome in self.outcomes:
            if self.has_diff:
                write_diff(text, outcome.fix)
            done = "would format" if self.is_check else "formatted"
            if not self.is_check and not outcome.is_written:
                done = "not formatted"
            text.line(f"{done} {outcome.fix.path}: {', '.join(outcome.fix.classes)}")
        number = sum(self.is_check or outcome.is_written for outcome in self.outcomes)
        done = "would be formatted" if self.is_check else "formatted"
        text.line(f"{plural(number, 'file')} {done}" if number else "all files are in this form")
