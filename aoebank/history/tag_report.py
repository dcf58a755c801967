"""Tell the tags of a bank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.history.moves_report import short
from aoebank.history.tag import TagResult
from aoebank.report.output import Text, members


@dataclass(frozen=True, slots=True, kw_only=True)
class TagReport:
    """What happened to one tag, or all there are."""

    result: TagResult
    schema: str = "aoebank.tag/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return all tags, and the one that was set or removed."""
        return {
            **members(self.result, "root tags name snapshot"),
            "removed": self.result.is_removed,
        }

    def write(self, text: Text) -> None:
        """Write a line per tag."""
        result = self.result
        if result.name is None:
            for name, id_ in result.tags.items():
                text.line((name, "cyan"), f"  {short(id_)}")
            if not result.tags:
                text.line("no tag")
            return
        verb = "no longer means" if result.is_removed else "means"
        text.line(
            (result.name, "cyan"), f" {verb} snapshot ", (short(result.snapshot or ""), "yellow")
        )
