"""Tell what changed between two banks, as text and as one JSON document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aoebank.diffing.fields import FieldChange, field_value
from aoebank.diffing.result import (
    ChangeKind,
    DiffResult,
    FileMove,
    HeaderChange,
    RecordChange,
    RollupRow,
    TimeSummary,
    TimeVerdict,
)
from aoebank.errors import AoebankError, UsageError
from aoebank.model.digest import canonical_text
from aoebank.parameters.context import make_ratio
from aoebank.report.output import Column, Report, Text, cut, error_document, members, plural

_Edit = tuple[str | None, tuple[tuple[str, str | None, str | None], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditGroup:
    """Records of one operator in which the same members changed from and to the same values.

    Or records of one key that several files, those of related chips, got or lost.
    """

    changes: tuple[RecordChange, ...]  # Two at least, in the order of the comparison

    @property
    def first(self) -> RecordChange:
        """The example."""
        return self.changes[0]

    @property
    def files(self) -> int:
        """Number of files they are in."""
        return len({change.file for change in self.changes})


def group_edits(changes: Iterable[RecordChange]) -> tuple[EditGroup, ...]:
    """Return the edits that more than one record got, the most frequent first.

    A record with two different times has something of its own to tell, and is in no group.
    """
    groups: dict[_Edit, list[RecordChange]] = {}
    for change in changes:
        if _is_edit_alone(change):
            groups.setdefault(_edit(change), []).append(change)
    found = (EditGroup(changes=tuple(group)) for group in groups.values() if len(group) > 1)
    return tuple(sorted(found, key=lambda group: -len(group.changes)))


def group_shapes(changes: Iterable[RecordChange]) -> tuple[EditGroup, ...]:
    """Return the keys that more than one file got or lost, in the order of the comparison.

    A record with a time has something of its own to tell, and is in no group.
    """
    groups: dict[tuple[str, str, str | None], list[RecordChange]] = {}
    for change in changes:
        is_timed = change.cost_a_us is not None or change.cost_b_us is not None
        if change.kind in (ChangeKind.ADDED, ChangeKind.REMOVED) and not is_timed:
            groups.setdefault((change.kind, change.key, change.op_type), []).append(change)
    found = (EditGroup(changes=tuple(group)) for group in groups.values())
    return tuple(group for group in found if group.files > 1)


def _is_edit_alone(change: RecordChange) -> bool:
    ratio = change.cost_ratio
    is_timed_anew = ratio is not None and ratio != 1
    return change.kind is ChangeKind.STRATEGY and bool(change.fields) and not is_timed_anew


def _edit(change: RecordChange) -> _Edit:
    return change.op_type, tuple(_values(change.fields))


def _values(fields: Iterable[FieldChange]) -> Iterator[tuple[str, str | None, str | None]]:
    for field in fields:
        a = canonical_text(field.a) if field.has_a else None
        b = canonical_text(field.b) if field.has_b else None
        yield field.pointer, a, b


WORDS = {
    ChangeKind.BROKEN: ("broken", "bold red"),
    ChangeKind.STRATEGY: ("strategy changed", "magenta"),
    ChangeKind.SLOWER: ("slower", "red"),
    ChangeKind.FASTER: ("faster", "green"),
    ChangeKind.RETIMED: ("re-timed", "yellow"),
    ChangeKind.ADDED: ("added", "green"),
    ChangeKind.REMOVED: ("removed", "red"),
    ChangeKind.DETAILS: ("details changed", "cyan"),
}

_MOVE = "a b equal records_a records_b similarity soc_a soc_b"
_CHANGE = (
    "kind file key soc_version op_type workload cost_a_us cost_b_us cost_ratio verdict "
    "noise_ratio weight"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport(Report):
    """Regressions, then edits that many records got, then the others by file, then the figures."""

    result: DiffResult
    is_stat: bool = False  # Whether to tell the figures only
    # Whether the text has a line for each record; else equal edits are told once.
    has_all: bool = False
    # Slow-down beyond which the answer is "no"; by default any change is.
    fail_on_ratio: float | None = None
    skips_broken: bool = False  # Whether files that could not be compared are told and are no error
    schema: str = "aoebank.diff/1"

    @property
    def error(self) -> AoebankError | None:
        """The error of the first file that could not be compared; None with `skips_broken`."""
        is_told = self.result.problems and not self.skips_broken
        return self.result.problems[0] if is_told else None

    @property
    def exit_code(self) -> int:
        """1 for a difference, or with a threshold for a regression beyond it."""
        if self.error is not None:
            return self.error.exit_code
        if self.fail_on_ratio is not None:
            return 1 if self.result.regressions(self.fail_on_ratio) else 0
        result = self.result
        return 1 if result.changes or result.moves or result.headers else 0

    def document(self) -> Mapping[str, object]:
        result = self.result
        found: dict[str, object] = {
            **members(result, "a b unchanged moved"),
            "counts": {str(kind): result.count(kind) for kind in ChangeKind},
            "verdicts": {str(verdict): result.count_verdict(verdict) for verdict in TimeVerdict},
            "noise_ratio": result.noise_ratio,
            "times": _times_document(result.times()),
            "rollup": [_row_document(row) for row in result.rollup],
            "moves": [members(move, _MOVE) for move in result.moves],
            "headers": [members(header, "file a b") for header in result.headers],
            "not_compared": [error_document(problem) for problem in result.problems],
        }
        if self.fail_on_ratio is not None:
            found["fail_on_ratio"] = self.fail_on_ratio
            found["regressions"] = len(result.regressions(self.fail_on_ratio))
        if not self.is_stat:
            found["changes"] = [_document(change) for change in result.changes]
            found["same_edits"] = [_group_document(group) for group in group_edits(result.changes)]
        return found

    def write(self, text: Text) -> None:
        if not self.is_stat:
            _write_moves(text, self.result.moves, self.result.target_word)
            for header in self.result.headers:
                text.line(("header changed  ", "cyan"), header.file)
                text.line(f"      {header_text(header)}")
            changes = self.result.changes
            edits = () if self.has_all else group_edits(changes)
            shapes = () if self.has_all else group_shapes(changes)
            told = {id(change) for group in (*edits, *shapes) for change in group.changes}
            others = (change for change in changes if id(change) not in told)
            _write_changes(text, others, edits, shapes)
        else:
            _write_rollup(text, self.result)
        for problem in self.result.problems:
            text.line(("not compared: ", "bold red"), problem.headline)
        for line in summary_lines(self.result, self.fail_on_ratio):
            text.line(line)


def summary_lines(result: DiffResult, fail_on_ratio: float | None = None) -> list[str]:
    """Return the counts, what the times say, and what does not count, a line each."""
    counts = [f"{result.count(kind)} {WORDS[kind][0]}" for kind in ChangeKind if result.count(kind)]
    if result.moves:
        counts.append(f"{result.moved} moved in {plural(len(result.moves), 'file')}")
    if result.headers:
        changed = plural(len(result.headers), "file")
        counts.append(f"header changed in {changed}")
    if result.problems:
        counts.append(f"{plural(len(result.problems), 'file')} not compared")
    summary = ", ".join(counts) or "no difference"
    lines = [f"{summary} ({plural(result.unchanged, 'record')} unchanged)"]
    if not (counts or result.unchanged):  # banks without a record, or none that is asked for
        lines = ["no record to compare"]
    times = result.times()
    if times is not None:
        lines.append(_times_line(result, times))
    lost = result.count_verdict(TimeVerdict.NOT_COMPARABLE)
    if lost:
        lines.append(
            f"{plural(lost, 'record')} with times of different environments: shown, not judged"
        )
    if fail_on_ratio is not None:
        number = len(result.regressions(fail_on_ratio))
        found = plural(number, "record") if number else "no record"
        lines.append(f"{found} slower by more than {percent(fail_on_ratio)} beyond noise")
    return lines


def changes_by_kind(result: DiffResult) -> Iterator[tuple[str, list[RecordChange]]]:
    """Yield the slower records, whatever else changed in them, then the others by kind."""
    others: dict[ChangeKind, list[RecordChange]] = {kind: [] for kind in ChangeKind}
    slower: list[RecordChange] = []
    for change in result.changes:
        found = slower if change.verdict is TimeVerdict.SLOWER else others[change.kind]
        found.append(change)
    yield "Slower, worst first", slower
    others.pop(ChangeKind.SLOWER)
    for kind, found in others.items():
        yield WORDS[kind][0].capitalize(), found


def times_text(change: RecordChange) -> str:
    """Return both times of a record and their ratio, for people."""
    costs = [cost for cost in (change.cost_a_us, change.cost_b_us) if cost is not None]
    ratio = change.cost_ratio
    if ratio is None:
        return f"{costs[0]:g} us" if costs else ""
    if ratio == 1:
        return f"{costs[0]:g} us, as before"
    return f"{costs[0]:g} -> {costs[1]:g} us ({ratio:.3f}x the time{verdict_text(change)})"


def verdict_text(change: RecordChange) -> str:
    """Return a caveat on a ratio; empty if there is none."""
    if change.verdict is TimeVerdict.NOT_COMPARABLE:
        return ", not comparable"
    if change.verdict is TimeVerdict.WITHIN_NOISE:
        return f", within {percent(change.noise_ratio)} noise"
    return ""


def percent(ratio: float) -> str:
    """Return a ratio as a percentage.

    >>> percent(0.035)
    '3.5 %'
    """
    return f"{100 * ratio:.3g} %"


def header_text(header: HeaderChange) -> str:
    """Return the changed fields of a header in words, `err -> errRatio`.

    >>> header_text(HeaderChange(file="x.csv", a="cu_num,M,err", b="cu_num,M,errRatio"))
    'err -> errRatio'
    """
    a, b = (re.split(r",(?! )| (?=\w+=)", text) for text in (header.a, header.b))
    old, new = ([part for part in one if part not in other] for one, other in ((a, b), (b, a)))
    parts = (" ".join(old) or "-", " ".join(new) or "-") if old or new else (header.a, header.b)
    return " -> ".join(cut(part, _HEADER_WIDTH) for part in parts)


def _write_moves(text: Text, moves: Iterable[FileMove], target_word: str) -> None:
    renamed = {(move.soc_a, move.soc_b): None for move in moves if move.soc_a and move.soc_b}
    for soc_a, soc_b in renamed:
        text.line((f"{target_word} renamed: ", "bold"), f"{soc_a} -> {soc_b}")
    for move in moves:
        share = f"({move.equal} of {plural(move.records_a, 'record')} equal)"
        text.line(("moved  ", "blue"), f"{move.a} -> {move.b}  {share}")


def _write_changes(
    text: Text,
    changes: Iterable[RecordChange],
    edits: Iterable[EditGroup],
    shapes: Iterable[EditGroup],
) -> None:
    """Write slower records first, then equal edits and shapes, then the other records by file."""
    others: dict[str, list[RecordChange]] = {}
    is_first = True
    for change in changes:
        if change.verdict is not TimeVerdict.SLOWER:
            others.setdefault(change.file, []).append(change)
            continue
        if is_first:
            text.line(("slower beyond noise, worst first", "bold"))
            is_first = False
        _write(text, change, in_file=f"  {change.file}")
    for group in edits:
        _write_group(text, group)
    for group in shapes:
        _write_shape(text, group)
    for file in sorted(others):
        text.line((file, "bold"))
        for change in others[file]:
            _write(text, change)


def _write(text: Text, change: RecordChange, in_file: str = "") -> None:
    times = times_text(change)
    text.line(
        f"  {change.key}  ",
        WORDS[change.kind],
        f"  {times}" if times else "",
        (f"  {change.workload}" if change.workload else "", "dim"),
        (in_file, "dim"),
    )
    _write_fields(text, change.told_fields)
    if change.problem:
        text.line(f"      {change.problem}")


def _write_group(text: Text, group: EditGroup) -> None:
    """Write an edit, how many records got it, and one of them."""
    first = group.first
    number, files = len(group.changes), plural(group.files, "file")
    op_type = f" of {first.op_type}" if first.op_type else ""
    text.line(
        (f"the same edit in {number} records{op_type}, {files}", "bold"),
        "  ",
        WORDS[first.kind],
    )
    _write_fields(text, first.told_fields)
    text.line(
        ("      such as ", "dim"),
        first.key,
        (f"  {first.workload}" if first.workload else "", "dim"),
        (f"  {first.file}", "dim"),
    )


def _write_shape(text: Text, group: EditGroup) -> None:
    """Write a shape that several files got or lost, and their targets."""
    first, socs = group.first, dict.fromkeys(one.soc_version or "-" for one in group.changes)
    op_type = f" of {first.op_type}" if first.op_type else ""
    text.line(
        (f"the same shape{op_type} in {plural(group.files, 'file')}", "bold"),
        "  ",
        WORDS[first.kind],
        (f"  {', '.join(socs)}", "dim"),
    )
    text.line(f"      {first.key}", (f"  {first.workload}" if first.workload else "", "dim"))


def _write_fields(text: Text, fields: Iterable[FieldChange]) -> None:
    for field in fields:
        old, new = field_value(field, of_b=False), field_value(field, of_b=True)
        unread = f"  (not used: {field.unread})" if field.unread else ""
        text.line(f"      {field.pointer or '/'}: {old} -> {new}", (unread, "dim"))


def _write_rollup(text: Text, result: DiffResult) -> None:
    rows = [row for row in result.rollup if not row.is_quiet]
    if rows:
        text.columns(rows, *rollup_columns(result))


def _number(number: int) -> str:
    return str(number) if number else "-"


def rollup_columns(result: DiffResult) -> tuple[Column[RollupRow], ...]:
    """Return the columns of the roll-up for a terminal, a page and a comment, names first."""
    return ((result.target_word, "l", lambda row: row.soc_version or "-"), *_ROLLUP)


_HEADER_WIDTH = 200  # of the part of a header that changed, in a line
_ROLLUP: tuple[Column[RollupRow], ...] = (
    ("op_type", "l", lambda row: row.op_type or "-"),
    ("slower", "r", lambda row: _number(row.slower)),
    ("faster", "r", lambda row: _number(row.faster)),
    ("strategy", "r", lambda row: _number(row.counts.get(ChangeKind.STRATEGY, 0))),
    ("re-timed", "r", lambda row: _number(row.counts.get(ChangeKind.RETIMED, 0))),
    ("added", "r", lambda row: _number(row.counts.get(ChangeKind.ADDED, 0))),
    ("removed", "r", lambda row: _number(row.counts.get(ChangeKind.REMOVED, 0))),
    ("moved", "r", lambda row: _number(row.moved)),
    ("unchanged", "r", lambda row: _number(row.unchanged)),
    ("mean", "r", lambda row: "-" if row.times is None else f"{row.times.mean_ratio:.3f}x"),
    ("worst", "r", lambda row: "-" if row.times is None else f"{row.times.worst_ratio:.3f}x"),
)


def _times_line(result: DiffResult, times: TimeSummary) -> str:
    slower = result.count_verdict(TimeVerdict.SLOWER)
    faster = result.count_verdict(TimeVerdict.FASTER)
    weighted = times.weighted_mean_ratio
    use = "" if weighted is None else f" ({weighted:.3f}x weighted by use)"
    return (
        f"{plural(times.records, 'record')} with two times: {slower} slower, {faster} faster "
        f"beyond {percent(result.noise_ratio)} noise; geometric mean {times.mean_ratio:.3f}x "
        f"the time{use}, worst {times.worst_ratio:.3f}x"
    )


def _times_document(times: TimeSummary | None) -> dict[str, object] | None:
    names = "records mean_ratio weighted_mean_ratio worst_ratio"
    return None if times is None else members(times, names)


def _row_document(row: RollupRow) -> dict[str, object]:
    return {
        **members(row, "soc_version op_type unchanged moved"),
        "counts": {str(kind): row.counts.get(kind, 0) for kind in ChangeKind},
        **members(row, "slower faster"),
        "times": _times_document(row.times),
    }


def _document(change: RecordChange) -> dict[str, object]:
    names = "file_a" if change.file_a is not None else ""
    return {
        **members(change, _CHANGE),
        "fields": [_field(field) for field in change.fields],
        **({"steps": [_field(field) for field in change.steps]} if change.steps else {}),
        **members(change, f"{names} problem" if change.problem else names),
    }


def _field(field: FieldChange) -> dict[str, object]:
    found: dict[str, object] = {"pointer": field.pointer}
    if field.has_a:
        found["a"] = field.a
    if field.has_b:
        found["b"] = field.b
    if field.unread:
        found["unread"] = field.unread
    return found


def _group_document(group: EditGroup) -> dict[str, object]:
    return {
        "records": len(group.changes),
        **members(group, "files op_type=first.op_type"),
        "example": {"file": group.first.file, "key": group.first.key},
        "fields": [_field(field) for field in group.first.fields],
    }


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> DiffReport:
    """Return the report on a comparison.

    Raises:
        UsageError: there is nothing to compare a path with, or a ratio is none.
    """
    if given["b"] is None and not given["a"].startswith(("git:", "snapshot:")):
        raise UsageError("Missing argument 'B'.", hint="aoebank diff --help")
    limit = given["fail_on_regression"]
    fail_on = None if limit is None else make_ratio(limit, "--fail-on-regression")
    return DiffReport(
        result=call(b="." if given["b"] is None else given["b"], fields=not given["stat"]),
        is_stat=given["stat"],
        has_all=given["has_all"],
        fail_on_ratio=fail_on,
        skips_broken=given["skip_broken"],
    )
