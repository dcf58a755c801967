"""A git revision as a side."""

from __future__ import annotations

import os
from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.storage.git.program import find_work_tree, get_commit, iter_blobs, read_blobs
from aoebank.storage.sides.side import SideKind, StoredSide

_FILE_MODES = ("100644", "100755")  # a link in a revision leads nowhere here


def open_git_side(text: str, *, beside: Path, cwd: Path) -> StoredSide:
    """Return the bank file or tree at a revision.

    Args:
        text: `REV` or `REV:PATH`.
        beside: The path meant when `text` has none.

    Raises:
        HistoryError: no work tree here, no such revision, or no such path in it.
    """
    revision, colon, path = text.partition(":")
    near = cwd if colon or not beside.exists() else beside
    top = find_work_tree(near)
    if top is None:
        raise HistoryError(
            "not in a git work tree",
            where=f"git:{text}",
            got=str(near),
            hint="cd into the work tree, or name the other side by its path in it",
        )
    commit = get_commit(revision, cwd=top)
    inside = _from_top(path, top=top, cwd=cwd) if colon else _below(beside, top)
    blobs = {
        blob.path: blob.name
        for blob in iter_blobs(commit, cwd=top, path=inside)
        if blob.mode in _FILE_MODES
    }
    if not blobs and inside:
        raise HistoryError(
            "no such path in this revision",
            where=f"git:{revision}",
            got=inside,
            hint=f"git -C {top} ls-tree -r --name-only {revision}",
        )
    return _make_side(text, revision, inside, blobs, top)


def _make_side(
    text: str, revision: str, inside: str, blobs: dict[str, str], top: Path
) -> StoredSide:
    is_file = inside in blobs
    folder = inside.rpartition("/")[0] if is_file else inside
    start = len(folder) + 1 if folder else 0
    contents = {path[start:]: name for path, name in blobs.items()}
    if is_file:
        contents |= _side_car(inside, revision, top)
    return StoredSide(
        label=f"git:{text}",
        kind=SideKind.GIT,
        is_tree=not is_file,
        place=f"git:{revision}:{folder or '.'}",
        contents=contents,
        read=lambda name: next(read_blobs([name], cwd=top)),
    )


def _side_car(inside: str, revision: str, top: Path) -> dict[str, str]:
    from aoebank.formats.provenance import SUFFIX

    found = iter_blobs(revision, cwd=top, path=f"{inside}{SUFFIX}")
    return {blob.path.rpartition("/")[2]: blob.name for blob in found}


def _from_top(path: str, *, top: Path, cwd: Path) -> str:
    is_relative = path in (".", "..") or path.startswith(("./", "../"))
    return _below(cwd / path, top) if is_relative else path.strip("/")


def _below(path: Path, top: Path) -> str:
    """Return a path from the top of the work tree; the file may be gone from disk."""
    real = Path(os.path.realpath(path))
    try:
        inside = real.relative_to(os.path.realpath(top)).as_posix()
    except ValueError as error:
        raise HistoryError("outside of the work tree", where=str(path), got=str(top)) from error
    return "" if inside == "." else inside
