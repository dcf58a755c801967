"""The plan of one file while it is made: what every key gets, as edits of the frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from aoebank.formats.protocol import ParsedFile
from aoebank.ops.merge.plan import (
    Action,
    Added,
    Decision,
    FilePlan,
    Pick,
    Reason,
    Source,
)
from aoebank.ops.merge.versions import Places, Versions


@dataclass(slots=True)
class Draft:
    """Collects what becomes of keys; a key nobody mentions keeps what the frame has.

    Attributes:
        frame: Ours; theirs where ours is the base or is no longer there, so that a file
            only they changed comes out as they wrote it.
    """

    name: str
    versions: Versions
    counts: Counter[Reason] = field(default_factory=Counter)
    _decisions: dict[str, Decision] = field(default_factory=dict)
    _replaced: dict[int, Pick] = field(default_factory=dict)
    _removed: set[int] = field(default_factory=set)
    _added: dict[int, Pick] = field(default_factory=dict)
    _last: list[Pick] = field(default_factory=list)

    @property
    def frame(self) -> Source | None:
        """Return whose file the edits are made to."""
        ours, theirs, base = self.versions.ours, self.versions.theirs, self.versions.base
        if ours is None:
            return None if theirs is None else Source.THEIRS
        is_base = base is not None and theirs is not None and ours.data == base.data
        return Source.THEIRS if is_base else Source.OURS

    def settle(self, frame: Source, places: Places, pick: Pick | None) -> None:
        """Give a key a record, or none."""
        own = places.of(frame)
        if own is not None:
            self._replaced.pop(own, None)
            self._removed.discard(own)
        if pick is None:
            if own is not None:
                self._removed.add(own)
        elif pick.source is frame and pick.raw is None:
            return
        elif own is not None:
            self._replaced[own] = pick
        elif frame is Source.OURS and places.theirs is not None:
            self._added[places.theirs] = pick
        else:
            self._last.append(pick)

    def say(
        self,
        places: Places,
        action: Action,
        reason: Reason,
        *,
        conflict: bool = False,
        note: str = "",
    ) -> None:
        """Keep the decision about a key, in the place of an earlier one."""
        versions = self.versions
        record = next(
            (
                found
                for source in (Source.OURS, Source.THEIRS, Source.BASE)
                if (found := versions.record(source, places.of(source))) is not None
            ),
            None,
        )
        name = versions.any().name
        known = record.op_type if record else name.op_type if name else None
        self._decisions[places.key] = Decision(
            file=self.name,
            key=places.key,
            action=action,
            reason=reason,
            conflict=conflict,
            soc_version=name.soc_version if name else None,
            op_type=known,
            note=note,
            base=versions.version(Source.BASE, places.base),
            ours=versions.version(Source.OURS, places.ours),
            theirs=versions.version(Source.THEIRS, places.theirs),
        )

    def iter_output(self, frame: Source) -> Iterator[tuple[Places, Pick]]:
        """Yield what keys get, as far as they get anything."""
        for key, base, ours, theirs in self.versions.iter_places():
            own = ours if frame is Source.OURS else theirs
            pick = self._added.get(theirs) if theirs is not None else None
            if own is not None and own not in self._removed:
                pick = self._replaced.get(own) or Pick(frame, own)
            if pick is not None:
                yield Places(key=key, base=base, ours=ours, theirs=theirs), pick

    def plan(self) -> FilePlan:
        """Return the plan of the file."""
        frame = self.frame
        hidden = {source: self.versions.hidden(source) for source in Source}
        counts = {source: sum(map(len, keys.values())) for source, keys in hidden.items()}
        parsed = self.versions.of(frame) if frame else None
        if frame is None or parsed is None:
            known = self.versions.any().format.name
            return FilePlan(name=self.name, format=known, is_gone=True, counts=self.counts)
        self._drop_hidden(parsed, hidden[frame])
        left = len(parsed) - len(self._removed) + len(self._added) + len(self._last)
        was_deleted = self.versions.base is not None and (
            self.versions.ours is None or self.versions.theirs is None
        )
        return FilePlan(
            name=self.name,
            format=parsed.format.name,
            frame=frame,
            is_gone=not left and was_deleted,
            replaced=self._replaced,
            removed=frozenset(self._removed),
            added=tuple(self._anchored(parsed)),
            decisions=tuple(self._decisions.values()),
            counts=self.counts,
            hidden={source: number for source, number in counts.items() if number},
        )

    def _drop_hidden(self, parsed: ParsedFile, hidden: dict[str, list[int]]) -> None:
        """Let the records nobody uses go where the used one is replaced or removed."""
        for key, numbers in hidden.items():
            if parsed.find(key) in self._removed or parsed.find(key) in self._replaced:
                self._removed.update(numbers)

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
                yield from (Added(after=before, pick=each) for each in leading)
                leading.clear()
            after = place
        end = self._kept_before(len(frame))
        yield from (Added(after=end, pick=each) for each in leading)

    def _kept_before(self, number: int) -> int:
        for place in range(number - 1, -1, -1):
            if place not in self._removed:
                return place
        return -1
