"""Tell which bank a reader would use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.model.resolution import Attempt
from aoebank.ops.resolve import ResolveResult
from aoebank.report.output import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveReport:
    """The root, the files asked for and, explained, every place tried."""

    result: ResolveResult
    explain: bool
    schema: str = "aoebank.resolve/1"

    @property
    def error(self) -> AoebankError | None:
        """Return why no directory can be used."""
        return self.result.error

    @property
    def exit_code(self) -> int:
        """Return 0 when found, 1 when not, and the code of the error if there is one."""
        if self.result.error is not None:
            return self.result.error.exit_code
        return 0 if self.result.is_found else 1

    def document(self) -> Mapping[str, object]:
        """Return root, files and places."""
        resolution = self.result.resolution
        return {
            "reader": str(self.result.reader),
            "root": str(resolution.root) if resolution else None,
            "tier": str(resolution.tier) if resolution else None,
            "variable": resolution.variable if resolution else None,
            "exists": bool(resolution and resolution.exists),
            "found": self.result.is_found,
            "files": [str(file) for file in self.result.files],
            "tried": [
                {
                    "variable": each.variable, "tier": str(each.tier), "taken": each.taken,
                    "path": str(each.path) if each.path else None, "reason": each.reason,
                }
                for each in self.result.tried
            ],
        }  # fmt: skip

    def write(self, text: Text) -> None:
        """Write the places if asked to, then the answer."""
        if self.explain:
            for number, attempt in enumerate(self.result.tried, start=1):
                _write_attempt(text, number, attempt)
        for file in self.result.files:
            text.line(str(file))
        resolution = self.result.resolution
        if resolution and not self.result.files:
            absent = "" if resolution.exists else "  (does not exist yet)"
            missing = "" if self.result.is_found or absent else "  (no such bank file)"
            text.line(str(resolution.root), (absent or missing, "yellow"))


def _write_attempt(text: Text, number: int, attempt: Attempt) -> None:
    mark = ("used", "green") if attempt.taken else ("passed over", "dim")
    text.line(f"{number}. {attempt.variable} ({attempt.tier}): ", mark, f", {attempt.reason}")
    if attempt.path:
        text.line(f"   {attempt.path}")
