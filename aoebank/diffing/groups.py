"""Changes of a comparison, those that are the same edit told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aoebank.diffing.change import ChangeKind, RecordChange
from aoebank.diffing.fields import FieldChange
from aoebank.model.digest import canonical_text

_Edit = tuple[str | None, tuple[tuple[str, str | None, str | None], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditGroup:
    """Records of one operator in which the same members changed from and to the same values.

    Or records of one key that several files, those of related chips, got or lost.

    Attributes:
        changes: Two at least, in the order of the comparison.
    """

    changes: tuple[RecordChange, ...]

    @property
    def first(self) -> RecordChange:
        """Return the example."""
        return self.changes[0]

    @property
    def files(self) -> int:
        """Return in how many files they are."""
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
