"""Tell what changed between two banks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.formats.json_text import dumps
from aoebank.ops.diff import ChangeKind, DiffResult, RecordChange
from aoebank.ops.field_diff import FieldChange
from aoebank.report.output import Text, plural

_WORDS = {
    ChangeKind.STRATEGY: ("strategy changed", "magenta"),
    ChangeKind.SLOWER: ("slower", "red"),
    ChangeKind.FASTER: ("faster", "green"),
    ChangeKind.RETIMED: ("re-timed", "yellow"),
    ChangeKind.ADDED: ("added", "green"),
    ChangeKind.REMOVED: ("removed", "red"),
    ChangeKind.DETAILS: ("details changed", "cyan"),
    ChangeKind.BROKEN: ("broken", "bold red"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """A line per changed record, and a summary."""

    result: DiffResult
    schema: str = "aoebank.diff/1"
    error: AoebankError | None = None

    @property
    def exit_code(self) -> int:
        """Return 1 if anything differs."""
        return 1 if self.result.changes else 0

    def document(self) -> Mapping[str, object]:
        """Return the changes and the counts."""
        return {
            "a": str(self.result.a),
            "b": str(self.result.b),
            "unchanged": self.result.unchanged,
            "counts": {str(kind): self.result.count(kind) for kind in ChangeKind},
            "changes": [_document(change) for change in self.result.changes],
        }

    def write(self, text: Text) -> None:
        """Write the changes file by file, then the counts."""
        file = None
        for change in self.result.changes:
            if change.file != file:
                file = change.file
                text.line((file, "bold"))
            _write(text, change)
        counts = [
            f"{self.result.count(kind)} {_WORDS[kind][0]}"
            for kind in ChangeKind
            if self.result.count(kind)
        ]
        summary = ", ".join(counts) or "no difference"
        text.line(f"{summary} ({plural(self.result.unchanged, 'record')} unchanged)")


def _write(text: Text, change: RecordChange) -> None:
    text.line(f"  {change.key}  ", _WORDS[change.kind], _times(change))
    for field in change.fields:
        text.line(f"      {field.pointer or '/'}: {_value(field, 'a')} -> {_value(field, 'b')}")
    if change.problem:
        text.line(f"      {change.problem.splitlines()[0]}")


def _times(change: RecordChange) -> str:
    costs = [cost for cost in (change.cost_a_us, change.cost_b_us) if cost is not None]
    ratio = change.cost_ratio
    if ratio is None:
        return f"  {costs[0]:g} us" if costs else ""
    if ratio == 1:
        return f"  {costs[0]:g} us, as before"
    return f"  {costs[0]:g} -> {costs[1]:g} us ({ratio:.3f}x the time)"


def _value(field: FieldChange, side: str) -> str:
    if not (field.has_a if side == "a" else field.has_b):
        return "(absent)"
    return dumps(field.a if side == "a" else field.b)


def _document(change: RecordChange) -> dict[str, object]:
    members: dict[str, object] = {
        "kind": str(change.kind), "file": change.file, "key": change.key,
        "op_type": change.op_type, "cost_a_us": change.cost_a_us,
        "cost_b_us": change.cost_b_us, "cost_ratio": change.cost_ratio,
        "fields": [_field(field) for field in change.fields],
    }  # fmt: skip
    if change.problem:
        members["problem"] = change.problem
    return members


def _field(field: FieldChange) -> dict[str, object]:
    members: dict[str, object] = {"pointer": field.pointer}
    if field.has_a:
        members["a"] = field.a
    if field.has_b:
        members["b"] = field.b
    return members
