"""Notation for a side, and for a version of a bank.

- `PATH`: a bank file or a tree;
- `git:REV`: the bank as it was at a revision; which path is meant comes from the other side
  if that one is in the work tree, else it is the current directory;
- `git:REV:PATH`: as git writes it, from the top of the work tree, or `./PATH` from here;
- `snapshot:REF`: a snapshot or a tag of the bank the other side lies in, if that has a history;
  else of the bank of the current directory, else of the one the environment names;
- `snapshot:REF:ROOT`: the same of the bank at ROOT.

Git and the history are imported where they are asked for: most sides are paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.errors import BankNotFoundError, HistoryError, UsageError, shell_word
from aoebank.model.quarantine import Quarantine
from aoebank.model.snapshot import HistorySource
from aoebank.storage.quarantine import (
    FILE,
    FOLDER,
    find_quarantine_root,
    load_quarantine,
    parse_quarantine,
)
from aoebank.storage.sides.side import PathSide, Side, StoredSide
from aoebank.storage.tree import demand_bank_file

if TYPE_CHECKING:
    from aoebank.storage.sides.versions import History


def open_side(text: str, *, beside: str = "", cwd: Path, default_root: Callable[[], Path]) -> Side:
    """Return the side a person wrote.

    Args:
        beside: How the other side was written; decides the path of a `git:REV`.
        default_root: Gives the bank of a `snapshot:REF` where neither it nor `beside` tells.

    Raises:
        UsageError: the text is empty.
        BankNotFoundError: the path does not exist.
        BankFormatError: the file is of no format.
        HistoryError: the revision, snapshot or tag does not, or nothing of that path is in it.
    """
    if not text:  # a variable of a shell that is not set; it would be the working directory
        raise UsageError("an empty path", hint="name a bank, or leave it out")
    kind, _, rest = text.partition(":")
    if kind == "git" and rest:
        from aoebank.storage.sides.git import open_git_side

        other = "" if is_stored(beside) else beside
        return open_git_side(rest, beside=cwd / other, cwd=cwd)
    if kind == "snapshot" and rest:
        from aoebank.storage.sides.snapshots import open_snapshot_side

        reference, _, root = rest.partition(":")
        if root:
            return open_snapshot_side(reference, root=cwd / root)
        near = cwd / beside if beside and not is_stored(beside) else None
        return _open_snapshot_beside(reference, near, default_root)
    path = cwd / text
    if not path.exists():
        raise BankNotFoundError(
            "no such file or directory",
            path=Path(text),
            expected="a path, git:REV, git:REV:PATH, snapshot:REF or snapshot:REF:ROOT",
        )
    demand_bank_file(path, Path(text))
    return PathSide(label=text, path=path)


def _open_snapshot_beside(
    reference: str, other: Path | None, default_root: Callable[[], Path]
) -> StoredSide:
    """Return the folder `other` in a snapshot of the bank it lies in; of a file, the bank."""
    from aoebank.storage.history.database import find_history
    from aoebank.storage.sides.snapshots import open_snapshot_side

    root = find_history(other) if other is not None else None
    if root is None or other is None:
        return open_snapshot_side(reference, root=default_root())
    side = open_snapshot_side(reference, root=root)
    folder = other if other.is_dir() else other.parent
    here = os.path.realpath(folder) if ".." in folder.parts else folder.absolute()
    inside = os.path.relpath(here, root)
    if inside == "." or not other.is_dir():
        return side
    start = f"{inside}/"
    contents = {
        name.removeprefix(start): stored
        for name, stored in side.contents.items()
        if name.startswith(start)
    }
    return replace(side, place=f"{side.place}/{inside}", contents=contents)


def is_stored(text: str) -> bool:
    """True if a side is written as one of a store of versions, not as a path."""
    return text.startswith(("git:", "snapshot:"))


def open_versions(root: Path, source: HistorySource = HistorySource.AUTO) -> History:
    """Return the history of a bank: git's where the bank is committed, else its snapshots.

    Raises:
        HistoryError: there is no such bank, or it has no history of this kind.
    """
    from aoebank.storage.history.database import history_path
    from aoebank.storage.sides.git import GitHistory, is_tracked
    from aoebank.storage.sides.snapshots import SnapshotHistory

    if source is HistorySource.GIT or (source is HistorySource.AUTO and is_tracked(root)):
        return GitHistory(root)
    if history_path(root).is_file():
        return SnapshotHistory(root)
    if not root.exists():
        raise HistoryError("no such bank", where=str(root), expected="a directory")
    in_git = is_tracked(root)
    raise HistoryError(
        "bank has no snapshot"
        if in_git
        else "bank has no history: no snapshot, and no commit has its files",
        where=str(root),
        hint="commits have it; a commit is written git:REV"
        if in_git
        else f"aoebank snapshot {shell_word(root)}",
    )


def split_reference(reference: str) -> tuple[HistorySource, str]:
    """Return the history a reference is looked up in, and the rest of the reference.

    >>> split_reference("git:HEAD~1"), split_reference("v1")
    ((<HistorySource.GIT: 'git'>, 'HEAD~1'), (<HistorySource.SNAPSHOTS: 'snapshots'>, 'v1'))
    """
    kind, colon, rest = reference.partition(":")
    if colon and kind == "git":
        return HistorySource.GIT, rest
    return HistorySource.SNAPSHOTS, rest if colon and kind == "snapshot" else reference


def quarantine_of(side: Side) -> Quarantine:
    """Return the quarantine of a side: on disk that of the bank its path lies in.

    Raises:
        BankFormatError: a line is no entry.
        BankPathError: the file cannot be read.
    """
    if isinstance(side, PathSide):
        root = find_quarantine_root(side.path)
        return load_quarantine(root) if root is not None else Quarantine()
    data = side.read_bytes(f"{FOLDER}/{FILE}")
    return parse_quarantine(data or b"", Path(side.label, FOLDER, FILE))
