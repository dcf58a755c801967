"""The verb: merge sides into one file or tree, or tell what a merge would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from aoebank.diffing.moves import FollowedFile, follow_moves
from aoebank.errors import AoebankError, UsageError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import format_of
from aoebank.merging.context import MergeContext
from aoebank.merging.decisions import Decision, FilePlan, MergeRules, Reason, RecordMoves, Source
from aoebank.merging.destination import Destination
from aoebank.merging.document import StepDecisions, conflict_path
from aoebank.merging.exclusions import Exclusions
from aoebank.merging.lines import QUARANTINE
from aoebank.merging.saved import Verdicts
from aoebank.merging.sides import OtherFile, check_sides
from aoebank.merging.step import (
    FoundDigests,
    LeftFile,
    MergedFile,
    Step,
    ThreeSides,
    merge_quarantine,
    merge_sides,
)
from aoebank.processes import count_processes
from aoebank.storage.git.merge_point import current_point
from aoebank.storage.sides.side import Side, SideKind, StoredSide
from aoebank.storage.writing.staged import StagedChanges, staged_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What to merge, how, and where to.

    Attributes:
        sides: Two or more; the first is ours, the others come into it one after the other.
        destination: None to write nothing.
        verbose: Whether clean decisions are wanted as values, not only as counts.
        skips_broken: Whether a broken file of a tree stays as ours has it; else nothing is
            written and the error names all of them.
        count: Says how many processes merge so many bytes.
    """

    sides: tuple[Side, ...]
    base: Side | None = None
    rules: MergeRules = field(default_factory=MergeRules)
    exclusions: Exclusions = field(default_factory=Exclusions)
    destination: Destination | None = None
    verdicts: Verdicts = field(default_factory=dict)
    verbose: bool = False
    skips_broken: bool = False
    count: Callable[[int], int] = count_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What was decided, and what was written.

    Attributes:
        counts: Keys by reason, over all files; of several steps the last one with news counts.
        written: Files with a new content, side-cars and conflict files too.
        conflict_files: The conflict files among them.
        skipped: Why files were left as ours has them.
        hidden: Records left out since their key comes several times, by the side they are in.
        followed: Files one side moved and the other one changed.
        moves: How many records change for who has our side.
    """

    base: str | None
    sides: tuple[str, ...]
    steps: tuple[StepDecisions, ...]
    counts: Mapping[Reason, int]
    files: int
    other_files: tuple[OtherFile, ...] = ()
    hidden: Mapping[str, int] = field(default_factory=dict)
    written: tuple[Path, ...] = ()
    conflict_files: tuple[Path, ...] = ()
    skipped: tuple[AoebankError, ...] = ()
    followed: tuple[FollowedFile, ...] = ()
    moves: RecordMoves = field(default_factory=RecordMoves)

    @property
    def conflicts(self) -> int:
        """Return how many keys are left for a person."""
        return sum(decision.conflict for step in self.steps for decision in step.decisions)


def merge(request: MergeRequest) -> MergeResult:
    """Merge and write, all or nothing.

    Raises:
        AoebankError: a side cannot be merged, or the result not be written; nothing is changed.
    """
    other_files = check_sides(
        request.sides, request.base, may_differ_in_soc=request.rules.may_differ_in_soc
    )
    ours, *others = request.sides
    _demand_known(request.verdicts, others)
    tally = _Tally()
    for number, theirs in enumerate(others[:-1]):
        ours = _fold(_step(request, number, ours, theirs), tally)
    last = _step(request, len(others) - 1, ours, others[-1])
    destination = request.destination
    journal = destination.journal if destination else None
    root = destination.root if destination else None
    is_new_tree = destination is not None and destination.is_new_tree
    with staged_changes(journal, root=root, is_new_tree=is_new_tree) as changes:
        _finish(last, tally, request, changes)
        written = changes.commit()
    return MergeResult(
        base=request.base.label if request.base else None,
        sides=tuple(side.label for side in request.sides),
        steps=tuple(tally.steps),
        counts=tally.counts,
        files=tally.files,
        other_files=other_files,
        hidden=tally.hidden,
        written=written,
        conflict_files=tuple(tally.conflict_files),
        skipped=tuple(tally.skipped),
        followed=tuple(tally.followed),
        moves=tally.moves,
    )


@dataclass(slots=True)
class _Tally:
    """What the steps gave so far.

    Attributes:
        open: Conflicts of earlier steps, by file.
        found: What there is where the result goes, by file: read in the step of that side.
        left: What files of the result are called there, by file.
        found_quarantine: SHA-256 of the quarantine there.
        reasons: Why each key is as it is, by file; of merges of several steps.
    """

    steps: list[StepDecisions] = field(default_factory=list)
    counts: Counter[Reason] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    files: int = 0
    conflict_files: list[Path] = field(default_factory=list)
    open: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    found: dict[str, FoundDigests] = field(default_factory=dict)
    left: dict[str, LeftFile] = field(default_factory=dict)
    followed: list[FollowedFile] = field(default_factory=list)
    found_quarantine: str | None = None
    skipped: list[AoebankError] = field(default_factory=list)
    moves: RecordMoves = field(default_factory=RecordMoves)
    reasons: dict[str, dict[str, Reason]] = field(default_factory=dict)

    def count_once(self, plan: FilePlan) -> None:
        """Count the keys of a file that no earlier step counted, or counted for less."""
        known = self.reasons.setdefault(plan.name, {})
        for key, reason in plan.reasons.items():
            before = known.get(key)
            if before is not None and reason in (Reason.SAME, Reason.OURS_CHANGED):
                continue  # ours is what the earlier steps made of it
            self.counts[reason] += 1
            if before is not None:
                self.counts[before] -= 1
            known[key] = reason


def _demand_known(verdicts: Verdicts, sides: Sequence[Side]) -> None:
    labels = [side.label for side in sides]
    unknown = {*verdicts} - {*labels}
    if unknown:
        raise UsageError(
            "decisions are about other sides",
            got=", ".join(sorted(unknown)),
            expected=", ".join(labels),
        )


def _step(request: MergeRequest, number: int, ours: Side, theirs: Side) -> Step:
    destination = request.destination
    name = destination.path.name if destination else request.sides[0].names()[0]
    followed: tuple[FollowedFile, ...] = ()
    if request.base is not None and ours.is_tree and request.rules.follows_renames:
        followed = follow_moves(request.base, ours, theirs)
    return Step(
        target=destination.version(number) if destination else None,
        sides=ThreeSides(
            base=request.base,
            ours=ours,
            theirs=theirs,
            name=name,
            followed={file.name: file for file in followed},
        ),
        context=MergeContext(
            rules=request.rules,
            is_two_way=request.base is None,
            exclusions=request.exclusions,
            verbose=request.verbose,
            tells_reasons=len(request.sides) > 2,
        ),
        verdicts=request.verdicts.get(theirs.label, {}),
        skips_broken=request.skips_broken,
        count=request.count,
    )


def _fold(step: Step, tally: _Tally) -> Side:
    """Return the result of a step that is not the last as a side."""
    contents: dict[str, bytes] = {}
    for file in _tallied_files(step, tally):
        name = file.plan.name
        tally.open[name] = (*tally.open.get(name, ()), *file.conflicts)
        stored = {Path(name): file.data, Path(name + SUFFIX): file.side_car}
        stored |= {
            binary_cache: file.binary_cache
            for binary_cache in [file.binary_cache_of(Path(name))]
            if binary_cache
        }
        contents |= {path.as_posix(): data for path, data in stored.items() if data is not None}
    quarantine = _tallied_quarantine(step, tally)
    if quarantine is not None:
        contents[QUARANTINE] = quarantine
    label = f"{step.sides.ours.label} + {step.sides.theirs.label}"
    return StoredSide(
        label=label,
        kind=SideKind.TREE if step.sides.is_tree else SideKind.FILE,
        is_tree=step.sides.is_tree,
        place=label,
        contents={name: name for name in contents},
        read=contents.__getitem__,
    )


def _finish(step: Step, tally: _Tally, request: MergeRequest, changes: StagedChanges) -> None:
    """Merge the last side, and prepare to write what comes of it where there is a destination."""
    destination = request.destination
    find_point = cache(current_point)
    for file in _tallied_files(step, tally):
        name = file.plan.name
        tally.files += file.data is not None
        if step.context.tells_reasons:
            ours = request.sides[0]
            own = step.sides.name_in(Source.OURS, name) if ours.is_tree else ours.names()[0]
            tally.moves = tally.moves.plus(_count_moves(ours.load(own), file.data))
        file = replace(
            file,
            conflicts=(*tally.open.pop(name, ()), *file.conflicts),
            left=tally.left.get(name),
        )
        if destination is not None:
            point = find_point(destination.path) if file.conflicts else None
            destination.stage(file, tally.found.get(name) or FoundDigests(), changes, point)
            if file.conflicts:
                tally.conflict_files.append(conflict_path(destination.place(name)))
    quarantine = _tallied_quarantine(step, tally)
    if destination is not None:
        destination.stage_quarantine(quarantine, tally.found_quarantine, changes)


def _count_moves(ours: ParsedFile | None, data: bytes | None) -> RecordMoves:
    """Return the counts of records that differ between a merged file and our first side."""
    path = Path() if ours is None else ours.path
    merged = None if data is None else format_of(path, data).parse_like(data, path, ours)
    before, after = (
        {} if parsed is None else {key: parsed.raw(parsed.find(key) or 0) for key in parsed.keys}
        for parsed in (ours, merged)
    )
    return RecordMoves(
        added=len(after.keys() - before.keys()),
        changed=sum(after[key] != before[key] for key in after.keys() & before.keys()),
        removed=len(before.keys() - after.keys()),
    )


def _tallied_files(step: Step, tally: _Tally) -> Iterator[MergedFile]:
    decisions: list[Decision] = []
    tally.followed += step.sides.followed.values()
    for file in merge_sides(step):
        if step.context.tells_reasons:
            tally.count_once(file.plan)
        else:
            tally.counts.update(file.plan.counts)
            tally.moves = tally.moves.plus(file.plan.moves)
        for source, number in file.plan.hidden.items():
            side = step.sides.of(source)
            tally.hidden[side.label if side else source] += number
        decisions += file.plan.decisions
        tally.skipped += [file.error] if file.error is not None else []
        if file.found is not None:
            tally.found[file.plan.name] = file.found
        if file.left is not None:
            tally.left[file.plan.name] = file.left
        yield file
    label = step.sides.theirs.label
    tally.steps.append(StepDecisions(theirs=label, decisions=tuple(decisions)))


def _tallied_quarantine(step: Step, tally: _Tally) -> bytes | None:
    data, found = merge_quarantine(step)
    tally.found_quarantine = tally.found_quarantine or found
    return data
