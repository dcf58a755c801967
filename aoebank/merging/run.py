"""The merge of files and trees: sides come into the first one, one after the other.

A `Step` merges one side into the result so far, file by file, and nothing is written before the
last step has ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aoebank.diffing.pair_files import FollowedFile, follow_moves
from aoebank.errors import AoebankError, BankFormatError, BankPathError, HistoryError, UsageError
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, find_format, format_of, get_format
from aoebank.merging.decisions import (
    Decision,
    FilePlan,
    MergeRules,
    PersonalVerdict,
    Reason,
    RecordMoves,
    Relatedness,
    Source,
    Three,
    Verdicts,
)
from aoebank.merging.document import StepDecisions
from aoebank.merging.file import FileMerge, merge_file
from aoebank.merging.merge_bytes import QUARANTINE, merge_lines
from aoebank.merging.sides import (
    Destination,
    MergedFile,
    OtherFile,
    ThreeSides,
    check_sides,
    read_beside,
)
from aoebank.merging.versions import Exclusions, MergeContext, Versions
from aoebank.model.digest import sha256_of
from aoebank.model.display import RichDisplay
from aoebank.model.timing import Measurements
from aoebank.processes import count_processes, map_in_order
from aoebank.report.output import plural
from aoebank.storage.binary_caches import BY_TUNER_ONLY
from aoebank.storage.sides.side import PathSide, Side, SideKind, StoredSide, listed, size_on_disk
from aoebank.storage.writing.journal import demand_whole

_BOTH = (Source.OURS, Source.THEIRS)
_NAMED = 5  # broken files an error names besides the first


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """Sides, rules and destination of a merge."""

    # Two or more; the first is ours, the others come into it one after the other.
    sides: tuple[Side, ...]
    base: Side | None = None
    rules: MergeRules = field(default_factory=MergeRules)
    exclusions: Exclusions = field(default_factory=Exclusions)
    destination: Destination | None = None  # None to write nothing
    verdicts: Verdicts = field(default_factory=dict)
    verbose: bool = False  # Whether clean decisions are wanted as values, not only as counts
    # Whether a broken file of a tree stays as ours has it; else nothing is written and the error
    # names all of them.
    skips_broken: bool = False
    count: Callable[[int], int] = count_processes  # Says how many processes merge so many bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """State of a file after the steps so far; fields of the same name are as in `MergedFile`."""

    conflicts: tuple[Decision, ...] = ()
    found: Mapping[str, str] = field(default_factory=dict)
    stays: bool = False
    # Name of the file in our first side; None if no step has followed it from there.
    first: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The merge of one side into what there is so far."""

    request: MergeRequest
    number: int  # 0 for the side that comes into our first one
    sides: ThreeSides
    carried: Mapping[str, Carried]  # What the steps before left, by file

    @property
    def is_last(self) -> bool:
        return self.number == len(self.request.sides) - 2

    @property
    def is_one_of_several(self) -> bool:
        return len(self.request.sides) > 2

    @property
    def target(self) -> Source | None:
        """Return the version that lies at the destination; None if no version does."""
        destination = self.request.destination
        return destination.version(self.number) if destination else None

    def carried_name(self, name: str) -> str:
        """Return the name under which the steps before left a file, which theirs may rename."""
        return self.sides.name_in(Source.OURS, name) if self.sides.is_tree else name

    def first_name(self, name: str) -> str | None:
        """Return the name of a file in our first side, through all renames of the steps."""
        if self.number == 0:
            return self.sides.name_in(Source.OURS, name)
        return self.carried.get(self.carried_name(name), Carried()).first

    @property
    def verdicts(self) -> Mapping[str, Mapping[str, PersonalVerdict]]:
        """Return the decisions of a person, by file."""
        return self.request.verdicts.get(self.sides.theirs.label, {})


def merge_sides(step: Step) -> Iterator[MergedFile]:
    """Yield the files of the result, one at a time in memory; of a tree the quarantine is last.

    Raises:
        BankFormatError: a file is broken, or versions do not fit together.
        BankPathError: a file cannot be read, or has a twin only its tuner can write.
        HistoryError: the base shares no record with a side, or verdicts are stale.
    """
    sides, names = step.sides, step.sides.names()
    _demand_all_known(step.verdicts, names)
    request = step.request
    processes = request.count(size_on_disk((sides.base, sides.ours, sides.theirs)))
    known = {source: Relatedness() for source in _BOTH}
    # all files are tried before the first error is raised: one run names every broken file
    broken: list[BankFormatError] = []
    pieces = (*names, QUARANTINE) if sides.is_tree else names
    # the quarantine pays for no second process
    for file in map_in_order(partial(_merge_piece, step), pieces, min(processes, len(names))):
        for source, related in file.relatedness.items():
            known[source] |= related
        if isinstance(file.error, BankFormatError) and not request.skips_broken:
            broken.append(file.error)
        yield file
    if broken:
        raise _told_together(broken)
    # known only behind the last file: a tree is related by any file of it
    if sides.base is not None and not request.rules.may_be_unrelated:
        _demand_related(sides, known)


def _merge_piece(step: Step, name: str) -> MergedFile:
    """Return the merge of a file, with what the steps before left for it."""
    if name == QUARANTINE:
        file = _merge_quarantine(step)
    else:
        file = _merge_or_tell(step, name) if step.sides.is_tree else _merge_one(step, name)
        if step.is_last and step.is_one_of_several:  # what changes for who has our first side
            own = step.first_name(name)
            before = step.request.sides[0].load(own) if own is not None else None
            file = replace(file, plan=replace(file.plan, moves=_count_moves(before, file.data)))
    carried = step.carried.get(step.carried_name(name), Carried())
    earlier = (replace(conflict, file=file.plan.name) for conflict in carried.conflicts)
    return replace(
        file,
        conflicts=(*earlier, *file.plan.conflicts),
        found=file.found if step.target else carried.found,
        stays=carried.stays or (file.error is not None and step.target is Source.THEIRS),
        written=_written(carried.conflicts, file) if step.is_last else {},
    )


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


def _written(earlier: Sequence[Decision], file: MergedFile) -> dict[str, str | None]:
    """Return the digests of records written for keys that were a conflict in an earlier step."""
    last = {conflict.key for conflict in file.plan.conflicts}
    keys = [conflict.key for conflict in earlier if conflict.key not in last]
    if not keys or file.data is None or file.plan.format is None:
        return dict.fromkeys(keys)
    parsed = get_format(file.plan.format).parse(file.data, Path(file.plan.name))
    numbers = {key: parsed.find(key) for key in keys}
    return {
        key: None if number is None else sha256_of(parsed.raw(number))
        for key, number in numbers.items()
    }


def _merge_quarantine(step: Step) -> MergedFile:
    """Return the merged quarantine of trees; without bytes where no side has one."""
    texts = read_beside(step.sides, dict.fromkeys(Source, QUARANTINE))
    is_there = texts.ours is not None or texts.theirs is not None
    found = sha256_of(texts.of(step.target)) if step.target else None
    return MergedFile(
        plan=FilePlan(name=QUARANTINE),
        contents={QUARANTINE: merge_lines(texts, Path(QUARANTINE)) if is_there else None},
        found={QUARANTINE: found} if found is not None else {},
    )


def _merge_or_tell(step: Step, name: str) -> MergedFile:
    """Return the merge of a file of a tree; of one that is broken, what ours has, and why."""
    try:
        return _merge_one(step, name)
    except BankFormatError as error:
        sides, target = step.sides, step.target
        own, there = sides.name_in(Source.OURS, name), sides.of(target) if target else None
        contents = _read_group(sides.ours, own)
        found = _read_group(there, sides.name_in(target, name)) if target and there else {}
        known = find_format(Path(own), (contents[own] or b"")[:HEAD_BYTES])
        return MergedFile(
            plan=FilePlan(name=own, format=known.name if known else None),
            contents=contents,
            found={beside: sha for beside, data in found.items() if (sha := sha256_of(data))},
            binary_cache=_name_cache(own, known),
            error=error,
        )


def _read_group(side: Side, name: str) -> dict[str, bytes | None]:
    """Return the bytes of a file of a side, of its side-car, and of its binary cache if any."""
    data = side.read_bytes(name)
    twin = _name_cache(name, find_format(Path(name), (data or b"")[:HEAD_BYTES]))
    beside = filter(None, (name + SUFFIX, twin))
    return {name: data, **{other: side.read_bytes(other) for other in beside}}


def _told_together(broken: Sequence[BankFormatError]) -> BankFormatError:
    """Return the error of the first broken file, which names the others too."""
    first = broken[0]
    others = [str(error.path) for error in broken[1:]]
    words = [f"also: {', '.join(others[:_NAMED])}"] if others else []
    words += [f"and {plural(len(others) - _NAMED, 'more file')}"] if len(others) > _NAMED else []
    first.hint = "; ".join(
        filter(None, (first.hint, *words, "--skip-broken leaves broken files as ours has them"))
    )
    return first


def _merge_one(step: Step, name: str) -> MergedFile:
    sides = step.sides
    ours, theirs = (sides.name_in(source, name) for source in _BOTH)
    versions = sides.load(name)
    context = MergeContext(
        rules=step.request.rules,
        is_two_way=sides.base is None,
        exclusions=step.request.exclusions,
        verdicts=step.verdicts.get(name, {}),
        times_of_ours=Measurements(lambda: sides.ours.load_provenance(ours).entries),
        times_of_theirs=Measurements(lambda: sides.theirs.load_provenance(theirs).entries),
        verbose=step.request.verbose,
        tells_reasons=step.is_one_of_several,
    )
    return _with_files_beside(step, versions, merge_file(versions, name, context))


def _with_files_beside(step: Step, versions: Versions, merge: FileMerge) -> MergedFile:
    """Return a merged file with what stands beside it, and what is where the result goes."""
    sides, name, known = step.sides, merge.plan.name, versions.any().format
    own = {source: sides.name_in(source, name) for source in Source}
    twins = {source: _name_cache(own[source], known) for source in Source}
    side_cars = read_beside(sides, {source: own[source] + SUFFIX for source in Source})
    binary_caches = read_beside(sides, twins)
    twin = _name_cache(name, known)
    contents = {
        name: merge.data,
        name + SUFFIX: _merge_side_cars(side_cars, name, is_gone=merge.data is None),
    }
    if twin is not None:
        contents[twin] = _choose_binary_cache(binary_caches, versions, merge.data, twin)
    found: dict[str, str | None] = {}
    if step.target is not None:
        there, place = versions.of(step.target), own[step.target] if sides.is_tree else name
        found = {
            place: sha256_of(there.data) if there is not None else None,
            place + SUFFIX: sha256_of(side_cars.of(step.target)),
            _name_cache(place, known) or "": sha256_of(binary_caches.of(step.target)),
        }
    return MergedFile(
        plan=merge.plan,
        contents=contents,
        found={beside: digest for beside, digest in found.items() if digest is not None},
        binary_cache=twin,
        relatedness={
            source: _find_relatedness(versions.base, versions.of(source)) for source in _BOTH
        },
    )


def _name_cache(name: str, known: Format | None) -> str | None:
    """Return the name of the binary cache readers want beside a file; None: they want none."""
    path = known.companion(Path(name)) if known is not None else None
    return path.as_posix() if path is not None else None


def _merge_side_cars(texts: Three[bytes | None], name: str, *, is_gone: bool) -> bytes | None:
    if texts.ours is None and texts.theirs is None:
        return None
    merged = merge_lines(texts, Path(name + SUFFIX))
    return None if is_gone and not merged else merged


def _choose_binary_cache(
    binary_caches: Three[bytes | None], versions: Versions, data: bytes | None, name: str
) -> bytes | None:
    """Return the binary cache that goes with the merged file, by its name in the result.

    Raises:
        BankPathError: there would have to be a new one.
    """
    if data is None:
        return None
    # a binary cache belongs to the bytes it was made from, so only an unchanged side has one
    for source in _BOTH:
        version = versions.of(source)
        if version is not None and version.data == data:
            return binary_caches.of(source)
    if binary_caches.ours is not None or binary_caches.theirs is not None:
        hint = "take the file of one side, with its twin"
        problem = versions.any().format.companion_problem or BY_TUNER_ONLY
        raise BankPathError(problem, path=Path(name), hint=hint)
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeResult(RichDisplay):
    """Decisions of a merge, and the files it wrote."""

    shown_by = "aoebank.merging.report:MergeReport"
    rows_in = "decisions"

    base: str | None
    sides: tuple[str, ...]
    steps: tuple[StepDecisions, ...]
    # Keys by reason, over all files; of several steps the last one with news counts.
    counts: Mapping[Reason, int]
    files: int
    other_files: tuple[OtherFile, ...] = ()
    # Records left out since their key comes several times, by the side they are in.
    hidden: Mapping[str, int] = field(default_factory=dict)
    written: tuple[Path, ...] = ()  # Files with a new content, side-cars and conflict files too
    # Those of all open conflicts; one that has them already is not in `written`.
    conflict_files: tuple[Path, ...] = ()
    # Why files were left as ours has them, or as they are where the result goes.
    skipped: tuple[AoebankError, ...] = ()
    followed: tuple[FollowedFile, ...] = ()  # Files one side moved and the other one changed
    # How many records change for who has our side.
    moves: RecordMoves = field(default_factory=RecordMoves)

    @property
    def conflicts(self) -> int:
        """Return the number of keys left for a person."""
        return sum(decision.conflict for step in self.steps for decision in step.decisions)


def merge(request: MergeRequest) -> MergeResult:
    """Merge and write, all or nothing.

    Raises:
        AoebankError: a side cannot be merged, or the result not be written; nothing is changed.
    """
    base, destination = request.base, request.destination
    _demand_known(request.verdicts, request.sides[1:])
    for side in (*request.sides, base):
        if isinstance(side, PathSide):
            demand_whole(side.path)
    other_files = check_sides(
        request.sides, base, may_differ_in_soc=request.rules.may_differ_in_soc
    )
    # a large tree takes longer to list than to read
    ours, *others = map(listed, request.sides)
    base = listed(base) if base is not None else None
    tally = _Tally()
    written: tuple[Path, ...] = ()
    for number, theirs in enumerate(others):
        followed: tuple[FollowedFile, ...] = ()
        if base is not None and ours.is_tree and request.rules.follows_renames:
            followed = follow_moves(base, ours, theirs)
        sides = ThreeSides(
            base=base,
            ours=ours,
            theirs=theirs,
            name=destination.path.name if destination else request.sides[0].names()[0],
            followed={file.name: file for file in followed},
        )
        step = Step(request=request, number=number, sides=sides, carried=dict(tally.carried))
        merged = merge_sides(step)
        files = _tallied(step, merged, tally)
        if not step.is_last:  # the result of a step is ours of the next one
            ours = _fold(step, files)
        elif destination is not None:
            written = destination.write_merged(files)
        else:
            deque(files, maxlen=0)  # decided is all they are to be
    waiting = map(destination.conflict_path, tally.waiting) if destination is not None else ()
    return MergeResult(
        base=base.label if base else None,
        sides=tuple(side.label for side in request.sides),
        steps=tuple(tally.steps),
        counts=tally.counts,
        files=tally.files,
        other_files=other_files,
        hidden=tally.hidden,
        written=written,
        conflict_files=tuple(waiting),
        skipped=tuple(tally.skipped),
        followed=tuple(tally.followed),
        moves=tally.moves,
    )


@dataclass(slots=True)
class _Tally:
    """Results of the steps so far."""

    steps: list[StepDecisions] = field(default_factory=list)
    counts: Counter[Reason] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    files: int = 0
    # What is open, and what was found where the result goes, by file.
    carried: dict[str, Carried] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)  # Files of the result with conflicts
    followed: list[FollowedFile] = field(default_factory=list)
    skipped: list[AoebankError] = field(default_factory=list)
    moves: RecordMoves = field(default_factory=RecordMoves)
    # Why each key is as it is, by file; of merges of several steps.
    reasons: dict[str, dict[str, Reason]] = field(default_factory=dict)

    def count_once(self, plan: FilePlan, earlier: str) -> None:
        """Count the keys of a file that no earlier step counted, or counted for less.

        Args:
            earlier: Name of the file in the steps before.
        """
        known = self.reasons.setdefault(plan.name, self.reasons.get(earlier, {}))
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


def _fold(step: Step, files: Iterable[MergedFile]) -> Side:
    """Return the result of a step that is not the last as a side."""
    contents = {
        name: data for file in files for name, data in file.contents.items() if data is not None
    }
    label = f"{step.sides.ours.label} + {step.sides.theirs.label}"
    return StoredSide(
        label=label,
        kind=SideKind.TREE if step.sides.is_tree else SideKind.FILE,
        is_tree=step.sides.is_tree,
        place=label,
        contents={name: name for name in contents},
        read=contents.__getitem__,
    )


def _tallied(step: Step, files: Iterable[MergedFile], tally: _Tally) -> Iterator[MergedFile]:
    """Yield the files of a step, each counted."""
    destination = step.request.destination
    decisions: list[Decision] = []
    tally.followed += step.sides.followed.values()
    for file in files:
        plan = file.plan
        if step.is_one_of_several:
            tally.count_once(plan, step.carried_name(plan.name))
        else:
            tally.counts.update(plan.counts)
        for source, number in plan.hidden.items():
            side = step.sides.of(source)
            tally.hidden[side.label if side else source] += number
        decisions += plan.decisions
        tally.skipped += [file.error] if file.error is not None else []
        tally.carried[plan.name] = Carried(
            conflicts=file.conflicts,
            found=file.found,
            stays=file.stays,
            first=step.first_name(plan.name),
        )
        if step.is_last and plan.name != QUARANTINE:
            tally.files += file.data is not None
            if destination is None or not destination.skips(file):
                tally.moves = tally.moves.plus(plan.moves)
                tally.waiting += [plan.name] if file.conflicts else []
        yield file
    label = step.sides.theirs.label
    tally.steps.append(StepDecisions(theirs=label, decisions=tuple(decisions)))
