"""Tell which records went, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.editing.prune import PruneResult
from aoebank.errors import AoebankError
from aoebank.report.output import Text, members, plural, write_rest

MOST_ROWS = 50
"""Records listed on a terminal; the document has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """A line per record that goes, then the counts."""

    result: PruneResult
    is_dry_run: bool = False
    schema: str = "aoebank.prune/1"
    error: AoebankError | None = None

    @property
    def exit_code(self) -> int:
        """Return 1 if a file was left alone since it is broken."""
        return int(bool(self.result.broken))

    def document(self) -> Mapping[str, object]:
        """Return records with their reasons, counts and paths."""
        result = self.result
        return {
            "dry_run": self.is_dry_run,
            "pruned": len(result.records),
            "kept": result.kept,
            "records": [members(record, "path key reason detail") for record in result.records],
            **members(result, "broken written"),
        }

    def write(self, text: Text) -> None:
        """Write records and reasons, files left alone, and how many they are."""
        result = self.result
        for record in result.records[:MOST_ROWS]:
            text.line((f"{record.reason} ", "bold"), f"{record.path}:{record.key}  {record.detail}")
        write_rest(text, len(result.records), MOST_ROWS)
        for path in result.broken:
            text.line(f"left alone: {path} is broken; aoebank validate tells why")
        counts = Counter(record.reason for record in result.records)
        why = ", ".join(f"{number} {reason}" for reason, number in counts.items())
        done = "would go" if self.is_dry_run else "pruned"
        text.line(
            f"{plural(len(result.records), 'record')} {done}"
            + (f" ({why})" if why else "")
            + f", {result.kept} stay"
        )
