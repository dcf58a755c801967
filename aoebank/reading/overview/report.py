"""Tell it as text, as one document, or as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aoebank.reading.overview.result import OverviewResult
from aoebank.reading.overview.tables import tables
from aoebank.report.closed import ReadingReport, closed_document, write_closed
from aoebank.report.output import Text, plural

MOST_ROWS = 20
"""Rows of each part on a terminal; the document and the page have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewReport(ReadingReport[OverviewResult]):
    """An overview of banks."""

    schema: str = "aoebank.report/1"

    def document(self) -> Mapping[str, object]:
        """Return each part as a list."""
        result = self.result
        judged = ("outliers", "disagreements", "duplicates")
        parts = ("sizes", "coverage", "ages", "staleness", *judged)
        return {
            **{part: [asdict(entry) for entry in getattr(result, part)] for part in parts},
            "unreadable": closed_document(result.closed),
        }

    def write(self, text: Text) -> None:
        """Write a table for each part there is anything to tell of."""
        for table in tables(self.result):
            if table.rows:
                text.line((table.title, "bold"))
                text.table(table.columns, table.rows[:MOST_ROWS], kinds=table.kinds)
                left = len(table.rows) - MOST_ROWS
                if left > 0:
                    text.line(f"and {plural(left, 'more row')}; --json has all")
                text.line()
        write_closed(text, self.result.closed)
        records = sum(size.records for size in self.result.sizes)
        text.line(
            f"{plural(len(self.result.sizes), 'bank')}, {plural(records, 'record')}, "
            f"{plural(len(self.result.outliers), 'outlier')}, "
            f"{plural(len(self.result.disagreements), 'disagreement')}"
        )
