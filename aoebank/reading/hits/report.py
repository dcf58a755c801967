"""Tell what logs say about look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aoebank.reading.hits.result import BankLookup, HitsResult, LookupKind, count_hits
from aoebank.report.closed import ReadingReport, closed_document, write_closed
from aoebank.report.output import Text, plural, write_rest

MOST_ROWS = 20
"""Rows of each part on a terminal; the document has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsReport(ReadingReport[HitsResult]):
    """How many look-ups found something, what missed, and which records nobody used."""

    schema: str = "aoebank.hits/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no file tells of a look-up."""
        return self.error.exit_code if self.error is not None else int(not self.result.lookups)

    def document(self) -> Mapping[str, object]:
        """Return counts, look-ups and records."""
        result = self.result
        return {
            "counts": [
                {"kind": kind, "hit": hit, "missed": missed, "untold": untold}
                for kind, (hit, missed, untold) in _counts(result).items()
            ],
            "lookups": [_document(lookup) for lookup in result.lookups],
            "silent": [str(path) for path in result.silent],
            "records": [asdict(record) for record in result.records],
            "unreadable": closed_document(result.closed),
        }

    def write(self, text: Text) -> None:
        """Write the counts, then misses, then records no look-up found."""
        result = self.result
        write_closed(text, result.closed)
        if not result.lookups:
            text.line("no look-up is told of here")
            return
        rows = [
            (str(kind), *map(str, (sum(counts), *counts)))
            for kind, counts in _counts(result).items()
        ]
        text.table(("kind", "looked up", "hit", "missed", "untold"), rows, kinds="-rrrr")
        missed = [lookup for lookup in result.lookups if lookup.is_hit is False]
        for lookup in missed[:MOST_ROWS]:
            line = f":{lookup.line}" if lookup.line is not None else ""
            why = f" ({lookup.reason})" if lookup.reason else ""
            text.line(
                f"missed: {lookup.name or lookup.key}{why}  ", (f"{lookup.source}{line}", "dim")
            )
        write_rest(text, len(missed), MOST_ROWS)
        if result.records:
            self._write_records(text)

    def _write_records(self, text: Text) -> None:
        result = self.result
        if not result.names_keys:
            text.line("these logs do not tell which record a look-up found")
            return
        for record in result.unused[:MOST_ROWS]:
            text.line(f"not used: {record.file}:{record.key}")
        write_rest(text, len(result.unused), MOST_ROWS)
        used = len(result.records) - len(result.unused)
        text.line(f"{used} of {plural(len(result.records), 'record')} used")


def _counts(result: HitsResult) -> dict[LookupKind, tuple[int, int, int]]:
    counts = {kind: count_hits(result.lookups, kind) for kind in LookupKind}
    return {kind: found for kind, found in counts.items() if any(found)}


def _document(lookup: BankLookup) -> dict[str, object]:
    return asdict(lookup) | {"source": str(lookup.source), "kind": str(lookup.kind)}
