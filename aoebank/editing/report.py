"""Reports on edits: changed fields, and pruned records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.diffing.report import field_value
from aoebank.editing.edit import EditedField, EditResult
from aoebank.editing.prune import PruneResult
from aoebank.report.output import Report, Text, location_document, members, plural, write_rest


@dataclass(frozen=True, slots=True, kw_only=True)
class EditReport(Report):
    """The values that changed, then a line per file, then the counts."""

    result: EditResult
    is_dry_run: bool = False
    schema: str = "aoebank.edit/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no record was meant."""
        return 0 if self.result.matched else 1

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            "op": result.op,
            "dry_run": self.is_dry_run,
            "reader": None
            if result.reader is None
            else members(result, "name=reader.name source=reader.source guessed=is_guessed"),
            **members(result, "matched changed"),
            "files": [members(file, "path records matched changed") for file in result.files],
            "fields": [_field_document(field) for field in result.fields],
            "written": [str(path) for path in result.written],
        }

    def write(self, text: Text) -> None:
        result = self.result
        for field in result.fields:
            old, new = (field_value(field.change, of_b=of_b) for of_b in (False, True))
            example = f", such as {field.example}" if field.example else ""
            text.line(
                (f"{field.change.member}: {old} -> {new}", "bold"),
                f"  {plural(field.records, 'record')}",
                (example, "dim"),
            )
        for file in result.files:
            if not file.changed:
                continue
            text.line(f"  {file.path}  {file.changed} of {plural(file.records, 'record')}")
        judged = "nobody knows the fields of this operator: unchecked"
        if result.reader is not None:
            how = "as fields in the files tell" if result.is_guessed else "as asked for"
            judged = f"checked as {result.reader.name} reads them, {how}"
        end = ", nothing written (dry run)" if self.is_dry_run else ""
        text.line(
            f"{result.changed} changed of {plural(result.matched, 'record')} of {result.op} meant, "
            f"in {plural(len(result.files), 'file')}{end}; {judged}"
        )


def _field_document(field: EditedField) -> dict[str, object]:
    change = field.change
    found: dict[str, object] = {"field": change.member, "records": field.records}
    if change.has_a:
        found["a"] = change.a
    if change.has_b:
        found["b"] = change.b
    found["example"] = location_document(field.example) if field.example else None
    return found


MOST_ROWS = 50
"""Records listed on a terminal; the document has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport(Report):
    """A line per record that goes, then the counts."""

    result: PruneResult
    is_dry_run: bool = False
    schema: str = "aoebank.prune/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a file was left alone since it is broken."""
        return int(bool(self.result.broken))

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            "dry_run": self.is_dry_run,
            "pruned": len(result.records),
            "kept": result.kept,
            "records": [members(record, "path key reason detail") for record in result.records],
            **members(result, "broken written"),
        }

    def write(self, text: Text) -> None:
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
