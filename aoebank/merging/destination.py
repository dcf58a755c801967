"""Where a merge goes: checked before anything is read, written through one guard at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from aoebank.errors import AoebankError, BankNotFoundError, BankPathError, UsageError
from aoebank.merging.decisions import Decision, FilePlan, Relatedness, Source
from aoebank.merging.document import conflict_file, conflict_path
from aoebank.model.digest import sha256_of
from aoebank.storage.bank import read_file
from aoebank.storage.binary_caches import BY_TUNER_ONLY, USE_TUNER
from aoebank.storage.git.merges import current_point
from aoebank.storage.sides.open import is_stored
from aoebank.storage.sides.side import PathSide, Side
from aoebank.storage.writing.journal import file_journal, tree_journal
from aoebank.storage.writing.staged import FileWrite, write_files


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """One file of the result, and what stands beside it.

    Attributes:
        contents: The file, its side-car and its binary cache by name; None: none is to be there.
        found: SHA-256 of what stands where the result goes, by name, as it was read. A file under
            a name that `contents` has not goes: a side moved it.
        binary_cache: Name of the binary cache readers want beside the file; None: they want none.
        conflicts: Decisions nobody made yet, also those of earlier steps.
        written: SHA-256 of the records of the result for keys that were a conflict in an earlier
            step; None: the key has no record.
        relatedness: How the base and each side are related here.
        error: Why the versions could not be merged: the file is as ours has it, or left alone.
        stays: Whether an earlier step could not merge the version where the result goes, so that
            what is there is left alone.
    """

    plan: FilePlan
    contents: Mapping[str, bytes | None]
    found: Mapping[str, str] = field(default_factory=dict)
    binary_cache: str | None = None
    conflicts: tuple[Decision, ...] = ()
    written: Mapping[str, str | None] = field(default_factory=dict)
    relatedness: Mapping[Source, Relatedness] = field(default_factory=dict)
    error: AoebankError | None = None
    stays: bool = False

    @property
    def data(self) -> bytes | None:
        return self.contents[self.plan.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A file or a tree to write.

    Attributes:
        number: Which of the sides it is; None if it is a new path.
        is_new_tree: Whether it is a folder that is not there yet: it appears as a whole.
    """

    path: Path
    is_tree: bool
    number: int | None = None
    is_new_tree: bool = False

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
