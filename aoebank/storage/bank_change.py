"""A change of bank files: planned record by record, checked, then written all or none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import MappingProxyType

from aoebank.errors import BankNotFoundError, BankPathError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.splice import splice_checked
from aoebank.model.digest import sha256_of
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.tree import FileKind, TreeEntry, classify, demand_bank_file, iter_tree
from aoebank.storage.writing.atomic import tree_of
from aoebank.storage.writing.journal import demand_whole, put_back_merge, tree_journal
from aoebank.storage.writing.staged import FileWrite, write_files


class BankChange:
    """New contents of the bank files below some paths; a dry run plans and checks them only.

    Args:
        paths: The bank files and trees a person named.
        is_dry_run: Write nothing.
    """

    def __init__(self, paths: Sequence[Path], *, is_dry_run: bool) -> None:
        self._paths = paths
        self._is_dry_run = is_dry_run
        self._writes: list[FileWrite] = []

    def find_banks(self) -> list[TreeEntry]:
        """Return the bank files of the paths, each once; a change that was cut off is undone first.

        Raises:
            BankNotFoundError: a path is not there.
            BankPathError: a file cannot be read, so a change of all files is not possible.
        """
        for path in self._paths:
            if not path.exists():
                raise BankNotFoundError("no such file or directory", path=path)
            if not self._is_dry_run:
                put_back_merge(path if path.is_dir() else path.parent)
            demand_bank_file(path)
            demand_whole(path)
        seen: dict[Path, TreeEntry] = {}
        for path in self._paths:
            for entry in iter_tree(path) if path.is_dir() else (classify(path),):
                if entry.kind is FileKind.UNREADABLE:
                    problem = f"cannot be read: {entry.reason}"
                    raise BankPathError(problem, path=entry.path, hint="nothing is changed")
                if entry.kind is FileKind.BANK:
                    place = Path(os.path.realpath(entry.path.parent), entry.path.name)
                    seen.setdefault(place, entry)
        return [*seen.values()]

    def splice(
        self,
        parsed: ParsedFile,
        *,
        replaced: Mapping[int, bytes] = MappingProxyType({}),
        removed: AbstractSet[int] = frozenset(),
    ) -> ParsedFile:
        """Plan to replace and remove records of a file; return the file as it will be.

        Raises:
            BankPathError: readers open a binary cache of the file, which would be out of date.
            BankFormatError: another record would change; a fault of this program.
        """
        demand_no_binary_cache(parsed.path, parsed.format)
        after = splice_checked(parsed, replaced=replaced, removed=removed)
        self._writes.append(
            FileWrite(
                path=parsed.path,
                data=after.data,
                old_sha256=sha256_of(parsed.data),
                root=tree_of(parsed.path, self._paths) or parsed.path.parent,
            )
        )
        return after

    def write(self) -> tuple[Path, ...]:
        """Write the planned contents, all or none; return the paths of files that changed.

        Raises:
            BankPathError: a file cannot be written, or is not what was read.
        """
        if self._is_dry_run or not self._writes:
            return ()
        roots = [os.path.realpath(write.root or "") for write in self._writes]
        return write_files(self._writes, journal=tree_journal(Path(os.path.commonpath(roots))))
