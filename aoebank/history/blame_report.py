"""Tell where records come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aoebank.diffing.fields import diff_fields, plain
from aoebank.diffing.report import field_value
from aoebank.formats.text.json_text import dumps
from aoebank.history.blame import BlamedRecord, BlameResult, RecordVersion
from aoebank.history.changes import Move
from aoebank.history.log_report import version_document
from aoebank.history.snapshot_report import STYLES
from aoebank.model.record import Record
from aoebank.reading.show_report import provenance_document, write_provenance
from aoebank.report.output import Report, Text, cut, members

_INDENT = " " * 11
_MOST_FIELDS = 8
_LONGEST = 100  # of a value; --json has it whole


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameReport(Report):
    """The states of each record, newest first."""

    result: BlameResult
    schema: str = "aoebank.blame/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no version ever had such a record."""
        return 0 if self.result.records else 1

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "root key"),
            "records": [_document(blamed) for blamed in self.result.records],
        }

    def write(self, text: Text) -> None:
        if not self.result.records:
            text.line(f"{self.result.key}: no version has such a record")
        for number, blamed in enumerate(self.result.records):
            if number:
                text.line()
            _write(text, blamed)


def _write(text: Text, blamed: BlamedRecord) -> None:
    absent = "" if blamed.is_present else "  (no longer in the bank)"
    text.line((blamed.key, "bold"), f"  {blamed.file}{absent}")
    older = [*blamed.states[1:], None]
    for state, before in zip(blamed.states, older, strict=True):
        _write_state(text, state, before.record if before else None)
    for entry in blamed.provenance:
        write_provenance(text, entry)


def _write_state(text: Text, state: RecordVersion, before: Record | None) -> None:
    """Write a state and what it changed; of a record that came new, its time and strategy."""
    version = state.version
    who = "not recorded yet"
    if version is not None:
        tags = f" ({', '.join(version.tags)})" if version.tags else ""
        who = f"{version.label}{tags}  {version.time}  {version.who}"
    text.line("  ", (f"{state.move:<8}", STYLES[state.move]), f" {who}{_message(state)}")
    if state.record is None:
        return
    if before is None or state.move is not Move.CHANGED:
        strategy = cut(dumps(state.record.strategy), _LONGEST)
        text.line(f"{_INDENT}{_cost(state.record)}  strategy {strategy}")
        return
    for line in _changes(before, state.record):
        text.line(f"{_INDENT}{line}")


def _changes(before: Record, now: Record) -> Iterator[str]:
    """Yield the differences of two states of a record, a line each."""
    if _cost(before) != _cost(now):
        yield f"{_cost(before)} -> {_cost(now)}"
    changes = diff_fields(before.strategy, now.strategy)
    for change in changes[:_MOST_FIELDS]:
        old, new = (cut(field_value(change, of_b=of_b), _LONGEST) for of_b in (False, True))
        yield f"{change.pointer}: {old} -> {new}"
    if len(changes) > _MOST_FIELDS:
        yield f"and {len(changes) - _MOST_FIELDS} more members (--json has both strategies)"
    if not changes and _cost(before) == _cost(now):
        yield "strategy and time are the same; other members changed"


def _message(state: RecordVersion) -> str:
    lines = state.version.message.splitlines() if state.version else []
    return f"  {lines[0]}" if lines else ""


def _cost(record: Record) -> str:
    return "not measured" if record.cost_us is None else f"{record.cost_us:g} us"


def _document(blamed: BlamedRecord) -> dict[str, object]:
    return {
        **members(blamed, "file key present=is_present"),
        "states": [_state(state) for state in blamed.states],
        "provenance": [provenance_document(entry) for entry in blamed.provenance],
    }


def _state(state: RecordVersion) -> dict[str, object]:
    record = state.record
    return {
        "move": str(state.move),
        "version": version_document(state.version) if state.version else None,
        "record": None
        if record is None
        else {
            "cost_us": plain(record.cost_us),
            "origin": record.origin,
            "strategy": plain(record.strategy),
        },
    }
