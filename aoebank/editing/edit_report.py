"""Tell what an edit changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.diffing.report import field_value
from aoebank.editing.edit import EditedField, EditResult
from aoebank.errors import AoebankError
from aoebank.report.output import Text, location_document, members, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class EditReport:
    """The values that changed, then a line per file, then the counts."""

    result: EditResult
    is_dry_run: bool = False
    schema: str = "aoebank.edit/1"
    error: AoebankError | None = None

    @property
    def exit_code(self) -> int:
        """Return 1 if no record was meant."""
        return 0 if self.result.matched else 1

    def document(self) -> Mapping[str, object]:
        """Return counts per file, changed values and paths."""
        result = self.result
        return {
            "op": result.op,
            "dry_run": self.is_dry_run,
            "reader": None
            if result.reader is None
            else {
                "name": result.reader.name,
                "source": result.reader.source,
                "guessed": result.is_guessed,
            },
            **members(result, "matched changed"),
            "files": [members(file, "path records matched changed") for file in result.files],
            "fields": [_field_document(field) for field in result.fields],
            "written": [str(path) for path in result.written],
        }

    def write(self, text: Text) -> None:
        """Write what became of values, and the files that changed."""
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
