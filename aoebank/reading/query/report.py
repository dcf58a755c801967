"""Tell the answer to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.reading.query.run import QueryResult, Value
from aoebank.report.closed import ReadingReport, closed_document, write_closed
from aoebank.report.output import Text, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport(ReadingReport[QueryResult]):
    """A table of rows."""

    schema: str = "aoebank.query/1"

    def document(self) -> Mapping[str, object]:
        """Return the columns, and the rows as lists."""
        return {
            "columns": list(self.result.columns),
            "rows": [list(row) for row in self.result.rows],
            "unreadable": closed_document(self.result.closed),
        }

    def write(self, text: Text) -> None:
        """Write the table and how many rows it has."""
        rows = self.result.rows
        if rows:
            kinds = "".join(
                "r" if _is_number(column) else "-" for column in zip(*rows, strict=True)
            )
            text.table(self.result.columns, ([_cell(v) for v in row] for row in rows), kinds=kinds)
        write_closed(text, self.result.closed)
        text.line(plural(len(rows), "row"))


def _is_number(column: Sequence[Value]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in column)


def _cell(value: Value) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
