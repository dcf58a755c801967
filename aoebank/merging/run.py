"""The verb: merge sides into one file or tree, or tell what a merge would do.

Sides come into the first one after the other, a `Step` each; a step merges file by file, and
nothing is written before the last one has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from aoebank.diffing.pair_files import FollowedFile, follow_moves
from aoebank.errors import AoebankError, BankFormatError, BankPathError, HistoryError, UsageError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, find_format, format_of
from aoebank.merging.context import Exclusions, Measurements, MergeContext
from aoebank.merging.decisions import (
    Decision,
    FilePlan,
    MergeRules,
    Reason,
    RecordMoves,
    Relatedness,
    Source,
    Three,
)
from aoebank.merging.destination import Destination, FoundDigests, LeftFile, MergedFile
from aoebank.merging.document import (
    PersonalVerdict,
    StepDecisions,
    Verdicts,
    conflict_path,
)
from aoebank.merging.file import merge_file
from aoebank.merging.lines import QUARANTINE, merge_lines
from aoebank.merging.sides import OtherFile, ThreeSides, check_sides, read_beside
from aoebank.merging.versions import Versions
from aoebank.model.digest import sha256_of
from aoebank.processes import count_processes, map_in_order
from aoebank.storage.binary_caches import BY_TUNER_ONLY
from aoebank.storage.git.merges import current_point
from aoebank.storage.sides.side import Side, SideKind, StoredSide, size_on_disk
from aoebank.storage.writing.staged import StagedChanges, staged_changes

_BOTH = (Source.OURS, Source.THEIRS)
_NAMED = 5  # broken files an error names besides the first


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


# ---- one step ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The merge of one side into what there is so far.

    Attributes:
        context: Of every file, but for what a person decided and how times were measured.
        verdicts: What a person decided, by file.
        target: The version that is where the result goes, if it is one of them.
        skips_broken: Whether a file of a tree that cannot be merged stays as ours has it.
        count: Says how many processes merge so many bytes.
    """

    sides: ThreeSides
    context: MergeContext
    verdicts: Mapping[str, Mapping[str, PersonalVerdict]]
    target: Source | None = None
    skips_broken: bool = False
    count: Callable[[int], int] = count_processes


def merge_sides(step: Step) -> Iterator[MergedFile]:
    """Yield the files of the result, one at a time in memory.

    Raises:
        BankFormatError: a file is broken, or versions do not fit together.
        BankPathError: a file cannot be read, or has a twin only its tuner can write.
        HistoryError: the base shares no record with a side, or verdicts are stale.
    """
    sides, names = step.sides, step.sides.names()
    _demand_all_known(step.verdicts, names)
    processes = step.count(size_on_disk((sides.base, sides.ours, sides.theirs)))
    known = {source: Relatedness() for source in _BOTH}
    work = partial(_merge_or_tell if sides.is_tree else _merge_one, step)
    broken: list[BankFormatError] = []
    for file in map_in_order(work, names, processes):
        known = {source: known[source] | file.relatedness[source] for source in _BOTH}
        if isinstance(file.error, BankFormatError) and not step.skips_broken:
            broken.append(file.error)
        yield file
    if broken:
        raise _told_together(broken)
    if sides.base is not None and not step.context.rules.may_be_unrelated:
        _demand_related(sides, known)


def merge_quarantine(step: Step) -> tuple[bytes | None, str | None]:
    """Return the merged quarantine of trees, and the SHA-256 of what the target has.

    Both are None where there is none.
    """
    if not step.sides.is_tree:
        return None, None
    texts = read_beside(step.sides, dict.fromkeys(Source, Path(QUARANTINE)))
    if texts.ours is None and texts.theirs is None:
        return None, None
    merged = merge_lines(texts, Path(QUARANTINE))
    return merged, sha256_of(texts.of(step.target)) if step.target else None


def _merge_or_tell(step: Step, name: str) -> MergedFile:
    """Return the merge of a file of a tree; of one that is broken, what ours has, and why."""
    try:
        return _merge_one(step, name)
    except BankFormatError as error:
        ours, moved = step.sides.ours, step.sides.followed.get(name)
        name = moved.ours if moved is not None else name
        data = ours.read_bytes(name)
        known = find_format(Path(name), (data or b"")[:HEAD_BYTES])
        binary_cache = known.companion(Path(name)) if known else None
        return MergedFile(
            plan=FilePlan(name=name, format=known.name if known else None),
            data=data,
            side_car=ours.read_bytes(name + SUFFIX),
            binary_cache=ours.read_bytes(binary_cache.as_posix()) if binary_cache else None,
            relatedness=dict.fromkeys(_BOTH, Relatedness()),
            error=error,
        )


def _told_together(broken: Sequence[BankFormatError]) -> BankFormatError:
    """Return the error of the first broken file, which names the others too."""
    first = broken[0]
    others = [str(error.path) for error in broken[1:]]
    words = [f"also: {', '.join(others[:_NAMED])}"] if others else []
    words += [f"and {len(others) - _NAMED} more files"] if len(others) > _NAMED else []
    first.hint = "; ".join(
        filter(None, (first.hint, *words, "--skip-broken leaves broken files as ours has them"))
    )
    return first


def _merge_one(step: Step, name: str) -> MergedFile:
    sides = step.sides
    own = {source: sides.name_in(source, name) for source in Source}
    versions = sides.load(name)
    context = replace(
        step.context,
        verdicts=step.verdicts.get(name, {}),
        times_of_ours=Measurements(partial(sides.ours.load_provenance, own[Source.OURS])),
        times_of_theirs=Measurements(partial(sides.theirs.load_provenance, own[Source.THEIRS])),
    )
    merge = merge_file(versions, name, context)
    side_cars = read_beside(sides, {source: Path(own[source] + SUFFIX) for source in Source})
    companion = versions.any().format.companion
    binary_caches = read_beside(sides, {source: companion(Path(own[source])) for source in Source})
    found = left = None
    if step.target is not None:
        there = versions.of(step.target)
        found = FoundDigests(
            bank=sha256_of(there.data) if there else None,
            side_car=sha256_of(side_cars.of(step.target)),
            binary_cache=sha256_of(binary_caches.of(step.target)),
        )
        if sides.is_tree and own[step.target] != name:
            found, left = FoundDigests(), LeftFile(name=own[step.target], found=found)
    return MergedFile(
        plan=merge.plan,
        data=merge.data,
        side_car=_merge_side_cars(side_cars, name, is_gone=merge.data is None),
        binary_cache=_choose_binary_cache(
            binary_caches, versions, merge.data, companion(Path(name))
        ),
        conflicts=merge.plan.conflicts,
        found=found,
        left=left,
        relatedness={
            source: _find_relatedness(versions.base, versions.of(source)) for source in _BOTH
        },
    )


def _merge_side_cars(texts: Three[bytes | None], name: str, *, is_gone: bool) -> bytes | None:
    if texts.ours is None and texts.theirs is None:
        return None
    merged = merge_lines(texts, Path(name + SUFFIX))
    return None if is_gone and not merged else merged


def _choose_binary_cache(
    binary_caches: Three[bytes | None], versions: Versions, data: bytes | None, place: Path | None
) -> bytes | None:
    """Return the binary twin that goes with the merged file.

    Args:
        place: Where it lies in the result; None if readers want none.

    Raises:
        BankPathError: there would have to be a new one.
    """
    if place is None or data is None:
        return None
    for source in _BOTH:
        version = versions.of(source)
        if version is not None and version.data == data:
            return binary_caches.of(source)
    if binary_caches.ours is not None or binary_caches.theirs is not None:
        hint = "take the file of one side, with its twin"
        raise BankPathError(BY_TUNER_ONLY, path=place, hint=hint)
    return None


def _find_relatedness(base: ParsedFile | None, side: ParsedFile | None) -> Relatedness:
    """Return the relation of a file's base and a side: their records, and common keys."""
    has_base, has_side = (parsed is not None and len(parsed) > 0 for parsed in (base, side))
    share = False
    if base is not None and side is not None:
        share = not side.places.keys().isdisjoint(base.keys)
    return Relatedness(base_has_records=has_base, side_has_records=has_side, share_a_key=share)


def _demand_related(sides: ThreeSides, known: Mapping[Source, Relatedness]) -> None:
    for source, relatedness in known.items():
        side = sides.of(source)
        if relatedness.are_strangers:
            raise HistoryError(
                "base shares no record with this side",
                where=side.label if side else "",
                got=sides.base.label if sides.base else None,
                expected="the version both sides started from",
                hint="--allow-unrelated",
            )


def _demand_all_known(decided: Mapping[str, object], names: Sequence[str]) -> None:
    for name in decided:
        if name not in names:
            raise HistoryError(
                "decision about a file that no side has",
                where=name,
                hint="save the decisions again: --decisions",
            )
