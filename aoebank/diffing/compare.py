"""Compare the records of two files; what is equal byte for byte is never parsed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from aoebank.diffing.change import ChangeKind, RecordChange, TimeVerdict
from aoebank.diffing.fields import FieldChange, diff_fields
from aoebank.diffing.measured import MeasuredPair
from aoebank.diffing.options import DiffOptions
from aoebank.errors import RecordError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.workload import workload_text
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

_Place: TypeAlias = "tuple[ParsedFile, int]"
_NOTHING: dict[str, int] = {}  # what a side without this file has
_KINDS = {TimeVerdict.SLOWER: ChangeKind.SLOWER, TimeVerdict.FASTER: ChangeKind.FASTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileComparison:
    """Two files that belong together; one of them may be absent.

    Attributes:
        name: What to call them.
        name_a: The name in A, if it has another one there.
        measured: What their side-cars say.
    """

    name: str
    name_a: str | None
    old: ParsedFile | None
    new: ParsedFile | None
    measured: MeasuredPair
    options: DiffOptions

    @property
    def soc_version(self) -> str | None:
        """Return the target, as the file names tell."""
        return next((name.soc_version for name in self._names()), None)

    @property
    def op_type(self) -> str | None:
        """Return the operator type, as the file names tell."""
        return next((name.op_type for name in self._names() if name.op_type), None)

    def is_wanted(self) -> bool:
        """Return whether the filter asks for any record of these files."""
        only = self.options.only
        socs = (name.soc_version for name in self._names())
        return only.holds_soc(*socs) and (self.op_type is None or only.holds_op(self.op_type))

    def iter_changes(self) -> Iterator[RecordChange | None]:
        """Yield the change of each wanted record; None where it is the same."""
        only = self.options.only
        has_all_ops = self.op_type is not None or not only.op
        for key, before, after in self._pairs():
            if before is not None and after is not None:
                if before[0].raw(before[1]) == after[0].raw(after[1]):
                    if has_all_ops or self._holds_op(after):
                        yield None
                    continue
                change = self._compare(key, before, after)
                if change is None or only.holds_op(change.op_type):
                    yield change
            else:
                change = self._lone(key, before, after)
                if only.holds_op(change.op_type):
                    yield change

    def _names(self) -> Iterator[BankName]:
        for parsed in (self.new, self.old):
            if parsed is not None and parsed.name is not None:
                yield parsed.name

    def _pairs(self) -> Iterator[tuple[str, _Place | None, _Place | None]]:
        """Yield each wanted key once, with the record readers use for it on both sides."""
        old, new, only = self.old, self.new, self.options.only
        find_old = _NOTHING.get if old is None else old.places.get
        find_new = _NOTHING.get if new is None else new.places.get
        for number, key in enumerate(old.keys if old else ()):
            if find_old(key) == number and (not only.key or only.holds_key(key)):
                place = find_new(key)
                assert old is not None
                yield key, (old, number), None if new is None or place is None else (new, place)
        for number, key in enumerate(new.keys if new else ()):
            if find_old(key) is None and find_new(key) == number and only.holds_key(key):
                assert new is not None
                yield key, None, (new, number)

    def _holds_op(self, place: _Place) -> bool:
        """Return whether an unchanged record is of a wanted operator type."""
        try:
            return self.options.only.holds_op(_record(place).op_type)
        except RecordError:
            return False

    def _lone(self, key: str, before: _Place | None, after: _Place | None) -> RecordChange:
        place = after or before
        assert place is not None
        try:
            record = _record(place)
        except RecordError as error:
            return self._broken(key, error)
        return RecordChange(
            kind=ChangeKind.REMOVED if after is None else ChangeKind.ADDED,
            file=self.name,
            file_a=self.name_a,
            key=key,
            soc_version=self.soc_version,
            op_type=record.op_type or self.op_type,
            workload=self._describe(record, place),
            cost_a_us=record.cost_us if after is None else None,
            cost_b_us=None if after is None else record.cost_us,
        )

    def _compare(self, key: str, before: _Place, after: _Place) -> RecordChange | None:
        try:
            a, b = _record(before), _record(after)
        except RecordError as error:
            return self._broken(key, error)
        verdict, band = self.measured.judge(key, a.cost_us, b.cost_us)
        kind = _kind(a, b, verdict)
        if kind is None:
            return None
        has_fields = kind is ChangeKind.STRATEGY and self.options.has_fields
        op_type = b.op_type or a.op_type or self.op_type
        return RecordChange(
            kind=kind,
            file=self.name,
            file_a=self.name_a,
            key=key,
            soc_version=self.soc_version,
            op_type=op_type,
            workload=self._describe(b, after),
            cost_a_us=a.cost_us,
            cost_b_us=b.cost_us,
            verdict=verdict,
            noise_ratio=band,
            weight=1.0 if verdict is TimeVerdict.UNKNOWN else self.measured.weight(key),
            fields=tuple(_fields(a, b, op_type, after)) if has_fields else (),
        )

    def _broken(self, key: str, error: RecordError) -> RecordChange:
        return RecordChange(
            kind=ChangeKind.BROKEN,
            file=self.name,
            file_a=self.name_a,
            key=key,
            soc_version=self.soc_version,
            op_type=self.op_type,
            problem=error.headline,
        )

    def _describe(self, record: Record, place: _Place) -> str:
        if not self.options.has_fields:
            return ""
        return workload_text(record, name_of=place[0].format.value_name)


def _fields(a: Record, b: Record, op_type: str | None, place: _Place) -> Iterator[FieldChange]:
    """Yield the members that changed, those marked that no reader uses."""
    for change in diff_fields(a.strategy, b.strategy):
        unread = place[0].format.unread_reason(op_type, change.member)
        yield replace(change, unread=unread) if unread else change


def _record(place: _Place) -> Record:
    parsed, number = place
    return parsed.format.record(parsed, number)


def _kind(a: Record, b: Record, verdict: TimeVerdict) -> ChangeKind | None:
    # what Python calls equal may still be 1 and 1.0; what it calls different never is the same
    if a.strategy != b.strategy or canonical_text(a.strategy) != canonical_text(b.strategy):
        return ChangeKind.STRATEGY
    if a.cost_us != b.cost_us:
        return _KINDS.get(verdict, ChangeKind.RETIMED)
    return (
        None if canonical_text(_details(a)) == canonical_text(_details(b)) else ChangeKind.DETAILS
    )


def _details(record: Record) -> JsonValue:
    """Return the members that are neither strategy nor time; the file has the target."""
    others: list[JsonValue] = [
        [
            alternative.workload,
            alternative.strategy,
            alternative.cost_us,
            alternative.origin,
            alternative.extra,
        ]
        for alternative in record.alternatives
    ]
    return [record.workload, record.origin, record.extra, others]
