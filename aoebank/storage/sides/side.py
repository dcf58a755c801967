"""The sides of a comparison or a merge, all read the same way: bank files by their names.

`storage.open_side` makes one of what a person wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from aoebank.errors import BankPathError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.provenance import SUFFIX, ProvenanceLog, parse_provenance
from aoebank.formats.registry import HEAD_BYTES, find_format, format_of, may_be_bank
from aoebank.formats.text.checks import is_blank
from aoebank.storage.bank import load_file, load_provenance, read_file
from aoebank.storage.readers.folders import size_of
from aoebank.storage.tree import (
    FileKind,
    TreeEntry,
    banks_beside,
    cannot_be_read,
    find_closed,
    is_stranger,
    iter_tree,
)


class SideKind(StrEnum):
    """Kind of place a side is read from."""

    FILE = "file"
    TREE = "tree"
    GIT = "git"
    SNAPSHOT = "snapshot"


class Side(Protocol):
    """One side: named bank files that can be read as often as wanted.

    Attributes:
        label: How a person wrote it, for messages.
        is_tree: False for one file alone; its name is then the file name.
    """

    @property
    def label(self) -> str: ...

    @property
    def kind(self) -> SideKind: ...

    @property
    def is_tree(self) -> bool: ...

    def names(self) -> tuple[str, ...]:
        """Return the bank files, sorted: paths below the side, `/` between the parts.

        One that cannot be read is among them; whoever loads it gets the error.

        Raises:
            BankPathError: what may be bank files cannot be listed; left out, their records would
                count as removed.
        """
        ...

    def listing(self) -> tuple[tuple[str, ...], tuple[BankPathError, ...]]:
        """Return the bank files, sorted, and what else may be one and cannot be read."""
        ...

    def other_files(self) -> tuple[TreeEntry, ...]:
        """Return the files of a tree that are neither bank files nor beside one."""
        ...

    def load(self, name: str, *, like: ParsedFile | None = None) -> ParsedFile | None:
        """Read and parse a bank file, broken or not; None if the side has none of this name.

        Args:
            name: As `names` gives it.
            like: Another version of the file: lines both have are parsed once.
        """
        ...

    def load_provenance(self, name: str) -> ProvenanceLog:
        """Read the side-car of a bank file; an absent one has no entries."""
        ...

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes of any file of the side, a side-car for one; None if it has none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSide:
    """A bank file or a tree on disk."""

    label: str
    path: Path
    listed: tuple[str, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> SideKind:
        return SideKind.TREE if self.is_tree else SideKind.FILE

    @property
    def is_tree(self) -> bool:
        return self.path.is_dir()

    def names(self) -> tuple[str, ...]:
        if self.listed is not None:
            return self.listed
        names, closed = self.listing()
        for error in closed:  # passed over, its records would count as removed
            raise error
        return names

    def listing(self) -> tuple[tuple[str, ...], tuple[BankPathError, ...]]:
        """Return the bank files, sorted, and what of the tree cannot be read."""
        if not self.is_tree:
            return (self.path.name,), ()
        entries = [*iter_tree(self.path)]
        banks = (entry.path for entry in entries if entry.kind is FileKind.BANK)
        names = sorted(path.relative_to(self.path).as_posix() for path in banks)
        return tuple(names), tuple(filter(None, map(find_closed, entries)))

    def other_files(self) -> tuple[TreeEntry, ...]:
        return tuple(
            entry
            for entry in (iter_tree(self.path) if self.is_tree else ())
            if entry.kind is not FileKind.BANK
            and not any(os.path.lexists(bank) for bank in banks_beside(str(entry.path)))
        )

    def load(self, name: str, *, like: ParsedFile | None = None) -> ParsedFile | None:
        path = self._place(name)
        if self.is_tree and path.is_dir():
            return None  # a folder, or a submodule, where a version had a file
        data = read_file(path)
        if data is None:
            return None
        parsed = format_of(path, data).parse_like(data, path, like)
        if not is_blank(data) and find_error(parsed) is None:
            return parsed
        return load_file(path)  # a torn file is read again when no writer is at it

    def load_provenance(self, name: str) -> ProvenanceLog:
        return load_provenance(self._place(name))

    def read_bytes(self, name: str) -> bytes | None:
        return read_file(self._place(name))

    def size_bytes(self) -> int:
        """Return the size of all bank files."""
        return sum(size_of(self._place(name)) for name in self.names())

    def _place(self, name: str) -> Path:
        return (self.path if self.is_tree else self.path.parent) / name


def listed(side: Side) -> Side:
    """Return a side whose names are asked of the disk once, as an operation takes them.

    Raises:
        BankPathError: as `Side.names`.
    """
    if isinstance(side, PathSide) and side.is_tree:
        return replace(side, listed=side.names())
    return side


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSide:
    """Files that lie in a store of versions: a git revision or a snapshot."""

    label: str
    kind: SideKind
    is_tree: bool
    place: str  # What paths in messages start with; no such file is on disk
    # What the store calls each file and side-car, by its path below the side.
    contents: Mapping[str, str]
    # Why a file cannot be read, by its path: a link that leads to nothing in the store.
    closed: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str], bytes]  # Gives the bytes of one by what the store calls it
    # Gives the first `HEAD_BYTES` of one, where that is cheaper.
    read_head: Callable[[str], bytes] | None = None
    # Whether a content looks like one of a bank, by what the store calls it; sides of one store
    # share it.
    recognized: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    def names(self) -> tuple[str, ...]:
        names, closed = self.listing()
        for error in closed:
            raise error
        return names

    def listing(self) -> tuple[tuple[str, ...], tuple[BankPathError, ...]]:
        """Return the bank files, sorted, and what may be one and cannot be read."""
        found = {*self.contents, *self.closed}
        if not self.is_tree:  # what a person names is a bank file, whatever it is called
            beside = {name for name in found if any(bank in found for bank in banks_beside(name))}
            return tuple(sorted(found - beside)), ()
        names: list[str] = []
        closed: list[BankPathError] = []
        for name in sorted(found):
            try:
                is_bank = self._is_bank_file(name)
                if name in self.closed and not (is_bank or _is_hidden(name)):
                    closed += [] if is_stranger(Path(name)) else [self._error(name)]
                names += [name] if is_bank else []
            except BankPathError as error:
                closed.append(error)
        return tuple(names), tuple(closed)

    def other_files(self) -> tuple[TreeEntry, ...]:
        banks = {*self.names()}
        return tuple(
            TreeEntry(path=Path(self.place, name), kind=FileKind.UNKNOWN)
            for name in (sorted(self.contents) if self.is_tree else ())
            if name not in banks and not _is_hidden(name) and banks.isdisjoint(banks_beside(name))
        )

    def load(self, name: str, *, like: ParsedFile | None = None) -> ParsedFile | None:
        data, path = self.read_bytes(name), Path(self.place, name)
        return None if data is None else format_of(path, data).parse_like(data, path, like)

    def load_provenance(self, name: str) -> ProvenanceLog:
        side_car = f"{name}{SUFFIX}"
        return parse_provenance(self.read_bytes(side_car) or b"", Path(self.place, side_car))

    def read_bytes(self, name: str) -> bytes | None:
        self._demand_open(name)
        stored = self.contents.get(name)
        return None if stored is None else self.read(stored)

    def _demand_open(self, name: str) -> None:
        if name in self.closed:
            raise self._error(name)

    def _error(self, name: str) -> BankPathError:
        return cannot_be_read(Path(self.place, name), self.closed[name])

    def _is_bank_file(self, name: str) -> bool:
        if name.endswith(SUFFIX) or _is_hidden(name):
            return False
        path = Path(name)
        return find_format(path) is not None or (
            may_be_bank(path) and self._looks_like_bank(path, name)
        )

    def _looks_like_bank(self, path: Path, name: str) -> bool:
        self._demand_open(name)
        stored = self.contents[name]
        if stored not in self.recognized:
            read = self.read_head or self.read
            head = read(stored)[:HEAD_BYTES]
            self.recognized[stored] = find_format(path, head) is not None
        return self.recognized[stored]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def size_on_disk(sides: Iterable[Side | None]) -> int:
    """Return the bytes of bank files on disk; files of stored sides do not count."""
    return sum(side.size_bytes() for side in sides if isinstance(side, PathSide))
