"""The merged text of a file: edits of one version, and these carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.splice import splice_raw
from aoebank.formats.text.workload import workload_text
from aoebank.merging.decisions import (
    SOURCE_OF,
    Action,
    Added,
    Choice,
    Decision,
    FilePlan,
    KeptRecord,
    Pick,
    Reason,
    RecordMoves,
    Source,
)
from aoebank.merging.versions import KeyVersions, RepeatedKeys, Versions, keep_record


@dataclass(slots=True, kw_only=True)
class Draft:
    """Collects what becomes of keys; a key nobody mentions keeps what the frame has."""

    name: str
    versions: Versions
    frame: Source | None
    repeated: RepeatedKeys
    counts: Counter[Reason] = field(default_factory=Counter)
    decisions: dict[str, Decision] = field(default_factory=dict)
    _replaced: dict[int, Pick] = field(default_factory=dict)
    _removed: set[int] = field(default_factory=set)
    _added: dict[int, Pick] = field(default_factory=dict)
    _last: list[Pick] = field(default_factory=list)

    def give(self, key: KeyVersions, action: Action) -> None:
        """Give a key the record an action says, or none, in the place of what it had."""
        pick = None
        if action is Action.KEEP_BOTH:
            pick = _united(key)
        elif action is not Action.REMOVE:
            source = SOURCE_OF[action]
            number = key.of(source)
            pick = None if number is None else Pick(source, number)
        own = key.ours if self.frame is Source.OURS else key.theirs
        if own is not None:
            self._replaced.pop(own, None)
            self._removed.discard(own)
        if pick is None:
            if own is not None:
                self._removed.add(own)
        elif pick.source is not self.frame or pick.raw is not None:
            self._put(key, own, pick)

    def _put(self, key: KeyVersions, own: int | None, pick: Pick) -> None:
        """Bring a record into the frame, where `own` is the place of the key."""
        if own is not None:
            self._replaced[own] = pick
        elif self.frame is Source.OURS and key.theirs is not None:
            self._added[key.theirs] = pick
        else:
            self._last.append(pick)

    def say(self, key: KeyVersions, choice: Choice) -> None:
        """Keep the decision about a key, in the place of an earlier one."""
        records = (key.record(source) for source in (Source.OURS, Source.THEIRS, Source.BASE))
        record = next((record for record in records if record is not None), None)
        name = self.versions.any().name
        self.decisions[key.key] = Decision(
            file=self.name,
            key=key.key,
            action=choice.action,
            reason=choice.reason,
            conflict=choice.conflict,
            soc_version=name.soc_version if name else None,
            op_type=record.op_type if record else name.op_type if name else None,
            workload=workload_text(record) if record and choice.conflict else "",
            note=choice.note,
            base=_kept(key, Source.BASE),
            ours=_kept(key, Source.OURS),
            theirs=_kept(key, Source.THEIRS),
            left_out=self.repeated.records(key),
        )

    def iter_output(self) -> Iterator[tuple[KeyVersions, Pick]]:
        """Yield the record of each key that gets one."""
        for key, base, ours, theirs in self.versions.iter_places():
            own = ours if self.frame is Source.OURS else theirs
            pick = self._added.get(theirs) if theirs is not None else None
            if self.frame is not None and own is not None and own not in self._removed:
                pick = self._replaced.get(own) or Pick(self.frame, own)
            if pick is not None:
                found = KeyVersions(
                    key=key, base=base, ours=ours, theirs=theirs, files=self.versions
                )
                yield found, pick

    def plan(self) -> FilePlan:
        """Return the plan of the file."""
        parsed = self.versions.of(self.frame) if self.frame else None
        if self.frame is None or parsed is None:
            base = self.versions.base
            return FilePlan(name=self.name, format=base.format.name if base else None, is_gone=True)
        hidden = {source: self.versions.hidden(source) for source in Source}
        for key, numbers in hidden[self.frame].items():
            place = parsed.find(key)
            is_joined = parsed.format.joins_equal_keys
            if not is_joined or place in self._removed or place in self._replaced:
                self._removed.update(numbers)
        left = len(parsed) - len(self._removed) + len(self._added) + len(self._last)
        was_deleted = self.versions.base is not None and (
            self.versions.ours is None or self.versions.theirs is None
        )
        return FilePlan(
            name=self.name,
            format=parsed.format.name,
            frame=self.frame,
            is_gone=not left and was_deleted,
            replaced=self._replaced,
            removed=frozenset(self._removed),
            added=tuple(self._anchored(parsed)) if self._added or self._last else (),
            decisions=tuple(self.decisions.values()),
            counts=self.counts,
            hidden={
                source: sum(map(len, keys.values())) for source, keys in hidden.items() if keys
            },
            moves=self._moves(parsed, left),
        )

    def _moves(self, frame: ParsedFile, left: int) -> RecordMoves:
        """Return the changes for a reader of our file; the frame may be another text.

        Args:
            left: Records of the result.
        """
        ours = self.versions.ours
        if ours is None:
            return RecordMoves(added=left)
        taken_out = {frame.keys[number] for number in self._removed}
        gone = sum(ours.find(key) is not None for key in taken_out)
        if self.frame is Source.OURS:
            added = len(self._added) + len(self._last)
            return RecordMoves(added=added, changed=len(self._replaced), removed=gone)
        return RecordMoves(  # ours is the base: what theirs did is done, but for what rules say
            added=self.counts[Reason.THEIRS_ADDED],
            changed=self.counts[Reason.THEIRS_CHANGED],
            removed=self.counts[Reason.THEIRS_REMOVED] + gone,
        )

    def _anchored(self, frame: ParsedFile) -> Iterator[Added]:
        """Yield the new records, each behind its neighbour in the file it comes from."""
        if self._added:
            yield from sorted(self._neighbours(frame), key=attrgetter("after"))
        end = self._kept_before(len(frame))
        for pick in self._last:
            yield Added(after=end, pick=pick)

    def _neighbours(self, frame: ParsedFile) -> Iterator[Added]:
        theirs = self.versions.theirs
        assert theirs is not None
        leading: list[Pick] = []
        after: int | None = None
        for number, key in enumerate(theirs.keys):
            pick = self._added.get(number)
            if pick is not None:
                if after is None:
                    leading.append(pick)
                else:
                    yield Added(after=after, pick=pick)
                continue
            place = frame.find(key)
            if place is None or place in self._removed:
                continue
            if after is None:
                before = self._kept_before(place)
                yield from (Added(after=before, pick=first) for first in leading)
                leading.clear()
            after = place
        end = self._kept_before(len(frame))
        yield from (Added(after=end, pick=first) for first in leading)

    def _kept_before(self, number: int) -> int:
        """Return the last position before this one whose record stays; -1 for the start."""
        for place in range(number - 1, -1, -1):
            if place not in self._removed:
                return place
        return -1


def _united(key: KeyVersions) -> Pick:
    """Return the record with the answers of both sides."""
    ours, theirs = key.raw(Source.OURS), key.raw(Source.THEIRS)
    assert ours is not None
    assert theirs is not None
    assert key.ours is not None
    return Pick(Source.OURS, key.ours, key.files.any().format.unite(ours, theirs))


def _kept(key: KeyVersions, source: Source) -> KeptRecord | None:
    parsed, number = key.files.of(source), key.of(source)
    return None if parsed is None or number is None else keep_record(parsed, number)


def apply_plan(plan: FilePlan, versions: Versions) -> bytes | None:
    """Return the merged file, or None if there is to be none.

    Whatever conflicts there are, it is a valid bank: their keys have what ours has. Each record
    is one of the inputs byte for byte; of one with the alternatives of both sides that holds
    for each alternative.

    Args:
        plan: Made from these very versions.
    """
    frame = versions.of(plan.frame) if plan.frame else None
    if frame is None or plan.is_gone:
        return None
    if not (plan.replaced or plan.removed or plan.added):
        return frame.data

    def raw(pick: Pick) -> bytes:
        parsed = versions.of(pick.source)
        assert parsed is not None
        return parsed.raw(pick.number) if pick.raw is None else pick.raw

    return splice_raw(
        frame,
        replaced={number: raw(pick) for number, pick in plan.replaced.items()},
        removed=plan.removed,
        added=[(record.after, raw(record.pick)) for record in plan.added],
    )


def take_base(plan: FilePlan, versions: Versions) -> FilePlan:
    """Return a plan whose conflicts end in the record of the base."""
    frame = versions.of(plan.frame) if plan.frame else None
    if frame is None:
        return plan
    replaced, removed = dict(plan.replaced), set(plan.removed)
    open_keys = {decision.key for decision in plan.conflicts}
    brought = []
    for decision in plan.conflicts:
        place = frame.find(decision.key)
        number = versions.base.find(decision.key) if versions.base else None
        if place is None:
            brought += [] if number is None else [Pick(Source.BASE, number)]
            continue
        replaced.pop(place, None)
        removed.discard(place)
        if number is None:
            removed.add(place)
        else:
            replaced[place] = Pick(Source.BASE, number)

    def kept(place: int) -> int:
        while place in removed:
            place -= 1
        return place

    added = [
        Added(after=kept(record.after), pick=record.pick)
        for record in plan.added
        if _key_of(record.pick, versions) not in open_keys
    ]
    added += [Added(after=kept(len(frame) - 1), pick=pick) for pick in brought]
    return replace(plan, replaced=replaced, removed=frozenset(removed), added=tuple(added))


def _key_of(pick: Pick, versions: Versions) -> str:
    parsed = versions.of(pick.source)
    assert parsed is not None
    return parsed.keys[pick.number]
