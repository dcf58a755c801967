"""The bank files a change is about, and writing all of them or none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPathError
from aoebank.formats.protocol import ParsedFile
from aoebank.merging.destination import demand_whole, put_back_merge, tree_journal
from aoebank.model.digest import sha256_of
from aoebank.storage.tree import FileKind, TreeEntry, classify, iter_tree
from aoebank.storage.writing.atomic import real_place, tree_of
from aoebank.storage.writing.staged import staged_changes


def banks_to_change(paths: Sequence[Path], *, is_dry_run: bool) -> list[TreeEntry]:
    """Return the bank files asked for, each once; what a dead process left half done is undone.

    Raises:
        BankNotFoundError: a path is not there.
        BankPathError: a file cannot be read: what is meant by all of them cannot be done.
    """
    for path in paths:
        if not path.exists():
            raise BankNotFoundError("no such file or directory", path=path)
        if not is_dry_run:
            put_back_merge(path if path.is_dir() else path.parent)
        demand_whole(path)
    seen: dict[Path, TreeEntry] = {}
    for path in paths:
        for entry in iter_tree(path) if path.is_dir() else (classify(path),):
            if entry.kind is FileKind.UNREADABLE:
                raise BankPathError(
                    f"cannot be read: {entry.reason}", path=entry.path, hint="nothing is changed"
                )
            if entry.kind is FileKind.BANK:
                seen.setdefault(Path(os.path.realpath(entry.path)), entry)
    return [*seen.values()]


def write_banks(
    edits: Sequence[tuple[ParsedFile, bytes]], asked: Sequence[Path]
) -> tuple[Path, ...]:
    """Write new contents of bank files, all or none; return their paths.

    Args:
        edits: Files as they were read, each with its new bytes.
        asked: The paths and trees a person named.

    Raises:
        BankPathError: one of them cannot be written, or is not what was read.
    """
    if not edits:
        return ()
    paths = [parsed.path for parsed, _ in edits]
    places = [real_place(path, tree_of(path, asked) or path.parent) for path in paths]
    journal = tree_journal(Path(os.path.commonpath([place.parent for place in places])))
    with staged_changes(journal) as changes:
        for parsed, data in edits:
            changes.write(parsed.path, data, old_sha256=sha256_of(parsed.data))
        return changes.commit()
