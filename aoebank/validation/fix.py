"""Mend what can be mended without knowing what was meant, and nothing else.

A fix is planned on bytes, one safe class after the other. Each step is parsed and checked
again: one that would lose or change an answer, or bring a new finding, is not taken.
"""

from __future__ import annotations

import difflib
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from aoebank.errors import AoebankError, BankPathError
from aoebank.formats.protocol import Format, ParsedFile, find_error
from aoebank.formats.provenance import parse_provenance
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM
from aoebank.model.codes import FIXED_CODES, MENDING, FixClass
from aoebank.model.digest import sha256_of
from aoebank.model.finding import Finding
from aoebank.model.record import Record
from aoebank.report.output import Report, Text, error_document, plural
from aoebank.storage.bank import load_file, read_there
from aoebank.storage.tree import FileKind, find_closed
from aoebank.storage.writing.atomic import tree_of
from aoebank.storage.writing.links import find_links
from aoebank.storage.writing.staged import FileWrite, write_files
from aoebank.validation.run import check_bank
from aoebank.validation.selection import Selection
from aoebank.validation.source import DiskFiles

_MEMBER_CODES = ("AB302", "AB303")  # the name of a member is the key
_VALUE_CODES = ("AB307", "AB308")  # a value beside the record, ignored by readers
_AMBIGUOUS = frozenset({"AB109", "AB301", "AB305", "AB306", "AB310", "AB312"})

_Edit = tuple[int, int, bytes]


def fix_keys(parsed: ParsedFile, findings: tuple[Finding, ...]) -> bytes:
    """Return the file with identities replaced by the expected ones, in place.

    A key that another record already has stays wrong: which of the two is meant is not
    for a program to say.
    """
    edits: dict[int, _Edit] = {}
    taken = set(parsed.keys)
    for finding in findings:
        if finding.expected is None:
            continue
        if finding.code in _MEMBER_CODES:
            number = _member_of(parsed, finding)
            if number is None or finding.expected in taken:
                continue
            taken.add(finding.expected)
            edits[parsed.starts[number]] = _name_edit(parsed, number, finding.expected)
        elif finding.code == "AB314":  # its key is right, and spelled in another way
            number = _member_of(parsed, finding)
            if number is not None and parsed.keys.count(parsed.keys[number]) == 1:
                start, end = parsed.starts[number], parsed.ends[number]
                edits[start] = (start, end, parsed.format.respell_key(parsed, number))
        elif finding.code in _VALUE_CODES and finding.location.pointer.endswith("/id"):
            edit = _value_edit(parsed, finding, finding.expected)
            if edit is not None:
                edits[edit[0]] = edit
    return _apply(parsed.data, edits)


def fix_order(parsed: ParsedFile, findings: tuple[Finding, ...]) -> bytes:
    """Return the file with the fastest candidate first, and records sorted by key.

    Records change places, separators stay. A file that is broken somewhere keeps its order.
    """
    slow = {
        finding.location.pointer.split("/")[1] for finding in findings if finding.code == "AB403"
    }
    changes = _fastest_first(parsed, slow)
    if changes:
        data = parsed.format.serialize(parsed, changes)
        parsed = parsed.format.parse(data, parsed.path)
    codes = {finding.code for finding in findings}
    is_fixed = not parsed.format.may_be_sorted or "AB310" in codes
    if is_fixed or find_error(parsed) is not None:
        return parsed.data
    # sorted() is stable, so of equal keys the readers still use the same one
    order = sorted(range(len(parsed)), key=parsed.keys.__getitem__)
    edits = {
        parsed.starts[slot]: (parsed.starts[slot], parsed.ends[slot], parsed.raw(number))
        for slot, number in enumerate(order)
        if slot != number
    }
    return _apply(parsed.data, edits)


def fix_text(parsed: ParsedFile, findings: tuple[Finding, ...]) -> bytes:
    """Return the file as its writer would write it, records in their order.

    A file with anything in it that would get lost, be it broken or just twice, stays.
    """
    if find_error(parsed) is not None or any(finding.code in _AMBIGUOUS for finding in findings):
        return parsed.data
    records = [parsed.format.record(parsed, number) for number in range(len(parsed))]
    plain: Mapping[str, Record | None] = {record.key: replace(record) for record in records}
    if not plain:
        return parsed.data
    # else a header line or a property of the file would be lost
    has_head = parsed.properties or parsed.inside
    if (parsed.format.may_be_sorted or parsed.format.brackets) and not has_head:
        fresh = parsed.format.parse(parsed.format.empty, parsed.path)
        return parsed.format.serialize(fresh, plain)
    return parsed.format.serialize(parsed, plain)


def _member_of(parsed: ParsedFile, finding: Finding) -> int | None:
    """Return the position of the record a finding is in; None if it is in none."""
    place = finding.location.start
    number = bisect_right(parsed.starts, place) - 1
    return number if number >= 0 and place < parsed.ends[number] else None


def _name_edit(parsed: ParsedFile, number: int, key: str) -> _Edit:
    text = parsed.raw(number).decode("latin-1")  # a byte is a character, so offsets are bytes
    _, length = json_text.scan(text, 0)
    start = parsed.starts[number]
    return start, start + length, json_text.dumps(key).encode("ascii")


def _value_edit(parsed: ParsedFile, finding: Finding, expected: str) -> _Edit | None:
    start, end = finding.location.start, finding.location.end
    text = parsed.data[start:end].decode("latin-1")
    try:
        _, length = json_text.scan(text, 0)
        json_text.loads(expected)
    except json_text.JsonTextError:
        return None
    return start, start + length, expected.encode("ascii", errors="replace")


def _fastest_first(parsed: ParsedFile, tokens: set[str]) -> dict[str, Record | None]:
    changes: dict[str, Record | None] = {}
    for number, key in enumerate(parsed.keys):
        if json_text.pointer([key])[1:] in tokens and parsed.find(key) == number:
            changes[key] = _sorted_answers(parsed.format.record(parsed, number))
    return changes


def _sorted_answers(record: Record) -> Record:
    answers = sorted(
        record.answers,
        key=lambda answer: float("inf") if answer.cost_us is None else answer.cost_us,
    )
    best, *others = answers
    return replace(
        record,
        workload=best.workload,
        strategy=best.strategy,
        cost_us=best.cost_us,
        origin=best.origin,
        extra=best.extra,
        alternatives=tuple(others),
    )


def _apply(data: bytes, edits: Mapping[int, _Edit]) -> bytes:
    parts: list[bytes] = []
    place = 0
    for start in sorted(edits):
        _, end, text = edits[start]
        parts += (data[place:start], text)
        place = end
    parts.append(data[place:])
    return b"".join(parts)


_BLANK_LINE = re.compile(rb"^[ \t\r]*\n|^[ \t\r]+\Z", re.MULTILINE)
_HOPELESS = frozenset({"AB102", "AB104"})  # somebody has to decide what the file should say


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFix:
    """Planned fix of one file."""

    path: Path
    root: Path | None = None  # The tree the file was met in; None for its folder
    classes: tuple[FixClass, ...]  # What was done, in order
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOutcome:
    """A fix and whether it was written; `error` says why not.

    A file that `fmt` cannot read has a fix that changes nothing.
    """

    fix: FileFix
    is_written: bool
    error: BankPathError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A file at one step: its bytes and what a check says about them."""

    data: bytes
    parsed: ParsedFile | None
    findings: tuple[Finding, ...]


def plan_fixes(
    paths: Iterable[Path],
    *,
    selection: Selection | None = None,
    classes: Collection[FixClass] | None = None,
    closed: list[BankPathError] | None = None,
) -> Iterator[FileFix]:
    """Yield the fixes of each file of paths and trees; nothing is written.

    Args:
        selection: Only classes that mend one of these codes; all by default.
        classes: Only these; by default `MENDING`, and what mends a code that is selected.
        closed: Gets the error of each file or folder that cannot be read; a check tells too.
    """
    allowed = [
        fix_class
        for fix_class in FixClass
        if fix_class in (_default(selection) if classes is None else classes)
        and _is_wanted(fix_class, selection)
    ]
    asked = tuple(paths)
    closed = [] if closed is None else closed
    for entry in DiskFiles().iter_entries(asked, []):
        closed += filter(None, [find_closed(entry)])
        if entry.kind not in (FileKind.BANK, FileKind.SIDE_CAR):
            continue
        try:
            fix = _plan(entry.path, read_there(entry.path), entry.kind, allowed)
        except BankPathError as error:
            closed.append(error)
            continue
        if fix is not None:
            yield replace(fix, root=tree_of(entry.path, asked))


def apply_fixes(fixes: Iterable[FileFix]) -> Iterator[FixOutcome]:
    """Write fixes, each under the lock of its file, unless that is not what was planned on.

    A link and what it leads to are written together, so that equal fixes leave the link one.
    """
    groups: dict[str, list[FileFix]] = {}
    for fix in fixes:
        groups.setdefault(os.path.realpath(fix.path), []).append(fix)
    has_links = cache(lambda root: bool(find_links(root)))
    for group in groups.values():
        error = None
        changes = [
            FileWrite(
                path=fix.path,
                data=fix.after,
                old_sha256=sha256_of(fix.before),
                root=fix.root or fix.path.parent,
            )
            for fix in group
        ]
        try:
            write_files(changes, settles_links=any(has_links(change.root) for change in changes))
        except BankPathError as problem:
            error = problem
        for fix in group:
            yield FixOutcome(fix=fix, is_written=error is None, error=error)


def unreadable(error: BankPathError) -> FixOutcome:
    """Return the outcome of a file that cannot be read."""
    assert error.path is not None
    fix = FileFix(path=error.path, classes=(), before=b"", after=b"")
    return FixOutcome(fix=fix, is_written=False, error=error)


def _default(selection: Selection | None) -> tuple[FixClass, ...]:
    """Return the classes that are not asked for by name."""
    if selection is None or not selection.select:
        return MENDING
    return tuple(
        fix_class
        for fix_class in FixClass
        if fix_class in MENDING or any(map(selection.holds, FIXED_CODES[fix_class]))
    )


def _is_wanted(fix_class: FixClass, selection: Selection | None) -> bool:
    if selection is None or not (selection.select or selection.ignore):
        return True
    if fix_class is FixClass.TEXT:  # mends no finding, so nobody can have selected it
        return not selection.select
    return any(map(selection.holds, FIXED_CODES[fix_class]))


def _plan(path: Path, data: bytes, kind: FileKind, allowed: Iterable[FixClass]) -> FileFix | None:
    format_ = load_file(path).format if kind is FileKind.BANK else None
    state = _check(data, path, format_)
    if any(finding.code in _HOPELESS for finding in state.findings):
        return None
    done: set[FixClass] = set()
    for _ in FixClass:  # a step may be safe only behind a later one
        start = state.data
        for fix_class in allowed:
            after = _step(state, fix_class, path, format_)
            if after is not None:
                state = after
                done.add(fix_class)
        if start == state.data:
            break
    if state.data == data:
        return None
    classes = tuple(fix_class for fix_class in FixClass if fix_class in done)
    return FileFix(path=path, classes=classes, before=data, after=state.data)


def _step(state: _State, fix_class: FixClass, path: Path, format_: Format | None) -> _State | None:
    """Return the file after one class of fixes; None if that changes nothing or is not safe."""
    new = _STEPS[fix_class](state)
    if new == state.data:
        return None
    after, before = _check(new, path, format_), state
    if fix_class is FixClass.BOM:  # behind a second mark readers see nothing to compare with
        before = _check(BOM + new, path, format_)
    return after if _is_safe(before, after, fix_class) else None


def _check(data: bytes, path: Path, format_: Format | None) -> _State:
    if format_ is None:
        findings = parse_provenance(data, path).findings
        return _State(data=data, parsed=None, findings=findings)
    parsed = format_.parse(data, path)
    return _State(data=data, parsed=parsed, findings=tuple(check_bank(parsed)))


def _is_safe(before: _State, after: _State, fix_class: FixClass) -> bool:
    """True if all answers are still there and nothing new is wrong."""
    worse = Counter(finding.code for finding in after.findings)
    worse.subtract(finding.code for finding in before.findings)
    if any(number > 0 for number in worse.values()):
        return False
    if before.parsed is None or after.parsed is None:
        return True
    return len(before.parsed) == len(after.parsed) and _same_answers(
        before.parsed, after.parsed, fix_class
    )


def _same_answers(before: ParsedFile, after: ParsedFile, fix_class: FixClass) -> bool:
    if fix_class in (FixClass.KEY, FixClass.ORDER):  # what these change is the point of them
        return sorted(map(_answers, before.iter_records())) == sorted(
            map(_answers, after.iter_records())
        )
    return list(before.iter_records()) == list(after.iter_records())


def _answers(record: Record) -> list[str]:
    """Return all answers of a record in an order that does not depend on the file."""
    extra = {name: value for name, value in record.extra.items() if name != "id"}
    return sorted(repr(answer.facts) for answer in replace(record, extra=extra).answers)


def _fix_bom(state: _State) -> bytes:
    data = state.data
    while data.startswith(BOM):  # editors that each add one leave several
        data = data.removeprefix(BOM)
    return data


def _fix_line_ends(state: _State) -> bytes:
    return state.data.replace(b"\r\n", b"\n")


def _fix_blank_lines(state: _State) -> bytes:
    parsed = state.parsed
    if parsed is not None and parsed.format.brackets:
        return state.data
    if not state.data.strip():
        return state.data  # an empty bank is not what a blank one was meant to be
    return _BLANK_LINE.sub(b"", state.data)


def _of_records(step: Callable[[ParsedFile, tuple[Finding, ...]], bytes]) -> _Step:
    def fix(state: _State) -> bytes:
        if state.parsed is None:
            return state.data
        try:
            return step(state.parsed, state.findings)
        except AoebankError:  # a record that cannot be read is told by the check
            return state.data

    return fix


_Step = Callable[[_State], bytes]
_STEPS: dict[FixClass, _Step] = {
    FixClass.BOM: _fix_bom,
    FixClass.CRLF: _fix_line_ends,
    FixClass.BLANK: _fix_blank_lines,
    FixClass.KEY: _of_records(fix_keys),
    FixClass.ORDER: _of_records(fix_order),
    FixClass.TEXT: _of_records(fix_text),
}


ALIGNED_LINES = 2000  # above it lines are not paired up: that takes quadratic time
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def write_fixes(text: Text, outcomes: Sequence[FixOutcome], *, is_dry_run: bool) -> None:
    """Write the diff of each file, then what was done."""
    for outcome in outcomes:
        write_diff(text, outcome.fix)
    for outcome in outcomes:
        done = "would fix" if is_dry_run else "fixed" if outcome.is_written else "not fixed"
        text.line(f"{done} {outcome.fix.path}: {', '.join(outcome.fix.classes)}")
    if not outcomes:
        text.line("nothing to fix")


def write_diff(text: Text, fix: FileFix) -> None:
    """Write the unified diff of a fix."""
    for line in diff_lines(fix):
        text.line((line, _STYLES.get(line[:1], "")))


def fixes_document(outcomes: Sequence[FixOutcome]) -> list[Mapping[str, object]]:
    """Return the members of fixes: path, classes, whether written, the diff."""
    documents: list[Mapping[str, object]] = []
    for outcome in outcomes:
        document: dict[str, object] = {
            "path": str(outcome.fix.path),
            "classes": [str(fix_class) for fix_class in outcome.fix.classes],
            "written": outcome.is_written,
            "diff": "".join(f"{line}\n" for line in diff_lines(outcome.fix)),
        }
        if outcome.error is not None:
            document["error"] = error_document(outcome.error)
        documents.append(document)
    return documents


def diff_lines(fix: FileFix, *, aligned: int = ALIGNED_LINES) -> Iterator[str]:
    """Yield the lines of a unified diff, without line ends; `\\r` stays to be seen.

    Args:
        aligned: Most lines that are paired up; more become one hunk.
    """
    before, after = (_lines(data) for data in (fix.before, fix.after))
    head = _common(before, after)
    limit = min(len(before), len(after)) - head
    tail = _common(before[::-1], after[::-1], limit)
    if max(len(before), len(after)) - head - tail > aligned:
        lines = _one_hunk(str(fix.path), before, after, head, tail)
    else:
        lines = difflib.unified_diff(before, after, f"a/{fix.path}", f"b/{fix.path}", lineterm="")
    for line in lines:
        yield from line.split("\n")


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", errors="backslashreplace")
    lines = text.split("\n")
    if lines[-1]:  # as diff marks it; the next line is always another one
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _common(a: Sequence[str], b: Sequence[str], limit: int | None = None) -> int:
    number = 0
    for left, right in zip(a, b, strict=False):
        if left != right or number == limit:
            break
        number += 1
    return number


def _one_hunk(
    path: str, before: Sequence[str], after: Sequence[str], head: int, tail: int
) -> Iterator[str]:
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    yield f"--- a/{path}"
    yield f"+++ b/{path}"
    yield f"@@ -{head + 1},{len(old)} +{head + 1},{len(new)} @@"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatReport(Report):
    """A line for each file that is not, and what became of it."""

    outcomes: tuple[FixOutcome, ...]
    is_check: bool
    has_diff: bool = False
    schema: str = "aoebank.fmt/1"

    @property
    def error(self) -> AoebankError | None:
        """The error of the first file that could not be read or written."""
        return next((outcome.error for outcome in self.outcomes if outcome.error), None)

    @property
    def exit_code(self) -> int:
        """Return 1 if a file that was only looked at is in another form."""
        if self.error is not None:
            return self.error.exit_code
        return int(self.is_check and bool(self.outcomes))

    def document(self) -> Mapping[str, object]:
        return {"check": self.is_check, "files": fixes_document(self.outcomes)}

    def write(self, text: Text) -> None:
        for outcome in self.outcomes:
            if self.has_diff:
                write_diff(text, outcome.fix)
            done = "would format" if self.is_check else "formatted"
            if outcome.error is not None:
                done = "not formatted"
            what = ", ".join(outcome.fix.classes) or (outcome.error and outcome.error.problem)
            text.line(f"{done} {outcome.fix.path}: {what}")
        number = sum(outcome.error is None for outcome in self.outcomes)
        done = "would be formatted" if self.is_check else "formatted"
        if number or self.outcomes:
            text.line(f"{plural(number, 'file')} {done}")
        else:  # a broken file keeps its order and text
            text.line("all sound files are in this form")
