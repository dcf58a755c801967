"""How a side is written.

- `PATH`: a bank file or a tree;
- `git:REV`: the bank as it was at a revision; which path is meant comes from the other side
  if that one is in the work tree, else it is the current directory;
- `git:REV:PATH`: as git writes it, from the top of the work tree, or `./PATH` from here;
- `snapshot:REF`: a snapshot or a tag of the bank the environment names;
- `snapshot:REF:ROOT`: the same of the bank at ROOT.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aoebank.errors import BankNotFoundError
from aoebank.storage.sides.git_side import open_git_side
from aoebank.storage.sides.side import PathSide, Side
from aoebank.storage.sides.snapshot_side import open_snapshot_side


def open_side(text: str, *, beside: str = "", cwd: Path, default_root: Callable[[], Path]) -> Side:
    """Return the side a person wrote.

    Args:
        beside: How the other side was written; decides the path of a `git:REV`.
        default_root: Gives the bank of a `snapshot:REF` without a root.

    Raises:
        BankNotFoundError: the path does not exist.
        HistoryError: the revision, snapshot or tag does not, or nothing of that path is in it.
    """
    kind, _, rest = text.partition(":")
    if kind == "git" and rest:
        other = "" if is_stored(beside) else beside
        return open_git_side(rest, beside=cwd / other, cwd=cwd)
    if kind == "snapshot" and rest:
        reference, _, root = rest.partition(":")
        return open_snapshot_side(reference, root=cwd / root if root else default_root())
    path = cwd / text
    if not path.exists():
        raise BankNotFoundError(
            "no such file or directory",
            path=Path(text),
            expected="a path, git:REV, git:REV:PATH, snapshot:REF or snapshot:REF:ROOT",
        )
    return PathSide(label=text, path=path)


def is_stored(text: str) -> bool:
    """Return whether a side is written as one of a store of versions, not as a path."""
    return text.startswith(("git:", "snapshot:"))
