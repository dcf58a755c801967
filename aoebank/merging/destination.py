"""Where a merge goes: checked before anything is read, filled when all of it is decided.

All that a merge writes passes `Destination.stage`, which guards what stands there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import AoebankError, BankNotFoundError, BankPathError, UsageError, shell_word
from aoebank.formats.provenance import provenance_path
from aoebank.formats.registry import get_format
from aoebank.merging.decisions import Decision, FilePlan, Relatedness, Source
from aoebank.merging.document import conflict_document, conflict_path, keep_choices
from aoebank.merging.lines import QUARANTINE
from aoebank.model.digest import sha256_of
from aoebank.storage.bank import read_file
from aoebank.storage.binary_caches import BY_TUNER_ONLY, USE_TUNER
from aoebank.storage.git.merges import MergePoint
from aoebank.storage.sides.open import is_stored
from aoebank.storage.sides.side import PathSide, Side
from aoebank.storage.writing.atomic import TEMPORARY_SUFFIX
from aoebank.storage.writing.journal import roll_back
from aoebank.storage.writing.staged import StagedChanges


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

    @property
    def journal(self) -> Path:
        """Return the journal of the change of all files."""
        is_inside = self.is_tree and not self.is_new_tree
        return tree_journal(self.path) if is_inside else _file_journal(self.path)

    @property
    def root(self) -> Path:
        """Return the folder no link leads a write out of."""
        return self.path if self.is_tree else self.path.parent

    def version(self, step: int) -> Source | None:
        """Return which version of a step this is, if it is one.

        Args:
            step: The side with the next number comes into those before it.
        """
        if self.number == step + 1:
            return Source.THEIRS
        return Source.OURS if step == 0 and self.number == 0 else None

    def place(self, name: str) -> Path:
        """Return the path of a file of the result."""
        return self.path / name if self.is_tree else self.path

    def stage(
        self,
        file: MergedFile,
        found: FoundDigests,
        changes: StagedChanges,
        point: MergePoint | None = None,
    ) -> None:
        """Prepare to write a merged file and what stands beside it.

        Args:
            found: What was here when the file was read; what came since is not overwritten.
            point: The commit this is at, for conflict files.

        Raises:
            BankPathError: conflicts of an earlier merge are waiting, or it cannot be written.
        """
        if file.error is not None and (self.number is not None or file.data is None):
            return  # what is here stays
        place = self.place(file.plan.name)
        conflicts = conflict_document(file.conflicts, _written(file), point=point)
        is_waiting = bool(conflicts) and _is_waiting(conflict_path(place), conflicts)
        binary_cache = file.binary_cache_of(place)
        _demand_same_binary_cache(file, found, binary_cache)
        changes.put(place, file.data, old_sha256=found.bank)
        changes.put(provenance_path(place), file.side_car, old_sha256=found.side_car)
        if file.left is not None:
            old = self.place(file.left.name)
            changes.put(old, None, old_sha256=file.left.found.bank)
            changes.put(provenance_path(old), None, old_sha256=file.left.found.side_car)
            old_binary_cache = file.binary_cache_of(old)
            if old_binary_cache is not None:
                changes.put(old_binary_cache, None, old_sha256=file.left.found.binary_cache)
        if binary_cache is not None and file.binary_cache is not None:
            changes.put(binary_cache, file.binary_cache, old_sha256=found.binary_cache)
        if conflicts and not is_waiting:
            changes.put(conflict_path(place), conflicts, old_sha256=None)

    def stage_quarantine(
        self, data: bytes | None, found: str | None, changes: StagedChanges
    ) -> None:
        """Prepare to write the quarantine of a tree; `found` is the digest of what was here."""
        if data is not None:
            changes.put(self.path / QUARANTINE, data, old_sha256=found)


def put_back_merge(path: Path, *, takes_tree: bool = False) -> None:
    """Undo a merge into a file or a tree, or an edit there, whose process died in the middle.

    Args:
        takes_tree: Whether a new tree goes too that was whole: the merge makes it once more.

    Raises:
        BankLockedError: it lives.
    """
    real = Path(os.path.realpath(path))  # `.` has no name
    for journal in (tree_journal(real), *([_file_journal(real)] if real.name else [])):
        if journal.exists():
            roll_back(journal, takes_tree=takes_tree)


def demand_whole(path: Path) -> None:
    """Raise `BankPathError` if a merge into this file or tree, or a tree above, was cut off."""
    real = Path(os.path.realpath(path))
    own = [(real, _file_journal(real))] if real.name else []
    places = [*own, *((top, tree_journal(top)) for top in _above(real))]
    for merged, journal in places:
        if journal.exists():
            raise BankPathError(
                "a merge or an edit was cut off here, or still runs",
                path=merged,
                expected="one that came to its end",
                hint="run that command again: it first puts back what it had changed",
            )


def _above(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def tree_journal(path: Path) -> Path:
    """Return the journal of a change of many files below a folder."""
    return path / f".merge{TEMPORARY_SUFFIX}"


def _file_journal(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.merge{TEMPORARY_SUFFIX}")


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


def _written(file: MergedFile) -> dict[str, str | None]:
    """Return the digests of records written for keys that were a conflict in an earlier step."""
    last = {conflict.key for conflict in file.plan.conflicts}
    keys = [conflict.key for conflict in file.conflicts if conflict.key not in last]
    if not keys or file.data is None or file.plan.format is None:
        return dict.fromkeys(keys)
    parsed = get_format(file.plan.format).parse(file.data, Path(file.plan.name))
    numbers = {key: parsed.find(key) for key in keys}
    return {
        key: None if number is None else sha256_of(parsed.raw(number))
        for key, number in numbers.items()
    }


def _is_waiting(place: Path, conflicts: bytes) -> bool:
    """Return whether these very conflicts stand there already, some of them decided perhaps.

    Raises:
        BankPathError: those of another merge do.
    """
    old = read_file(place)
    if old is None:
        return False
    kept, _, is_all = keep_choices(old, conflicts, place)
    if kept != old or not is_all:
        raise BankPathError(
            "conflicts of an earlier merge are not settled yet",
            path=place,
            hint=f"settle them: aoebank merge --apply {shell_word(place)}",
        )
    return True


def _demand_same_binary_cache(
    file: MergedFile, found: FoundDigests, binary_cache: Path | None
) -> None:
    """Raise if readers would go on using a twin that belongs to another content."""
    if found.binary_cache is None or file.binary_cache is not None:
        return
    if sha256_of(file.data) != found.bank:
        raise BankPathError(BY_TUNER_ONLY, path=binary_cache, hint=USE_TUNER)
