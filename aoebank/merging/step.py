"""Merge one side into another, file by file: what each file of the result is, still in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aoebank.diffing.moves import FollowedFile
from aoebank.errors import AoebankError, BankFormatError, BankPathError, HistoryError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, find_format, get_format
from aoebank.formats.text.checks import is_blank
from aoebank.merging.context import Measurements, MergeContext
from aoebank.merging.decisions import Decision, FilePlan, Relatedness, Source, Three
from aoebank.merging.file import merge_file
from aoebank.merging.lines import QUARANTINE, merge_lines
from aoebank.merging.saved import PersonalVerdict
from aoebank.merging.versions import Versions
from aoebank.model.digest import sha256_of
from aoebank.processes import count_processes, map_in_order
from aoebank.storage.bank import demand_no_backup
from aoebank.storage.binary_caches import BY_TUNER_ONLY
from aoebank.storage.sides.side import Side, SideKind, size_on_disk

_BOTH = (Source.OURS, Source.THEIRS)
_NAMED = 5  # broken files an error names besides the first


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeSides:
    """The three sides of one merge.

    Attributes:
        name: What a single file is called in the result.
        followed: Files that are called in another way on a side, by their names in the result.
    """

    base: Side | None
    ours: Side
    theirs: Side
    name: str = ""
    followed: Mapping[str, FollowedFile] = field(default_factory=dict)

    @property
    def is_tree(self) -> bool:
        return self.ours.is_tree

    def of(self, source: Source) -> Side | None:
        """Return one of them."""
        return {Source.BASE: self.base, Source.OURS: self.ours}.get(source, self.theirs)

    def names(self) -> tuple[str, ...]:
        """Return the files of the result, sorted, those that may be gone too."""
        if not self.is_tree:
            return (self.name,)
        sides = [side for side in (self.base, self.ours, self.theirs) if side is not None]
        old = {file.base for file in self.followed.values()}
        return tuple(sorted({name for side in sides for name in side.names()} - old))

    def load(self, name: str) -> Versions:
        """Read and parse the versions of a file; what they share is parsed once.

        Raises:
            BankFormatError: one is no bank file, or lost its content to a writer that died.
            BankPathError: one cannot be read.
        """
        own = {source: self.name_in(source, name) for source in Source}
        ours = _load(self.ours, name=own[Source.OURS], like=None)
        theirs = _load(self.theirs, name=own[Source.THEIRS], like=ours)
        like = ours if ours is not None else theirs
        base = _load(self.base, name=own[Source.BASE], like=like)
        return Versions(base=base, ours=ours, theirs=theirs)

    def name_in(self, source: Source, name: str) -> str:
        """Return the name a file of the result has on a side."""
        side, file = self.of(source), self.followed.get(name)
        if file is not None:
            return str(getattr(file, source))
        return name if side is None or side.is_tree else side.names()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDigests:
    """SHA-256 of a file and of what stands beside it, as they were read; None: not there."""

    bank: str | None = None
    side_car: str | None = None
    binary_cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that has another name in the result, so that this one goes."""

    name: str
    found: FoundDigests


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """One file of the result and what stands beside it; None where there is to be none.

    Attributes:
        binary_cache: Bytes of the binary twin, where readers want one.
        found: What there is where the result goes, if that is a side.
        left: What the file is called there, if that is another name.
        conflicts: Decisions nobody made yet, also those of earlier steps.
        relatedness: How the base and each side are related here.
        error: Why the versions could not be merged: the file is as ours has it, or left alone.
    """

    plan: FilePlan
    data: bytes | None
    side_car: bytes | None = None
    binary_cache: bytes | None = None
    found: FoundDigests | None = None
    left: LeftFile | None = None
    conflicts: tuple[Decision, ...] = ()
    relatedness: Mapping[Source, Relatedness]
    error: AoebankError | None = None

    def binary_cache_of(self, bank: Path) -> Path | None:
        """Return the path of the binary cache readers want beside a bank, None for none."""
        return get_format(self.plan.format).companion(bank) if self.plan.format else None


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
    texts = _read_beside(step.sides, dict.fromkeys(Source, Path(QUARANTINE)))
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
    side_cars = _read_beside(sides, {source: Path(own[source] + SUFFIX) for source in Source})
    companion = versions.any().format.companion
    binary_caches = _read_beside(sides, {source: companion(Path(own[source])) for source in Source})
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


def _read_beside(sides: ThreeSides, places: Mapping[Source, Path | None]) -> Three[bytes | None]:
    """Return the bytes of files that stand beside bank files, by what each side calls them."""

    def read(source: Source) -> bytes | None:
        side, place = sides.of(source), places[source]
        return None if side is None or place is None else side.read_bytes(place.as_posix())

    return Three(base=read(Source.BASE), ours=read(Source.OURS), theirs=read(Source.THEIRS))


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


def _load(side: Side | None, *, name: str, like: ParsedFile | None) -> ParsedFile | None:
    """Return one version of a file, known to be of a bank; None where a side has none."""
    if side is None:
        return None
    own = name if side.is_tree else side.names()[0]
    parsed = side.load(own, like=like)
    if parsed is None:
        return None
    head, path = parsed.data[:HEAD_BYTES], parsed.path
    if not side.is_tree and not is_blank(parsed.data) and find_format(path, head) is None:
        raise BankFormatError(
            "is no bank file", path=path, expected="a file of a format of docs/formats.md"
        )
    if is_blank(parsed.data) and side.kind in (SideKind.FILE, SideKind.TREE):
        demand_no_backup(path)
    return parsed
