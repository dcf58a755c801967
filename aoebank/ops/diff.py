"""Compare two banks record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoebank.errors import BankNotFoundError, RecordError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.ops.field_diff import FieldChange, diff_fields, plain
from aoebank.storage.bank import Bank, load_file


class ChangeKind(StrEnum):
    """What happened to a record on the way from A to B."""

    STRATEGY = "strategy"
    SLOWER = "slower"
    FASTER = "faster"
    RETIMED = "retimed"
    ADDED = "added"
    REMOVED = "removed"
    DETAILS = "details"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record that is not the same in A and B.

    Attributes:
        file: Relative to the trees compared, or the name of the file.
        cost_ratio: Time in B / time in A; > 1 is slower; None without both times.
        fields: Members of the strategy that changed.
        problem: Why a record could not be read, for `ChangeKind.BROKEN`.
    """

    kind: ChangeKind
    file: str
    key: str
    op_type: str | None = None
    cost_a_us: float | None = None
    cost_b_us: float | None = None
    fields: tuple[FieldChange, ...] = ()
    problem: str = ""

    @property
    def cost_ratio(self) -> float | None:
        """Return time in B / time in A, or None unless both are known."""
        if self.cost_a_us is None or self.cost_b_us is None:
            return None
        return self.cost_b_us / self.cost_a_us


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffResult:
    """All changes from A to B; per file the worst first."""

    a: Path
    b: Path
    changes: tuple[RecordChange, ...]
    unchanged: int

    def count(self, kind: ChangeKind) -> int:
        """Return how many records changed in this way."""
        return sum(change.kind is kind for change in self.changes)


def diff(a: Path, b: Path) -> DiffResult:
    """Return what changed from `a` to `b`, both files or both trees.

    Raises:
        BankNotFoundError: one of them does not exist, or they are not of one kind.
        BankFormatError: a file is broken.
    """
    changes: list[RecordChange] = []
    unchanged = 0
    for name, old, new in _pairs(a, b):
        found, same = _diff_files(name, old, new)
        changes += sorted(found, key=_order)
        unchanged += same
    return DiffResult(a=a, b=b, changes=tuple(changes), unchanged=unchanged)


def _pairs(a: Path, b: Path) -> Iterator[tuple[str, Path | None, Path | None]]:
    for path in (a, b):
        if not path.exists():
            raise BankNotFoundError("no such file or directory", path=path)
    if a.is_dir() != b.is_dir():
        raise BankNotFoundError(
            "cannot compare a file with a tree", path=b,
            got="a directory" if b.is_dir() else "a file",
            expected="a directory" if a.is_dir() else "a file",
        )  # fmt: skip
    if not a.is_dir():
        yield b.name, a, b
        return
    left = {file.relative_to(a).as_posix(): file for file in Bank(a).iter_files()}
    right = {file.relative_to(b).as_posix(): file for file in Bank(b).iter_files()}
    for name in sorted(left.keys() | right.keys()):
        yield name, left.get(name), right.get(name)


def _load(path: Path | None) -> ParsedFile | None:
    if path is None:
        return None
    parsed = load_file(path)
    raise_if_broken(parsed)
    return parsed


def _diff_files(name: str, a: Path | None, b: Path | None) -> tuple[list[RecordChange], int]:
    old, new = _load(a), _load(b)
    keys = dict.fromkeys([*(old.keys if old else ()), *(new.keys if new else ())])
    changes: list[RecordChange] = []
    for key in keys:
        before = old.find(key) if old else None
        after = new.find(key) if new else None
        if old and new and before is not None and after is not None:
            if old.raw(before) == new.raw(after):
                continue
            change = _compare(name, key, (old, before), (new, after))
        elif old and before is not None:
            change = _lone(name, key, ChangeKind.REMOVED, (old, before))
        elif new and after is not None:
            change = _lone(name, key, ChangeKind.ADDED, (new, after))
        else:
            continue
        if change is not None:
            changes.append(change)
    return changes, len(keys) - len(changes)


_Place = tuple[ParsedFile, int]


def _record(place: _Place) -> Record:
    parsed, number = place
    return parsed.format.record(parsed, number)


def _lone(name: str, key: str, kind: ChangeKind, place: _Place) -> RecordChange:
    try:
        record = _record(place)
    except RecordError as error:
        return RecordChange(kind=ChangeKind.BROKEN, file=name, key=key, problem=str(error))
    cost = record.cost_us
    return RecordChange(
        kind=kind, file=name, key=key, op_type=record.op_type,
        cost_a_us=cost if kind is ChangeKind.REMOVED else None,
        cost_b_us=cost if kind is ChangeKind.ADDED else None,
    )  # fmt: skip


def _compare(name: str, key: str, old: _Place, new: _Place) -> RecordChange | None:
    try:
        a, b = _record(old), _record(new)
    except RecordError as error:
        return RecordChange(kind=ChangeKind.BROKEN, file=name, key=key, problem=str(error))
    kind = _kind(a, b)
    if kind is None:
        return None
    is_new_strategy = kind is ChangeKind.STRATEGY
    return RecordChange(
        kind=kind, file=name, key=key, op_type=b.op_type, cost_a_us=a.cost_us,
        cost_b_us=b.cost_us, fields=diff_fields(a.strategy, b.strategy) if is_new_strategy else (),
    )  # fmt: skip


def _kind(a: Record, b: Record) -> ChangeKind | None:
    if _canonical(a.strategy) != _canonical(b.strategy):
        return ChangeKind.STRATEGY
    if a.cost_us != b.cost_us:
        if a.cost_us is None or b.cost_us is None:
            return ChangeKind.RETIMED
        return ChangeKind.FASTER if b.cost_us < a.cost_us else ChangeKind.SLOWER
    same = a == b and _canonical(a.workload) == _canonical(b.workload)
    return None if same else ChangeKind.DETAILS


def _canonical(value: JsonValue) -> str:
    """Return a text that differs where the value does; for Python 1, 1.0 and True are equal."""
    return json.dumps(plain(value), sort_keys=True)


def _order(change: RecordChange) -> tuple[int, float, str]:
    ratio = change.cost_ratio
    return list(ChangeKind).index(change.kind), -(ratio or 0.0), change.key
