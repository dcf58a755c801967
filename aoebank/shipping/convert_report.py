"""Tell what was converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.report.output import Text, members, plural
from aoebank.shipping.convert import ConvertResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """A line: how much of what is where now."""

    result: ConvertResult
    schema: str = "aoebank.convert/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return both places and the counts."""
        return members(self.result, "source output files records")

    def write(self, text: Text) -> None:
        """Write it."""
        result = self.result
        text.line(
            f"{result.source} -> {result.output}: {plural(result.records, 'record')} in "
            f"{plural(result.files, 'file')}"
        )
