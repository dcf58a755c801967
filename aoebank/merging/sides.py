"""The sides of a merge and its destination: checked, read file by file, written at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from aoebank.diffing.pair_files import FollowedFile
from aoebank.errors import (
    AoebankError,
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    UsageError,
)
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import HEAD_BYTES, find_format, find_loose_targets, parse_name
from aoebank.formats.text.checks import is_blank
from aoebank.merging.decisions import Decision, FilePlan, Relatedness, Source, Three
from aoebank.merging.document import conflict_file, conflict_path
from aoebank.merging.versions import OTHER_TARGET_HINT, Versions
from aoebank.model.digest import sha256_of
from aoebank.storage.bank import demand_no_backup, read_file
from aoebank.storage.binary_caches import BY_TUNER_ONLY, USE_TUNER
from aoebank.storage.git.merges import current_point
from aoebank.storage.sides.open import is_stored
from aoebank.storage.sides.side import PathSide, Side, SideKind
from aoebank.storage.writing.journal import file_journal, tree_journal
from aoebank.storage.writing.staged import FileWrite, write_files


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFile:
    """Something in a tree that is no bank file; a merge leaves it where it is."""

    side: str
    path: Path


def check_sides(
    sides: Sequence[Side], base: Side | None, *, may_differ_in_soc: bool
) -> tuple[OtherFile, ...]:
    """Return the other files of the sides; raise unless the sides can be merged.

    All are files or all are trees, each has a bank file, and all of it can be read.

    Raises:
        BankNotFoundError: one is of another kind, or no bank.
        BankPathError: something in one cannot be read, so what is there is not known.
        BankFormatError: they are for different targets.
    """
    others: list[OtherFile] = []
    for side in (*sides, *([base] if base else [])):
        if side.is_tree != sides[0].is_tree:
            raise BankNotFoundError(
                "cannot merge a file with a tree",
                where=side.label,
                got="a tree" if side.is_tree else "a file",
                expected="a tree" if sides[0].is_tree else "a file",
            )
        for entry in side.other_files():
            if side is not base:
                others.append(OtherFile(side=side.label, path=entry.path))
        if side.is_tree and not side.names():
            raise BankNotFoundError(
                "holds no bank file", where=side.label, expected="a tree with bank files"
            )
    if sides[0].is_tree and not may_differ_in_soc:
        _demand_one_target([(side.label, find_loose_targets(side.names())) for side in sides])
    return tuple(others)


def _demand_one_target(found: Sequence[tuple[str, frozenset[str]]]) -> None:
    """Raise `BankFormatError` if trees without folders for targets are of different ones.

    `banks/Ascend910B1` and `banks/Ascend910B2` would become one folder, while two trees that
    hold such folders only have more targets together than each alone.

    Args:
        found: Label of each side, and the soc_versions of its files outside of such folders; ours
            first.
    """
    first, *others = found
    for label, targets in others:
        if first[1] and targets and first[1].isdisjoint(targets):
            raise BankFormatError(
                "tree is for another soc_version",
                path=Path(label),
                got=", ".join(sorted(targets)),
                expected=", ".join(sorted(first[1])),
                hint=OTHER_TARGET_HINT,
            )


# ---- read ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeSides:
    """The three sides of one merge."""

    base: Side | None
    ours: Side
    theirs: Side
    name: str = ""  # What a single file is called in the result
    # Files that are called in another way on a side, by their names in the result.
    followed: Mapping[str, FollowedFile] = field(default_factory=dict)

    @property
    def is_tree(self) -> bool:
        return self.ours.is_tree

    def of(self, source: Source) -> Side | None:
        """Return the side of a version."""
        return {Source.BASE: self.base, Source.OURS: self.ours}.get(source, self.theirs)

    def names(self) -> tuple[str, ...]:
        """Return the names of the files of the result, sorted; a merge may remove some."""
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
        # lines that versions share are parsed once
        like = ours if ours is not None else theirs
        base = _load(self.base, name=own[Source.BASE], like=like)
        return Versions(base=base, ours=ours, theirs=theirs, named=parse_name(Path(name)))

    def name_in(self, source: Source, name: str) -> str:
        """Return the name a file of the result has on a side."""
        side, file = self.of(source), self.followed.get(name)
        if file is not None:
            return str(getattr(file, source))
        return name if side is None or side.is_tree else side.names()[0]


def read_beside(sides: ThreeSides, names: Mapping[Source, str | None]) -> Three[bytes | None]:
    """Return the bytes of files that stand beside bank files, by what each side calls them."""

    def read(source: Source) -> bytes | None:
        side, name = sides.of(source), names[source]
        return None if side is None or name is None else side.read_bytes(name)

    return Three(base=read(Source.BASE), ours=read(Source.OURS), theirs=read(Source.THEIRS))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """One file of the result, and what stands beside it."""

    plan: FilePlan
    # The file, its side-car and its binary cache by name; None: none is to be there.
    contents: Mapping[str, bytes | None]
    # SHA-256 of what stands where the result goes, by name, as it was read. A file under a name
    # that `contents` has not goes: a side moved it.
    found: Mapping[str, str] = field(default_factory=dict)
    # Name of the binary cache readers want beside the file; None: they want none.
    binary_cache: str | None = None
    conflicts: tuple[Decision, ...] = ()  # Decisions nobody made yet, also those of earlier steps
    # SHA-256 of the records of the result for keys that were a conflict in an earlier step; None:
    # the key has no record.
    written: Mapping[str, str | None] = field(default_factory=dict)
    # How the base and each side are related here.
    relatedness: Mapping[Source, Relatedness] = field(default_factory=dict)
    # Why the versions could not be merged: the file is as ours has it, or left alone.
    error: AoebankError | None = None
    # Whether an earlier step could not merge the version where the result goes, so that what is
    # there is left alone.
    stays: bool = False

    @property
    def data(self) -> bytes | None:
        return self.contents[self.plan.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A file or a tree to write."""

    path: Path
    is_tree: bool
    number: int | None = None  # Which of the sides it is; None if it is a new path
    is_new_tree: bool = False  # Whether it is a folder that is not there yet: it appears as a whole

    def version(self, step: int) -> Source | None:
        """Return which version of a step this is, if it is one.

        Args:
            step: The side with the next number comes into those before it.
        """
        if self.number == step + 1:
            return Source.THEIRS
        return Source.OURS if step == 0 and self.number == 0 else None

    def place(self, name: str) -> Path:
        """Return the path of a file of the result, or of one beside it."""
        return self.path / name if self.is_tree else self.path.with_name(name)

    def conflict_path(self, name: str) -> Path:
        """Return the path of the conflict file of a file of the result."""
        return conflict_path(self.place(name))

    def skips(self, file: MergedFile) -> bool:
        """True if nothing is written for a file, since versions of it could not be merged."""
        is_here = self.number is not None
        return file.stays or (file.error is not None and (is_here or file.data is None))

    def write_merged(self, files: Iterable[MergedFile]) -> tuple[Path, ...]:
        """Write the files of a merge, all or none, and return the paths of those that changed.

        Args:
            files: One at a time in memory: each is written beside its place, and gets its name
                when all are there.

        Raises:
            BankPathError: conflicts of an earlier merge are waiting, a file cannot be written, or
                is not what was read.
        """
        changes = self._changes(files)
        is_inside = self.is_tree and not self.is_new_tree
        return write_files(
            changes,
            journal=tree_journal(self.path) if is_inside else file_journal(self.path, "merge"),
            root=self.path if self.is_tree else self.path.parent,
            is_new_tree=self.is_new_tree,
        )

    def _changes(self, files: Iterable[MergedFile]) -> Iterator[FileWrite]:
        find_point = cache(current_point)
        for file in files:
            if self.skips(file):
                continue  # what is here stays
            stays = self._find_kept_cache(file)
            place = self.conflict_path(file.plan.name)
            conflicts = None
            if file.conflicts:
                old = read_file(place)
                point = find_point(self.path)
                conflicts = conflict_file(file.conflicts, file.written, old, place, point)
            for name in dict.fromkeys((*file.contents, *file.found)):
                if name != stays:
                    yield FileWrite(
                        path=self.place(name),
                        data=file.contents.get(name),
                        old_sha256=file.found.get(name),
                    )
            if conflicts is not None:
                yield FileWrite(path=place, data=conflicts)

    def _find_kept_cache(self, file: MergedFile) -> str | None:
        """Return the name of a binary cache that stays, since its bank file does.

        Raises:
            BankPathError: readers would go on using one that belongs to another content.
        """
        name = file.binary_cache
        if name is None or name not in file.found or file.contents[name] is not None:
            return None
        if sha256_of(file.data) != file.found.get(file.plan.name):
            raise BankPathError(BY_TUNER_ONLY, path=self.place(name), hint=USE_TUNER)
        return name


def find_destination(text: str, sides: Sequence[Side], *, cwd: Path) -> Destination:
    """Return the destination a person named.

    Args:
        text: A new path, or that of a side.
        sides: Those to merge; ours is the first.

    Raises:
        UsageError: it is a revision or a snapshot.
        BankPathError: something else is there, which would be lost.
    """
    if is_stored(text):
        raise UsageError("cannot be written", where=text, expected="a path for the result")
    path, is_tree = cwd / text, sides[0].is_tree
    if path.exists() and path.is_dir() != is_tree:
        raise BankNotFoundError(
            "result is of another kind than the sides",
            path=path,
            got="a directory" if path.is_dir() else "a file",
            expected="a directory" if is_tree else "a file",
        )
    number = next((n for n, side in enumerate(sides) if _is_at(side, path)), None)
    # a side may be overwritten, since the merge has read it; anything else would be lost
    if number is None:
        _demand_free(path, sides)
    is_new_tree = is_tree and not os.path.lexists(path)
    return Destination(path=path, is_tree=is_tree, number=number, is_new_tree=is_new_tree)


def _is_at(side: Side, path: Path) -> bool:
    if not isinstance(side, PathSide) or not path.exists():
        return False
    return side.path.samefile(path)


def _demand_free(path: Path, sides: Sequence[Side]) -> None:
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise BankPathError(
            "exists already and is none of the sides",
            path=path,
            expected="a new path, or one of the sides",
            hint="remove it, or merge it too: name it as a side",
        )
    for side in sides:
        if isinstance(side, PathSide) and side.is_tree:
            inner = path.resolve()
            if side.path.resolve() in inner.parents:
                raise BankPathError(
                    "lies inside of a side, and would become part of it",
                    path=path,
                    expected=f"a place outside of {side.label}",
                )
