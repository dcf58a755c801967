"""Files of one format as it reads them: records, findings, and where the findings are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoebank import Finding
from aoebank.formats.protocol import Format, ParsedFile


@dataclass(frozen=True, slots=True)
class FormatReading:
    """A format, and the name its files have in a test."""

    format: Format
    name: str

    def parse(self, data: bytes | str, name: str = "") -> ParsedFile:
        """Return a file of this content."""
        data = data.encode() if isinstance(data, str) else data
        return self.format.parse(data, Path(name or self.name))

    def findings(self, data: bytes | str, name: str = "") -> list[Finding]:
        """Return all findings about a file, those of its text first."""
        parsed = self.parse(data, name)
        return [*parsed.findings, *self.format.check(parsed)]

    def codes(self, data: bytes | str, name: str = "") -> list[str]:
        """Return the codes of the findings."""
        return [one.code for one in self.findings(data, name)]

    def pointers(self, data: bytes | str) -> list[tuple[str, str]]:
        """Return the codes of the findings with their JSON pointers."""
        return [(one.code, one.location.pointer) for one in self.findings(data)]

    def columns(self, data: bytes | str) -> list[tuple[str, int, int]]:
        """Return the codes of the findings with their lines and columns."""
        found = self.findings(data)
        return [(one.code, one.location.line, one.location.column) for one in found]
