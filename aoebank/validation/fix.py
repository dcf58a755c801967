"""Mend what can be mended without knowing what was meant, and nothing else.

A fix is planned on bytes, one safe class after the other. Each step is parsed and checked
again: one that would lose or change an answer, or bring a new finding, is not taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aoebank.errors import AoebankError, BankPathError
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.provenance import parse_provenance
from aoebank.formats.text.checks import BOM
from aoebank.model.codes import FIXED_CODES, MENDING, FixClass
from aoebank.model.digest import sha256_of
from aoebank.model.finding import Finding
from aoebank.model.record import Record
from aoebank.storage.bank import load_file
from aoebank.storage.tree import FileKind
from aoebank.storage.writing.atomic import tree_of
from aoebank.storage.writing.staged import staged_changes
from aoebank.validation.fix_records import fix_keys, fix_order, fix_text
from aoebank.validation.run import check_bank, iter_entries
from aoebank.validation.selection import Selection

_BLANK_LINE = re.compile(rb"^[ \t\r]*\n|^[ \t\r]+\Z", re.MULTILINE)
_HOPELESS = frozenset({"AB102", "AB104"})  # somebody has to decide what the file should say


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFix:
    """What would become of one file.

    Attributes:
        classes: What was done, in order.
        root: The tree the file was met in; None if a person named it.
    """

    path: Path
    root: Path | None = None
    classes: tuple[FixClass, ...]
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOutcome:
    """A fix and whether it was written; `error` says why not."""

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
) -> Iterator[FileFix]:
    """Yield the fixes of each file of paths and trees; nothing is written.

    Args:
        selection: Only classes that mend one of these codes; all by default.
        classes: Only these; by default `MENDING`, and what mends a code that is selected.
    """
    allowed = [
        fix_class
        for fix_class in FixClass
        if fix_class in (_default(selection) if classes is None else classes)
        and _is_wanted(fix_class, selection)
    ]
    asked = tuple(paths)
    for entry in iter_entries(asked, []):
        if entry.kind not in (FileKind.BANK, FileKind.SIDE_CAR):
            continue
        try:
            fix = _plan(entry.path, entry.path.read_bytes(), entry.kind, allowed)
        except (OSError, BankPathError):
            continue  # the check tells
        if fix is not None:
            yield replace(fix, root=tree_of(entry.path, asked))


def apply_fix(fix: FileFix) -> FixOutcome:
    """Write a fix under the lock of its file, unless the file is not what was planned on."""
    try:
        with staged_changes(root=fix.root) as changes:
            changes.put(fix.path, fix.after, old_sha256=sha256_of(fix.before))
            changes.commit()
    except BankPathError as error:
        return FixOutcome(fix=fix, is_written=False, error=error)
    return FixOutcome(fix=fix, is_written=True)


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
    """Return whether all answers are still there and nothing new is wrong."""
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
    first = (record.workload, record.strategy, record.cost_us, record.origin, extra)
    others = [
        (
            alternative.workload,
            alternative.strategy,
            alternative.cost_us,
            alternative.origin,
            alternative.extra,
        )
        for alternative in record.alternatives
    ]
    return sorted(map(repr, (first, *others)))


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
