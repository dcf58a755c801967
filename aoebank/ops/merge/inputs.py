"""The sides of a merge, checked, and the versions of a file they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, BankPathError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, find_format
from aoebank.formats.text.raw_splice import is_blank
from aoebank.ops.merge.conflicts import SUFFIX as CONFLICT_SUFFIX
from aoebank.ops.merge.plan import Source
from aoebank.ops.merge.versions import Versions
from aoebank.storage.sides.side import PathSide, Side, SideKind, StoredSide, size_on_disk
from aoebank.storage.tree import BACKUP_SUFFIX, FileKind, TreeEntry, iter_tree
from aoebank.storage.twins import bank_of_twin


@dataclass(frozen=True, slots=True, kw_only=True)
class Trio:
    """The three sides of one merge; `name` is what a single file is called in the result."""

    base: Side | None
    ours: Side
    theirs: Side
    name: str = ""

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
        sides = [each for each in (self.base, self.ours, self.theirs) if each is not None]
        return tuple(sorted({name for side in sides for name in side.names()}))

    def size(self) -> int:
        """Return the bytes of bank files on disk; those of stored sides do not count."""
        return size_on_disk((self.base, self.ours, self.theirs))

    def load(self, name: str, *, uses_all_cores: bool = True) -> Versions:
        """Read and parse the versions of a file; what they share is parsed once.

        Args:
            uses_all_cores: False where another process has the other core already.

        Raises:
            BankFormatError: one is no bank file, or lost its content to a writer that died.
            BankPathError: one cannot be read.
        """
        load = partial(_load, name=name, uses_all_cores=uses_all_cores)
        ours = load(self.ours, like=None)
        theirs = load(self.theirs, like=ours)
        base = load(self.base, like=ours if ours is not None else theirs)
        return Versions(base=base, ours=ours, theirs=theirs)

    def read(self, source: Source, name: str) -> bytes | None:
        """Return the bytes of a file that stands beside bank files, or None."""
        side = self.of(source)
        return None if side is None else side.read_bytes(name)

    def name_in(self, source: Source, name: str) -> str:
        """Return what a file of the result is called on a side."""
        side = self.of(source)
        return name if side is None or side.is_tree else side.names()[0]


def _load(
    side: Side | None, *, name: str, like: ParsedFile | None, uses_all_cores: bool
) -> ParsedFile | None:
    """Return one version of a file, known to be of a bank; None where a side has none."""
    if side is None:
        return None
    own = name if side.is_tree else side.names()[0]
    parsed = side.load(own, like=like, uses_all_cores=uses_all_cores)
    if parsed is None:
        return None
    head, path = parsed.data[:HEAD_BYTES], parsed.path
    if not side.is_tree and not is_blank(parsed.data) and find_format(path, head) is None:
        raise BankFormatError(
            "is no bank file", path=path, expected="a file of a format of docs/formats.md"
        )
    _demand_no_backup(side, parsed)
    return parsed


def demand_banks(sides: Sequence[Side]) -> None:
    """Raise unless all sides are files or all are trees, each with a bank file to read.

    Raises:
        BankNotFoundError: one is of another kind, or no bank.
        BankPathError: something in one cannot be read, so what is there is not known.
    """
    for side in sides:
        if side.is_tree != sides[0].is_tree:
            raise BankNotFoundError(
                "cannot merge a file with a tree",
                where=side.label,
                got="a tree" if side.is_tree else "a file",
                expected="a tree" if sides[0].is_tree else "a file",
            )
        for entry in iter_strays(side):
            _demand_readable(side, entry)
        if side.is_tree and not side.names():
            raise BankNotFoundError(
                "holds no bank file", where=side.label, expected="a tree with bank files"
            )


def iter_strays(side: Side) -> tuple[TreeEntry, ...]:
    """Return what lies in a tree and is neither a bank file nor a side-car."""
    if isinstance(side, PathSide) and side.is_tree:
        return tuple(
            each
            for each in iter_tree(side.path)
            if each.kind is not FileKind.BANK and not _belongs_to_a_bank(each.path)
        )
    if isinstance(side, StoredSide) and side.is_tree:
        banks = {*side.names()}
        return tuple(
            TreeEntry(path=Path(side.place, name), kind=FileKind.UNKNOWN)
            for name in sorted(side.contents)
            if name not in banks and not _is_hidden(name) and banks.isdisjoint(_owners(name))
        )
    return ()


def _belongs_to_a_bank(path: Path) -> bool:
    return any(Path(owner).is_file() for owner in _owners(str(path)))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _owners(name: str) -> Iterator[str]:
    """Yield the bank file a side-car, a conflict file or a binary twin is of, by its name."""
    for suffix in (SUFFIX, CONFLICT_SUFFIX):
        if name.endswith(suffix):
            yield name.removesuffix(suffix)
    bank = bank_of_twin(name)
    if bank is not None:
        yield bank


def _demand_readable(side: Side, entry: TreeEntry) -> None:
    if entry.kind is not FileKind.UNREADABLE:
        return
    is_nothing = entry.reason in ("link to nowhere", "no regular file")
    if is_nothing and find_format(entry.path) is None:
        return
    raise BankPathError(
        f"cannot be read: {entry.reason}",
        path=entry.path,
        expected=f"all of {side.label} to be readable: what is missing would count as removed",
    )


def _demand_no_backup(side: Side, parsed: ParsedFile) -> None:
    """Raise if a file is empty because a writer of CANN died over it."""
    if not is_blank(parsed.data) or side.kind not in (SideKind.FILE, SideKind.TREE):
        return
    backup = parsed.path.with_name(parsed.path.name.removesuffix(".json") + BACKUP_SUFFIX)
    if backup.exists() and backup.stat().st_size:
        raise BankFormatError(
            "file is empty, its content is in the backup of a write that died",
            path=parsed.path,
            got=backup.name,
            hint=f"mv {backup} {parsed.path}, or remove the backup",
        )
